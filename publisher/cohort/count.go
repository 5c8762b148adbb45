package cohort

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/publisher/gate"
	"github.com/wherry-dev/wherry/scheduler"
)

// Query says which clusters of a roster count, and for what.
type Query struct {
	// Commit is all of the base commit. Since is the time of issue of the record that is judged: failures from then on count.
	Commit string
	Since  time.Time
	// RegisteredBefore leaves out clusters that were registered at that time or later; the zero time leaves out none.
	RegisteredBefore time.Time
	// Rings are those whose clusters count; nil means all clusters.
	Rings []string
	// MaxReportAge is the age from which a report does not count; zero is without a bound.
	MaxReportAge time.Duration
	// Selector chooses clusters by the labels of their Cluster objects; nil chooses all.
	Selector labels.Selector
	// Open bounds Cohort.Open; less than one is without a bound.
	Open int
}

// reasonQuarantined is the agent's reason if it has given up the newest release that it was offered.
const reasonQuarantined = "Quarantined"

// Count returns how far the clusters of a roster are with a commit, by their newest reports.
//
// Failures are those that the reports tell of: how much the counts of a cluster's assignments have risen since its last report before
// Since, and without such a report since the oldest one that was read, in which assignments that began to fail after Since
// count too. A registry has few old reports, so failures that were over before a cluster's oldest report are missing; a hub has them all.
func (h *History) Count(ctx context.Context, reports *Reports, q Query) (gate.Cohort, error) {
	c := gate.Cohort{From: gate.FromRegistry, AsOf: h.reader.now, Open: []gate.Cluster{}}
	var all []scheduler.Cluster
	for _, one := range reports.clusters {
		switch {
		case q.Rings != nil && !slices.Contains(q.Rings, one.Ring), q.Selector != nil && !q.Selector.Matches(labels.Set(one.Labels)):
		case !q.RegisteredBefore.IsZero() && !one.RegisteredAt.Before(q.RegisteredBefore):
		case !one.Reporting:
			c.NotReporting++
		default:
			all = append(all, one)
		}
	}
	of, err := h.lineage(ctx, q.Commit, all, reports)
	if err != nil {
		return c, err
	}
	commit, _ := of.Find(func(other string) bool { return other == q.Commit })
	for _, one := range all {
		h.count(&c, commit, one, reports.byUID[one.UID], q)
	}
	slices.SortStableFunc(c.Open, func(a, b gate.Cluster) int {
		return cmp.Or(lineage.Verdict(a.Verdict).Compare(lineage.Verdict(b.Verdict)), a.LastSeen.Compare(b.LastSeen), cmp.Compare(a.Name, b.Name))
	})
	if q.Open > 0 {
		c.Open = c.Open[:min(len(c.Open), q.Open)]
	}
	return c, nil
}

// count adds one cluster, whose reports are oldest first.
func (h *History) count(c *gate.Cohort, commit *lineage.Commit, one scheduler.Cluster, reports []bundle.Report, q Query) {
	c.Clusters++
	open := gate.Cluster{UID: one.UID, Name: one.Name, Type: one.ClusterType, Ring: one.Ring}
	verdict := lineage.Unknown
	if len(reports) > 0 {
		newest := reports[len(reports)-1]
		observed, desired := digestOf(newest.Observed), digestOf(newest.Desired)
		open.Reason, open.Message, open.LastSeen = newest.Reason, bundle.Clip(newest.Message), newest.OccurredAt
		age := h.reader.now.Sub(newest.OccurredAt)
		switch {
		case age < -MaxAhead:
			open.Message = "its clock is ahead, so that the age of its report is not known"
		case q.MaxReportAge > 0 && age > q.MaxReportAge:
		default:
			verdict = commit.Verdict(one.ClusterType, newest.State, observed, desired)
		}
		if i := slices.IndexFunc(newest.Items, failed); i >= 0 && verdict == lineage.Failed && open.Reason == "" {
			item := newest.Items[i]
			open.Reason, open.Message = item.Reason, bundle.Clip(item.Assignment+": "+item.Message)
		}
		if newest.Reason == reasonQuarantined && commit != nil && commit.Has(one.ClusterType, desired) {
			c.Quarantined++
		}
		c.Failures += failures(reports, q.Since)
	}
	switch verdict {
	case lineage.Compliant:
		c.Compliant++
		return
	case lineage.Progressing:
		c.Progressing++
	case lineage.Failed:
		c.Failed++
	case lineage.Waiting:
		c.Waiting++
	case lineage.Unknown:
		c.Unknown++
	}
	open.Verdict = string(verdict)
	c.Open = append(c.Open, open)
}

func failed(i bundle.Item) bool { return i.State == bundle.Failed }

func digestOf(r *bundle.ReportRelease) digest.Digest {
	if r == nil {
		return ""
	}
	return r.Digest
}

// failures returns how often assignments have begun to fail since a time, as far as reports, which are oldest first, tell.
func failures(reports []bundle.Report, since time.Time) (n int) {
	// before has the counts of the last report that is not after since; counts begin anew with an incarnation.
	before, incarnation, known := map[string]int64{}, int64(0), false
	for i, r := range reports {
		if i > 0 && r.Agent.Incarnation != incarnation {
			before, known = map[string]int64{}, true
		}
		incarnation = r.Agent.Incarnation
		for _, item := range r.Items {
			was, is := before[item.Assignment], item.Failures
			switch {
			case !r.OccurredAt.After(since):
			case is > was && (known || was > 0):
				n += int(min(is-was, 1<<20))
			case !known && item.State == bundle.Failed && item.Since.After(since):
				n++
			}
			before[item.Assignment] = is
		}
		known = true
	}
	return n
}

// lineage returns what is known of the releases that matter for a commit and the clusters: those of the records with the commit,
// and those of records that name a release which a cluster runs or is getting.
func (h *History) lineage(ctx context.Context, commit string, clusters []scheduler.Cluster, reports *Reports) (*lineage.Environment, error) {
	types, has := map[string]bool{}, map[typed]bool{}
	for _, one := range clusters {
		types[one.ClusterType] = true
		if all := reports.byUID[one.UID]; len(all) > 0 {
			newest := all[len(all)-1]
			for _, d := range []digest.Digest{digestOf(newest.Observed), digestOf(newest.Desired)} {
				if d != "" {
					has[typed{one.ClusterType, d}] = true
				}
			}
		}
	}
	var wanted []typed
	for w := range has {
		wanted = append(wanted, w)
	}
	matters := func(r *bundle.EnvironmentRecord, typ string) bool {
		return types[typ] && (r.BaseCommit == commit || slices.ContainsFunc(r.ReleasesOf(typ), func(d digest.Digest) bool { return has[typed{typ, d}] }))
	}
	for i := range h.Records {
		r := &h.Records[i].Record
		for _, typ := range r.Types() {
			if !matters(r, typ) {
				continue
			}
			for _, d := range r.ReleasesOf(typ) {
				wanted = append(wanted, typed{typ, d})
			}
		}
	}
	if err := h.load(ctx, wanted); err != nil {
		return nil, err
	}
	of := lineage.New(bundle.Stream{Platform: h.Platform, Environment: h.Environment}, h.release)
	for i := range h.Records {
		r := h.Records[i].Record
		// A type of which a release is missing is left out: the newest of the others would be taken for that of the commit.
		r.ClusterTypes, r.Rings = map[string]digest.Digest{}, map[string]map[string]digest.Digest{}
		whole := &h.Records[i].Record
		for _, typ := range whole.Types() {
			if !matters(whole, typ) || h.lacks(whole, typ) {
				continue
			}
			if d, named := whole.ClusterTypes[typ]; named {
				r.ClusterTypes[typ] = d
			}
			if rings, named := whole.Rings[typ]; named {
				r.Rings[typ] = rings
			}
		}
		of.Add(&r)
	}
	return of, nil
}
