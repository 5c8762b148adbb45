package simulation

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkSimulate prints what a release that changes one of 200 assignments costs 1,000 agents, with hub and registry in this process.
// No request may fail.
func BenchmarkSimulate(b *testing.B) { simulate(b, 1000, "") }

// BenchmarkSimulateFull is BenchmarkSimulate with 10,000 agents.
func BenchmarkSimulateFull(b *testing.B) { simulate(b, 10_000, "-full") }

func simulate(b *testing.B, clusters int, suffix string) {
	o := Options{Clusters: clusters, Seed: 1}
	if err := o.Check(); err != nil {
		b.Skip(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(50)) // as the command does
	for range b.N {
		r, err := Run(b.Context(), b.TempDir(), o)
		require.NoError(b, err)
		require.True(b, r.AsExpected(), "%+v", r)
		figure := func(name string, value float64, unit string) {
			fmt.Printf("figure simulate-%s%s %.0f %s\n", name, suffix, value, unit)
		}
		figure("converge-p50-ms", r.Releases[0].Times.P50*1000, "ms")
		figure("converge-p99-ms", r.Releases[0].Times.P99*1000, "ms")
		figure("bytes-per-cluster", r.BytesPerCluster.Mean, "bytes")
		figure("cpu-per-cluster-ms", r.Releases[0].CPUSeconds*1000/float64(clusters), "ms")
		figure("failed-requests", float64(r.FailedRequests+r.Refused), "requests")
		figure("deferred-requests", float64(r.Deferred), "requests")
		figure("rss-bytes", float64(r.Process.PeakRSS), "bytes")
	}
}
