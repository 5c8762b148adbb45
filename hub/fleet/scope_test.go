package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// within returns what a scope leaves of a fleet, in the plainest words.
func within(t *testing.T, fleet []store.ClusterState, s store.AccessScope) []store.ClusterState {
	selector, err := labels.Parse(s.Selector)
	require.NoError(t, err)
	var left []store.ClusterState
	for _, c := range fleet {
		if len(s.Environments) > 0 && !slices.Contains(s.Environments, c.Environment) || !selector.Matches(labels.Set(c.Labels)) {
			continue
		}
		if len(s.Workspaces) > 0 {
			c.Deployments = slices.DeleteFunc(slices.Clone(c.Deployments), func(d store.Deployment) bool { return !slices.Contains(s.Workspaces, d.Workspace) })
			if len(c.Deployments) == 0 {
				continue
			}
			c.Reason, c.Message, c.Since = "", "", time.Time{}
			var states []bundle.State
			for _, d := range c.Deployments {
				states = append(states, d.State)
			}
			c.State = bundle.AgentState(c.State == bundle.Rejected, states)
		}
		left = append(left, c)
	}
	return left
}

func TestPagesOfAMomentAreOfOneMoment(t *testing.T) {
	fleet := randomFleet(rand.New(rand.NewPCG(1, 9)), 12)
	m := newMemory(fleet...)
	then := start.Add(-time.Hour)
	m.then[then.UnixMilli()] = fleet
	v := all(t, m)
	q := Query{AsOf: then, Limit: 5, Sort: "-state"}
	whole, err := v.Clusters(t.Context(), Query{AsOf: then, Sort: "-state"})
	require.NoError(t, err)
	var pages []Cluster
	for range 3 {
		page, err := v.Clusters(t.Context(), q)
		require.NoError(t, err)
		require.True(t, page.AsOf.Equal(then))
		pages = append(pages, page.Clusters...)
		// As of an hour ago, said a minute later.
		q.After, q.AsOf = page.Next, q.AsOf.Add(time.Minute)
	}
	require.Empty(t, q.After)
	require.Equal(t, whole.Clusters, pages)
}

func randomScope(r *rand.Rand) (s store.AccessScope) {
	if r.IntN(2) == 0 {
		s.Environments = someEnvironments[:1+r.IntN(2)]
	}
	if r.IntN(2) == 0 {
		s.Workspaces = someWorkspaces[1+r.IntN(2):]
	}
	if r.IntN(3) == 0 {
		s.Selector = pick(r, []string{"region=east", "gpu!=true", "size in (3,17)"})
	}
	return s
}

// answers returns the answers of a view to one query, with the errors.
func answers(t *testing.T, v *View, q Query, by []string, sorts [2]string) (all []any) {
	add := func(answer any, err error) { all = append(all, answer, err) }
	clusters, deployments := q, q
	clusters.Sort, deployments.Sort = sorts[0], sorts[1]
	c, err := v.Clusters(t.Context(), clusters)
	if c.Next != "" {
		clusters.After = c.Next
		next, err := v.Clusters(t.Context(), clusters)
		next.AsOf, next.Next = time.Time{}, ""
		add(next, err)
	}
	c.AsOf, c.Next = time.Time{}, "" // which has the moment too
	add(c, err)
	d, err := v.Deployments(t.Context(), deployments)
	if d.Next != "" {
		deployments.After = d.Next
		next, err := v.Deployments(t.Context(), deployments)
		next.AsOf, next.Next = time.Time{}, ""
		add(next, err)
	}
	d.AsOf, d.Next = time.Time{}, ""
	add(d, err)
	for _, of := range []string{"clusters", "deployments"} {
		n, err := v.Count(t.Context(), of, by, q)
		n.AsOf = time.Time{}
		add(n, err)
		f, err := v.Facets(t.Context(), of, []string{by[0], "environment", EachLabel}, q)
		f.AsOf = time.Time{}
		add(f, err)
	}
	add(v.Compare(t.Context(), Side{q, "left"}, Side{Query{Environments: []string{"prod"}, AsOf: q.AsOf}, "right"}, CompareOptions{}))
	return all
}

func TestAScopeShowsWhatThereWouldBeWithoutTheRest(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		fleet, s := randomFleet(r, 25), randomScope(r)
		v, left := viewOf(t, newMemory(fleet...), s), all(t, newMemory(within(t, fleet, s)...))
		for range 3 {
			q := randomQuery(r)
			q.Limit = r.IntN(8)
			by, sorts := []string{pick(r, Dimensions), pick(r, Dimensions)}, [2]string{pick(r, ClusterSorts), pick(r, DeploymentSorts)}
			want := answers(t, left, q, by, sorts)
			require.Equal(t, want, answers(t, v, q, by, sorts), "seed %d: scope %+v, query %+v", seed, s, q)
		}
	}
}

func TestTheFleetAsOfATimeIsThePresentThatThereWas(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		fleet, s := randomFleet(r, 25), randomScope(r)
		m, now := newMemory(fleet...), start
		f, err := Open(t.Context(), m, Options{Now: func() time.Time { return now }})
		require.NoError(t, err)
		v, err := f.View(s)
		require.NoError(t, err)
		type asked struct {
			q     Query
			by    []string
			sorts [2]string
			was   []any
		}
		var then []asked
		for range 6 {
			q := randomQuery(r)
			q.Limit = r.IntN(8)
			a := asked{q, []string{pick(r, Dimensions)}, [2]string{pick(r, ClusterSorts), pick(r, DeploymentSorts)}, nil}
			a.was = answers(t, v, q, a.by, a.sorts)
			a.q.AsOf = now
			then = append(then, a)
			for _, c := range m.states {
				m.then[now.UnixMilli()] = append(m.then[now.UnixMilli()], c)
			}
			now = now.Add(time.Duration(r.IntN(100)) * time.Minute)
			for range 10 {
				c := randomCluster(r, r.IntN(30))
				if r.IntN(4) == 0 {
					m.remove(c.UID)
				} else {
					m.put(c)
				}
			}
			if m.then[now.UnixMilli()] != nil {
				now = now.Add(time.Minute)
			}
		}
		for _, a := range then {
			require.Equal(t, a.was, answers(t, v, a.q, a.by, a.sorts), "seed %d: %+v", seed, a.q)
		}
	}
}
