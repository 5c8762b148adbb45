package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// estate is a fleet with what is published for it, made step by step.
type estate struct {
	*memory
	t     *testing.T
	n     int64
	named map[string]digest.Digest
}

func newEstate(t *testing.T) *estate { return &estate{newMemory(), t, 0, map[string]digest.Digest{}} }

// commit returns a whole commit that begins with a letter.
func commit(letter string) string { return strings.Repeat(letter, 40) }

// release publishes a release of TYPE:NAME from commits such as "a/e", with the content of that name, for rings.
func (e *estate) release(name, from, content string, rings ...string) {
	typ, _, _ := strings.Cut(name, ":")
	base, environment, _ := strings.Cut(from, "/")
	e.n++
	r := store.PublishedRelease{Digest: digest.FromString(name), Release: bundle.Release{
		Platform: "edge", Environment: "prod", ClusterType: typ, Rings: rings, Sequence: e.n, Number: e.n, IssuedAt: start.Add(time.Duration(e.n-1000) * time.Minute),
		BaseCommit: commit(base), EnvironmentCommit: commit(environment), Content: bundle.Content{DiffID: digest.FromString(content)},
	}}
	r.Assignments = []bundle.Assignment{
		{Name: "web-main", Workspace: "red", Workload: "web", Target: "main", Content: digest.FromString(content + " web")},
		{Name: "db-main", Workspace: "blue", Workload: "db", Target: "main", Content: digest.FromString("db")},
	}
	e.named[name] = r.Digest
	e.releases = append(e.releases, r)
	slices.SortStableFunc(e.releases, func(a, b store.PublishedRelease) int { return strings.Compare(a.ClusterType, b.ClusterType) })
}

// record publishes a record of releases as TYPE:NAME, or RING=TYPE:NAME.
func (e *estate) record(from string, releases []string, incomplete ...string) {
	base, environment, _ := strings.Cut(from, "/")
	e.n++
	r := store.PublishedRecord{Digest: digest.FromString(fmt.Sprint("record", e.n)), EnvironmentRecord: bundle.EnvironmentRecord{
		Platform: "edge", Environment: "prod", Sequence: e.n, IssuedAt: start.Add(time.Duration(e.n-1000) * time.Minute),
		BaseCommit: commit(base), EnvironmentCommit: commit(environment), ClusterTypes: map[string]digest.Digest{}, Incomplete: incomplete,
	}}
	for _, name := range releases {
		ring, release, hasRing := strings.Cut(name, "=")
		if !hasRing {
			ring, release = "", name
		}
		typ, _, _ := strings.Cut(release, ":")
		d := digest.FromString(release)
		if ring == "" {
			r.ClusterTypes[typ] = d
			continue
		}
		if r.Rings == nil {
			r.Rings = map[string]map[string]digest.Digest{}
		}
		if r.Rings[typ] == nil {
			r.Rings[typ] = map[string]digest.Digest{}
		}
		r.Rings[typ][ring] = d
	}
	e.records = append(e.records, r)
}

// cluster adds a cluster of TYPE or RING=TYPE that runs a release, and was offered another one or the same.
func (e *estate) cluster(name, typ, runs string, state bundle.State, offered ...string) store.ClusterState {
	ring, t, hasRing := strings.Cut(typ, "=")
	if !hasRing {
		ring, t = "", typ
	}
	s := store.ClusterState{State: state, LastSeen: start.Add(-time.Minute)}
	s.Newest = store.Order{Incarnation: 1, Seq: 1}
	s.UID, s.Name, s.Platform, s.Environment, s.Type, s.Ring = name, name, "edge", "prod", t, ring
	s.ExpectedInterval, s.ExpectedSeconds, s.AddedAt = time.Hour, 3600, start.Add(-100*time.Hour)
	s.Claims = bundle.ReportCluster(s.Identity)
	s.Proof = store.Proof{Via: store.ViaHTTP, At: s.Newest}
	if runs != "" {
		s.Observed = &bundle.ReportRelease{Digest: digest.FromString(runs)}
		for _, r := range e.releases {
			if r.Digest == s.Observed.Digest {
				s.Observed = reportRelease(&r)
				for _, a := range r.Assignments {
					s.Deployments = append(s.Deployments, store.Deployment{Assignment: a.Name, Workspace: a.Workspace, Workload: a.Workload, Target: a.Target, Content: a.Content, State: bundle.Compliant})
				}
			}
		}
	}
	s.Offered = s.Observed
	if len(offered) > 0 {
		s.Offered = &bundle.ReportRelease{Digest: digest.FromString(offered[0])}
	}
	return e.put(s)
}

// silence makes a cluster silent for a time.
func (e *estate) silence(s store.ClusterState, d time.Duration) {
	s.LastSeen = start.Add(-d)
	e.put(s)
}

// two is an environment with two types, at commit a and then b, which changes the first type alone.
func two(t *testing.T) *estate {
	e := newEstate(t)
	e.release("drone:1", "a/e", "d1")
	e.release("shop:1", "a/e", "s1")
	e.record("a/e", []string{"drone:1", "shop:1"})
	e.release("drone:2", "b/e", "d2")
	e.record("b/e", []string{"drone:2", "shop:1"})
	return e
}

func TestRollout(t *testing.T) {
	for _, tc := range []struct {
		name    string
		commit  string
		query   Query
		fleet   func(e *estate)
		want    string // done and failed, and the verdicts of the clusters
		why     string
		invalid bool
	}{
		{
			name: "all run the commit's releases, of which one had no change", commit: "b",
			fleet: func(e *estate) {
				e.cluster("one", "drone", "drone:2", bundle.Compliant)
				e.cluster("two", "shop", "shop:1", bundle.Compliant)
			},
			want: "done",
		},
		{name: "no cluster at all", commit: "b", fleet: func(*estate) {}, why: "no cluster is registered for it"},
		{
			name: "one runs the release before", commit: "b",
			fleet: func(e *estate) {
				e.cluster("one", "drone", "drone:1", bundle.Compliant)
				e.cluster("two", "shop", "shop:1", bundle.Compliant)
			},
			want: "one=waiting", why: "1 run another release",
		},
		{
			name: "the earlier commit is on all, whatever came after", commit: "a",
			fleet: func(e *estate) {
				e.cluster("one", "drone", "drone:2", bundle.Compliant)
				e.cluster("two", "drone", "drone:1", bundle.Compliant)
			},
			want: "done",
		},
		{
			name: "silence is neither compliance nor failure", commit: "b",
			fleet: func(e *estate) {
				e.silence(e.cluster("one", "drone", "drone:2", bundle.Compliant), 24*time.Hour)
				e.silence(e.cluster("two", "drone", "drone:2", bundle.Failed), 48*time.Hour)
				e.cluster("three", "shop", "shop:1", bundle.Compliant)
				s := e.cluster("four", "shop", "", "")
				s.Newest, s.LastSeen, s.Offered = store.Order{}, time.Time{}, nil
				e.put(s)
			},
			want: "four=unknown two=unknown one=unknown", why: "3 silent",
		},
		{
			name: "states of clusters at the commit", commit: "b",
			fleet: func(e *estate) {
				for i, s := range []bundle.State{bundle.Failed, bundle.Rejected, bundle.Progressing, bundle.Drifted, bundle.Suspended, bundle.Applying} {
					e.cluster(fmt.Sprint(i), "drone", "drone:2", s)
				}
			},
			want: "failed 0=failed 1=failed 2=progressing 3=progressing 4=progressing 5=progressing", why: "2 failed; 4 in progress",
		},
		{
			name: "states of clusters that are offered the commit", commit: "b",
			fleet: func(e *estate) {
				for i, s := range []bundle.State{bundle.Rejected, bundle.Failed, bundle.Pulling, bundle.Compliant} {
					e.cluster(fmt.Sprint(i), "drone", "drone:1", s, "drone:2")
				}
			},
			want: "failed 0=failed 1=failed 2=progressing 3=progressing", why: "2 failed; 2 in progress",
		},
		{
			name: "a failure at an older release is none of the commit", commit: "b",
			fleet: func(e *estate) { e.cluster("one", "drone", "drone:1", bundle.Failed) },
			want:  "one=waiting", why: "1 run another release",
		},
		{
			name: "a foreign release", commit: "b",
			fleet: func(e *estate) { e.cluster("one", "drone", "drone:foreign", bundle.Compliant) },
			want:  "one=waiting", why: "1 run another release",
		},
		{
			name: "a release of another type", commit: "b",
			fleet: func(e *estate) { e.cluster("one", "drone", "shop:1", bundle.Compliant) },
			want:  "one=waiting", why: "1 run another release",
		},
		{
			name: "a type that the commit does not have", commit: "b",
			fleet: func(e *estate) { e.cluster("one", "dron", "", bundle.Pending) },
			want:  "one=waiting", why: "1 run another release",
		},
		{
			name: "a commit that is not published yet", commit: "c",
			fleet: func(e *estate) { e.cluster("one", "drone", "drone:2", bundle.Compliant) },
			want:  "one=waiting", why: "the commit is not published in environment prod; 1 run another release",
		},
		{
			name: "a type that is incomplete at the commit is never done", commit: "c",
			fleet: func(e *estate) {
				e.release("drone:3", "c/e", "d3")
				e.record("c/e", []string{"drone:3", "shop:1"}, "drone")
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
				e.cluster("two", "shop", "shop:1", bundle.Compliant)
			},
			want: "failed one=waiting", why: "incomplete at the commit: drone; 1 run another release",
		},
		{
			name: "nor is it without clusters of that type", commit: "c",
			fleet: func(e *estate) {
				e.record("c/e", []string{"drone:2", "shop:1"}, "line")
				e.cluster("one", "drone", "drone:2", bundle.Compliant)
			},
			want: "failed", why: "incomplete at the commit: line",
		},
		{
			name: "another type can be asked about by itself", commit: "c", query: Query{Type: "drone"},
			fleet: func(e *estate) {
				e.record("c/e", []string{"drone:2", "shop:1"}, "line")
				e.cluster("one", "drone", "drone:2", bundle.Compliant)
			},
			want: "done",
		},
		{
			name: "the commit is published again, and complete then", commit: "c",
			fleet: func(e *estate) {
				e.release("drone:3", "c/e", "d2 with a held part")
				e.record("c/e", []string{"drone:3", "shop:1"}, "drone")
				e.release("drone:4", "c/e", "d3")
				e.record("c/e", []string{"drone:4", "shop:1"})
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
				e.cluster("two", "drone", "drone:4", bundle.Compliant)
			},
			want: "one=waiting", why: "1 run another release",
		},
		{
			name: "an incomplete release of a later commit does not prove an earlier one", commit: "b",
			fleet: func(e *estate) {
				e.release("drone:3", "c/e", "d3")
				e.record("c/e", []string{"drone:3", "shop:1"}, "drone")
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
			},
			want: "one=waiting", why: "1 run another release",
		},
		{
			name: "a release that is renewed is the same content", commit: "b",
			fleet: func(e *estate) {
				e.release("drone:3", "b/e", "d2")
				e.record("b/e", []string{"drone:3", "shop:1"})
				e.cluster("one", "drone", "drone:2", bundle.Compliant)
				e.cluster("two", "drone", "drone:3", bundle.Compliant)
			},
			want: "done",
		},
		{
			name: "a return to the commit before is not compliant with the later one", commit: "b",
			fleet: func(e *estate) {
				e.release("drone:3", "a/e", "d1")
				e.record("a/e", []string{"drone:3", "shop:1"})
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
				e.cluster("two", "drone", "drone:2", bundle.Compliant)
			},
			want: "failed one=waiting", why: "the environment has gone back to an earlier commit; 1 run another release",
		},
		{
			name: "the base went back while the environment went on", commit: "b",
			fleet: func(e *estate) {
				e.release("drone:3", "a/f", "d1")
				e.record("a/f", []string{"drone:3", "shop:1"})
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
			},
			want: "failed one=waiting", why: "the environment has gone back to an earlier commit; 1 run another release",
		},
		{
			name: "a commit of the environment", commit: "f",
			fleet: func(e *estate) {
				e.release("drone:3", "b/f", "d3")
				e.record("b/f", []string{"drone:3", "shop:1"})
				e.cluster("one", "drone", "drone:3", bundle.Compliant)
				e.cluster("two", "drone", "drone:2", bundle.Compliant)
			},
			want: "two=waiting", why: "1 run another release",
		},
		{
			name: "a ring that keeps what it has does not have the commit", commit: "c", fleet: rings,
			want: "early=waiting none=waiting", why: "2 run another release",
		},
		{name: "a ring can be asked about by itself", commit: "c", query: Query{Ring: "canary"}, fleet: rings, want: "done"},
		{
			name: "a wider ring takes a later commit, and so this one", commit: "c",
			fleet: func(e *estate) {
				rings(e)
				e.release("drone:all", "d/e", "d4")
				e.release("drone:again", "d/e", "d4", "canary")
				e.record("d/e", []string{"canary=drone:again", "early=drone:all", "drone:all"})
				e.cluster("early", "early=drone", "drone:all", bundle.Compliant)
				e.cluster("none", "drone", "drone:all", bundle.Compliant)
			},
			want: "done",
		},
		{
			name: "a ring's old release that is renewed above the commit's does not have the commit", commit: "c",
			fleet: func(e *estate) {
				rings(e)
				e.release("drone:2b", "b/e", "d2", "early")
				e.release("drone:3b", "c/e", "d3", "canary")
				e.record("c/e", []string{"canary=drone:3b", "early=drone:2b", "drone:2"})
				e.cluster("early", "early=drone", "drone:2b", bundle.Compliant)
			},
			want: "early=waiting none=waiting", why: "2 run another release",
		},
		{
			name: "an environment of which nothing is known", commit: "b", query: Query{Platform: "other"},
			fleet: func(e *estate) { e.cluster("one", "drone", "drone:2", bundle.Compliant) },
			want:  "", why: "the hub does not follow what is published in environment prod; no cluster is registered for it",
		},
		{name: "too few digits", commit: "", invalid: true, fleet: func(*estate) {}},
		{name: "a condition that hides clusters", commit: "b", invalid: true, query: Query{State: []bundle.State{bundle.Compliant}}, fleet: func(*estate) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := two(t)
			tc.fleet(e)
			got, err := all(t, e).Rollout(t.Context(), "prod", strings.Repeat(tc.commit, 7), RolloutQuery{Query: tc.query})
			if tc.invalid {
				require.ErrorIs(t, err, store.ErrInvalid)
				return
			}
			require.NoError(t, err)
			var words []string
			if got.Done {
				words = append(words, "done")
			}
			if got.Failed {
				words = append(words, "failed")
			}
			for _, o := range got.Open {
				words = append(words, o.Cluster+"="+o.Verdict)
			}
			require.Equal(t, tc.want, strings.Join(words, " "))
			require.Equal(t, tc.why, got.Why)
			require.Equal(t, got.Clusters, got.Compliant+got.Progressing+got.FailedCount+got.Waiting+got.Unknown)
			require.Len(t, got.Open, got.Clusters-got.Compliant)
			sum := 0
			for _, typ := range got.Types {
				sum += typ.Clusters
				require.Equal(t, typ.Clusters, typ.Compliant+typ.Progressing+typ.Failed+typ.Waiting+typ.Unknown)
			}
			require.Equal(t, got.Clusters, sum)
		})
	}
}

// rings adds commit c for the canary alone, with a cluster in each ring.
func rings(e *estate) {
	e.release("drone:3", "c/e", "d3", "canary")
	e.record("c/e", []string{"canary=drone:3", "early=drone:2", "drone:2"})
	e.cluster("canary", "canary=drone", "drone:3", bundle.Compliant)
	e.cluster("early", "early=drone", "drone:2", bundle.Compliant)
	e.cluster("none", "drone", "drone:2", bundle.Compliant)
}

func TestARolloutInTheCanaryIsMeasuredByTheCanary(t *testing.T) {
	e := two(t)
	rings(e)
	e.records[len(e.records)-1].RingOrder = []string{"early", "canary"}
	e.cluster("canary-2", "canary=drone", "drone:2", bundle.Compliant)
	e.silence(e.cluster("far", "early=drone", "drone:2", bundle.Compliant), 30*24*time.Hour)
	got, err := all(t, e).Rollout(t.Context(), "prod", commit("c"), RolloutQuery{})
	require.NoError(t, err)
	require.Equal(t, 5, got.Clusters)
	counts, beyond := got.Shown()
	require.Equal(t, RolloutCounts{Clusters: 2, Compliant: 1, Waiting: 1}, counts)
	require.Equal(t, 3, beyond)
	require.False(t, got.Done)
	require.Equal(t, []RingRollout{
		{Ring: "early", RolloutCounts: RolloutCounts{Clusters: 2, Waiting: 1, Unknown: 1}},
		{Ring: "canary", Reached: true, RolloutCounts: RolloutCounts{Clusters: 2, Compliant: 1, Waiting: 1}},
		{Ring: "", RolloutCounts: RolloutCounts{Clusters: 1, Waiting: 1}},
	}, got.Rings, "in the order of the record")

	got, err = all(t, e).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{})
	require.NoError(t, err)
	counts, beyond = got.Shown()
	require.Equal(t, RolloutCounts{Clusters: 5, Compliant: 4, Unknown: 1}, counts, "an earlier commit, which all have")
	require.Zero(t, beyond)
}

func TestRolloutHasTheAgeOfItsProofAndItsLimit(t *testing.T) {
	e := two(t)
	e.silence(e.cluster("one", "drone", "drone:2", bundle.Compliant), 2*time.Hour)
	e.cluster("two", "drone", "drone:2", bundle.Compliant)
	e.cluster("three", "drone", "drone:1", bundle.Compliant)
	e.silence(e.cluster("four", "drone", "drone:2", bundle.Compliant), 30*24*time.Hour)

	got, err := all(t, e).Rollout(t.Context(), "prod", commit("b")[:7], RolloutQuery{Query: Query{Limit: 1}})
	require.NoError(t, err)
	require.Equal(t, Rollout{
		Environment: "prod", Commit: commit("b"), Clusters: 4, Compliant: 2, Waiting: 1, Unknown: 1, Followed: true, Published: true, OldestProofSeconds: 7200,
		Reached: RolloutCounts{Clusters: 4, Compliant: 2, Waiting: 1, Unknown: 1},
		Why:     "1 run another release; 1 silent",
		Open: []OpenCluster{{
			UID: "four", Cluster: "four", Type: "drone", State: store.Stale, LastState: bundle.Compliant, Verdict: VerdictUnknown,
			Release: bundle.ReleaseName(4, digest.FromString("drone:2")), LastSeen: start.Add(-30 * 24 * time.Hour), Via: store.ViaHTTP,
		}},
		Types: []TypeRollout{
			{Type: "drone", Release: bundle.ReleaseName(4, digest.FromString("drone:2")), RolloutCounts: RolloutCounts{Clusters: 4, Compliant: 2, Waiting: 1, Unknown: 1}},
			{Type: "shop", Release: bundle.ReleaseName(2, digest.FromString("shop:1"))},
		},
	}, got)
}

func TestAFailedClusterSaysWhichAssignmentFailed(t *testing.T) {
	e := two(t)
	s := e.cluster("one", "drone", "drone:2", bundle.Failed)
	s.Deployments = []store.Deployment{
		{Assignment: "a-x", Workspace: "red", State: bundle.Failed, Reason: "Crash"},
		{Assignment: "b-x", Workspace: "blue", State: bundle.Failed, Reason: "NotOurs"},
	}
	e.put(s)
	for _, tc := range []struct{ view, message, reason string }{{"", "a-x", "Crash"}, {"blue", "b-x", "NotOurs"}} {
		v := all(t, e)
		if tc.view != "" {
			v = viewOf(t, e, store.AccessScope{Workspaces: []string{tc.view}})
		}
		got, err := v.Rollout(t.Context(), "prod", commit("b"), RolloutQuery{})
		require.NoError(t, err)
		require.Len(t, got.Open, 1)
		require.Equal(t, tc.reason, got.Open[0].Reason)
		require.Equal(t, tc.message, got.Open[0].Message)

		list, err := v.Clusters(t.Context(), Query{Sort: "reason", Limit: 1})
		require.NoError(t, err)
		require.Equal(t, []string{tc.reason, tc.message}, []string{list.Clusters[0].Reason, list.Clusters[0].Message})
		counts, err := v.Count(t.Context(), "clusters", []string{"reason"}, Query{State: []bundle.State{bundle.Failed}})
		require.NoError(t, err)
		require.Equal(t, []Count{{[]string{tc.reason}, 1}}, counts.Rows)
	}
}

func TestRolloutCountsWhatAViewSees(t *testing.T) {
	e := two(t)
	s := e.cluster("one", "drone", "drone:2", bundle.Compliant)
	s.Labels = map[string]string{"region": "east"}
	e.put(s)
	e.cluster("two", "drone", "drone:1", bundle.Compliant)

	got, err := viewOf(t, e, store.AccessScope{Selector: "region=east"}).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{})
	require.NoError(t, err)
	require.True(t, got.Done)
	require.Equal(t, 1, got.Clusters)
	require.Len(t, got.Types, 1, "of other types it learns nothing")

	_, err = viewOf(t, e, store.AccessScope{Environments: []string{"dev"}}).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{})
	unknown := new(UnknownNameError)
	require.ErrorAs(t, err, &unknown)
}

func TestACommitOfOnePlatformIsNoMatterOfAnother(t *testing.T) {
	e := two(t)
	e.cluster("one", "drone", "drone:2", bundle.Compliant)
	other := e.records[0]
	other.Digest, other.Platform, other.BaseCommit, other.ClusterTypes = digest.FromString("other"), "other", commit("9"), nil
	e.records = append(e.records, other)
	s := e.cluster("two", "line", "", bundle.Pending)
	s.Platform, s.Claims.Platform = "other", "other"
	e.put(s)

	got, err := all(t, e).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{})
	require.NoError(t, err)
	require.True(t, got.Done)
	require.Equal(t, 1, got.Clusters)
}

func TestDesired(t *testing.T) {
	issued := func(n int64) time.Time { return start.Add(time.Duration(n-1000) * time.Minute) }
	for _, tc := range []struct {
		name, typ, runs string
		fleet           func(e *estate)
		want            string
		behind          int
		since           time.Time
	}{
		{name: "the newest", typ: "drone", runs: "drone:2", want: "drone:2 current"},
		{name: "unchanged since an earlier commit", typ: "shop", runs: "shop:1", want: "shop:1 current"},
		{name: "one behind", typ: "drone", runs: "drone:1", want: "drone:2 behind", behind: 1, since: issued(4)},
		{name: "runs nothing", typ: "drone", want: "drone:2 nothing"},
		{name: "never published here", typ: "drone", runs: "drone:x", want: "drone:2 foreign"},
		{name: "of another type", typ: "drone", runs: "shop:1", want: "drone:2 foreign"},
		{name: "a type without a release", typ: "line", want: " nothing"},
		{name: "two behind, the ring's alone count", typ: "early=drone", runs: "drone:1", want: "drone:early behind", behind: 2, since: issued(4), fleet: func(e *estate) {
			e.release("drone:3", "c/e", "d3", "canary")
			e.release("drone:early", "c/e", "d3", "canary", "early")
			e.record("c/e", []string{"canary=drone:3", "early=drone:early", "drone:2"})
		}},
		{name: "the newest, before it was signed anew", typ: "drone", runs: "drone:2", want: "drone:3 current", fleet: func(e *estate) {
			e.release("drone:3", "b/e", "d2")
			e.record("b/e", []string{"drone:3"})
		}},
		{name: "one behind, which was signed three times", typ: "drone", runs: "drone:1", want: "drone:9 behind", behind: 1, since: issued(4), fleet: func(e *estate) {
			e.release("drone:3", "b/e", "d2")
			e.release("drone:9", "b/e", "d2")
			e.record("b/e", []string{"drone:9"})
		}},
		{name: "ahead of its ring, by its signature alone", typ: "early=drone", runs: "drone:3", want: "drone:2 current", fleet: func(e *estate) {
			e.release("drone:3", "b/e", "d2", "canary")
			e.record("b/e", []string{"canary=drone:3", "drone:2"})
		}},
		{name: "ahead of its ring", typ: "early=drone", runs: "drone:3", want: "drone:2 ahead", fleet: rings},
		{name: "without a ring", typ: "drone", runs: "drone:2", want: "drone:2 current", fleet: rings},
		{name: "in the first ring", typ: "canary=drone", runs: "drone:2", want: "drone:3 behind", behind: 1, since: issued(6), fleet: rings},
		{name: "in a ring that the platform does not name", typ: "other=drone", runs: "drone:2", want: "drone:2 current", fleet: rings},
		{name: "a ring where the platform names none", typ: "canary=drone", runs: "drone:2", want: "drone:2 current"},
		{name: "a release that the hub has not learned", typ: "drone", runs: "drone:2", want: "drone:9 behind", behind: 1, since: issued(6), fleet: func(e *estate) {
			e.record("c/e", []string{"drone:9"})
		}},
		{name: "the type has left", typ: "shop", runs: "shop:1", want: "shop:1 current", fleet: func(e *estate) {
			e.record("c/e", []string{"drone:2"})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := two(t)
			if tc.fleet != nil {
				tc.fleet(e)
			}
			e.cluster("it", tc.typ, tc.runs, bundle.Compliant)
			list, err := all(t, e).Clusters(t.Context(), Query{Cluster: "it"})
			require.NoError(t, err)
			m := list.Clusters[0].Desired
			require.NotNil(t, m)
			release := ""
			if m.Release != nil {
				for _, name := range []string{"drone:1", "drone:2", "drone:3", "drone:early", "drone:9", "shop:1"} {
					if digest.FromString(name) == m.Release.Digest {
						release = name
					}
				}
			}
			require.Equal(t, tc.want, release+" "+string(m.Relation))
			require.Equal(t, tc.behind, m.Behind)
			require.Equal(t, tc.since, m.BehindSince)
		})
	}
}

func TestNothingIsKnownOfEnvironmentsThatAreNotFollowed(t *testing.T) {
	e := newEstate(t)
	e.cluster("it", "drone", "", bundle.Pending)
	list, err := all(t, e).Clusters(t.Context(), Query{})
	require.NoError(t, err)
	require.Nil(t, list.Clusters[0].Desired)
}

func TestAClusterWithoutAPlatformBelongsToTheOnlyOne(t *testing.T) {
	e := two(t)
	s := e.cluster("it", "drone", "drone:2", bundle.Compliant)
	s.Platform, s.Claims.Platform = "", ""
	e.put(s)
	list, err := all(t, e).Clusters(t.Context(), Query{})
	require.NoError(t, err)
	require.Equal(t, Current, list.Clusters[0].Desired.Relation)
}

func TestRolloutCountsTheCohortOfAGate(t *testing.T) {
	e := two(t)
	registered := func(at time.Time, s store.ClusterState) {
		s.AddedAt = at
		e.put(s)
	}
	e.cluster("plain", "drone", "drone:2", bundle.Compliant)
	e.cluster("early", "early=drone", "drone:2", bundle.Compliant)
	canary := e.cluster("canary", "canary=drone", "drone:1", bundle.Failed, "drone:2")
	canary.Reason, canary.ExpectedInterval, canary.LastSeen = "Quarantined", 90*24*time.Hour, start.Add(-30*time.Hour)
	e.put(canary)
	quiet := e.cluster("quiet", "drone", "drone:2", bundle.Compliant)
	quiet.LastSeen = start.Add(-30 * time.Hour) // and an hour is expected
	e.put(quiet)
	earlier := e.cluster("earlier", "drone", "drone:0", bundle.Failed, "drone:1")
	earlier.Reason = "Quarantined" // of the release before
	e.put(earlier)
	none := e.cluster("none", "drone", "", "")
	none.Reporting, none.Newest, none.LastSeen, none.Offered = store.NotReporting, store.Order{}, time.Time{}, nil
	e.put(none)
	registered(start.Add(-time.Hour), e.cluster("joined", "canary=drone", "drone:2", bundle.Compliant))
	registered(start, e.cluster("joined-now", "drone", "drone:1", bundle.Compliant))

	for _, tc := range []struct {
		name  string
		query RolloutQuery
		want  string
	}{
		{"as the hub sees it", RolloutQuery{}, "7 clusters: 3 compliant, 1 failed, 2 waiting, 1 unknown; 1 without reports, 0 later, 1 in quarantine"},
		{"what is too old is unknown", RolloutQuery{MaxReportAge: 24 * time.Hour}, "7 clusters: 3 compliant, 0 failed, 2 waiting, 2 unknown; 1 without reports, 0 later, 1 in quarantine"},
		{"what is not too old counts, whatever interval is expected", RolloutQuery{MaxReportAge: 36 * time.Hour}, "7 clusters: 4 compliant, 1 failed, 2 waiting, 0 unknown; 1 without reports, 0 later, 1 in quarantine"},
		{"its age may be as much as that", RolloutQuery{MaxReportAge: 30 * time.Hour}, "7 clusters: 4 compliant, 1 failed, 2 waiting, 0 unknown; 1 without reports, 0 later, 1 in quarantine"},
		{"who was registered then is not before it", RolloutQuery{RegisteredBefore: start}, "6 clusters: 3 compliant, 1 failed, 1 waiting, 1 unknown; 1 without reports, 1 later, 1 in quarantine"},
		{"nor who came in between", RolloutQuery{RegisteredBefore: start.Add(-2 * time.Hour)}, "5 clusters: 2 compliant, 1 failed, 1 waiting, 1 unknown; 1 without reports, 2 later, 1 in quarantine"},
		{"rings", RolloutQuery{Rings: []string{"canary", "early"}, RegisteredBefore: start.Add(-2 * time.Hour)}, "2 clusters: 1 compliant, 1 failed, 0 waiting, 0 unknown; 0 without reports, 1 later, 1 in quarantine"},
		{"before all", RolloutQuery{RegisteredBefore: start.Add(-1000 * time.Hour)}, "0 clusters: 0 compliant, 0 failed, 0 waiting, 0 unknown; 0 without reports, 8 later, 0 in quarantine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := all(t, e).Rollout(t.Context(), "prod", commit("b"), tc.query)
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprintf("%d clusters: %d compliant, %d failed, %d waiting, %d unknown; %d without reports, %d later, %d in quarantine",
				got.Clusters, got.Compliant, got.FailedCount, got.Waiting, got.Unknown, got.NotReporting, got.Later, got.Quarantined))
			require.Len(t, got.Open, got.Clusters-got.Compliant)
			require.False(t, got.Done)
		})
	}
	e.failures = []store.Failures{{UID: "plain", Workspace: "red", Count: 3}, {UID: "plain", Workspace: "blue", Count: 1}, {UID: "joined-now", Workspace: "red", Count: 7}, {UID: "gone", Count: 9}}
	for want, v := range map[int64]*View{4: all(t, e), 3: viewOf(t, e, store.AccessScope{Workspaces: []string{"red"}})} {
		got, err := v.Rollout(t.Context(), "prod", commit("b"), RolloutQuery{FailuresSince: start.Add(-time.Hour), RegisteredBefore: start})
		require.NoError(t, err)
		require.Equal(t, want, got.Failures)
		require.Equal(t, start.Add(-time.Hour), got.FailuresSince)
	}
	for _, q := range []RolloutQuery{{Rings: []string{"a"}, Query: Query{Ring: "a"}}, {MaxReportAge: -1}, {FailuresSince: start, Query: Query{AsOf: start}}} {
		_, err := all(t, e).Rollout(t.Context(), "prod", commit("b"), q)
		require.ErrorIs(t, err, store.ErrInvalid)
	}

	e.then[start.Add(-time.Minute).UnixMilli()] = []store.ClusterState{none}
	got, err := all(t, e).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{Query: Query{AsOf: start.Add(-time.Minute)}})
	require.NoError(t, err)
	require.Equal(t, 1, got.NotReporting, "the registration of now counts for the past")
	require.Contains(t, got.Why, "none of its clusters counts")
}

// What application teams deliver changes the content of a ring, and not the commit.
func TestARingCountsItsContent(t *testing.T) {
	e := newEstate(t)
	count := func(rings ...string) string {
		got, err := all(t, e).Rollout(t.Context(), "prod", commit("b"), RolloutQuery{Rings: rings})
		require.NoError(t, err)
		return fmt.Sprintf("%d compliant, %d progressing, %d waiting", got.Compliant, got.Progressing, got.Waiting)
	}
	e.release("drone:1", "b/e", "old")
	e.record("b/e", []string{"canary=drone:1", "early=drone:1", "stable=drone:1"})
	e.cluster("c", "canary=drone", "drone:1", bundle.Compliant)
	e.cluster("e", "early=drone", "drone:1", bundle.Compliant)
	require.Equal(t, "1 compliant, 0 progressing, 0 waiting", count("canary"))

	e.release("drone:2", "b/e", "new", "canary")
	e.record("b/e", []string{"canary=drone:2", "early=drone:1", "stable=drone:1"})
	require.Equal(t, "0 compliant, 0 progressing, 1 waiting", count("canary"), "it runs what it had before")
	require.Equal(t, "2 compliant, 0 progressing, 0 waiting", count("canary", "early"), "which is what early has")
	e.cluster("c", "canary=drone", "drone:1", bundle.Compliant, "drone:2")
	require.Equal(t, "0 compliant, 1 progressing, 0 waiting", count("canary"))
	e.cluster("c", "canary=drone", "drone:2", bundle.Compliant)
	require.Equal(t, "1 compliant, 0 progressing, 0 waiting", count("canary"))
	require.Equal(t, "2 compliant, 0 progressing, 0 waiting", count("canary", "early"), "later content does not hold a wider ring")

	e.release("drone:3", "b/e", "old", "early")
	e.record("b/e", []string{"canary=drone:2", "early=drone:3", "stable=drone:1"})
	require.Equal(t, "2 compliant, 0 progressing, 0 waiting", count("canary", "early"), "nor does a renewal of what early has")
}
