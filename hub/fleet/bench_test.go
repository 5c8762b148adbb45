//go:build unix

package fleet

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// largeCluster returns the n-th of many clusters, with ten deployments.
func largeCluster(n int) store.ClusterState {
	var s store.ClusterState
	s.UID, s.Name = fmt.Sprintf("0b5e7f0c-77f4-4d2b-9a57-%012d", n), fmt.Sprintf("plant-%06d", n)
	s.Environment, s.Type, s.Ring, s.Platform = []string{"dev", "stage", "prod"}[n%3], fmt.Sprintf("type-%d", n%40), []string{"", "canary"}[n/50%2], "edge"
	s.ExpectedInterval, s.AddedAt = time.Hour, start.Add(-1000*time.Hour)
	s.Labels = map[string]string{"region": []string{"east", "west", "north"}[n/7%3], "gpu": strconv.FormatBool(n%5 == 0), "site": fmt.Sprintf("site-%d", n)}
	s.Newest = store.Order{Incarnation: 1, Seq: int64(n)}
	s.State, s.LastSeen = bundle.Compliant, start.Add(-time.Duration(n%200)*time.Minute)
	s.Since = s.LastSeen
	s.Proof = store.Proof{Report: digest.FromString(s.UID), At: s.Newest, OccurredAt: s.LastSeen, ReceivedAt: s.LastSeen, Via: store.ViaHTTP}
	s.Observed = &bundle.ReportRelease{Digest: digest.FromString(fmt.Sprint(n%3, n%40, n%4)), Sequence: int64(n % 4), BaseCommit: digest.FromString(fmt.Sprint(n % 4)).Encoded()[:40]}
	for i := range 10 {
		state, reason, message := bundle.Compliant, "", ""
		if (n+i)%20 == 0 {
			state, reason, message = bundle.Failed, "HealthCheckFailed", "the deployment has no ready pods"
		}
		s.Deployments = append(s.Deployments, store.Deployment{
			Assignment: fmt.Sprintf("workload-%d-main", i), Workspace: fmt.Sprint("team-", i%4), Application: fmt.Sprint("app-", i%6), Workload: fmt.Sprint("workload-", i), Target: "main",
			Adapter: "flux", State: state, Reason: reason, Message: message, Since: s.LastSeen, Version: fmt.Sprintf("1.%d.%d", i, n%9), Revision: s.Observed.BaseCommit,
			ConfigDigest: digest.FromString(fmt.Sprint("config", i, n%40)), Content: digest.FromString(fmt.Sprint("content", i, n%40, n%4)),
		})
	}
	return s
}

// large is a store with many clusters, which are made anew for each read.
type large struct {
	*memory
	clusters int
}

func (l large) Scan(_ context.Context, s store.Scope, each func(store.ClusterState) error) error {
	for n := range l.clusters {
		if s.UIDs != nil {
			break
		}
		if err := each(largeCluster(n)); err != nil {
			return err
		}
	}
	for _, uid := range s.UIDs {
		n, err := strconv.Atoi(uid[len(uid)-12:])
		if err != nil {
			return err
		}
		if err := each(largeCluster(n)); err != nil {
			return err
		}
	}
	return nil
}

// heavy is the queries that cost most.
func heavy(v *View) map[string]func(b *testing.B) error {
	list := func(q Query) func(*testing.B) error {
		q.Limit = 500
		return func(b *testing.B) error { _, err := v.Deployments(b.Context(), q); return err }
	}
	clusters := func(q Query) func(*testing.B) error {
		q.Limit = 500
		return func(b *testing.B) error { _, err := v.Clusters(b.Context(), q); return err }
	}
	count := func(of string, q Query, by ...string) func(*testing.B) error {
		return func(b *testing.B) error { _, err := v.Count(b.Context(), of, by, q); return err }
	}
	return map[string]func(b *testing.B) error{
		"deployments":                    list(Query{}),
		"deployments by state":           list(Query{Sort: "state"}),
		"deployments by version":         list(Query{Sort: "-version"}),
		"deployments by content":         list(Query{Sort: "content", Selector: "gpu!=true"}),
		"deployments of a selector":      list(Query{Selector: "region=east,gpu!=true,site"}),
		"deployments of a workload":      list(Query{Workload: "workload-5", Version: "1.5.5"}),
		"deployments of a commit":        list(Query{Commit: digest.FromString("2").Encoded()[:9]}),
		"failed deployments":             list(Query{State: []bundle.State{bundle.Failed}, Sort: "lastSeen"}),
		"deployments of a configuration": list(Query{ConfigDigest: digest.FromString("config37")[:20]}),
		"clusters by last seen":          clusters(Query{Sort: "lastSeen"}),
		"clusters of a workload":         clusters(Query{Workload: "workload-9", Version: "1.9.1"}),
		"count by environment and state": count("deployments", Query{}, "environment", "state"),
		"count by workload and version":  count("deployments", Query{}, "workload", "version"),
		"count by config and content":    count("deployments", Query{}, "config", "content"),
		"count by site":                  count("deployments", Query{}, "label:site", "state"),
		"count by commit":                count("deployments", Query{Selector: "region in (east,west)"}, "commit", "relation"),
		"clusters by version":            count("clusters", Query{}, "version", "workload"),
		"an unknown workload":            func(b *testing.B) error { _, _ = v.Deployments(b.Context(), Query{Workload: "none"}); return nil },
		"compare": func(b *testing.B) error {
			_, err := v.Compare(b.Context(), Side{Query: Query{Environments: []string{"stage"}}}, Side{Query: Query{Environments: []string{"prod"}}}, CompareOptions{OnlyDiff: true})
			return err
		},
	}
}

// processorTime is the time that this process has used of processors: what a query costs also where others use the machine.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkQueries asks a fleet of 100,000 clusters with 1,000,000 deployments.
func BenchmarkQueries(b *testing.B) {
	clusters := 100_000
	if testing.Short() {
		clusters = 1000
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	from := large{newMemory(), clusters}
	f, err := Open(b.Context(), from, Options{Now: func() time.Time { return start }})
	require.NoError(b, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Logf("%d clusters with %d deployments: %d MB", clusters, 10*clusters, (after.HeapAlloc-before.HeapAlloc)>>20)
	for name, scope := range map[string]store.AccessScope{"all": {}, "scoped": {Environments: []string{"stage", "prod"}, Workspaces: []string{"team-0", "team-1"}}} {
		v, err := f.View(scope)
		require.NoError(b, err)
		queries := heavy(v)
		var names []string
		for q := range queries {
			names = append(names, q)
		}
		slices.Sort(names)
		for _, q := range names {
			b.Run(name+"/"+q, func(b *testing.B) {
				b.ReportAllocs()
				used := processorTime(b)
				for b.Loop() {
					if err := queries[q](b); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processorTime(b)-used).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
	b.Run("apply", func(b *testing.B) {
		n := 0
		for b.Loop() {
			s := largeCluster(n * 7919 % clusters)
			n++
			s.Change = store.Position(n)
			f.Apply(s)
		}
	})
	runtime.KeepAlive(f)
}
