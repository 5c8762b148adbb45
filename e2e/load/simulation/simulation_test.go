package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// small is a fleet whose simulation takes about a second.
func small() Options {
	return Options{
		Clusters: 30, Types: 3, Assignments: 3, Rings: []Share{{"canary", 20}, {"stable", 80}}, Offline: 10,
		Poll: 100 * time.Millisecond, Timeout: time.Minute, Seed: 1,
	}
}

func TestAReleaseSpreadsThroughTheRingsOfAFleet(t *testing.T) {
	t.Parallel() // it waits most of the time
	o := small()
	o.Failing = 4
	r, err := Run(t.Context(), t.TempDir(), o)
	require.NoError(t, err)
	require.True(t, r.AsExpected(), "%+v", r)
	require.Equal(t, 3, r.Setup.Offline)
	require.Equal(t, 1, r.Setup.Failing)
	require.Equal(t, 26, r.Compliant, "all but three out of reach and one that fails")
	require.Zero(t, r.FailedRequests, "%v", r.Failures)
	require.Positive(t, r.Cut, "those out of reach have tried")
	require.Equal(t, 27, r.Install.Compliant)
	require.Equal(t, []RingSize{{"canary", 6}, {"stable", 24}}, r.Setup.Rings)
	require.Len(t, r.Releases, 1)
	require.Len(t, r.Releases[0].Stages, 2)
	require.Positive(t, r.Releases[0].Times.P50)
	require.LessOrEqual(t, r.Releases[0].Times.P50, r.Releases[0].Times.Max)
	require.Greater(t, r.InstallBytesPerCluster.P50, 1000.0)
	require.Greater(t, r.BytesPerCluster.P50, 1000.0)
	require.Positive(t, r.Registry.Requests)
	require.Positive(t, r.Hub.Bytes)

	require.Equal(t, gate.Wait, r.Gates[0].Result)
	require.NotEmpty(t, r.Gates[0].Open)
	last := r.Gates[len(r.Gates)-1]
	require.Equal(t, gate.Pass, last.Result)
	require.Equal(t, "stable", last.Ring)
	require.Equal(t, last.Clusters, last.Compliant+last.Progressing+last.Failed+last.Waiting+last.Unknown)
}

func TestAReleaseThatFailsStaysInTheFirstRing(t *testing.T) {
	t.Parallel() // it waits most of the time
	o := small()
	o.Clusters, o.Types, o.Failing, o.Rest = 6, 1, 100, 200*time.Millisecond
	r, err := Run(t.Context(), t.TempDir(), o)
	require.NoError(t, err)
	require.Equal(t, "stable", r.Releases[0].HeldBefore)
	require.Equal(t, gate.Fail, r.Gates[len(r.Gates)-1].Result)
	require.False(t, r.AsExpected())
	require.Zero(t, r.Compliant)
	require.Zero(t, r.FailedRequests)
	require.Positive(t, r.Rest.Registry.Requests)
	require.Positive(t, r.Hourly.RegistryRequests)
}

func TestThePlanOfAPlatform(t *testing.T) {
	t.Parallel() // it waits most of the time
	made := (&simulation{Options: Options{Types: 2, Assignments: 3}.withDefaults(), result: &Result{}}).madeUp()
	made.result.Rings = []string{"canary", "rest"}
	made.result.Environment = "prod"
	policy := promotion.Policy{Name: "shop", Environment: "prod", Rings: made.result.Rings, RingGate: promotion.Default()}
	policy.RingGate.Soak = 24 * time.Hour
	r, err := Run(t.Context(), t.TempDir(), Options{
		Poll: 100 * time.Millisecond, Timeout: time.Minute,
		Links: []LinkShare{{Link{BitsPerSecond: 10_000_000, RoundTrip: 2 * time.Millisecond}, "10Mbit/2ms", 100}},
		Plan: &Plan{Result: made.result, Policy: policy, Clusters: []scheduler.Cluster{
			{Name: "berlin", ClusterType: "type-000", Ring: "canary"}, {Name: "paris", ClusterType: "type-001"}, {Name: "rome", ClusterType: "type-001", Ring: "rest"},
		}},
	})
	require.NoError(t, err)
	require.True(t, r.AsExpected(), "%+v", r)
	require.Equal(t, []RingSize{{"canary", 1}, {"rest", 2}}, r.Setup.Rings, "a cluster without a ring is of the last")
	require.Equal(t, []string{"the rule soak of policy shop is left out"}, r.Notes)
}

func TestASimulationEndsWithItsContextAndHasWhatWasMeasured(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := small()
	o.Clusters, o.Types, o.Offline, o.Rings, o.Rest = 3, 1, 0, nil, time.Hour
	o.Progress = func(p Progress) {
		if p.What == "rests" {
			cancel()
		}
	}
	r, err := Run(ctx, t.TempDir(), o)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, r.Interrupted)
	require.False(t, r.AsExpected())
	require.Equal(t, 3, r.Compliant)
	require.Positive(t, r.Registry.Requests)

	cancelled, stop := context.WithCancel(t.Context())
	stop()
	r, err = Run(cancelled, t.TempDir(), small())
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, r.Interrupted)
}

func TestTheSeedChoosesTheClusters(t *testing.T) {
	choose := func(seed uint64) (all []string) {
		s := &simulation{Options: small().withDefaults(), byName: map[string]*cluster{}, result: &Result{}}
		s.Seed, s.Failing, s.ComeAndGo = seed, 10, 20
		require.NoError(t, s.choosePlatform())
		s.makeClusters()
		for _, c := range s.clusters {
			if c.offline || c.failing || c.comesAndGoes || c.ring == "canary" {
				all = append(all, c.name)
			}
			require.False(t, c.offline && c.failing)
		}
		return all
	}
	require.Equal(t, choose(7), choose(7))
	require.NotEqual(t, choose(7), choose(8))
}

func TestOptionsOutOfBounds(t *testing.T) {
	for want, o := range map[string]Options{
		"100001 clusters: at most 100000":     {Clusters: 100_001},
		"-1 types: at most 1000":              {Types: -1},
		"5 types for 4 clusters":              {Clusters: 4, Types: 5},
		"cannot change 3 of 2 assignments":    {Assignments: 2, Changed: 3},
		"are more than all clusters":          {Offline: 60, ComeAndGo: 41},
		"polls every 1ms":                     {Poll: time.Millisecond},
		"a time is negative":                  {Rest: -time.Second},
		"the platform has no Cluster objects": {Plan: &Plan{Result: &scheduler.Result{}}},
		"the simulation takes some":           {Clusters: 100_000, Assignments: 2000},
	} {
		if freeMemory() == 0 && o.Assignments == 2000 {
			continue // nothing is known of this system's memory
		}
		err := o.Check()
		require.ErrorIs(t, err, ErrOptions, want)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, Options{}.Check())
}

func TestSharesAndLinks(t *testing.T) {
	shares, err := ParseShares("canary=5%, early=20,stable")
	require.NoError(t, err)
	require.Equal(t, []Share{{"canary", 5}, {"early", 20}, {"stable", 75}}, shares)
	links, err := ParseLinks("10Mbit/40ms=70%,64kbit")
	require.NoError(t, err)
	require.Equal(t, []LinkShare{{Link{10_000_000, 40 * time.Millisecond}, "10Mbit/40ms", 70}, {Link{BitsPerSecond: 64_000}, "64kbit", 30}}, links)
	for _, wrong := range []string{"", "a=1%", "a=60%,b=60%", "a,b", "a,a=5%", "a=-1%", "a=NaN", "=5%"} {
		_, err := ParseShares(wrong)
		require.ErrorIs(t, err, ErrOptions, wrong)
	}
	for _, wrong := range []string{"fast", "1Mbit/later", "1Mbit/2m", "0kbit", "1Pbit", "1"} {
		_, err := ParseLinks(wrong)
		require.ErrorIs(t, err, ErrOptions, wrong)
	}
}

func TestASlowLinkIsSlow(t *testing.T) {
	t.Parallel() // it waits most of the time
	var p pace
	began := time.Now()
	for range 4 {
		p.take(500, 100_000) // 40 ms each
	}
	require.GreaterOrEqual(t, time.Since(began), 160*time.Millisecond)
}

func TestALinkThatIsDownFailsNoRequest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	var total load
	var down atomic.Bool
	l := line{load: &total, down: down.Load, hub: server.Listener.Addr().String()}
	transport := attempts{&l, &http.Transport{DialContext: l.dial}}
	defer transport.CloseIdleConnections()
	ask := func() error {
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close())
		}
		return err
	}
	require.NoError(t, ask())
	down.Store(true)
	require.ErrorIs(t, ask(), errDown, "on the connection that was open")
	require.ErrorIs(t, ask(), errDown, "on a new one")
	down.Store(false)
	require.NoError(t, ask())
	require.EqualValues(t, 2, total.cut.Load())
	require.Zero(t, total.failed.Load(), "%v", total.described())
	require.EqualValues(t, 2, total.services[hubService].requests.Load())
	require.Greater(t, l.crossed(), int64(200))

	server.Close()
	require.Error(t, ask())
	require.EqualValues(t, 1, total.failed.Load())
}

func TestConnectionsWaitForOneAnother(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	addr := server.Listener.Addr().String()
	l := line{load: new(load), down: func() bool { return false }, connections: make(turns, 1)}
	first, err := l.dial(t.Context(), "tcp", addr)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { _, err := l.dial(ctx, "tcp", addr); waits <- err }()
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)

	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "and its place is given away once")
	second, err := l.dial(t.Context(), "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	server.Close()
	_, err = l.dial(t.Context(), "tcp", addr)
	require.Error(t, err)
	require.Empty(t, l.connections, "a connection that was not made has no place")
}

func TestNothingStaysOpenInTheFolder(t *testing.T) {
	t.Parallel() // it waits most of the time
	dir := t.TempDir()
	o := small()
	o.Clusters, o.Types, o.Offline, o.Rings = 3, 1, 0, nil
	r, err := Run(t.Context(), dir, o)
	require.NoError(t, err)
	require.True(t, r.AsExpected(), "%+v", r)
	entries, err := os.ReadDir(filepath.Join(dir, "clusters"))
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.NoError(t, os.RemoveAll(dir))
}

func TestConnectionsFitTheFileDescriptors(t *testing.T) {
	for _, clusters := range []int{1, 1000, 10_000, MaxClusters} {
		o := Options{Clusters: clusters}
		take := int64(o.connections())*filesPerConnection + int64(clusters)*filesPerAgent + baseFiles
		require.LessOrEqual(t, take, max(maxFiles(), o.Room().Files), "%d clusters", clusters)
		require.GreaterOrEqual(t, o.connections(), fewConnections, "%d clusters", clusters)
	}
}
