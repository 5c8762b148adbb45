package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/hub/store"
)

func pastTests() []test {
	return []test{
		{"the state of a cluster is what its newest report says", theStateOfAClusterIsWhatItsNewestReportSays},
		{"what a batch leaves is what is read", whatABatchLeavesIsWhatIsRead},
		{"a moment of the past is the last report before it, whatever order reports arrive in", aMomentOfThePastIsTheLastReportBeforeItWhateverOrderReportsArriveIn},
		{"labels and identity are those of then", labelsAndIdentityAreThoseOfThen},
		{"a cluster that was registered later is as its reports say", aClusterThatWasRegisteredLaterIsAsItsReportsSay},
		{"scopes choose clusters, now and then", scopesChooseClustersNowAndThen},
		{"changes have what was before, and the release that ran", changesHaveWhatWasBeforeAndTheReleaseThatRan},
		{"changes are chosen and paged", changesAreChosenAndPaged},
		{"a cluster that comes back is registered since then", aClusterThatComesBackIsRegisteredSinceThen},
		{"failures are counted since a time, also those of which no report came", failuresAreCountedSinceATime},
		{"a caller ends a scan by its error", aCallerEndsAScanByItsError},
	}
}

// scanned returns the states that a scope chooses; at a time, unless that is zero.
func (f *fixture) scanned(at time.Time, s store.Scope) (all []store.ClusterState) {
	f.t.Helper()
	keep := func(c store.ClusterState) error {
		all = append(all, c)
		return nil
	}
	if at.IsZero() {
		require.NoError(f.t, f.Scan(f.t.Context(), s, keep))
	} else {
		require.NoError(f.t, f.ScanAt(f.t.Context(), at, s, keep))
	}
	return all
}

func theStateOfAClusterIsWhatItsNewestReportSays(t *testing.T, f *fixture) {
	c := cluster("plant-7", 1)
	c.Labels, c.Ring, c.ExpectedInterval = map[string]string{"region": "east"}, "canary", 2*time.Hour
	_, err := f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, f.scanned(time.Time{}, store.Scope{})[0].LastSeen)
	it := Item("drone", bundle.Failed)
	it.Reason, it.Message, it.Application, it.Revision, it.Failures, it.Floating = "CrashLoop", "it fails", "shop-app", "r7", 3, true
	it.ConfigDigest, it.SiteValues = digest.FromString("config"), digest.FromString("values")
	r := reportOf(c, order(2, 9), it, Item("radar", bundle.Compliant))
	r.Body.Reason, r.Body.Message = "Degraded", "one has failed"
	r.Body.Desired = &bundle.ReportRelease{Digest: digest.FromString("next"), Epoch: 1, Sequence: 8, Number: 13, BaseCommit: "abc", EnvironmentCommit: "def", IssuedAt: Epoch.Add(-time.Hour)}
	r = identified(r.Body)
	f.clock.Add(time.Minute)
	f.ingestedBy(store.ViaMedia, c, r)

	got := f.scanned(time.Time{}, store.Scope{})
	require.Len(t, got, 1)
	require.Equal(t, c.Identity, got[0].Identity)
	require.Equal(t, []string{kidOf(t, c.Key)}, got[0].KeyIDs)
	require.Equal(t, 2*time.Hour, got[0].ExpectedInterval)
	require.Equal(t, order(2, 9), got[0].Newest)
	require.Equal(t, store.Proof{Report: r.ID, At: order(2, 9), OccurredAt: Epoch, ReceivedAt: Epoch.Add(time.Minute), Via: store.ViaMedia}, got[0].Proof)
	require.Equal(t, []any{bundle.Failed, "Degraded", "one has failed", Epoch, "v0.1.0", Epoch}, []any{got[0].State, got[0].Reason, got[0].Message, got[0].Since, got[0].AgentVersion, got[0].LastSeen})
	require.Equal(t, r.Body.Desired, got[0].Offered)
	require.Equal(t, r.Body.Observed, got[0].Observed)
	require.Equal(t, r.Body.Cluster, got[0].Claims)
	require.Equal(t, []store.Deployment{
		{
			Assignment: "drone-main", Workspace: "shop", Application: "shop-app", Workload: "drone", Target: "main", Adapter: "directory", State: bundle.Failed, Reason: "CrashLoop",
			Message: "it fails", Since: Epoch, Version: "1.0.0", Revision: "r7", ConfigDigest: it.ConfigDigest, Content: it.Content, SiteValues: it.SiteValues, Failures: 3, Floating: true,
		},
		{
			Assignment: "radar-main", Workspace: "shop", Workload: "radar", Target: "main", Adapter: "directory", State: bundle.Compliant, Since: Epoch, Version: "1.0.0",
			Content: digest.FromString("radar"),
		},
	}, got[0].Deployments)
	end, err := f.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, end, got[0].Change)

	f.ingested(c, reportOf(c, order(2, 10), Item("radar", bundle.Compliant)))
	got = f.scanned(time.Time{}, store.Scope{})
	require.Len(t, got[0].Deployments, 1, "what is not listed any more is not there")
}

func whatABatchLeavesIsWhatIsRead(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	other := f.again()
	batches := [][]store.Report{
		{reportOf(c, order(1, 2), Item("drone", bundle.Applying)), reportOf(c, order(1, 5), Item("drone", bundle.Compliant), Item("radar", bundle.Failed))},
		{reportOf(c, order(1, 3), Item("late", bundle.Failed))},
		{reportOf(c, order(1, 6), Item("late", bundle.Compliant)), reportOf(c, order(1, 1))},
		{reportOf(c, order(1, 3))}, // a conflict
		{reportOf(c, order(1, 7), Item("a", bundle.Compliant), Item("zz", bundle.Compliant))},
	}
	for i, reports := range batches {
		at := []store.Store{f.Store, other.Store}[i%2] // each of them finds the cluster changed by the other
		f.clock.Add(time.Minute)
		done, err := at.Ingest(t.Context(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: reports})
		require.NoError(t, err)
		require.NotNil(t, done.State)
		require.Equal(t, f.scanned(time.Time{}, store.Scope{}), []store.ClusterState{*done.State}, "batch %d", i)
	}
	done, err := f.Ingest(t.Context(), store.Batch{UID: c.UID, Via: store.ViaHTTP, Reports: batches[0]})
	require.NoError(t, err)
	require.Nil(t, done.State, "nothing has changed")
}

// story returns reports of a cluster in order, whose times fall now and then if they may.
func story(r *rand.Rand, c store.Cluster, n int, falls bool) (all []store.Report) {
	at := Epoch
	states := []bundle.State{bundle.Applying, bundle.Compliant, bundle.Failed}
	since := map[string]bundle.Item{}
	for seq := range n {
		if at = at.Add(time.Duration(r.IntN(5)) * time.Minute); falls && r.IntN(5) == 0 {
			at = at.Add(-time.Duration(r.IntN(60)) * time.Minute)
		}
		var items []bundle.Item
		for _, workload := range []string{"camera", "drone", "radar"} {
			if r.IntN(4) == 0 {
				continue
			}
			it := Item(workload, states[r.IntN(len(states))])
			if before := since[workload]; before.State == it.State {
				it.Since = before.Since
			} else {
				it.Since = at
			}
			since[workload] = it
			items = append(items, it)
		}
		body := Snapshot(c.Identity, order(int64(1+seq/10), int64(1+seq)), items...)
		body.OccurredAt, body.Agent.Version = at, fmt.Sprint("v", seq/7)
		body.Observed = &bundle.ReportRelease{Digest: digest.FromString(fmt.Sprint(seq / 4)), Sequence: int64(seq / 4), BaseCommit: fmt.Sprint("commit-", seq/4), IssuedAt: Epoch}
		all = append(all, identified(body))
	}
	return all
}

// then returns the state that reports, in order, tell as of a time.
func then(all []store.Report, at time.Time) (s store.ClusterState) {
	last := -1
	for i := range all {
		if !all[i].Body.OccurredAt.After(at) {
			last = i
		}
	}
	if last < 0 {
		return s
	}
	r := all[last]
	s.State, s.Reason, s.Offered, s.Observed, s.AgentVersion, s.Claims = r.Body.State, r.Body.Reason, r.Body.Desired, r.Body.Observed, r.Body.Agent.Version, r.Body.Cluster
	s.Proof.Report, s.Proof.At, s.LastSeen = r.ID, store.OrderOf(r.Body.Agent), r.Body.OccurredAt
	for i := last; i >= 0 && all[i].Body.State == r.Body.State; i-- {
		s.Since = all[i].Body.OccurredAt
	}
	s.Deployments = []store.Deployment{}
	for _, it := range r.Body.Items {
		s.Deployments = append(s.Deployments, store.Deployment{
			Assignment: it.Assignment, Workspace: it.Workspace, Workload: it.Workload, Target: it.Target, Adapter: it.Adapter, State: it.State, Since: it.Since,
			Version: it.Version, Content: it.Content,
		})
	}
	return s
}

func aMomentOfThePastIsTheLastReportBeforeItWhateverOrderReportsArriveIn(t *testing.T, f *fixture) {
	clusters := f.added("plant-1", "plant-2", "plant-3", "plant-4")
	f.clock.Add(1000 * time.Hour)
	for i, c := range clusters {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		all := story(r, c, 40, i >= 2)
		arrived := slices.Clone(all)
		if i%2 == 1 {
			r.Shuffle(len(arrived), func(a, b int) { arrived[a], arrived[b] = arrived[b], arrived[a] })
		}
		for len(arrived) > 0 {
			n := min(1+r.IntN(6), len(arrived))
			require.Equal(t, n, f.ingestedBy(store.ViaMedia, c, arrived[:n]...).Accepted)
			arrived = arrived[n:]
		}
		for m := -1; m < 120; m += sweeptest.Every(3) {
			at := Epoch.Add(time.Duration(m) * time.Minute)
			want := then(all, at)
			got := f.scanned(at, store.Scope{UIDs: []string{c.UID}})
			if m < 0 && want.Proof.At == (store.Order{}) {
				require.Empty(t, got, "it was not registered, and no report tells of then")
				continue
			}
			require.Len(t, got, 1)
			g := got[0]
			require.Equal(t, want.Proof.At, g.Newest, "%s at %s", c.Name, at)
			g.Proof.OccurredAt, g.Proof.ReceivedAt, g.Proof.Via, g.Registration = time.Time{}, time.Time{}, "", store.Registration{}
			if want.Deployments == nil {
				g.Deployments = nil
			}
			require.Equal(t, want, g, "%s at %s", c.Name, at)
		}
	}
	require.NoError(t, f.Compare(t.Context(), func(uid, assignment, difference string) error {
		return errors.New(uid + " " + assignment + ": " + difference)
	}))
}

func labelsAndIdentityAreThoseOfThen(t *testing.T, f *fixture) {
	c := cluster("plant-7", 1)
	c.Labels = map[string]string{"region": "east", "gpu": "true"}
	_, err := f.AddCluster(t.Context(), c)
	require.NoError(t, err)
	f.ingested(c, reportOf(c, order(1, 1)))
	f.clock.Add(time.Hour)
	second := c
	second.Name, second.Environment, second.Labels, second.ExpectedInterval = "plant-seven", "prod", map[string]string{"region": "west"}, 5*time.Hour
	_, err = f.ReplaceCluster(t.Context(), second)
	require.NoError(t, err)
	_, err = f.ReplaceCluster(t.Context(), c) // twice in a moment
	require.NoError(t, err)
	_, err = f.ReplaceCluster(t.Context(), second)
	require.NoError(t, err)
	f.clock.Add(time.Hour)
	_, err = f.RetireCluster(t.Context(), c.UID, "scrapped")
	require.NoError(t, err)
	f.clock.Add(time.Hour)

	for hours, want := range map[float64]string{
		-1: "", 0: "plant-7 dev map[gpu:true region:east] 1h0m0s", 0.5: "plant-7 dev map[gpu:true region:east] 1h0m0s",
		1: "plant-seven prod map[region:west] 5h0m0s", 1.9: "plant-seven prod map[region:west] 5h0m0s", 2: "", 9: "",
	} {
		var got []string
		for _, s := range f.scanned(Epoch.Add(time.Duration(hours*float64(time.Hour))), store.Scope{}) {
			require.Equal(t, bundle.Compliant, s.State)
			require.Nil(t, s.RetiredAt)
			got = append(got, fmt.Sprint(s.Name, " ", s.Environment, " ", s.Labels, " ", s.ExpectedInterval))
		}
		require.Equal(t, want, strings.Join(got, ", "), hours)
	}
	retired := f.scanned(Epoch.Add(3*time.Hour), store.Scope{WithRetired: true})
	require.Len(t, retired, 1)
	require.Equal(t, "scrapped", retired[0].RetiredReason)
	require.Empty(t, f.scanned(time.Time{}, store.Scope{}))
	require.Len(t, f.scanned(time.Time{}, store.Scope{WithRetired: true}), 1)
}

func aClusterThatWasRegisteredLaterIsAsItsReportsSay(t *testing.T, f *fixture) {
	hour := func(n float64) time.Time { return Epoch.Add(time.Duration(n * float64(time.Hour))) }
	c := cluster("plant-7", 1)
	c.Labels = map[string]string{"region": "east"}
	say := func(seq int64, n float64, state bundle.State) {
		body := Snapshot(c.Identity, order(1, seq), Item("drone", state))
		body.OccurredAt = hour(n)
		require.Equal(t, 1, f.ingestedBy(store.ViaMedia, c, identified(body)).Accepted)
	}
	register := func(name string) {
		c.Name = name
		_, err := f.AddCluster(t.Context(), c)
		require.NoError(t, err)
	}
	f.clock.Add(2 * time.Hour)
	register("plant-7")
	say(1, 1, bundle.Compliant)
	f.clock.Add(2 * time.Hour) // 4
	_, err := f.RemoveCluster(t.Context(), c.UID)
	require.NoError(t, err)
	f.clock.Add(4 * time.Hour) // 8
	register("plant-seven")
	say(2, 6, bundle.Failed)

	for n, want := range map[float64]string{
		0.5: "", 1: "plant-7 compliant 2", 1.5: "plant-7 compliant 2", 3: "plant-7 compliant 2",
		5: "", 6: "plant-seven failed 8", 7: "plant-seven failed 8", 9: "plant-seven failed 8",
	} {
		var got []string
		for _, s := range f.scanned(hour(n), store.Scope{Environment: c.Environment}) {
			require.Equal(t, c.Labels, s.Labels)
			got = append(got, fmt.Sprintf("%s %s %g", s.Name, s.State, s.AddedAt.Sub(Epoch).Hours()))
		}
		require.Equal(t, want, strings.Join(got, ", "), n)
	}
}

func scopesChooseClustersNowAndThen(t *testing.T, f *fixture) {
	Fleet(f.clock, func(id store.Identity, items ...bundle.Item) {
		c := store.Cluster{Identity: id, Key: keyOf(uint64(id.Name[0]))}
		_, err := f.AddCluster(t.Context(), c)
		require.NoError(t, err)
		if len(items) > 0 {
			f.ingested(c, reportOf(c, order(1, 1), items...))
		}
	})
	var many []string
	for i := range 700 {
		many = append(many, fmt.Sprint("nobody-", i))
	}
	for _, tt := range []struct {
		scope store.Scope
		want  string
	}{
		{store.Scope{}, "a-good(2) b-bad(2) c-new(0) d-silent(1)"},
		{store.Scope{Environment: "dev"}, "a-good(2) b-bad(2) c-new(0)"},
		{store.Scope{Type: "large"}, "d-silent(1)"},
		{store.Scope{Platform: "other"}, ""},
		{store.Scope{Workload: "radar"}, "a-good(1) b-bad(1)"},
		{store.Scope{Workspace: "shop", Environment: "prod"}, "d-silent(1)"},
		{store.Scope{Assignment: "drone-main", WithoutDeployments: true}, "a-good(0) b-bad(0) d-silent(0)"},
		{store.Scope{WithoutDeployments: true}, "a-good(0) b-bad(0) c-new(0) d-silent(0)"},
		{store.Scope{UIDs: []string{"uid-c-new", "uid-a-good", "uid-a-good", "nobody"}}, "a-good(2) c-new(0)"},
		{store.Scope{UIDs: append(many, "uid-d-silent", "uid-b-bad")}, "b-bad(2) d-silent(1)"},
		{store.Scope{UIDs: []string{}}, ""},
	} {
		for _, at := range []time.Time{{}, f.clock.Now()} {
			var got []string
			for _, s := range f.scanned(at, tt.scope) {
				got = append(got, fmt.Sprintf("%s(%d)", s.Name, len(s.Deployments)))
			}
			require.Equal(t, tt.want, strings.Join(got, " "), "%+v", tt.scope)
		}
	}
}

// told returns changes as "cluster/assignment from->to".
func told(all []store.Change) (lines []string) {
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s/%s %s->%s", c.Cluster, c.Assignment, c.From.State, c.To.State))
	}
	return lines
}

func changesHaveWhatWasBeforeAndTheReleaseThatRan(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0]
	say := func(seq int64, commit string, items ...bundle.Item) store.Report {
		body := Snapshot(c.Identity, order(1, seq), items...)
		body.OccurredAt = Epoch.Add(time.Duration(seq) * time.Minute)
		body.Observed = &bundle.ReportRelease{Digest: digest.FromString(commit), BaseCommit: commit, EnvironmentCommit: "env-" + commit}
		return identified(body)
	}
	f.clock.Add(time.Hour)
	second := say(2, "two", Item("drone", bundle.Failed))
	f.ingested(c, say(1, "one", Item("drone", bundle.Compliant)), second, say(3, "two"))
	list, err := f.Transitions(t.Context(), store.TransitionFilter{})
	require.NoError(t, err)
	require.Equal(t, []string{"plant-7/drone-main failed->removed", "plant-7/drone-main compliant->failed", "plant-7/drone-main ->compliant"}, told(list.Transitions))
	change := list.Transitions[1]
	point := func(s bundle.State, commit string) store.Point {
		return store.Point{State: s, Version: "1.0.0", Content: digest.FromString("drone"), Release: digest.FromString(commit), BaseCommit: commit, EnvironmentCommit: "env-" + commit}
	}
	require.Equal(t, store.Change{
		UID: c.UID, Cluster: "plant-7", Environment: "dev", Type: "drone", Assignment: "drone-main", Workspace: "shop", Workload: "drone", Target: "main",
		From: point(bundle.Compliant, "one"), To: point(bundle.Failed, "two"),
		Proof: store.Proof{Report: second.ID, At: order(1, 2), OccurredAt: Epoch.Add(2 * time.Minute), ReceivedAt: Epoch.Add(time.Hour), Via: store.ViaHTTP},
	}, change)
	require.Equal(t, store.Point{}, list.Transitions[2].From, "it was not there")

	agent, err := f.Transitions(t.Context(), store.TransitionFilter{WholeAgent: true})
	require.NoError(t, err)
	require.Equal(t, []string{"plant-7/ failed->compliant", "plant-7/ compliant->failed", "plant-7/ ->compliant"}, told(agent.Transitions))
	require.Equal(t, "one", agent.Transitions[1].From.BaseCommit)
	require.Equal(t, "two", agent.Transitions[1].To.BaseCommit)
	both, err := f.Transitions(t.Context(), store.TransitionFilter{Both: true})
	require.NoError(t, err)
	require.Len(t, both.Transitions, 6)
}

func changesAreChosenAndPaged(t *testing.T, f *fixture) {
	clusters := f.added("plant-1", "plant-2")
	f.clock.Add(100 * time.Hour)
	for i, c := range clusters {
		f.ingested(c, story(rand.New(rand.NewPCG(uint64(i), 2)), c, 30, i == 1)...)
	}
	for _, filter := range []store.TransitionFilter{
		{},
		{Both: true},
		{WholeAgent: true},
		{Scope: store.Scope{Workload: "drone"}},
		{Scope: store.Scope{UIDs: []string{clusters[0].UID}}},
		{Scope: store.Scope{UIDs: []string{clusters[0].UID}}, First: order(1, 5), Last: order(2, 12), Both: true},
		{From: Epoch.Add(10 * time.Minute), Until: Epoch.Add(30 * time.Minute)},
		{Scope: store.Scope{Environment: "nowhere"}},
	} {
		whole, err := f.Transitions(t.Context(), filter)
		require.NoError(t, err)
		require.Empty(t, whole.Next)
		for i, c := range whole.Transitions {
			require.NotEqual(t, c.From, c.To)
			if i > 0 {
				require.False(t, c.Proof.OccurredAt.After(whole.Transitions[i-1].Proof.OccurredAt), "newest first")
			}
			require.True(t, filter.From.IsZero() || !c.Proof.OccurredAt.Before(filter.From))
			require.True(t, filter.Until.IsZero() || c.Proof.OccurredAt.Before(filter.Until))
			require.True(t, filter.Both || filter.WholeAgent == (c.Assignment == ""))
		}
		require.Equal(t, filter.Environment == "nowhere", len(whole.Transitions) == 0)
		var paged []store.Change
		for filter.Limit = 7; ; {
			part, err := f.Transitions(t.Context(), filter)
			require.NoError(t, err)
			paged = append(paged, part.Transitions...)
			if filter.After = part.Next; part.Next == "" {
				break
			}
			require.Len(t, part.Transitions, 7)
		}
		require.Equal(t, whole.Transitions, paged)
	}
	for _, bad := range []string{"x", "1.2.3", "1.2.3.4.5"} {
		_, err := f.Transitions(t.Context(), store.TransitionFilter{After: bad})
		require.ErrorIs(t, err, store.ErrInvalid, bad)
	}
}

func aCallerEndsAScanByItsError(t *testing.T, f *fixture) {
	f.added("plant-1", "plant-2")
	n := 0
	enough := errors.New("enough")
	require.Equal(t, enough, f.Scan(t.Context(), store.Scope{}, func(store.ClusterState) error {
		n++
		return enough
	}))
	require.Equal(t, 1, n)
}

func failuresAreCountedSinceATime(t *testing.T, f *fixture) {
	type counts map[string]int64
	since := func(hours int, s store.Scope) counts {
		t.Helper()
		got := counts{}
		from := Epoch.Add(time.Duration(hours) * time.Hour)
		at, err := f.Failures(t.Context(), from, s, func(n store.Failures) error {
			got[n.UID+"/"+n.Workspace] += n.Count
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, from, at)
		return got
	}
	require.Empty(t, since(0, store.Scope{}))

	one, two := f.added("one", "two")[0], cluster("two", 2)
	item := func(name string, s bundle.State, failures int64) bundle.Item {
		it := Item(name, s)
		it.Failures = failures
		return it
	}
	other := item("mail", bundle.Failed, 1)
	other.Workspace = "post"
	for hour, items := range [][]bundle.Item{
		{item("drone", bundle.Compliant, 0), item("radar", bundle.Failed, 2)}, // twice before the first report
		{item("drone", bundle.Failed, 1), item("radar", bundle.Failed, 2), other},
		{item("drone", bundle.Compliant, 1), item("radar", bundle.Failed, 2), other}, // radar still is
		{item("drone", bundle.Failed, 4), item("radar", bundle.Failed, 2), other},    // and twice in between
		{item("drone", bundle.Failed, 5), item("radar", bundle.Compliant, 2), other}, // again, without a report of when it was not
		{item("drone", bundle.Compliant, 5), item("radar", bundle.Failed, 0), other}, // an agent that does not count
		{item("drone", bundle.Failed, 1), item("radar", bundle.Failed, 0), other},    // and one that has lost its count
	} {
		f.clock.Add(time.Hour)
		r := reportOf(one, order(1, int64(hour)+1), items...)
		r.Body.OccurredAt = f.clock.Now()
		f.ingested(one, identified(r.Body))
	}
	r := reportOf(two, order(1, 1), item("drone", bundle.Failed, 1))
	r.Body.OccurredAt = f.clock.Now()
	f.ingested(two, identified(r.Body))

	for hour, want := range []counts{
		{"uid-one/shop": 9, "uid-one/post": 1, "uid-two/shop": 1},
		1: {"uid-one/shop": 9, "uid-one/post": 1, "uid-two/shop": 1},
		2: {"uid-one/shop": 7, "uid-one/post": 1, "uid-two/shop": 1},
		3: {"uid-one/shop": 6, "uid-two/shop": 1},
		5: {"uid-one/shop": 3, "uid-two/shop": 1},
		6: {"uid-one/shop": 2, "uid-two/shop": 1},
		7: {"uid-one/shop": 1, "uid-two/shop": 1},
		8: {},
	} {
		if want != nil {
			require.Equal(t, want, since(hour, store.Scope{}), "since hour %d", hour)
		}
	}
	require.Equal(t, counts{"uid-two/shop": 1}, since(0, store.Scope{UIDs: []string{"uid-two"}}))
	require.Empty(t, since(0, store.Scope{Environment: "prod"}))
	_, err := f.RetireCluster(t.Context(), "two", "")
	require.NoError(t, err)
	require.NotContains(t, since(0, store.Scope{}), "uid-two/shop")

	_, err = f.Trim(t.Context(), Epoch.Add(150*time.Minute), Epoch.Add(150*time.Minute))
	require.NoError(t, err)
	got := counts{}
	at, err := f.Failures(t.Context(), Epoch, store.Scope{}, func(n store.Failures) error {
		got[n.UID+"/"+n.Workspace] += n.Count
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, Epoch.Add(150*time.Minute), at)
	require.Equal(t, counts{"uid-one/shop": 6}, got)
	stop := errors.New("stop")
	_, err = f.Failures(t.Context(), Epoch, store.Scope{}, func(store.Failures) error { return stop })
	require.ErrorIs(t, err, stop)
}

func aClusterThatComesBackIsRegisteredSinceThen(t *testing.T, f *fixture) {
	c := f.added("plant-7")[0] // at 0
	f.clock.Add(time.Hour)
	c.Ring = "canary"
	_, err := f.ReplaceCluster(t.Context(), c) // at 1
	require.NoError(t, err)
	f.clock.Add(time.Hour)
	_, err = f.RetireCluster(t.Context(), "plant-7", "") // at 2
	require.NoError(t, err)
	f.clock.Add(time.Hour)
	_, err = f.AddCluster(t.Context(), c) // at 3
	require.NoError(t, err)
	for hour, want := range []int{0, 0, -1, 3, 3} {
		at := time.Duration(hour)*time.Hour + time.Minute
		all := f.scanned(Epoch.Add(at), store.Scope{})
		if want < 0 {
			require.Empty(t, all)
			continue
		}
		require.Len(t, all, 1, "as of %s", at)
		require.Equal(t, Epoch.Add(time.Duration(want)*time.Hour), all[0].AddedAt, "as of %s", at)
	}
}
