//go:build unix

package api_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/sqlite"
)

// BenchmarkContentGate prints content-gate-ms: the question of a gate about the content of all workloads of an environment, over HTTP.
// Each of 316 cluster types is assigned 316 workloads, and each of 100,000 clusters reports ten of them. What is published is in the
// hub's database, the clusters are in its memory, as in each hub that serves.
func BenchmarkContentGate(b *testing.B) {
	const types, workloads, clusters = 316, 316, 100_000
	for range b.N {
		dir := b.TempDir()
		db, err := sqlite.Open(filepath.Join(dir, hub.DatabaseFile), sqlite.Options{Now: func() time.Time { return noon }})
		require.NoError(b, err)
		record := publishContent(b, db, types, workloads)
		f, err := fleet.Open(b.Context(), manyClusters{db, clusters, types, workloads}, fleet.Options{Now: func() time.Time { return noon }})
		require.NoError(b, err)
		view, err := f.View(store.AccessScope{})
		require.NoError(b, err)
		server := httptest.NewServer(handler(newAPI(view)))

		q := fleet.ContentQuery{Record: record, MaxReportAge: 36 * time.Hour, Required: "gpu=true"}
		for n := range workloads {
			q.Workloads = append(q.Workloads, fleet.AskedWorkload{Key: contentKey(n), Since: noon.Add(-time.Hour)})
		}
		began, used := time.Now(), processorTime(b)
		_, err = view.Content(b.Context(), "stage", q) // which reads what is published
		require.NoError(b, err)
		fmt.Printf("the first content gate takes %s, %s of the processor\n", time.Since(began).Round(time.Millisecond), (processorTime(b) - used).Round(time.Millisecond))
		c := client.Client{URL: server.URL}
		var took []time.Duration
		used = processorTime(b)
		for range 10 {
			began := time.Now()
			answer, err := c.Content(b.Context(), "stage", q)
			took = append(took, time.Since(began))
			require.NoError(b, err)
			require.True(b, answer.Known)
			all := fleet.RolloutCounts{}
			for _, w := range answer.Workloads {
				require.Equal(b, clusters, w.Clusters)
				all.Compliant, all.Waiting = all.Compliant+w.Compliant, all.Waiting+w.Waiting
			}
			require.Equal(b, fleet.RolloutCounts{Compliant: 10 * clusters, Waiting: (workloads - 10) * clusters}, all)
		}
		used = processorTime(b) - used
		slices.Sort(took)
		fmt.Printf("a content gate takes %s to %s, %s of the processor\n", took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), (used / 10).Round(time.Millisecond))
		fmt.Printf("figure content-gate-ms %d ms\n", took[len(took)/2].Milliseconds())
		server.Close()
		require.NoError(b, db.Close())
	}
}

// processorTime is the time that this process has used of processors.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func contentKey(n int) ledger.Key {
	return ledger.Key{Registration: fmt.Sprint("team-", n/4), Workload: fmt.Sprintf("workload-%03d", n)}
}

// contentOf returns the digest of the content of a workload on a cluster type.
func contentOf(typ, workload int) digest.Digest {
	return digest.FromString(fmt.Sprint(typ, " ", workload))
}

// publishContent stores a record of an environment, and returns its digest.
func publishContent(b *testing.B, db store.Store, types, workloads int) digest.Digest {
	record := store.PublishedRecord{Digest: digest.FromString("record"), EnvironmentRecord: bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: "edge", Environment: "stage", Sequence: 1, IssuedAt: noon.Add(-time.Hour), ClusterTypes: map[string]digest.Digest{},
	}}
	for typ := range types {
		r := store.PublishedRelease{Digest: digest.FromString(fmt.Sprint("release ", typ)), Release: bundle.Release{
			Schema: bundle.ReleaseSchema, Platform: "edge", Environment: "stage", ClusterType: fmt.Sprintf("type-%03d", typ), Sequence: 1, Number: 1, IssuedAt: noon.Add(-time.Hour),
		}}
		for n := range workloads {
			k := contentKey(n)
			name := k.Workload + "-live"
			r.Assignments = append(r.Assignments, bundle.Assignment{
				Name: name, Registration: k.Registration, Workspace: k.Registration, Workload: k.Workload, Target: "live", Version: "1.0.0", Adapter: "kubernetes", Content: contentOf(typ, n),
			})
			r.Artifacts = append(r.Artifacts, bundle.Artifact{
				Type: bundle.ArtifactImage, Name: "registry.example/" + k.Workload, Reference: "registry.example/" + k.Workload + ":1.0.0", Digest: digest.FromString(name).String(), UsedBy: []string{name},
			})
		}
		_, err := db.AddReleases(b.Context(), []store.PublishedRelease{r})
		require.NoError(b, err)
		record.ClusterTypes[r.ClusterType] = r.Digest
	}
	_, err := db.AddRecord(b.Context(), record)
	require.NoError(b, err)
	return record.Digest
}

// manyClusters is a store with many clusters, which are made anew for each read.
type manyClusters struct {
	store.Store
	clusters, types, workloads int
}

func (m manyClusters) Scan(_ context.Context, s store.Scope, each func(store.ClusterState) error) error {
	for n := range m.clusters {
		if s.UIDs != nil {
			break
		}
		if err := each(m.cluster(n)); err != nil {
			return err
		}
	}
	return nil
}

func (m manyClusters) cluster(n int) store.ClusterState {
	var s store.ClusterState
	typ := n % m.types
	s.UID, s.Name = fmt.Sprintf("0b5e7f0c-77f4-4d2b-9a57-%012d", n), fmt.Sprintf("plant-%06d", n)
	s.Environment, s.Type, s.Platform = "stage", fmt.Sprintf("type-%03d", typ), "edge"
	s.ExpectedInterval, s.AddedAt = time.Hour, noon.Add(-1000*time.Hour)
	s.Labels = map[string]string{"gpu": strconv.FormatBool(n%5 == 0), "site": fmt.Sprintf("site-%d", n)}
	s.Newest = store.Order{Incarnation: 1, Seq: int64(n + 1)}
	s.State, s.LastSeen, s.Since = bundle.Compliant, noon.Add(-time.Duration(n%200)*time.Minute), noon.Add(-time.Hour)
	s.Observed = &bundle.ReportRelease{Digest: digest.FromString(fmt.Sprint("release ", typ)), Sequence: 1, Number: 1}
	for i := range 10 {
		w := (n/m.types + 31*i) % m.workloads
		k := contentKey(w)
		s.Deployments = append(s.Deployments, store.Deployment{
			Assignment: k.Workload + "-live", Workspace: k.Registration, Workload: k.Workload, Target: "live", Adapter: "kubernetes", State: bundle.Compliant, Since: s.Since, Version: "1.0.0",
			Content: contentOf(typ, w),
		})
	}
	slices.SortFunc(s.Deployments, func(a, b store.Deployment) int { return cmp.Compare(a.Assignment, b.Assignment) })
	return s
}
