package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// What a HistoryRow says has changed.
const (
	ChangedState   = "state"
	ChangedVersion = "version"
	ChangedConfig  = "config"
	ChangedContent = "content"
	ChangedRelease = "release"
	Added          = "added"
	Removed        = "removed"
)

const (
	// changesAtOnce is how many changes are read at once. maxChangesRead and maxChangePages bound those that are read, and how
	// often, for one page of an answer: a query that chooses few of many changes is continued by who asks.
	changesAtOnce  = 1000
	maxChangesRead = 20_000
	maxChangePages = 100
)

// History implements Answers. It is about all that the query chooses, also of clusters that were retired. Conditions on
// versions, commits, digests and releases hold if one side of a change has them, those on states if the later one has.
// A view of some workspaces sees no changes of agents as a whole. The page may have fewer rows than the limit although there
// is a Next.
func (v *View) History(ctx context.Context, q HistoryQuery) (History, error) {
	test, err := v.changeTest(q.Query)
	if err != nil {
		return History{}, err
	}
	f := store.TransitionFilter{From: q.From, Until: q.Until, After: q.After, Limit: changesAtOnce, Both: !test.ofAssignments()}
	f.Scope = store.Scope{Environment: q.onlyEnvironment(), Type: q.Type, Workspace: q.Workspace, Workload: q.Workload, WithRetired: true}
	if len(v.scope.environments) == 1 && f.Scope.Environment == "" {
		f.Scope.Environment = v.scope.environments[0]
	}
	if q.Cluster != "" {
		who, err := v.clusterOf(ctx, q.Cluster)
		if err != nil {
			return History{}, err
		}
		f.Scope.UIDs = []string{who.UID}
	}
	names := v.fleet.newNames()
	list := History{Changes: []HistoryRow{}}
	for pages, looked := 0, 0; q.Limit == 0 || pages < maxChangePages && looked < maxChangesRead; pages++ {
		if q.Limit > 0 {
			f.Limit = min(changesAtOnce, q.Limit-len(list.Changes))
		}
		page, err := v.fleet.source.Transitions(ctx, f)
		if err != nil {
			return History{}, err
		}
		for i := range page.Transitions {
			row, who, err := names.row(ctx, &page.Transitions[i])
			if err != nil {
				return History{}, err
			}
			if test.seen(who, &row) && test.cluster(who, row.Environment, row.Type) && test.change(&row) {
				list.Changes = append(list.Changes, row)
			}
		}
		looked += len(page.Transitions)
		list.Next, f.After = page.Next, page.Next
		if page.Next == "" || q.Limit > 0 && len(list.Changes) >= q.Limit {
			break
		}
	}
	if len(list.Changes) == 0 && q.After == "" && list.Next == "" {
		return list, v.checkNames(ctx, q.Query)
	}
	return list, nil
}

// checkNames returns an *UnknownNameError if q has a name that nothing has now.
func (v *View) checkNames(ctx context.Context, q Query) error {
	m, done, err := v.moment(ctx, Query{}, false)
	if err != nil {
		return err
	}
	defer done()
	return m.checkNames(ctx, q)
}

// clusterOf returns the cluster of a name or uid that the view sees, registered or retired, a name before a uid and a
// registered one before a retired one. The error wraps store.ErrUnknownCluster.
func (v *View) clusterOf(ctx context.Context, nameOrUID string) (subject, error) {
	m, done, err := v.moment(ctx, Query{}, false)
	if err != nil {
		return subject{}, err
	}
	defer done()
	if c := m.find(nameOrUID); c != nil {
		return subjectOf(m.snapshot, c), nil
	}
	unknown := fmt.Errorf("cluster %q: %w", store.Plain(store.Clip(nameOrUID)), store.ErrUnknownCluster)
	if len(v.scope.workspaces) > 0 { // whether a retired cluster had one of them is not known
		return subject{}, unknown
	}
	var found subject
	err = v.fleet.source.Scan(ctx, store.Scope{WithRetired: true, WithoutDeployments: true}, func(s store.ClusterState) error {
		if s.RetiredAt == nil || s.Name != nameOrUID && s.UID != nameOrUID {
			return nil
		}
		who := retired(s)
		if v.scope.has(who, s.Environment) && (!found.known || s.Name == nameOrUID) {
			found = who
		}
		return nil
	})
	if err == nil && !found.known {
		err = unknown
	}
	return found, err
}

// subject is the cluster of a change, as far as it is known.
type subject struct {
	store.Identity
	// known is false for a cluster that is neither registered nor retired.
	known bool
}

func retired(s store.ClusterState) subject {
	named := store.ClusterStatus{Identity: s.Identity}
	if s.Claims.UID != "" {
		named.Compare(s.Claims)
	}
	return subject{named.Identity, true}
}

func subjectOf(s *snapshot, c *cluster) subject {
	r := row{cluster: c, m: &moment{snapshot: s}}
	return subject{r.identity(), true}
}

// subject returns the cluster of this uid.
func (f *Fleet) subject(ctx context.Context, uid string) (subject, error) {
	f.mu.RLock()
	c := f.byUID[uid]
	var s *snapshot
	if c != nil {
		s = f.tables.snapshot(nil, f.published)
	}
	f.mu.RUnlock()
	if c != nil {
		return subjectOf(s, c), nil
	}
	who := subject{Identity: store.Identity{UID: uid}}
	err := f.source.Scan(ctx, store.Scope{UIDs: []string{uid}, WithRetired: true, WithoutDeployments: true}, func(s store.ClusterState) error {
		who = retired(s)
		return nil
	})
	return who, err
}

// has reports whether a cluster is in the scope, but for its workspaces. One of which nothing is known has no labels.
func (s scope) has(who subject, environment string) bool {
	if len(s.environments) > 0 && !slices.Contains(s.environments, environment) {
		return false
	}
	return len(s.selector) == 0 || who.known && s.selector.holds(who.Labels)
}

// holds reports whether labels meet the selector.
func (s selector) holds(all map[string]string) bool {
	for i := range s {
		if !s[i].Matches(labelSet(all)) {
			return false
		}
	}
	return true
}

// labelSet is labels as a selector wants them.
type labelSet map[string]string

// Has, Get and Lookup implement labels.Labels.
func (l labelSet) Has(key string) bool { _, ok := l[key]; return ok }

// Get implements labels.Labels.
func (l labelSet) Get(key string) string { return l[key] }

// Lookup implements labels.Labels.
func (l labelSet) Lookup(key string) (string, bool) { v, ok := l[key]; return v, ok }

// changeTest chooses changes, for a history and for events.
type changeTest struct {
	Query
	scope    scope
	selector selector
	digests  []func(HistoryPoint) bool
}

// changeTest returns the test of q. The error wraps store.ErrInvalid: for values that are not acceptable, and for conditions
// that hold for a present alone.
func (v *View) changeTest(q Query) (*changeTest, error) {
	t := &changeTest{Query: q, scope: v.scope}
	var err error
	if t.selector, err = parseSelector(q.Selector); err != nil {
		return nil, err
	}
	words := choice{m: &moment{snapshot: &snapshot{}}, q: q}
	if err := words.checkWords(); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name string
		set  bool
	}{
		{"image", q.Image != ""},
		{"relation", len(q.Relation) > 0},
		{"adapter", q.Adapter != ""},
		{"silentFor", q.SilentFor > 0},
		{"asOf", !q.AsOf.IsZero()},
		{"sort", q.Sort != ""},
	} {
		if c.set {
			return nil, invalid("%s does not choose among changes", c.name)
		}
	}
	for _, d := range []struct {
		name   string
		wanted digest.Digest
		of     func(HistoryPoint) digest.Digest
	}{
		{"config", q.ConfigDigest, func(p HistoryPoint) digest.Digest { return p.ConfigDigest }},
		{"content", q.Content, func(p HistoryPoint) digest.Digest { return p.Content }},
		{"release", q.Release, func(p HistoryPoint) digest.Digest { return p.Release }},
	} {
		if d.wanted == "" {
			continue
		}
		holds, err := digestTest(d.name, string(d.wanted))
		if err != nil {
			return nil, err
		}
		t.digests = append(t.digests, func(p HistoryPoint) bool { return holds(string(d.of(p))) })
	}
	if q.Commit != "" {
		holds, err := commitTest(q.Commit)
		if err != nil {
			return nil, err
		}
		t.digests = append(t.digests, func(p HistoryPoint) bool { return holds(p.BaseCommit) || holds(p.EnvironmentCommit) })
	}
	return t, nil
}

// ofAssignments reports whether only changes of assignments can be chosen.
func (t *changeTest) ofAssignments() bool {
	return t.Workspace+t.Application+t.Workload+t.Target+t.Version+string(t.ConfigDigest)+string(t.Content) != "" || len(t.scope.workspaces) > 0
}

// seen reports whether the view sees the change.
func (t *changeTest) seen(who subject, c *HistoryRow) bool {
	return t.scope.has(who, c.Environment) && (len(t.scope.workspaces) == 0 || slices.Contains(t.scope.workspaces, c.Workspace))
}

// cluster reports whether the conditions on clusters hold.
func (t *changeTest) cluster(who subject, environment, typ string) bool {
	is := func(wanted, value string) bool { return wanted == "" || wanted == value }
	return t.ofEnvironment(environment) && is(t.Type, typ) && is(t.Platform, who.Platform) && is(t.Ring, who.Ring) &&
		(t.Cluster == "" || t.Cluster == who.Name || t.Cluster == who.UID) &&
		(len(t.selector) == 0 || who.known && t.selector.holds(who.Labels))
}

// change reports whether the conditions on the change itself hold.
func (t *changeTest) change(c *HistoryRow) bool {
	is := func(wanted, value string) bool { return wanted == "" || wanted == value }
	if !is(t.Workspace, c.Workspace) || !is(t.Application, c.Application) || !is(t.Workload, c.Workload) || !is(t.Target, c.Target) ||
		len(t.State) > 0 && !slices.Contains(t.State, c.To.State) || t.Version != "" && t.Version != c.From.Version && t.Version != c.To.Version {
		return false
	}
	return !slices.ContainsFunc(t.digests, func(holds func(HistoryPoint) bool) bool { return !holds(c.From) && !holds(c.To) })
}

// names completes changes for people, for the length of one answer.
type names struct {
	fleet     *Fleet
	published *published
	subjects  map[string]subject
}

func (f *Fleet) newNames() *names {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return &names{f, f.published, map[string]subject{}}
}

// row returns a change as people read it, and its cluster.
func (n *names) row(ctx context.Context, c *store.Change) (HistoryRow, subject, error) {
	who, known := n.subjects[c.UID]
	if !known {
		var err error
		if who, err = n.fleet.subject(ctx, c.UID); err != nil {
			return HistoryRow{}, who, err
		}
		n.subjects[c.UID] = who
	}
	at := c.Proof.OccurredAt
	if !c.Proof.ReceivedAt.IsZero() && at.After(c.Proof.ReceivedAt) {
		at = c.Proof.ReceivedAt
	}
	r := HistoryRow{
		At: at, UID: c.UID, Cluster: cmp.Or(c.Cluster, who.Name), Environment: cmp.Or(c.Environment, who.Environment), Type: cmp.Or(c.Type, who.Type),
		Assignment: c.Assignment, Workspace: c.Workspace, Application: c.Application, Workload: c.Workload, Target: c.Target,
		From: n.point(c.From), To: n.point(c.To), Rollback: c.Returns, ReceivedAt: c.Proof.ReceivedAt, Via: c.Proof.Via, Report: c.Proof.Report,
	}
	r.What = whatChanged(c)
	return r, who, nil
}

// whatChanged names what differs between the sides of a change, the most important first.
func whatChanged(c *store.Change) []string {
	switch {
	case c.To.State == bundle.Removed:
		return []string{Removed}
	case c.From == store.Point{} || c.From.State == bundle.Removed:
		return []string{Added}
	}
	what := []string{}
	for _, v := range []struct {
		name string
		same bool
	}{
		{ChangedVersion, c.From.Version == c.To.Version},
		{ChangedConfig, c.From.ConfigDigest == c.To.ConfigDigest},
		{ChangedContent, c.From.Content == c.To.Content && c.From.Revision == c.To.Revision},
		{ChangedRelease, c.From.Release == c.To.Release},
		{ChangedState, c.From.State == c.To.State && c.From.Reason == c.To.Reason && c.From.Failures == c.To.Failures},
	} {
		if !v.same {
			what = append(what, v.name)
		}
	}
	return what
}

func (n *names) point(p store.Point) HistoryPoint {
	h := HistoryPoint{
		State: p.State, Reason: p.Reason, Version: p.Version, ConfigDigest: p.ConfigDigest, Content: p.Content,
		Release: p.Release, BaseCommit: p.BaseCommit, EnvironmentCommit: p.EnvironmentCommit,
	}
	if p.Release == "" {
		return h
	}
	var number int64
	if r := n.published.releases[p.Release]; r != nil {
		number, h.BaseCommit, h.EnvironmentCommit = r.Number, r.BaseCommit, r.EnvironmentCommit
	}
	h.ReleaseName = bundle.ReleaseName(number, p.Release)
	return h
}
