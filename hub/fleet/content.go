package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/hub/store"
)

// ContentQuery asks how far clusters are with what an environment record assigns to them, workload by workload.
type ContentQuery struct {
	// Record is the digest of the record.
	Record digest.Digest
	// Workloads are those that are counted; see WorkloadsOf.
	Workloads []AskedWorkload
	// MaxReportAge is as in RolloutQuery.
	MaxReportAge time.Duration
	// Required is a label selector of the clusters that WorkloadCount.Required counts. Empty selects all.
	Required string
}

// AskedWorkload is a workload that a ring of a record has, or had.
type AskedWorkload struct {
	ledger.Key
	// Since is the time from which the ring has the revision, or is without the workload. Clusters that were registered then or later do
	// not count.
	Since time.Time `json:"since"`
	// Removed are the names of its last assignments by cluster type, if the ring has it no more: then a cluster is compliant that does
	// not report them.
	Removed map[string][]string `json:"removed,omitempty"`
}

// WorkloadsOf returns the workloads that a record's ledger has in a ring, and those that it has removed from it.
func WorkloadsOf(l *ledger.Ledger, ring string) []AskedWorkload {
	all := []AskedWorkload{}
	for i := range l.Workloads {
		if r, in := l.Workloads[i].In(ring); r != nil {
			all = append(all, AskedWorkload{Key: l.Workloads[i].Key, Since: in.Since})
		}
	}
	for _, r := range l.Removed {
		if i := slices.IndexFunc(r.In, func(in ledger.Stay) bool { return in.Ring == ring }); i >= 0 && len(r.Assignments) > 0 {
			all = append(all, AskedWorkload{r.Key, r.In[i].Since, r.Assignments})
		}
	}
	return all
}

// Content is how far the clusters of an environment's last ring are with the workloads of a record.
type Content struct {
	AsOf   time.Time `json:"asOf,omitzero"`
	ReadAt time.Time `json:"readAt,omitzero"` // see Clusters
	// Known is true if the record and all releases of it for the ring are known. Else nothing is counted.
	Known bool `json:"known"`
	// Ring is the last one; empty if the record has no rings.
	Ring string `json:"ring,omitempty"`
	// Workloads are those that were asked about, in that order.
	Workloads []WorkloadCount `json:"workloads"`
}

// WorkloadCount is how far clusters are with a workload. Clusters to which the record does not assign it do not count.
type WorkloadCount struct {
	ledger.Key
	// Removed is true if the ring has it no more.
	Removed bool `json:"removed,omitempty"`
	ContentCount
	// Required is the same of the clusters that ContentQuery.Required selects.
	Required ContentCount `json:"required"`
	// Failing names failed clusters, sorted, at most five.
	Failing []string `json:"failing,omitempty"`
	// LastSeen is the newest report of an unknown cluster; zero if none of them has reported.
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// ContentCount counts clusters.
type ContentCount struct {
	// Clusters are those that were registered before the ring got the revision, but for NotReporting.
	RolloutCounts
	// Quarantined counts clusters with a release in quarantine that do not have what the record assigns, however old their report is.
	Quarantined  int `json:"quarantined"`
	NotReporting int `json:"notReporting"`
	Later        int `json:"later"`
}

const (
	// maxFailing bounds WorkloadCount.Failing.
	maxFailing = 5
	// maxAsked bounds ContentQuery.Workloads.
	maxAsked = ledger.MaxWorkloads + ledger.MaxRemoved
)

// Content implements Answers.
//
// A cluster is judged by its items of the workload alone, whatever else fails there: it is compliant if each is compliant with the
// content that the record's release has for it. If the release says more of the assignment than its content, such as a model, the
// cluster must also run a release with that tree. A failed item of that content makes it failed, an item that is not there, or of
// other content, waiting. Silence is unknown.
//
// The error wraps store.ErrOutOfScope for a view that does not see all clusters of the environment, with all that they run.
func (v *View) Content(ctx context.Context, environment string, q ContentQuery) (Content, error) {
	s := v.scope
	if len(s.workspaces)+len(s.selector) > 0 || len(s.environments) > 0 && !slices.Contains(s.environments, environment) {
		return Content{}, fmt.Errorf("content of environment %s: %w", store.Plain(store.Clip(environment)), store.ErrOutOfScope)
	}
	if len(q.Workloads) > maxAsked || q.MaxReportAge < 0 {
		return Content{}, fmt.Errorf("content: %w: %d workloads, reports of at most %s: at most %d are counted, and the age must not be negative", store.ErrInvalid, len(q.Workloads), q.MaxReportAge, maxAsked)
	}
	required, err := parseSelector(q.Required)
	if err != nil {
		return Content{}, err
	}
	m, done, err := v.moment(ctx, Query{Environments: []string{environment}}, true)
	if err != nil {
		return Content{}, err
	}
	defer done()
	answer := Content{AsOf: m.asOf, ReadAt: m.readAt, Workloads: []WorkloadCount{}}
	at, record := m.published.recordOf(environment, q.Record)
	if record == nil {
		return answer, nil
	}
	c := contentCounter{m: m, q: q, environment: at, record: record, required: required.on(m.snapshot), types: map[uint32]*typeContent{}}
	if len(record.RingOrder) > 0 {
		c.ring = record.RingOrder[len(record.RingOrder)-1]
	}
	answer.Ring = c.ring
	for _, w := range q.Workloads {
		c.counts, c.before = append(c.counts, WorkloadCount{Key: w.Key, Removed: len(w.Removed) > 0}), append(c.before, store.Millis(w.Since))
	}
	if known, err := c.read(ctx); err != nil || !known {
		return answer, err
	}
	for r := range m.rows() {
		if ctx.Err() != nil {
			return answer, ctx.Err()
		}
		c.add(r)
	}
	c.addOthers()
	answer.Known, answer.Workloads = true, append(answer.Workloads, c.counts...)
	return answer, nil
}

// recordOf returns a record of an environment; nil if it is not known.
func (p *published) recordOf(environment string, d digest.Digest) (*environmentIndex, *store.PublishedRecord) {
	for _, e := range p.index.named[environment] {
		for _, r := range e.records {
			if r.Digest == d {
				return e, r
			}
		}
	}
	return nil, nil
}

// contentCounter counts clusters for each workload of a ring. A cluster reports few of the many workloads of its type: it is counted
// for these, and for the others together with the clusters of its kind.
type contentCounter struct {
	m           *moment
	q           ContentQuery
	environment *environmentIndex
	record      *store.PublishedRecord
	ring        string
	required    *labelMatch
	counts      []WorkloadCount
	before      []int64                 // the time before which clusters have to be registered, for each of counts
	types       map[uint32]*typeContent // by the handle of the type's name
	touched     []int                   // the workloads of which the cluster that is looked at reports something, places in typeContent.workloads
}

// typeContent is what the record's release of the ring has for a cluster type, and what was removed there.
type typeContent struct {
	tree      digest.Digest // the release's content
	workloads []typeWorkload
	// items are those of one workload after another.
	items []contentItem
	// names has the place of each item by the handle of its assignment's name, sorted; but for names that no cluster reports.
	names []itemName
	// earliest is the first of the times before which clusters have to be registered.
	earliest int64
	// clusters counts those that were registered before that, by kind.
	clusters map[clusterKind]int
}

// typeWorkload is a workload of a cluster type.
type typeWorkload struct {
	at         int // the place in contentCounter.counts
	first, end int // of the items
	touched    bool
}

// contentItem is an assignment.
type contentItem struct {
	*contentLine
	place    int         // in typeContent.workloads
	reported *deployment // by the cluster that is looked at; nil for nothing
}

type itemName struct {
	name uint32
	item int
}

// clusterKind is what clusters have in common that are counted together.
type clusterKind struct{ quiet, silent, quarantined, required bool }

// read reads what the record's releases assign. It returns false if one of them is not known.
func (c *contentCounter) read(ctx context.Context) (bool, error) {
	places := map[ledger.Key]int{}
	for i, w := range c.counts {
		if !w.Removed {
			places[w.Key] = i
		}
	}
	types, names := map[string]uint32{}, map[string]uint32{}
	for _, k := range c.m.clusters {
		types[c.m.texts[k.typ]] = k.typ
	}
	for _, k := range c.m.kinds {
		names[c.m.texts[k.assignment]] = k.assignment
	}
	for name, h := range types {
		t := &typeContent{earliest: math.MaxInt64, clusters: map[clusterKind]int{}}
		d := c.record.ReleaseOf(name, c.ring)
		if d == "" && len(c.record.Rings[name]) == 0 {
			d = c.record.ClusterTypes[name]
		}
		if d != "" {
			lines, known, err := c.m.view.fleet.linesOf(ctx, c.m.published, d)
			if !known || err != nil {
				return false, err
			}
			t.tree = c.m.published.releases[d].Content.DiffID
			for i := range lines {
				if at, is := places[lines[i].workload]; is {
					t.items = append(t.items, contentItem{contentLine: &lines[i], place: at})
				}
			}
		}
		for at, w := range c.q.Workloads {
			for _, assignment := range w.Removed[name] {
				t.items = append(t.items, contentItem{contentLine: &contentLine{assignment: assignment}, place: at})
			}
		}
		c.finishType(t, names)
		c.types[h] = t
	}
	return true, nil
}

// finishType sets the workloads and names of items that have the places of their workloads in c.counts.
func (c *contentCounter) finishType(t *typeContent, names map[string]uint32) {
	slices.SortStableFunc(t.items, func(a, b contentItem) int { return a.place - b.place })
	for i := range t.items {
		item := &t.items[i]
		last := len(t.workloads) - 1
		if last < 0 || t.workloads[last].at != item.place {
			t.workloads = append(t.workloads, typeWorkload{at: item.place, first: i})
			t.earliest = min(t.earliest, c.before[item.place])
			last++
		}
		t.workloads[last].end, item.place = i+1, last
		if h, reported := names[item.assignment]; reported {
			t.names = append(t.names, itemName{h, i})
		}
	}
	slices.SortFunc(t.names, func(a, b itemName) int { return cmp.Or(cmp.Compare(a.name, b.name), a.item-b.item) })
}

// add counts a cluster for each workload that it is assigned.
func (c *contentCounter) add(r *row) {
	t := c.types[r.typ]
	if len(t.items) == 0 || c.m.texts[r.ring] != c.ring && c.ring != "" || c.m.published.index.environmentOf(r.place()) != c.environment {
		return
	}
	kind := clusterKind{
		quiet: !r.reports(), quarantined: r.reported && c.m.texts[r.reason] == reasonQuarantined, required: c.required.matches(r.cluster),
		silent: (&rolloutCount{m: c.m, asked: RolloutQuery{MaxReportAge: c.q.MaxReportAge}}).unheard(r),
	}
	if kind.silent && r.reported && !kind.quiet {
		c.noteSilent(r, t)
	}
	c.look(r, t)
	late := r.added >= t.earliest // for some of the workloads, maybe
	if late {
		c.touched = c.touched[:0]
		for i := range t.workloads {
			c.touched = append(c.touched, i)
		}
	} else {
		t.clusters[kind]++
	}
	runsTree := false
	if runs := c.m.published.releases[c.m.snapshot.releases[r.observed].Digest]; r.observed != 0 && runs != nil {
		runsTree = runs.Content.DiffID == t.tree
	}
	for _, i := range c.touched {
		of := &t.workloads[i]
		w := &c.counts[of.at]
		switch {
		case r.added >= c.before[of.at]:
			w.Later++
			if kind.required {
				w.Required.Later++
			}
		default:
			failed := w.Failed
			verdict, theirs := c.judge(t.items[of.first:of.end], runsTree)
			w.add(kind, verdict, theirs, 1)
			if w.Failed > failed && len(w.Failing) < maxFailing {
				w.Failing = append(w.Failing, r.name)
			}
			if !late { // it is not like the others of its kind
				w.addOthers(kind, -1)
			}
		}
		of.touched = false
		for j := of.first; j < of.end; j++ {
			t.items[j].reported = nil
		}
	}
}

// noteSilent notes when a cluster reported that is unknown now.
func (c *contentCounter) noteSilent(r *row, t *typeContent) {
	at := time.UnixMilli(r.lastSeen).UTC()
	for i := range t.workloads {
		if of := t.workloads[i].at; r.added < c.before[of] && at.After(c.counts[of].LastSeen) {
			c.counts[of].LastSeen = at
		}
	}
}

// look notes what a cluster reports.
func (c *contentCounter) look(r *row, t *typeContent) {
	c.touched = c.touched[:0]
	for n := range r.deployments {
		name := c.m.snapshot.kinds[r.deployments[n].kind].assignment
		i, _ := slices.BinarySearchFunc(t.names, name, func(n itemName, name uint32) int { return cmp.Compare(n.name, name) })
		for ; i < len(t.names) && t.names[i].name == name; i++ {
			item := &t.items[t.names[i].item]
			item.reported = &r.deployments[n]
			if w := &t.workloads[item.place]; !w.touched {
				w.touched, c.touched = true, append(c.touched, item.place)
			}
		}
	}
}

// addOthers counts clusters that report nothing of the workload.
func (c *contentCounter) addOthers() {
	for _, t := range c.types {
		for kind, n := range t.clusters {
			for i := range t.workloads {
				c.counts[t.workloads[i].at].addOthers(kind, n)
			}
		}
	}
}

// judge judges what a cluster reports of the items of a workload, as if it were not silent, and says whether it has all that the record
// assigns.
func (c *contentCounter) judge(items []contentItem, runsTree bool) (verdict lineage.Verdict, theirs bool) {
	verdict, theirs = lineage.Compliant, true
	for i := range items {
		one, has := c.verdict(&items[i], runsTree)
		if one != lineage.Compliant && (verdict == lineage.Compliant || one.Compare(verdict) < 0) {
			verdict = one
		}
		theirs = theirs && has
	}
	return verdict, theirs
}

// verdict judges what a cluster reports for an assignment, and says whether it has what the record assigns.
func (c *contentCounter) verdict(item *contentItem, runsTree bool) (lineage.Verdict, bool) {
	d := item.reported
	switch {
	case item.content == "" && d == nil:
		return lineage.Compliant, true
	case item.content == "" || d == nil || c.m.texts[d.content] != item.content || item.whole && !runsTree:
		return lineage.Waiting, false
	}
	return lineage.VerdictOf(bundle.State(c.m.texts[d.state]), true, true), true
}

// addOthers counts clusters of a kind that report nothing of the workload.
func (w *WorkloadCount) addOthers(k clusterKind, by int) {
	verdict := lineage.Waiting
	if w.Removed {
		verdict = lineage.Compliant
	}
	w.add(k, verdict, w.Removed, by)
}

// add counts clusters of a kind. Theirs is true if they have all that the record assigns.
func (w *WorkloadCount) add(k clusterKind, verdict lineage.Verdict, theirs bool, by int) {
	w.ContentCount.add(k, verdict, theirs, by)
	if k.required {
		w.Required.add(k, verdict, theirs, by)
	}
}

func (n *ContentCount) add(k clusterKind, verdict lineage.Verdict, theirs bool, by int) {
	if k.quiet {
		n.NotReporting += by
		return
	}
	if k.silent {
		verdict = lineage.Unknown
	}
	n.RolloutCounts.add(verdict, by)
	if k.quarantined && !theirs {
		n.Quarantined += by
	}
}
