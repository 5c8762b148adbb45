package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Releases implements Answers. Conditions on clusters and deployments choose what is counted, and then leave out releases
// that none of these should run, or runs; those on platform, environment, type, ring, commit and release choose
// releases. With the relation foreign alone, only releases that were never published here are listed.
func (v *View) Releases(ctx context.Context, q Query) (Releases, error) {
	if q.Sort != "" {
		return Releases{}, fmt.Errorf("sort %q: %w: releases are sorted by the time of issue, the newest first", store.Plain(store.Clip(q.Sort)), store.ErrInvalid)
	}
	c, err := parseCursor(q.After, "")
	if err != nil {
		return Releases{}, err
	}
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return Releases{}, err
	}
	defer done()
	rows, err := m.releaseRows(ctx, q)
	if err != nil {
		return Releases{}, err
	}
	list := Releases{Count: len(rows), Releases: []Release{}}
	if c != nil {
		i, found := slices.BinarySearchFunc(rows, c, func(r Release, c *cursor) int {
			return cmp.Or(cmp.Compare(c.Number, store.Millis(r.IssuedAt)), strings.Compare(string(r.Digest), c.Cluster))
		})
		if found {
			i++
		}
		rows = rows[i:]
	}
	if q.Limit > 0 && len(rows) > q.Limit {
		rows = rows[:q.Limit]
		last := rows[q.Limit-1]
		list.Next = cursor{Number: store.Millis(last.IssuedAt), Cluster: string(last.Digest)}.String()
	}
	list.Releases = append(list.Releases, rows...)
	return list, nil
}

// Release implements Answers. Beside a beginning of its digest, a release has the names that bundle.ParseReleaseQuery reads,
// and those with TYPE: or ENVIRONMENT/TYPE: before them.
func (v *View) Release(ctx context.Context, name string, q Query) (ReleaseDetail, error) {
	if of, rest, is := strings.Cut(name, ":"); is && digest.Digest(name).Validate() != nil && of != string(digest.SHA256) {
		environment, typ, both := strings.Cut(of, "/")
		if !both {
			typ = of
		} else if q.Environments = nil; environment != "" {
			q.Environments = []string{environment}
		}
		q.Type, name = typ, rest
	}
	wanted, err := bundle.ParseReleaseQuery(name)
	if err != nil {
		return ReleaseDetail{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	m, done, err := v.moment(ctx, q, false)
	if err != nil {
		return ReleaseDetail{}, err
	}
	defer done()
	rows, err := m.releaseRows(ctx, q)
	if err != nil {
		return ReleaseDetail{}, err
	}
	ids := make([]bundle.ReleaseID, 0, len(rows))
	for _, r := range rows {
		ids = append(ids, bundle.ReleaseID{Number: r.Number, Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt, Digest: r.Digest})
	}
	i, err := wanted.Find(ids, m.at)
	switch {
	case errors.As(err, new(*bundle.AmbiguousError)):
		return ReleaseDetail{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	case err != nil:
		return ReleaseDetail{}, err
	case i < 0:
		return ReleaseDetail{}, fmt.Errorf("release %q: %w", store.Plain(store.Clip(name)), store.ErrUnknownRelease)
	}
	detail := ReleaseDetail{Release: rows[i], Assignments: []bundle.Assignment{}, Artifacts: []bundle.Artifact{}}
	r, err := v.fleet.contentsOf(ctx, m.published, rows[i].Digest)
	if err != nil || r == nil {
		return detail, m.unread(ctx, err)
	}
	detail.Known = true
	seen := map[string]bool{}
	for _, a := range r.Assignments {
		if v.seesWorkspace(a.Workspace) {
			seen[a.Name] = true
			detail.Assignments = append(detail.Assignments, a)
		}
	}
	for _, a := range r.Artifacts {
		a.UsedBy = slices.DeleteFunc(slices.Clone(a.UsedBy), func(name string) bool { return !seen[name] })
		if len(a.UsedBy) > 0 {
			detail.Artifacts = append(detail.Artifacts, a)
		}
	}
	return detail, nil
}

func (v *View) seesWorkspace(name string) bool {
	return len(v.scope.workspaces) == 0 || slices.Contains(v.scope.workspaces, name)
}

func (v *View) seesEnvironment(name string) bool {
	return len(v.scope.environments) == 0 || slices.Contains(v.scope.environments, name)
}

// seesAll reports whether a view has all clusters of its environments.
func (v *View) seesAll() bool { return len(v.scope.workspaces)+len(v.scope.selector) == 0 }

// releaseRows returns all releases that q chooses, newest first.
func (m *moment) releaseRows(ctx context.Context, q Query) ([]Release, error) {
	onClusters := q
	onClusters.Platform, onClusters.Environments, onClusters.Type, onClusters.Ring = "", nil, "", ""
	onClusters.Commit, onClusters.Release, onClusters.Relation = "", "", nil
	chosen, err := m.choose(ctx, onClusters)
	if err != nil {
		return nil, err
	}
	holds, err := releaseTest(q)
	if err != nil {
		return nil, err
	}
	// What is left of a query without conditions on clusters is like the zero query.
	onClusters.AsOf, onClusters.Limit, onClusters.After = Query{}.AsOf, 0, ""
	all := m.view.seesAll() && fmt.Sprint(onClusters) == fmt.Sprint(Query{})

	rows := map[digest.Digest]*Release{}
	for _, r := range m.published.ordered {
		if m.view.seesEnvironment(r.Environment) {
			rows[r.Digest] = newRelease(r)
			if len(m.view.scope.workspaces) > 0 {
				rows[r.Digest].Message = "" // people write about other teams there
			}
		}
	}
	m.markCurrent(rows)
	counted := map[digest.Digest]bool{}
	for r := range chosen.clusters() {
		m.countRelease(rows, counted, r)
	}
	foreignAlone := slices.Equal(q.Relation, []Relation{Foreign})
	var list []Release
	for _, r := range rows {
		if (all || counted[r.Digest]) && holds(r) && (!foreignAlone || r.Foreign) {
			list = append(list, *r)
		}
	}
	if q.mayHaveSlip(len(list)) {
		if err := m.checkNames(ctx, q); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b Release) int {
		return cmp.Or(cmp.Compare(store.Millis(b.IssuedAt), store.Millis(a.IssuedAt)), strings.Compare(string(a.Digest), string(b.Digest)))
	})
	return list, nil
}

// releaseTest returns the conditions of q on releases.
func releaseTest(q Query) (func(*Release) bool, error) {
	commit, release := func(string) bool { return true }, func(string) bool { return true }
	var err error
	if q.Commit != "" {
		if commit, err = commitTest(q.Commit); err != nil {
			return nil, err
		}
	}
	if q.Release != "" {
		if release, err = digestTest("release", string(q.Release)); err != nil {
			return nil, err
		}
	}
	is := func(wanted, got string) bool { return wanted == "" || wanted == got }
	return func(r *Release) bool {
		return is(q.Platform, r.Platform) && q.ofEnvironment(r.Environment) && is(q.Type, r.Type) &&
			(q.Ring == "" || len(r.Rings) == 0 || slices.Contains(r.Rings, q.Ring)) &&
			(commit(r.BaseCommit) || commit(r.EnvironmentCommit)) && release(string(r.Digest))
	}, nil
}

func newRelease(r *store.PublishedRelease) *Release {
	return &Release{
		ReportRelease: *reportRelease(r), Platform: r.Platform, Environment: r.Environment, Type: r.ClusterType, Rings: r.Rings,
		EnvironmentCommit: r.EnvironmentCommit, Message: r.Message, ExpiresAt: r.ExpiresAt, KeyIDs: r.KeyIDs,
	}
}

// markCurrent marks the releases that the newest records name.
func (m *moment) markCurrent(rows map[digest.Digest]*Release) {
	for _, e := range m.published.index.environments {
		record := e.newest()
		for _, typ := range record.Types() {
			for _, d := range record.ReleasesOf(typ) {
				if r := rows[d]; r != nil {
					r.Current = true
				}
			}
		}
	}
}

// countRelease counts a cluster at the release that it should run, and at the one that it runs.
func (m *moment) countRelease(rows map[digest.Digest]*Release, counted map[digest.Digest]bool, r *row) {
	runs, offered := m.snapshot.releases[r.observed], m.snapshot.releases[r.offered]
	desired := r.desired()
	if runs.Digest != "" {
		row := rows[runs.Digest]
		if row == nil {
			id := r.place()
			row = &Release{
				ReportRelease: runs, Platform: id.Platform, Environment: id.Environment, Type: id.Type, EnvironmentCommit: runs.EnvironmentCommit,
				Foreign: desired != nil && desired.Relation == Foreign,
			}
			rows[runs.Digest] = row
		}
		row.Running++
		counted[runs.Digest] = true
	}
	if desired == nil || desired.Release == nil || rows[desired.Release.Digest] == nil {
		return
	}
	d := desired.Release.Digest
	counted[d] = true
	row := rows[d]
	row.Clusters++
	failed := bundle.State(m.texts[r.state]) == bundle.Failed || bundle.State(m.texts[r.state]) == bundle.Rejected
	switch {
	case r.silent():
		row.Unknown++
	case failed && (desired.Relation == Current || offered.Digest == d):
		row.Failed++
	case desired.Relation != Current:
		row.Waiting++
	case r.state == compliantState:
		row.Compliant++
	default:
		row.Progressing++
	}
}
