package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// contentCounter counts clusters for each workload of a ring.
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
	// verdicts and theirs are those on the cluster that is looked at, by the place in typeContent.workloads.
	verdicts []lineage.Verdict
	theirs   []bool // each item of the workload there has what the record assigns
}

// typeContent is what the record's release of the ring has for a cluster type.
type typeContent struct {
	// items are sorted by the name of the assignment.
	items []contentItem
	// workloads are the places in contentCounter.counts of the workloads of items, sorted, each once.
	workloads []int
	// tree is the release's content.
	tree digest.Digest
}

// contentItem is an assignment.
type contentItem struct {
	assignment string
	workload   int    // a place in typeContent.workloads
	content    string // empty if it was removed
	// whole is true if the cluster has to run a release with the tree, too.
	whole bool
}

// read reads what the record's releases assign. It returns false if one of them is not known.
func (c *contentCounter) read(ctx context.Context) (bool, error) {
	places := map[ledger.Key]int{}
	for i, w := range c.counts {
		if !w.Removed {
			places[w.Key] = i
		}
	}
	handles := map[string]uint32{}
	for _, k := range c.m.clusters {
		handles[c.m.texts[k.typ]] = k.typ
	}
	for name, h := range handles {
		t := &typeContent{}
		d := c.record.ReleaseOf(name, c.ring)
		if d == "" && len(c.record.Rings[name]) == 0 {
			d = c.record.ClusterTypes[name]
		}
		if d != "" {
			r, err := c.m.view.fleet.contentsOf(ctx, c.m.published, d)
			if r == nil || err != nil {
				return false, err
			}
			t.tree = r.Content.DiffID
			for _, a := range r.Assignments {
				if at, is := places[ledger.Key{Registration: a.Registration, Workload: a.Workload}]; is {
					t.items = append(t.items, contentItem{a.Name, at, a.Content.String(), a.Desired() != a.Content})
				}
			}
		}
		for at, w := range c.q.Workloads {
			for _, assignment := range w.Removed[name] {
				t.items = append(t.items, contentItem{assignment: assignment, workload: at})
			}
		}
		slices.SortFunc(t.items, func(a, b contentItem) int { return strings.Compare(a.assignment, b.assignment) })
		for _, item := range t.items {
			t.workloads = append(t.workloads, item.workload)
		}
		slices.Sort(t.workloads)
		t.workloads = slices.Compact(t.workloads)
		for i := range t.items {
			t.items[i].workload, _ = slices.BinarySearch(t.workloads, t.items[i].workload)
		}
		c.types[h] = t
	}
	return true, nil
}

// add counts a cluster for each workload that it is assigned.
func (c *contentCounter) add(r *row) {
	t := c.types[r.typ]
	if len(t.items) == 0 || c.m.texts[r.ring] != c.ring && c.ring != "" || c.m.published.index.environmentOf(r.place()) != c.environment {
		return
	}
	c.judge(r, t)
	quarantined := r.reported && c.m.texts[r.reason] == reasonQuarantined
	silent := (&rolloutCount{m: c.m, asked: RolloutQuery{MaxReportAge: c.q.MaxReportAge}}).unheard(r)
	required := c.required.matches(r.cluster)
	for i, at := range t.workloads {
		w, verdict := &c.counts[at], c.verdicts[i]
		if silent {
			verdict = lineage.Unknown
		}
		count := func(n *ContentCount) {
			switch {
			case r.added >= c.before[at]:
				n.Later++
				return
			case !r.reports():
				n.NotReporting++
				return
			}
			n.add(verdict)
			if quarantined && !c.theirs[i] {
				n.Quarantined++
			}
		}
		failed := w.Failed
		count(&w.ContentCount)
		if w.Failed > failed && len(w.Failing) < maxFailing {
			w.Failing = append(w.Failing, r.name)
		}
		if required {
			count(&w.Required)
		}
	}
}

// judge sets verdicts and theirs for a cluster, as if it were not silent.
func (c *contentCounter) judge(r *row, t *typeContent) {
	c.verdicts, c.theirs = c.verdicts[:0], c.theirs[:0]
	for range t.workloads {
		c.verdicts, c.theirs = append(c.verdicts, lineage.Compliant), append(c.theirs, true)
	}
	runsTree := false
	if runs := c.m.published.releases[c.m.snapshot.releases[r.observed].Digest]; r.observed != 0 && runs != nil {
		runsTree = runs.Content.DiffID == t.tree
	}
	next := 0 // of the cluster's deployments, which are sorted like the items
	for i := range t.items {
		item := &t.items[i]
		for next < len(r.deployments) && c.name(&r.deployments[next]) < item.assignment {
			next++
		}
		var d *deployment
		if next < len(r.deployments) && c.name(&r.deployments[next]) == item.assignment {
			d = &r.deployments[next]
		}
		verdict, has := c.verdict(item, d, runsTree)
		if now := c.verdicts[item.workload]; verdict != lineage.Compliant && (now == lineage.Compliant || verdict.Compare(now) < 0) {
			c.verdicts[item.workload] = verdict
		}
		c.theirs[item.workload] = c.theirs[item.workload] && has
	}
}

// name returns the name of a deployment's assignment.
func (c *contentCounter) name(d *deployment) string {
	return c.m.texts[c.m.snapshot.kinds[d.kind].assignment]
}

// verdict judges what a cluster reports for an assignment, which is nil for nothing, and says whether it has what the record assigns.
func (c *contentCounter) verdict(item *contentItem, d *deployment, runsTree bool) (lineage.Verdict, bool) {
	switch {
	case item.content == "" && d == nil:
		return lineage.Compliant, true
	case item.content == "" || d == nil || c.m.texts[d.content] != item.content || item.whole && !runsTree:
		return lineage.Waiting, false
	}
	return lineage.VerdictOf(bundle.State(c.m.texts[d.state]), true, true), true
}
