package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// chosen is what a query means, in the plainest words: the clusters, and the deployments, that it chooses.
func chosen(t *testing.T, fleet []store.ClusterState, q Query) (clusters []string, deployments []string) {
	selector, err := labels.Parse(q.Selector)
	require.NoError(t, err)
	for _, c := range fleet {
		state := func(reported bundle.State) bundle.State {
			switch {
			case c.LastSeen.IsZero():
				return store.Unreported
			case start.Sub(c.LastSeen) > 3*time.Hour:
				return store.Stale
			}
			return reported
		}
		heard := c.LastSeen
		if heard.IsZero() {
			heard = c.AddedAt
		}
		release := bundle.ReportRelease{}
		if c.Observed != nil {
			release = *c.Observed
		}
		if len(q.Environments) > 0 && !slices.Contains(q.Environments, c.Environment) || q.Type != "" && c.Type != q.Type || q.Ring != "" && c.Ring != q.Ring ||
			!selector.Matches(labels.Set(c.Labels)) || start.Sub(heard) < q.SilentFor || q.Cluster != "" && c.Name != q.Cluster && c.UID != q.Cluster ||
			q.Commit != "" && !strings.HasPrefix(release.BaseCommit, q.Commit) || q.Release != "" && release.Digest != q.Release {
			continue
		}
		one := false
		for _, d := range c.Deployments {
			if q.Workspace != "" && d.Workspace != q.Workspace || q.Workload != "" && d.Workload != q.Workload || q.Version != "" && d.Version != q.Version ||
				q.Application != "" && d.Application != q.Application || q.Adapter != "" && d.Adapter != q.Adapter || q.Target != "" && d.Target != q.Target ||
				q.ConfigDigest != "" && !strings.HasPrefix(d.ConfigDigest.Encoded(), string(q.ConfigDigest)) || q.Content != "" && d.Content != q.Content {
				continue
			}
			one = true
			if len(q.State) == 0 || slices.Contains(q.State, state(d.State)) {
				deployments = append(deployments, c.Name+"/"+d.Assignment)
			}
		}
		needsOne := q.Workspace+q.Workload+q.Version+q.Application+q.Adapter+q.Target+string(q.ConfigDigest)+string(q.Content) != ""
		if (one || !needsOne) && (len(q.State) == 0 || slices.Contains(q.State, state(c.State))) {
			clusters = append(clusters, c.Name)
		}
	}
	slices.Sort(clusters)
	slices.Sort(deployments)
	return clusters, deployments
}

// pages returns all rows of a list, asked for in pages.
func pages[T any](t *testing.T, q Query, limit int, ask func(Query) ([]T, Totals, string, error)) (rows []T, totals Totals, err error) {
	q.Limit = limit
	for {
		var page []T
		page, totals, q.After, err = ask(q)
		if err != nil {
			return nil, totals, err
		}
		require.LessOrEqual(t, len(page), limit)
		if rows = append(rows, page...); q.After == "" {
			return rows, totals, nil
		}
	}
}

func clusterPages(t *testing.T, v *View, q Query, limit int) ([]Cluster, Totals, error) {
	return pages(t, q, limit, func(q Query) ([]Cluster, Totals, string, error) {
		l, err := v.Clusters(t.Context(), q)
		return l.Clusters, l.Totals, l.Next, err
	})
}

func deploymentPages(t *testing.T, v *View, q Query, limit int) ([]Deployment, Totals, error) {
	return pages(t, q, limit, func(q Query) ([]Deployment, Totals, string, error) {
		l, err := v.Deployments(t.Context(), q)
		return l.Deployments, l.Totals, l.Next, err
	})
}

func TestAQueryChoosesWhatItSaysInAnyOrderAndPageSize(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		fleet := randomFleet(r, 30)
		v := all(t, newMemory(fleet...))
		q := randomQuery(r)
		wantClusters, wantDeployments := chosen(t, fleet, q)
		limit := 1 + r.IntN(40)

		q.Sort = pick(r, append([]string{"", "label:region"}, ClusterSorts...))
		if q.Sort != "" && r.IntN(2) == 0 {
			q.Sort = "-" + q.Sort
		}
		clusters, totals, err := clusterPages(t, v, q, limit)
		if misses(t, fleet, q, len(wantClusters), err) {
			continue
		}
		var names []string
		for _, c := range clusters {
			names = append(names, c.Name)
		}
		whole, err := v.Clusters(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, whole.Totals, totals)
		if clusters != nil {
			require.Equal(t, whole.Clusters, clusters, "pages are the list, cut")
		}
		slices.Sort(names)
		require.Equal(t, wantClusters, names, "seed %d: %+v", seed, q)
		require.Equal(t, len(wantClusters), totals.Count)
		byCount, err := v.Count(t.Context(), "clusters", []string{"state"}, q)
		require.NoError(t, err)
		require.Equal(t, totals.States, states(byCount))

		q.Sort = pick(r, append([]string{"", "label:region"}, DeploymentSorts...))
		if q.Sort != "" && r.IntN(2) == 0 {
			q.Sort = "-" + q.Sort
		}
		deployments, totals, err := deploymentPages(t, v, q, limit)
		if misses(t, fleet, q, len(wantDeployments), err) {
			continue
		}
		names = nil
		for _, d := range deployments {
			names = append(names, d.Cluster+"/"+d.Assignment)
		}
		all, err := v.Deployments(t.Context(), q)
		require.NoError(t, err)
		if deployments != nil {
			require.Equal(t, all.Deployments, deployments, "pages are the list, cut")
		}
		slices.Sort(names)
		require.Equal(t, wantDeployments, names, "seed %d: %+v", seed, q)
		require.Equal(t, len(wantDeployments), totals.Count)
		byCount, err = v.Count(t.Context(), "deployments", []string{"state", pick(r, Dimensions)}, q)
		require.NoError(t, err)
		require.Equal(t, totals.States, states(byCount))
	}
}

// misses reports whether the error is the right one of a query with a name that nothing has.
func misses(t *testing.T, fleet []store.ClusterState, q Query, want int, err error) bool {
	var unknown *UnknownNameError
	switch {
	case err == nil:
		return false
	case q.Cluster != "" && !slices.ContainsFunc(fleet, func(c store.ClusterState) bool { return c.Name == q.Cluster || c.UID == q.Cluster }):
		require.ErrorIs(t, err, store.ErrUnknownCluster)
	default:
		require.ErrorAs(t, err, &unknown, "%+v", q)
		require.True(t, want == 0 || len(q.Environments) > 1)
		require.Contains(t, []string{"prd", "green", "wbe"}, unknown.Name)
	}
	return true
}

// states returns the counts by state, which is the first of the dimensions.
func states(c Counts) map[bundle.State]int {
	sums := map[bundle.State]int{}
	for _, row := range c.Rows {
		sums[bundle.State(row.Values[0])] += row.Count
	}
	return sums
}

func TestRowsHaveWhatTheStoreHas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c store.ClusterState
	for len(c.Deployments) < 2 || c.Observed == nil || c.Message == "" || c.Deployments[0].Message == "" {
		c = randomCluster(r, 7)
	}
	c.LastSeen, c.Platform = start.Add(-time.Hour), ""
	c.Claims.Platform, c.Claims.Type, c.KeyIDs, c.Conflicts = "edge", "other", []string{"key"}, 3
	v := all(t, newMemory(c))
	list, err := v.Clusters(t.Context(), Query{})
	require.NoError(t, err)
	id := c.Identity
	id.Platform = "edge"
	require.Equal(t, []Cluster{{
		ClusterStatus: store.ClusterStatus{
			Identity: id, State: c.State, Reason: c.Reason, Message: c.Message, Since: c.Since, Observed: c.Observed, AgentVersion: c.AgentVersion,
			Incarnation: 1, Seq: c.Newest.Seq, LastSeen: c.LastSeen, Mismatch: `agent says type "other"`, Conflicts: 3,
		},
		Proof: c.Proof, Deployments: len(c.Deployments), KeyIDs: []string{"key"}, ExpectedSeconds: 3600, AddedAt: c.AddedAt, ProofAgeSeconds: 3600,
	}}, list.Clusters)
	deployments, err := v.Deployments(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	d := c.Deployments[0]
	require.Equal(t, []Deployment{{
		DeploymentStatus: store.DeploymentStatus{
			Cluster: c.Name, ClusterUID: c.UID, Environment: c.Environment, Type: c.Type, Assignment: d.Assignment, Workspace: d.Workspace, Workload: d.Workload,
			Target: d.Target, Adapter: d.Adapter, State: d.State, Reason: d.Reason, Message: d.Message, Since: d.Since, Version: d.Version,
			ConfigDigest: d.ConfigDigest, Content: d.Content, Revision: d.Revision, Floating: d.Floating, Failures: d.Failures, Release: c.Observed.Digest,
		},
		Application: d.Application, Ring: c.Ring, BaseCommit: c.Observed.BaseCommit, Proof: c.Proof, ProofAgeSeconds: 3600,
	}}, deployments.Deployments)
	require.NotEmpty(t, deployments.Next)
}

func TestMessagesThatAreNotKeptAreReadFromTheDatabase(t *testing.T) {
	fleet := randomFleet(rand.New(rand.NewPCG(1, 4)), 20)
	m := newMemory(fleet...)
	v := all(t, m)
	ask := func() []any {
		clusters, err := v.Clusters(t.Context(), Query{Sort: "state"})
		require.NoError(t, err)
		deployments, err := v.Deployments(t.Context(), Query{Sort: "state"})
		require.NoError(t, err)
		return []any{clusters, deployments}
	}
	m.scanned.Store(0)
	want := ask()
	require.Zero(t, m.scanned.Load())
	v.fleet.tables.maxMessages = v.fleet.tables.messageBytes
	for i, c := range fleet {
		c.Message += "!"
		for j := range c.Deployments {
			c.Deployments[j].Message += "!"
		}
		fleet[i] = m.put(c)
	}
	for _, c := range fleet {
		v.fleet.Apply(m.states[c.UID])
	}
	m.scanned.Store(0)
	got := ask()
	require.NotZero(t, m.scanned.Load())
	require.NotEqual(t, want, got)
	v = all(t, m)
	require.Equal(t, ask(), got)
}

func TestQueriesThatAreNotAcceptable(t *testing.T) {
	v := all(t, newMemory(randomFleet(rand.New(rand.NewPCG(1, 1)), 5)...))
	many := strings.Repeat("a=b,", maxRequirements) + "a=b"
	for name, q := range map[string]Query{
		"selector":                 {Selector: "a in"},
		"long selector":            {Selector: "a in (" + strings.Repeat("x,", 3000) + "x)"},
		"many requirements":        {Selector: many},
		"state":                    {State: []bundle.State{"fine"}},
		"relation":                 {Relation: []Relation{"distant"}},
		"short commit":             {Commit: "abc"},
		"short digest":             {Content: "abc"},
		"no digest":                {ConfigDigest: "sha256:zzzzzzzzz"},
		"sort":                     {Sort: "message"},
		"empty sort":               {Sort: "-"},
		"limit":                    {Limit: -1},
		"place":                    {After: "x"},
		"place of another order":   {After: cursor{Sort: "state", Cluster: "x"}.String()},
		"moment that is to come":   {AsOf: start.Add(time.Hour)},
		"negative time of silence": {SilentFor: -1},
	} {
		_, err := v.Clusters(t.Context(), q)
		require.ErrorIs(t, err, store.ErrInvalid, name)
		_, err = v.Deployments(t.Context(), q)
		require.ErrorIs(t, err, store.ErrInvalid, name)
	}
	for _, by := range [][]string{nil, {"message"}, {"state", "type", "ring", "via", "reason"}, {"label:"}} {
		_, err := v.Count(t.Context(), "clusters", by, Query{})
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	_, err := v.Count(t.Context(), "cars", []string{"state"}, Query{})
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = v.fleet.View(store.AccessScope{Selector: "a in"})
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestNearNamesAreSuggested(t *testing.T) {
	v := all(t, newMemory(randomFleet(rand.New(rand.NewPCG(1, 1)), 40)...))
	for _, c := range []struct {
		q    Query
		want *UnknownNameError
	}{
		{Query{Environments: []string{"prd"}}, &UnknownNameError{"environment", "prd", []string{"prod", "dev", "stage"}}},
		{Query{Type: "shpo"}, &UnknownNameError{"cluster type", "shpo", []string{"shop", "drone", "line"}}},
		{Query{Ring: "canery"}, &UnknownNameError{"ring", "canery", []string{"canary"}}},
		{Query{Workspace: "bleu"}, &UnknownNameError{"workspace", "bleu", []string{"blue", "red"}}},
		{Query{Workload: "?"}, &UnknownNameError{"workload", "?", []string{"cache", "db", "mail", "web"}}},
	} {
		_, err := v.Deployments(t.Context(), c.q)
		require.Equal(t, c.want, err)
		_, err = v.Compare(t.Context(), Side{Query: c.q}, Side{}, CompareOptions{})
		require.Equal(t, c.want, err)
	}
	many := map[string]bool{}
	for i := range 100 {
		many[fmt.Sprintf("plant-%d", i)] = true
	}
	require.Equal(t, []string{"plant-10"}, near("palnt-10", many)[:1])
	require.Len(t, near("plant", many), maxNear)
}

func TestPagesSurviveInsertsAndDeletes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	m := newMemory(randomFleet(r, 30)...)
	v := all(t, m)
	q := Query{Sort: "type", Limit: 4}
	seen := map[string]int{}
	for {
		page, err := v.Clusters(t.Context(), q)
		require.NoError(t, err)
		for _, c := range page.Clusters {
			seen[c.UID]++
		}
		if q.After = page.Next; q.After == "" {
			break
		}
		m.remove(page.Clusters[len(page.Clusters)-1].UID)
		m.put(randomCluster(r, 100+len(seen)))
	}
	for i := range 30 {
		require.Equal(t, 1, seen[fmt.Sprintf("uid-%d", i)], i)
	}
}

func TestImagesAreFoundInTheReleasesThatRun(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	fleet := randomFleet(r, 30)
	m := newMemory(fleet...)
	pinned := digest.FromString("nginx")
	m.publish(store.PublishedRelease{
		Digest: digest.FromString("release2"), Release: bundle.Release{BaseCommit: "aaaaaaa1", EnvironmentCommit: "bbbbbbb1"},
		Artifacts: []bundle.Artifact{{
			Name: "docker.io/library/nginx", Reference: "docker.io/library/nginx:1.29", Digest: pinned.String(), UsedBy: []string{"web-main"},
		}},
	})
	v := all(t, m)
	var want []string
	for _, c := range fleet {
		if c.Observed != nil && c.Observed.Sequence == 2 {
			for _, d := range c.Deployments {
				if d.Workload == "web" {
					want = append(want, c.Name)
				}
			}
		}
	}
	slices.Sort(want)
	require.NotEmpty(t, want)
	for _, image := range []string{"nginx", "nginx:1.29", "library/nginx", "docker.io/library/nginx:1.29", "nginx@" + pinned.String(), pinned.String(), pinned.Encoded()[:12]} {
		list, err := v.Deployments(t.Context(), Query{Image: image})
		require.NoError(t, err)
		var got []string
		for _, d := range list.Deployments {
			require.Equal(t, "aaaaaaa1", d.BaseCommit, "that of the published release")
			got = append(got, d.Cluster)
		}
		require.Equal(t, want, got, image)
		clusters, err := v.Clusters(t.Context(), Query{Image: image, Commit: "bbbbbbb"})
		require.NoError(t, err)
		require.Equal(t, len(want), clusters.Totals.Count)
	}
	for _, image := range []string{"nginx:1.30", "ngin", "nginx@sha256:00", digest.FromString("x").String()} {
		list, err := v.Deployments(t.Context(), Query{Image: image})
		require.NoError(t, err)
		require.Empty(t, list.Deployments, image)
	}
}

func TestSidesAreComparedByDeploymentTarget(t *testing.T) {
	at := func(name, environment, workload, version, config string, state bundle.State) store.ClusterState {
		c := store.ClusterState{State: state, LastSeen: start}
		c.Newest = store.Order{Incarnation: 1, Seq: 1}
		c.UID, c.Name, c.Environment, c.Type = name, name, environment, "shop"
		c.Deployments = []store.Deployment{{Assignment: workload + "-x", Workload: workload, Target: "x", Version: version, ConfigDigest: digest.Digest(config), State: state}}
		return c
	}
	v := all(t, newMemory(
		at("a", "stage", "web", "2", "c1", bundle.Compliant), at("b", "prod", "web", "1", "c1", bundle.Compliant), at("c", "prod", "web", "1", "c1", bundle.Failed), at("d", "prod", "web", "2", "c1", bundle.Compliant),
		at("e", "stage", "db", "1", "c1", bundle.Compliant), at("f", "prod", "db", "1", "c1", bundle.Compliant), at("g", "prod", "db", "1", "c1", bundle.Compliant),
		at("h", "stage", "mail", "1", "c1", bundle.Compliant),
		at("i", "stage", "cache", "1", "c1", bundle.Compliant), at("j", "prod", "cache", "1", "c2", bundle.Compliant),
	))
	left, right := Side{Query{Environments: []string{"stage"}}, "stage"}, Side{Query{Environments: []string{"prod"}}, "prod"}
	got, err := v.Compare(t.Context(), left, right, CompareOptions{OnlyDiff: true})
	require.NoError(t, err)
	one := func(version, config string, clusters, compliant int) Variant {
		return Variant{Version: version, ConfigDigest: digest.Digest(config), Clusters: clusters, Compliant: compliant}
	}
	require.Equal(t, Comparison{Left: "stage", Right: "prod", Same: 1, Rows: []ComparisonRow{
		{Workload: "cache", Target: "x", Differs: []string{"config"}, Left: []Variant{one("1", "c1", 1, 1)}, Right: []Variant{one("1", "c2", 1, 1)}},
		{Workload: "mail", Target: "x", Differs: []string{"missing right"}, Left: []Variant{one("1", "c1", 1, 1)}, Right: []Variant{}},
		{Workload: "web", Target: "x", Differs: []string{"version", "state"}, Left: []Variant{one("2", "c1", 1, 1)}, Right: []Variant{one("1", "c1", 2, 1), one("2", "c1", 1, 1)}},
	}}, got)
	got, err = v.Compare(t.Context(), left, right, CompareOptions{})
	require.NoError(t, err)
	require.Len(t, got.Rows, 4)

	got, err = v.Compare(t.Context(), left, right, CompareOptions{OnlyDiff: true, Ignore: []string{ChangedConfig, ChangedState}})
	require.NoError(t, err)
	require.Equal(t, Comparison{Left: "stage", Right: "prod", Same: 2, Rows: []ComparisonRow{
		{Workload: "mail", Target: "x", Differs: []string{"missing right"}, Left: []Variant{one("1", "", 1, 1)}, Right: []Variant{}},
		{Workload: "web", Target: "x", Differs: []string{"version"}, Left: []Variant{one("2", "", 1, 1)}, Right: []Variant{one("1", "", 2, 1), one("2", "", 1, 1)}},
	}}, got)
	_, err = v.Compare(t.Context(), left, right, CompareOptions{Ignore: []string{"colour"}})
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestQuestionsAreAnsweredWithoutTheDatabase(t *testing.T) {
	for name, broken := range map[string]error{"gone": errors.New("gone"), "hanging": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) { answeredWithout(t, broken) })
	}
}

func answeredWithout(t *testing.T, broken error) {
	m := newMemory(randomFleet(rand.New(rand.NewPCG(5, 5)), 10)...)
	now := start
	f, err := Open(t.Context(), m, Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	v, err := f.View(store.AccessScope{})
	require.NoError(t, err)
	before, err := v.Clusters(t.Context(), Query{})
	require.NoError(t, err)
	require.Zero(t, before.ReadAt)
	m.fail(broken)
	f.patience = time.Millisecond
	now = now.Add(time.Minute)
	list, err := v.Clusters(t.Context(), Query{})
	require.NoError(t, err)
	require.Equal(t, start, list.ReadAt.UTC())
	require.Equal(t, before.Totals.Count, list.Totals.Count)
	deployments, err := v.Deployments(t.Context(), Query{})
	require.NoError(t, err)
	require.Equal(t, start, deployments.ReadAt.UTC())
	m.fail(nil)
	f.patience = time.Minute
	m.put(randomCluster(rand.New(rand.NewPCG(1, 1)), 50))
	now = now.Add(time.Minute)
	list, err = v.Clusters(t.Context(), Query{})
	require.NoError(t, err)
	require.Zero(t, list.ReadAt)
	require.Equal(t, before.Totals.Count+1, list.Totals.Count)
}

func TestTheFeedIsFollowed(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	m := newMemory(randomFleet(r, 10)...)
	v := all(t, m)
	count := func() int {
		list, err := v.Clusters(t.Context(), Query{})
		require.NoError(t, err)
		return list.Totals.Count
	}
	require.Equal(t, 10, count())

	m.scanned.Store(0)
	state := m.put(randomCluster(r, 10))
	v.fleet.Apply(state)
	v.fleet.catchUp(t.Context())
	require.Zero(t, m.scanned.Load(), "what was applied is not read again")
	require.Equal(t, 11, count())

	m.remove("uid-10")
	require.Equal(t, 10, count())
	v.fleet.Apply(state)
	require.Equal(t, 10, count(), "a state that is late does not bring a cluster back")

	renamed := m.states["uid-3"]
	renamed.Name = "zeta"
	m.put(renamed)
	list, err := v.Clusters(t.Context(), Query{Cluster: "zeta"})
	require.NoError(t, err)
	require.Len(t, list.Clusters, 1)
	require.Equal(t, 10, count())

	m.put(randomCluster(r, 20))
	m.entries = m.entries[len(m.entries)-1:] // the others were removed
	m.put(randomCluster(r, 21))
	v.fleet.mu.Lock()
	v.fleet.position = 1
	v.fleet.mu.Unlock()
	require.Equal(t, 12, count())
}

func TestADeploymentTakes48Bytes(t *testing.T) {
	require.Equal(t, uintptr(48), unsafe.Sizeof(deployment{}))
}

func TestTextsThatNobodyUsesAreForgotten(t *testing.T) {
	m := newMemory()
	v := all(t, m)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 8 * slack / 10 {
		c := randomCluster(r, i%10)
		c.Reason, c.State = fmt.Sprint("reason ", i), bundle.Failed
		for j := range c.Deployments {
			c.Deployments[j].Version = fmt.Sprint("version ", i, j)
		}
		v.fleet.Apply(m.put(c))
		require.LessOrEqual(t, v.fleet.tables.size(), slack+1000)
	}
	list, err := v.Deployments(t.Context(), Query{})
	require.NoError(t, err)
	again, err := all(t, m).Deployments(t.Context(), Query{})
	require.NoError(t, err)
	require.Equal(t, again, list)
	require.Less(t, len(v.fleet.tables.texts.values), 2*slack)
	require.Equal(t, len(v.fleet.tables.texts.handles), v.fleet.tables.texts.size())
}

func TestAQuestionSeesWhatWasStoredBeforeIt(t *testing.T) {
	m := newMemory()
	v := all(t, m)
	done := make(chan struct{})
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { assert.NoError(t, v.fleet.Run(ctx)) })
	for w := range 3 {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 8))
			for n := range 150 {
				c := randomCluster(r, 3*n+w)
				state := m.put(c)
				if r.IntN(2) == 0 {
					v.fleet.Apply(state)
				}
				got, err := v.Clusters(t.Context(), Query{Cluster: c.UID})
				if assert.NoError(t, err) {
					assert.Equal(t, c.AgentVersion, got.Clusters[0].AgentVersion)
				}
				if r.IntN(4) == 0 {
					m.remove(c.UID)
					_, err = v.Clusters(t.Context(), Query{Cluster: c.UID})
					assert.ErrorIs(t, err, store.ErrUnknownCluster)
				}
			}
			if w == 0 {
				close(done)
			}
		})
	}
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		list, err := v.Deployments(t.Context(), Query{Sort: "version", State: store.States()})
		require.NoError(t, err)
		require.Len(t, list.Deployments, list.Totals.Count)
		n := 0
		for _, c := range list.Totals.States {
			n += c
		}
		require.Equal(t, list.Totals.Count, n)
	}
	stop()
	running.Wait()
}

func TestCountsByFourAreThoseByTwoDivided(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		v := all(t, newMemory(randomFleet(r, 40)...))
		q := randomQuery(r)
		q.Limit, q.Cluster = 0, ""
		by := []string{pick(r, Dimensions), pick(r, Dimensions), pick(r, Dimensions), pick(r, Dimensions)}
		four, err := v.Count(t.Context(), "deployments", by, q)
		if err != nil {
			continue // a name that nothing has
		}
		require.True(t, slices.IsSortedFunc(four.Rows, func(a, b Count) int { return slices.Compare(a.Values, b.Values) }))
		two, err := v.Count(t.Context(), "deployments", by[:2], q)
		require.NoError(t, err)
		sums := map[[2]string]int{}
		for _, row := range four.Rows {
			require.Len(t, row.Values, 4)
			sums[[2]string(row.Values[:2])] += row.Count
		}
		want := map[[2]string]int{}
		for _, row := range two.Rows {
			want[[2]string(row.Values)] = row.Count
		}
		require.Equal(t, want, sums, "seed %d: by %v", seed, by)
	}
}

func TestAFacetIsCountedAsIfItWereNotChosen(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 8))
		v := all(t, newMemory(randomFleet(r, 40)...))
		got, err := v.Facets(t.Context(), "clusters", []string{"state", "label:region"}, Query{State: []bundle.State{bundle.Failed}, Selector: "region=east,site!=x", Type: "drone"})
		require.NoError(t, err)
		for i, q := range []Query{{Selector: "region=east,site!=x", Type: "drone"}, {State: []bundle.State{bundle.Failed}, Selector: "site!=x", Type: "drone"}} {
			f := got.Facets[i]
			want, err := v.Count(t.Context(), "clusters", []string{f.By}, q)
			require.NoError(t, err)
			for j, value := range f.Values {
				require.Contains(t, want.Rows, Count{Values: []string{value.Value}, Count: value.Count})
				require.True(t, j == 0 || f.Values[j-1].Count >= value.Count, "the most frequent first")
			}
			require.Len(t, f.Values, len(want.Rows))
		}
	}
	_, err := all(t, newMemory()).Facets(t.Context(), "clusters", nil, Query{})
	require.ErrorIs(t, err, store.ErrInvalid)
}
