package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/hub/store"
)

// The verdicts on a cluster, of OpenCluster.Verdict; see package lineage.
const (
	VerdictFailed      = string(lineage.Failed)
	VerdictUnknown     = string(lineage.Unknown)
	VerdictWaiting     = string(lineage.Waiting)
	VerdictProgressing = string(lineage.Progressing)
)

// Rollout implements Answers.
//
// A cluster is compliant with a commit if it is not silent, its state is compliant, and it runs a complete release of its
// type that has the commit; package lineage has the rule.
//
// Done needs one cluster at least, and that no type is incomplete at the commit; its newest record counts. All clusters of
// the environment count, those of types and rings without a release at the commit too, but for those of which no reports are
// expected.
func (v *View) Rollout(ctx context.Context, environment, commit string, asked RolloutQuery) (Rollout, error) {
	q, limit := asked.Query, asked.Limit
	q.Environments, q.Commit = []string{environment}, ""
	q.Limit, q.Sort, q.After = 0, "", ""
	if err := checkRollout(q, asked); err != nil {
		return Rollout{}, err
	}
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return Rollout{}, err
	}
	defer done()
	chosen, err := m.choose(ctx, q)
	if err != nil {
		return Rollout{}, err
	}
	if len(asked.Rings) > 0 {
		chosen.ring = m.oneOf(asked.Rings...)
	}
	targets, whole, err := m.published.targetsOf(q, commit)
	if err != nil {
		return Rollout{}, err
	}
	out := rolloutCount{m: m, asked: asked, targets: targets, types: map[string]*TypeRollout{}, rings: map[string]*RingRollout{}, places: map[[3]uint32]rolloutPlace{}, having: map[[3]uint32]bool{}, reaching: map[[3]uint32]bool{}}
	if err := out.readFailures(ctx, environment); err != nil {
		return Rollout{}, err
	}
	for r := range chosen.clusters() {
		out.add(r)
	}
	if out.all.Clusters == 0 {
		if err := m.checkNames(ctx, q); err != nil {
			return Rollout{}, err
		}
	}
	if v.seesAllOf(q) && len(asked.Rings) == 0 {
		out.addTypes(q.Type)
	}
	answer := Rollout{
		AsOf: m.asOf, ReadAt: m.readAt, Environment: environment, Commit: cmp.Or(whole, commit), Reached: out.reached,
		NotReporting: out.notReporting, Later: out.later, Quarantined: out.quarantined, Failures: out.failures, FailuresSince: out.failuresSince,
		OldestProofSeconds: out.oldest, Types: out.typeRows(), Rings: out.ringRows(), Followed: m.published.follows(q), Published: len(targets) > 0,
	}
	answer.count(out.all)
	answer.conclude(targets)
	answer.Open, err = out.openRows(ctx, limit)
	return answer, err
}

// checkRollout returns an error for conditions that would leave out the clusters that are not as they should be.
func checkRollout(q Query, asked RolloutQuery) error {
	switch {
	case len(asked.Rings) > 0 && q.Ring != "":
		return fmt.Errorf("ring and rings: %w: give one of them", store.ErrInvalid)
	case !asked.FailuresSince.IsZero() && !q.AsOf.IsZero():
		return fmt.Errorf("failuresSince and asOf: %w: give one of them", store.ErrInvalid)
	case asked.MaxReportAge < 0:
		return fmt.Errorf("maxReportAge %s: %w: must not be negative", asked.MaxReportAge, store.ErrInvalid)
	}
	for name, given := range map[string]bool{
		"state": len(q.State) > 0, "relation": len(q.Relation) > 0, "silentFor": q.SilentFor != 0, "release": q.Release != "", "version": q.Version != "",
		"config": q.ConfigDigest != "", "content": q.Content != "", "image": q.Image != "",
	} {
		if given {
			return fmt.Errorf("%s: %w: a rollout counts all clusters, whatever they run", name, store.ErrInvalid)
		}
	}
	return nil
}

// seesAllOf reports whether a view has all clusters of the types that a query chooses.
func (v *View) seesAllOf(q Query) bool {
	only := Query{Environments: q.Environments, Platform: q.Platform, Type: q.Type, AsOf: q.AsOf}
	return len(v.scope.workspaces) == 0 && len(v.scope.selector) == 0 && fmt.Sprint(q) == fmt.Sprint(only)
}

// targetsOf returns what a commit is for each environment that has it, and the whole commit; none if it was not published. The error
// wraps store.ErrInvalid.
func (p *published) targetsOf(q Query, wanted string) (map[*environmentIndex]*lineage.Commit, string, error) {
	holds, err := commitTest(wanted)
	if err != nil {
		return nil, "", err
	}
	targets, whole := map[*environmentIndex]*lineage.Commit{}, map[string]bool{}
	for _, e := range p.index.named[q.onlyEnvironment()] {
		if q.Platform != "" && e.Stream.Platform != q.Platform {
			continue
		}
		found, names := e.Find(holds)
		if found != nil {
			targets[e] = found
		}
		for _, name := range names {
			whole[name] = true
		}
	}
	all := slices.Sorted(maps.Keys(whole))
	switch len(all) {
	case 0:
		return nil, "", nil
	case 1:
		return targets, all[0], nil
	}
	return nil, "", fmt.Errorf("commit %q: %w: ambiguous: matches several, such as %s and %s", store.Plain(wanted), store.ErrInvalid, all[0], all[1])
}

// follows reports whether there are records of the environment, and of the platform if that is given.
func (p *published) follows(q Query) bool {
	return slices.ContainsFunc(p.index.named[q.onlyEnvironment()], func(e *environmentIndex) bool {
		return (q.Platform == "" || e.Stream.Platform == q.Platform) && len(e.records) > 0
	})
}

// rolloutCount counts the clusters of a rollout.
type rolloutCount struct {
	m       *moment
	asked   RolloutQuery
	targets map[*environmentIndex]*lineage.Commit
	all     RolloutCounts
	oldest  int64
	types   map[string]*TypeRollout
	rings   map[string]*RingRollout
	open    []openRow

	notReporting, later, quarantined int

	failures      int64
	failuresSince time.Time
	failuresOf    map[string]int64 // by uid

	// places are by the handles of platform, environment and type, having by platform, type and release: a fleet has few.
	places map[[3]uint32]rolloutPlace
	having map[[3]uint32]bool
	// reaching is by platform, type and ring.
	reaching map[[3]uint32]bool
	reached  RolloutCounts
}

// rolloutPlace is the environment of clusters, and what the commit is for it. Both may be nil.
type rolloutPlace struct {
	environment *environmentIndex
	target      *lineage.Commit
}

type openRow struct {
	cluster *cluster
	verdict lineage.Verdict
	seen    int64
}

func (c *rolloutCount) add(r *row) {
	at := c.placeOf(r)
	if at.target == nil && len(c.targets) > 0 && at.environment != nil {
		return // of another platform, which has no such commit
	}
	if before := c.asked.RegisteredBefore; !before.IsZero() && r.added >= store.Millis(before) {
		c.later++
		return
	}
	if !r.reports() {
		c.notReporting++
		return
	}
	verdict := c.verdict(r, at.target)
	c.all.add(verdict, 1)
	c.failures += c.failuresOf[r.uid]
	if c.quarantines(r, at.target) {
		c.quarantined++
	}
	c.typeRow(c.m.texts[r.typ]).add(verdict, 1)
	ring := c.ringRow(c.m.texts[r.ring])
	ring.add(verdict, 1)
	if c.reaches(r, at.target) {
		ring.Reached = true
		c.reached.add(verdict, 1)
	}
	if verdict == lineage.Compliant {
		c.oldest = max(c.oldest, r.age())
		return
	}
	c.open = append(c.open, openRow{r.cluster, verdict, r.lastSeen})
}

// count sets the counts of all clusters.
func (a *Rollout) count(n RolloutCounts) {
	a.Clusters, a.Compliant, a.Progressing, a.FailedCount, a.Waiting, a.Unknown = n.Clusters, n.Compliant, n.Progressing, n.Failed, n.Waiting, n.Unknown
}

func (n *RolloutCounts) add(verdict lineage.Verdict, by int) {
	n.Clusters += by
	switch verdict {
	case lineage.Compliant:
		n.Compliant += by
	case lineage.Progressing:
		n.Progressing += by
	case lineage.Failed:
		n.Failed += by
	case lineage.Waiting:
		n.Waiting += by
	case lineage.Unknown:
		n.Unknown += by
	}
}

// reaches reports whether a commit has reached the ring of a cluster: it has not if the cluster should run a release without it
// while the newest release of its type at the commit has it.
func (c *rolloutCount) reaches(r *row, t *lineage.Commit) bool {
	desired := r.desired()
	if t == nil || desired == nil || desired.Release == nil {
		return true
	}
	ring := [3]uint32{r.platform, r.typ, r.ring}
	reaches, known := c.reaching[ring]
	if !known {
		typ := c.m.texts[r.typ]
		reaches = t.Has(typ, desired.Release.Digest) || !t.Has(typ, t.NewestOf(t.Last(), typ))
		c.reaching[ring] = reaches
	}
	return reaches
}

// readFailures reads the failures that the view sees, if they were asked for.
func (c *rolloutCount) readFailures(ctx context.Context, environment string) (err error) {
	if c.asked.FailuresSince.IsZero() {
		return nil
	}
	c.failuresOf = map[string]int64{}
	workspaces := c.m.view.scope.workspaces
	c.failuresSince, err = c.m.view.fleet.source.Failures(ctx, c.asked.FailuresSince, store.Scope{Environment: environment}, func(f store.Failures) error {
		if len(workspaces) == 0 || slices.Contains(workspaces, f.Workspace) {
			c.failuresOf[f.UID] += f.Count
		}
		return nil
	})
	return err
}

func (c *rolloutCount) placeOf(r *row) rolloutPlace {
	handles := [3]uint32{r.platform, r.environment, r.typ}
	at, known := c.places[handles]
	if !known {
		at.environment = c.m.published.index.environmentOf(r.place())
		at.target = c.targets[at.environment]
		c.places[handles] = at
	}
	return at
}

// place returns the part of a cluster's identity that says what it should run.
func (r *row) place() store.Identity {
	t := r.m.texts
	return store.Identity{Platform: t[r.platform], Environment: t[r.environment], Type: t[r.typ], Ring: t[r.ring]}
}

// has reports whether a release has the commit for clusters of the row's type and place, and is complete. For a gate of a ring it also has the
// content of the ring before.
func (c *rolloutCount) has(t *lineage.Commit, r *row, release uint32) bool {
	if t == nil || release == 0 {
		return false
	}
	handles := [3]uint32{r.platform, r.typ, release}
	has, known := c.having[handles]
	if !known {
		typ, d := c.m.texts[r.typ], c.m.snapshot.releases[release].Digest
		has = t.Has(typ, d) && (len(c.asked.Rings) == 0 || t.InRing(typ, c.asked.Rings[len(c.asked.Rings)-1])(d))
		c.having[handles] = has
	}
	return has
}

// quarantines reports whether a cluster's newest report, however old, says that a release with the commit is in quarantine
// there.
func (c *rolloutCount) quarantines(r *row, t *lineage.Commit) bool {
	return r.reported && c.m.texts[r.reason] == reasonQuarantined && c.has(t, r, r.offered)
}

// reasonQuarantined is the agent's reason if it has given up the newest release that it was offered.
const reasonQuarantined = "Quarantined"

// unheard reports whether a cluster has been silent for too long to be known.
func (c *rolloutCount) unheard(r *row) bool {
	if c.asked.MaxReportAge == 0 {
		return r.silent()
	}
	return !r.reported || r.m.at.UnixMilli()-r.lastSeen > c.asked.MaxReportAge.Milliseconds()
}

// verdict is how far a cluster is with a commit. A nil commit was not published.
func (c *rolloutCount) verdict(r *row, t *lineage.Commit) lineage.Verdict {
	if c.unheard(r) {
		return lineage.Unknown
	}
	return lineage.VerdictOf(bundle.State(r.m.texts[r.reportedState]), c.has(t, r, r.observed), c.has(t, r, r.offered))
}

func (c *rolloutCount) typeRow(name string) *TypeRollout {
	row := c.types[name]
	if row == nil {
		row = &TypeRollout{Type: name}
		for _, t := range c.targets {
			if r := c.m.published.releases[t.NewestOf(t.Last(), name)]; r != nil {
				row.Release = bundle.ReleaseName(r.Number, r.Digest)
			}
			row.Incomplete = row.Incomplete || slices.Contains(t.Last().Incomplete, name)
		}
		c.types[name] = row
	}
	return row
}

// addTypes adds the types of the commit that have no clusters; only that of a name, if it is not empty.
func (c *rolloutCount) addTypes(only string) {
	for _, t := range c.targets {
		for _, name := range append(t.Last().Types(), t.Last().Incomplete...) {
			if only == "" || only == name {
				c.typeRow(name)
			}
		}
	}
}

func (c *rolloutCount) typeRows() []TypeRollout {
	rows := make([]TypeRollout, 0, len(c.types))
	for _, name := range slices.Sorted(maps.Keys(c.types)) {
		rows = append(rows, *c.types[name])
	}
	return rows
}

func (c *rolloutCount) ringRow(name string) *RingRollout {
	if c.rings[name] == nil {
		c.rings[name] = &RingRollout{Ring: name}
	}
	return c.rings[name]
}

// ringRows returns the rings in the order that the commit's records give, then the others by name, and clusters without one last.
func (c *rolloutCount) ringRows() (rows []RingRollout) {
	if _, without := c.rings[""]; len(c.rings) == 0 || without && len(c.rings) == 1 {
		return nil
	}
	var names []string
	for _, t := range c.targets {
		names = append(names, t.Last().RingOrder...)
	}
	if len(c.targets) > 1 {
		names = nil // of several platforms
	}
	place := func(name string) int {
		switch i := slices.Index(names, name); {
		case name == "":
			return len(names) + 1
		case i < 0:
			return len(names)
		default:
			return i
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.rings), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
	}) {
		rows = append(rows, *c.rings[name])
	}
	return rows
}

// conclude sets Done, Failed and Why.
func (a *Rollout) conclude(targets map[*environmentIndex]*lineage.Commit) {
	var incomplete []string
	for _, t := range a.Types {
		if t.Incomplete {
			incomplete = append(incomplete, t.Type)
		}
	}
	past := false
	for _, t := range targets {
		past = past || t.IsPast()
	}
	var why []string
	add := func(given bool, format string, args ...any) {
		if given {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	add(!a.Followed, "the hub does not follow what is published in environment %s", a.Environment)
	add(a.Followed && !a.Published, "the commit is not published in environment %s", a.Environment)
	add(len(incomplete) > 0, "incomplete at the commit: %s", strings.Join(incomplete, ", "))
	add(past, "the environment has gone back to an earlier commit")
	add(a.Clusters == 0 && a.NotReporting+a.Later == 0, "no cluster is registered for it")
	add(a.Clusters == 0 && a.NotReporting+a.Later > 0, "none of its clusters counts: %d registered later, %d that do not report", a.Later, a.NotReporting)
	add(a.FailedCount > 0, "%d failed", a.FailedCount)
	add(a.Waiting > 0, "%d run another release", a.Waiting)
	add(a.Progressing > 0, "%d in progress", a.Progressing)
	add(a.Unknown > 0, "%d silent", a.Unknown)
	a.Why = strings.Join(why, "; ")
	a.Done = len(why) == 0
	a.Failed = a.FailedCount > 0 || len(incomplete) > 0 || past
}

// openRows returns the clusters that are not compliant, the worst and the longest silent first, at most limit; zero means all.
func (c *rolloutCount) openRows(ctx context.Context, limit int) ([]OpenCluster, error) {
	slices.SortStableFunc(c.open, func(a, b openRow) int {
		return cmp.Or(a.verdict.Compare(b.verdict), cmp.Compare(a.seen, b.seen))
	})
	if limit > 0 && len(c.open) > limit {
		c.open = c.open[:limit]
	}
	rows, from := make([]Cluster, 0, len(c.open)), make([]*cluster, 0, len(c.open))
	for _, o := range c.open {
		r, _ := c.m.see(o.cluster)
		rows, from = append(rows, r.status()), append(from, o.cluster)
	}
	if err := c.m.fillClusters(ctx, from, rows); err != nil {
		return nil, err
	}
	open := make([]OpenCluster, 0, len(rows))
	for i, r := range rows {
		one := OpenCluster{
			UID: r.UID, Cluster: r.Name, Type: r.Type, Ring: r.Ring, State: r.State, LastState: r.LastState, Reason: r.Reason, Message: r.Message,
			Verdict: string(c.open[i].verdict), LastSeen: r.LastSeen, Via: r.Proof.Via,
		}
		if r.Observed != nil {
			one.Release = bundle.ReleaseName(r.Observed.Number, r.Observed.Digest)
		}
		open = append(open, one)
	}
	return open, nil
}
