package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// mixed is an environment whose clusters run this and that.
func mixed(t *testing.T) *estate {
	e := two(t)
	e.cluster("one", "drone", "drone:2", bundle.Compliant)
	e.cluster("two", "drone", "drone:2", bundle.Progressing)
	e.cluster("three", "drone", "drone:1", bundle.Compliant)
	e.cluster("four", "drone", "drone:1", bundle.Rejected, "drone:2")
	e.silence(e.cluster("five", "drone", "drone:2", bundle.Compliant), 24*time.Hour)
	e.cluster("six", "drone", "drone:x", bundle.Compliant)
	return e
}

func nameOf(d digest.Digest) string {
	for _, name := range []string{"drone:1", "drone:2", "drone:x", "shop:1"} {
		if digest.FromString(name) == d {
			return name
		}
	}
	return d.String()
}

func TestReleasesCountTheirClusters(t *testing.T) {
	v := all(t, mixed(t))
	list, err := v.Releases(t.Context(), Query{})
	require.NoError(t, err)
	var rows []string
	for _, r := range list.Releases {
		rows = append(rows, fmt.Sprintf("%s current=%t foreign=%t of %d: %d compliant, %d progressing, %d failed, %d waiting, %d unknown; runs on %d",
			nameOf(r.Digest), r.Current, r.Foreign, r.Clusters, r.Compliant, r.Progressing, r.Failed, r.Waiting, r.Unknown, r.Running))
	}
	require.Equal(t, []string{
		"drone:2 current=true foreign=false of 6: 1 compliant, 1 progressing, 1 failed, 2 waiting, 1 unknown; runs on 3",
		"shop:1 current=true foreign=false of 0: 0 compliant, 0 progressing, 0 failed, 0 waiting, 0 unknown; runs on 0",
		"drone:1 current=false foreign=false of 0: 0 compliant, 0 progressing, 0 failed, 0 waiting, 0 unknown; runs on 2",
		"drone:x current=false foreign=true of 0: 0 compliant, 0 progressing, 0 failed, 0 waiting, 0 unknown; runs on 1",
	}, rows)
	require.Equal(t, 4, list.Count)

	var pages []string
	q := Query{Limit: 1}
	for {
		page, err := v.Releases(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, 4, page.Count)
		pages = append(pages, nameOf(page.Releases[0].Digest))
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	require.Equal(t, []string{"drone:2", "shop:1", "drone:1", "drone:x"}, pages)

	for _, tc := range []struct {
		q    Query
		want string
	}{
		{Query{Type: "shop"}, "shop:1"},
		{Query{Commit: commit("b")}, "drone:2"},
		{Query{Commit: commit("a")[:7]}, "shop:1 drone:1"},
		{Query{Relation: []Relation{Foreign}}, "drone:x"},
		{Query{Release: digest.FromString("drone:1")}, "drone:1"},
		{Query{Cluster: "three"}, "drone:2 drone:1"},
		{Query{Environments: []string{"prod"}, Workspace: "blue"}, "drone:2 drone:1"},
		{Query{State: []bundle.State{bundle.Progressing}}, "drone:2"},
	} {
		list, err := v.Releases(t.Context(), tc.q)
		require.NoError(t, err)
		var names []string
		for _, r := range list.Releases {
			names = append(names, nameOf(r.Digest))
		}
		require.Equal(t, tc.want, strings.Join(names, " "), "%+v", tc.q)
	}
	_, err = v.Releases(t.Context(), Query{Environments: []string{"prd"}})
	require.ErrorAs(t, err, new(*UnknownNameError))
	_, err = v.Releases(t.Context(), Query{Sort: "name"})
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestAReleaseHasManyNames(t *testing.T) {
	v := all(t, mixed(t))
	d := digest.FromString("drone:2")
	for _, name := range []string{string(d), d.Encoded()[:7], "4", "drone:4", "prod/drone:4", "s0-4"} {
		r, err := v.Release(t.Context(), name, Query{})
		require.NoError(t, err, name)
		require.Equal(t, d, r.Digest, name)
		require.Len(t, r.Assignments, 2)
	}
	_, err := v.Release(t.Context(), "shop:4", Query{})
	require.ErrorIs(t, err, store.ErrUnknownRelease)
	_, err = v.Release(t.Context(), "a name", Query{})
	require.ErrorIs(t, err, store.ErrInvalid)
	foreign, err := v.Release(t.Context(), digest.FromString("drone:x").String(), Query{})
	require.NoError(t, err)
	require.True(t, foreign.Foreign)
	require.Empty(t, foreign.Assignments)

	red, err := viewOf(t, mixed(t), store.AccessScope{Workspaces: []string{"red"}}).Release(t.Context(), "drone:4", Query{})
	require.NoError(t, err)
	require.Len(t, red.Assignments, 1)
	require.Equal(t, "web-main", red.Assignments[0].Name)
	_, err = viewOf(t, mixed(t), store.AccessScope{Workspaces: []string{"red"}}).Release(t.Context(), "shop:2", Query{})
	require.Error(t, err, "of a type without a cluster that is seen")
	_, err = viewOf(t, mixed(t), store.AccessScope{Environments: []string{"dev"}}).Release(t.Context(), "drone:4", Query{})
	require.ErrorAs(t, err, new(*UnknownNameError))
}

func TestEnvironmentsHaveTheirRecordAndTotals(t *testing.T) {
	e := mixed(t)
	s := e.cluster("dev", "line", "", bundle.Pending)
	s.Environment, s.Claims.Environment = "dev", "dev"
	e.put(s)
	list, err := all(t, e).Environments(t.Context(), Query{})
	require.NoError(t, err)
	record := e.records[1]
	require.Equal(t, []Environment{
		{Platform: "edge", Environment: "dev", Types: 1, Totals: Totals{Count: 1, States: map[bundle.State]int{bundle.Pending: 1}}},
		{
			Platform: "edge", Environment: "prod", Record: record.Digest, BaseCommit: commit("b"), EnvironmentCommit: commit("e"), IssuedAt: record.IssuedAt, Since: record.IssuedAt, PreviousCommit: commit("a"), Types: 2,
			Totals: Totals{
				Count:     6,
				States:    map[bundle.State]int{bundle.Compliant: 3, bundle.Progressing: 1, bundle.Rejected: 1, store.Stale: 1},
				Relations: map[Relation]int{Current: 3, Behind: 2, Foreign: 1},
			},
		},
	}, list.Environments)

	list, err = viewOf(t, e, store.AccessScope{Environments: []string{"dev"}}).Environments(t.Context(), Query{})
	require.NoError(t, err)
	require.Len(t, list.Environments, 1)
	_, err = all(t, e).Environments(t.Context(), Query{Environments: []string{"prd"}})
	require.ErrorAs(t, err, new(*UnknownNameError))
	list, err = all(t, two(t)).Environments(t.Context(), Query{})
	require.NoError(t, err)
	require.Len(t, list.Environments, 1, "one without clusters too")
}

func TestEnvironmentsAreInTheOrderOfTheirChain(t *testing.T) {
	e := newEstate(t)
	publish := func(environment, from string) {
		e.record(from, nil)
		e.records[len(e.records)-1].Environment = environment
	}
	for _, c := range []string{"a", "b", "c"} { // each goes along the chain
		publish("test", c+"/e")
		publish("live", c+"/e")
		publish("eu", c+"/e")
	}
	publish("live", "d/e") // a fix that went the short way
	publish("test", "d/e")
	publish("live", "d/f") // what the environment itself pins has moved
	publish("alone", "z/e")
	slices.SortStableFunc(e.records, func(a, b store.PublishedRecord) int { return strings.Compare(a.Environment, b.Environment) })
	list, err := all(t, e).Environments(t.Context(), Query{})
	require.NoError(t, err)
	var names []string
	for _, one := range list.Environments {
		names = append(names, one.Environment)
		if one.Environment == "live" {
			require.Equal(t, 2*time.Minute, one.IssuedAt.Sub(one.Since), "since it has the commit, whatever was published anew")
		}
	}
	require.Equal(t, []string{"alone", "test", "live", "eu"}, names)
}

func TestDrift(t *testing.T) {
	e := two(t)
	e.cluster("a-good", "drone", "drone:2", bundle.Compliant)
	s := e.cluster("b-odd", "drone", "drone:2", bundle.Drifted)
	s.Deployments[0].Content = digest.FromString("other")
	s.Deployments[1].Assignment = "db-other"
	s.Deployments = append(s.Deployments, store.Deployment{Assignment: "x", Workspace: "red", State: bundle.Drifted, Message: "replicas differ", Since: start.Add(-time.Hour)})
	s.Deployments = append(s.Deployments, store.Deployment{Assignment: "going", Workspace: "red", State: bundle.Pending})
	e.put(s)
	e.cluster("c-behind", "drone", "drone:1", bundle.Compliant)
	e.cluster("d-foreign", "drone", "drone:x", bundle.Compliant)
	e.silence(e.cluster("e-silent", "drone", "drone:1", bundle.Drifted), 24*time.Hour)

	drifts := func(v *View, q Query) (rows []string, next string) {
		list, err := v.Drift(t.Context(), q)
		require.NoError(t, err)
		for _, d := range list.Drifts {
			rows = append(rows, strings.TrimSpace(d.Cluster+" "+d.Kind+" "+d.Assignment+" "+d.Message))
		}
		return rows, list.Next
	}
	want := []string{
		"b-odd missing db-main", "b-odd extra db-other", "b-odd content web-main", "b-odd drifted x replicas differ", "b-odd extra x replicas differ",
		"c-behind behind", "d-foreign foreign",
	}
	rows, _ := drifts(all(t, e), Query{})
	require.Equal(t, want, rows)
	list, err := all(t, e).Drift(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"missing": 1, "extra": 2, "content": 1, "drifted": 1, "behind": 1, "foreign": 1}, list.Kinds)

	var paged []string
	q := Query{Limit: 2}
	for {
		var page []string
		page, q.After = drifts(all(t, e), q)
		if paged = append(paged, page...); q.After == "" {
			break
		}
	}
	require.Equal(t, want, paged)

	rows, _ = drifts(viewOf(t, e, store.AccessScope{Workspaces: []string{"blue"}}), Query{Cluster: "b-odd"})
	require.Equal(t, []string{"b-odd missing db-main", "b-odd extra db-other"}, rows)
	rows, _ = drifts(all(t, e), Query{Workload: "web", Cluster: "b-odd"})
	require.Equal(t, []string{"b-odd content web-main"}, rows)
}

func TestACandidateIsWhatAnotherEnvironmentHas(t *testing.T) {
	_, err := viewOf(t, mixed(t), store.AccessScope{Environments: []string{"prod"}}).Candidate(t.Context(), "edge", "stage", "prod", "")
	require.ErrorIs(t, err, store.ErrUnknownRelease)
	_, err = viewOf(t, mixed(t), store.AccessScope{Workspaces: []string{"red"}}).Candidate(t.Context(), "edge", "prod", "prod", "")
	require.ErrorIs(t, err, store.ErrOutOfScope)
	_, err = all(t, mixed(t)).Candidate(t.Context(), "edge", "stage", "prod", "")
	require.ErrorIs(t, err, store.ErrUnknownRelease)
	e := mixed(t)
	c, err := all(t, e).Candidate(t.Context(), "edge", "prod", "new", "")
	require.NoError(t, err)
	require.Equal(t, e.records[1].Digest, c.Record)
	require.Equal(t, commit("b"), c.BaseCommit)
	require.Equal(t, []string{"drone", "shop"}, slices.Sorted(maps.Keys(c.Contents)))
	require.NotEmpty(t, c.Changes)
	for _, change := range c.Changes {
		require.Empty(t, change.Before)
	}
	same, err := all(t, e).Candidate(t.Context(), "edge", "prod", "prod", "")
	require.NoError(t, err)
	require.Empty(t, same.Changes)
	_, err = all(t, e).Candidate(t.Context(), "edge", "prod", "prod", "early")
	require.ErrorIs(t, err, store.ErrInvalid, "there is no such ring")
}

func TestADifferenceOfTwoReleases(t *testing.T) {
	assignment := func(name, version, config, content string) bundle.Assignment {
		return bundle.Assignment{Name: name, Workload: name, Target: "main", Workspace: "shop", Version: version, ConfigDigest: digest.FromString(config), Content: digest.FromString(content), Adapter: "flux"}
	}
	image := func(name, tag, content string) bundle.Artifact {
		return bundle.Artifact{Type: bundle.ArtifactImage, Name: "r/" + name, Reference: "r/" + name + ":" + tag, Digest: string(digest.FromString(content))}
	}
	before := ReleaseDetail{
		Known:       true,
		Assignments: []bundle.Assignment{assignment("gone", "1", "", ""), assignment("same", "1", "a", "a"), assignment("web", "1.0.0", "a", "a"), assignment("config", "1", "a", "a")},
		Artifacts:   []bundle.Artifact{image("web", "1.0.0", "old"), image("same", "1", "x"), image("moved", "latest", "old")},
	}
	after := ReleaseDetail{
		Known:       true,
		Assignments: []bundle.Assignment{assignment("same", "1", "a", "a"), assignment("web", "1.1.0", "a", "b"), assignment("config", "1", "b", "b"), assignment("new", "2", "", "")},
		Artifacts:   []bundle.Artifact{image("web", "1.1.0", "new"), image("same", "1", "x"), image("moved", "latest", "new"), image("new", "2", "y")},
	}
	d, err := DiffReleases(before, after)
	require.NoError(t, err)
	require.Equal(t, 1, d.Same)
	require.Equal(t, 5, d.Total())
	var rows []string
	for _, a := range d.Assignments {
		rows = append(rows, fmt.Sprint(a.Name, " ", a.Differs, " ", a.Before != nil, " ", a.After != nil))
	}
	require.Equal(t, []string{"config [config content] true true", "gone [] true false", "new [] false true", "web [version content] true true"}, rows)
	at := func(s string) string { return "@" + string(digest.FromString(s)) }
	require.Equal(t, []ArtifactDiff{
		{bundle.ArtifactImage, "r/moved", []string{"r/moved:latest" + at("old")}, []string{"r/moved:latest" + at("new")}},
		{bundle.ArtifactImage, "r/new", nil, []string{"r/new:2" + at("y")}},
		{bundle.ArtifactImage, "r/web", []string{"r/web:1.0.0" + at("old")}, []string{"r/web:1.1.0" + at("new")}},
	}, d.Artifacts)

	there, here := ReleaseDetail{Known: true}, ReleaseDetail{Known: true}
	for _, of := range []struct {
		r    *ReleaseDetail
		name string
	}{{&there, "web-stage"}, {&here, "web-prod"}, {&there, "db-a"}, {&there, "db-b"}, {&here, "db-c"}} {
		a := assignment(of.name, "1.0.0", "a", of.name)
		a.Workload, a.Target, _ = strings.Cut(of.name, "-")
		of.r.Assignments = append(of.r.Assignments, a)
	}
	d, err = DiffReleases(there, here)
	require.NoError(t, err)
	rows = nil
	for _, a := range d.Assignments {
		rows = append(rows, fmt.Sprint(a.Name, " ", a.PreviousName, " ", a.Differs))
	}
	require.Equal(t, []string{"db-a  []", "db-b  []", "db-c  []", "web-prod web-stage [content]"}, rows, "environments have targets of their own")

	before.Known = false
	_, err = DiffReleases(before, after)
	require.ErrorIs(t, err, store.ErrUnknownRelease)
}
