package fleet

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// The kinds of drift.
const (
	// DriftDrifted is a deployment that its reconciler reports as drifted.
	DriftDrifted = "drifted"
	// DriftContent is a deployment with another content than the release has for it.
	DriftContent = "content"
	// DriftMissing is an assignment of the release that the cluster does not report.
	DriftMissing = "missing"
	// DriftExtra is a deployment that the release does not have.
	DriftExtra = "extra"
	// DriftBehind is a cluster that runs an older release than it should.
	DriftBehind = "behind"
	// DriftForeign is a cluster that runs a release that was never published here for it.
	DriftForeign = "foreign"
)

// Drift implements Answers. Content, missing and extra are found on clusters that run what they should. Silent clusters
// are left out: nobody knows what they run.
func (v *View) Drift(ctx context.Context, q Query) (Drifts, error) {
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return Drifts{}, err
	}
	defer done()
	after, err := parseCursor(q.After, "")
	if err != nil {
		return Drifts{}, err
	}
	chosen, err := m.choose(ctx, q)
	if err != nil {
		return Drifts{}, err
	}
	f := driftFinder{moment: m, chosen: chosen, contents: map[digest.Digest]map[string]*bundle.Assignment{}}
	clusters := 0
	for r := range chosen.clusters() {
		if clusters++; !r.silent() {
			if err := f.look(ctx, r); err != nil {
				return Drifts{}, err
			}
		}
	}
	if q.mayHaveSlip(clusters) {
		if err := m.checkNames(ctx, q); err != nil {
			return Drifts{}, err
		}
	}
	return f.page(ctx, after, q.Limit)
}

// driftFinder finds the drift of clusters.
type driftFinder struct {
	*moment
	chosen *choice
	rows   []driftRow
	// contents are the assignments of releases, by name; nil for a release that is not known.
	contents map[digest.Digest]map[string]*bundle.Assignment
}

type driftRow struct {
	Drift
	cluster    *cluster
	deployment *deployment // nil without one
}

func (f *driftFinder) add(r *row, d *deployment, drift Drift) {
	drift.UID, drift.Cluster, drift.Type = r.uid, r.name, f.texts[r.typ]
	if drift.State = bundle.State(f.texts[r.state]); d != nil {
		drift.State = bundle.State(f.texts[d.state])
		if drift.Since.IsZero() {
			drift.Since = store.Moment(d.since)
		}
	}
	f.rows = append(f.rows, driftRow{drift, r.cluster, d})
}

// look finds the drift of a cluster that is not silent.
func (f *driftFinder) look(ctx context.Context, r *row) error {
	desired := r.desired()
	if desired != nil && (desired.Relation == Behind || desired.Relation == Foreign) {
		runs := f.snapshot.releases[r.observed]
		d := Drift{Kind: DriftBehind, Running: bundle.ReleaseName(runs.Number, runs.Digest), Since: desired.BehindSince}
		if desired.Relation == Foreign {
			d.Kind = DriftForeign
		}
		if desired.Release != nil {
			d.Desired = bundle.ReleaseName(desired.Release.Number, desired.Release.Digest)
		}
		f.add(r, nil, d)
	}
	var wanted map[string]*bundle.Assignment
	if desired != nil && desired.Relation == Current {
		var err error
		if wanted, err = f.assignments(ctx, f.snapshot.releases[r.observed].Digest); err != nil {
			return err
		}
	}
	reported := make(map[string]bool, len(r.deployments))
	for d := range r.all() {
		name := f.texts[f.snapshot.kinds[d.kind].assignment]
		reported[name] = true
		if !f.chosen.deployment(r, d) {
			continue
		}
		if bundle.State(f.texts[d.state]) == bundle.Drifted {
			f.add(r, d, Drift{Assignment: name, Kind: DriftDrifted})
		}
		runs, a := f.texts[d.content], wanted[name]
		switch {
		case wanted == nil:
		case a == nil && f.settled(d):
			f.add(r, d, Drift{Assignment: name, Kind: DriftExtra, Running: runs})
		case a != nil && runs != string(a.Content):
			f.add(r, d, Drift{Assignment: name, Kind: DriftContent, Desired: string(a.Content), Running: runs})
		}
	}
	for name, a := range wanted {
		if !reported[name] && f.chooses(a) {
			f.add(r, nil, Drift{Assignment: name, Kind: DriftMissing, Desired: string(a.Content)})
		}
	}
	return nil
}

// settled reports whether a deployment is not about to go.
func (f *driftFinder) settled(d *deployment) bool {
	switch bundle.State(f.texts[d.state]) {
	case bundle.Compliant, bundle.Failed, bundle.Drifted:
		return true
	}
	return false
}

// chooses reports whether the conditions on deployments hold for an assignment that no cluster reports.
func (f *driftFinder) chooses(a *bundle.Assignment) bool {
	q := &f.chosen.q
	is := func(wanted, got string) bool { return wanted == "" || wanted == got }
	return f.view.seesWorkspace(a.Workspace) && is(q.Workspace, a.Workspace) && is(q.Application, a.Application) && is(q.Workload, a.Workload) &&
		is(q.Target, a.Target) && is(q.Adapter, a.Adapter) && is(q.Version, a.Version) && q.ConfigDigest == "" && q.Content == "" && q.Image == ""
}

// assignments returns those of a release by name; nil if it is not known.
func (f *driftFinder) assignments(ctx context.Context, d digest.Digest) (map[string]*bundle.Assignment, error) {
	if known, looked := f.contents[d]; looked {
		return known, nil
	}
	f.contents[d] = nil
	r, err := f.view.fleet.contentsOf(ctx, f.published, d)
	if r == nil || err != nil {
		return nil, f.unread(ctx, err)
	}
	all := make(map[string]*bundle.Assignment, len(r.Assignments))
	for i := range r.Assignments {
		all[r.Assignments[i].Name] = &r.Assignments[i]
	}
	f.contents[d] = all
	return all, nil
}

// page returns the rows after a place, at most limit; zero means all.
func (f *driftFinder) page(ctx context.Context, after *cursor, limit int) (Drifts, error) {
	list := Drifts{AsOf: f.asOf, Kinds: map[string]int{}, Drifts: []Drift{}}
	for _, r := range f.rows {
		list.Kinds[r.Kind]++
	}
	place := func(d *Drift) cursor { return cursor{Cluster: d.Cluster, Text: d.Kind, Assignment: d.Assignment} }
	compare := func(a, b cursor) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Assignment, b.Assignment), strings.Compare(a.Text, b.Text))
	}
	slices.SortFunc(f.rows, func(a, b driftRow) int { return compare(place(&a.Drift), place(&b.Drift)) })
	rows := f.rows
	if after != nil {
		rows = slices.DeleteFunc(rows, func(r driftRow) bool { return compare(place(&r.Drift), *after) <= 0 })
	}
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
		list.Next = place(&rows[limit-1].Drift).String()
	}
	if err := f.fillMessages(ctx, rows); err != nil {
		return Drifts{}, err
	}
	for _, r := range rows {
		list.Drifts = append(list.Drifts, r.Drift)
	}
	return list, nil
}

// fillMessages adds the messages of deployments.
func (f *driftFinder) fillMessages(ctx context.Context, rows []driftRow) error {
	var from []found
	var shown []Deployment
	at := map[*deployment]int{}
	for _, r := range rows {
		if _, there := at[r.deployment]; r.deployment != nil && !there {
			at[r.deployment] = len(shown)
			seen, _ := f.see(r.cluster)
			from, shown = append(from, found{cluster: r.cluster, deployment: r.deployment}), append(shown, seen.deploymentStatus(r.deployment))
		}
	}
	if err := f.fillDeployments(ctx, from, shown); err != nil {
		return err
	}
	for i, r := range rows {
		if r.deployment != nil {
			rows[i].Message = shown[at[r.deployment]].Message
		}
	}
	return nil
}
