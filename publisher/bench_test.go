//go:build unix

package publisher

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// BenchmarkDeltas prints what deltas cost a publisher and spare its agents: of 200 assignments one is changed, again
// and again, at a registry in this process. The last release has as many deltas as there are.
func BenchmarkDeltas(b *testing.B) {
	w := newWorld(b, "inmemory")
	w.result.ClusterTypes = []scheduler.ClusterTypeResult{{Name: "drone", Assignments: shops(200)}}
	publish := func(name string) {
		w.now = w.now.Add(time.Hour)
		began, cpu := time.Now(), cpuTime(b)
		_, p := w.mustPublish()
		require.Empty(b, p.Warnings)
		figure(name+"-ms", time.Since(began).Milliseconds(), "ms")
		figure(name+"-cpu-ms", (cpuTime(b) - cpu).Milliseconds(), "ms")
	}
	change := func(n int) {
		files := w.result.ClusterTypes[0].Assignments[n].Files
		w.result.ClusterTypes[0].Assignments[n].Files = append([]scheduler.File{{Path: files[0].Path, Data: fmt.Appendf(nil, "%s  CHANGED: \"%d\"\n", files[0].Data, n)}}, files[1:]...)
	}
	for range b.N {
		publish("publish-first")
		for n := range 4 {
			change(n)
			publish(fmt.Sprintf("publish1of200-%d-deltas", n+1))
		}
	}
	v := w.verified("drone", "latest")
	figure("publish1of200-full-bytes", v.Tree.Size, "bytes")
	figure("publish1of200-delta-bytes", v.Manifest.Layers[1].Size, "bytes")
	figure("publish1of200-oldest-delta-bytes", v.Manifest.Layers[len(v.Manifest.Layers)-1].Size, "bytes")
	figure("publish1of200-tree-bytes", v.Release.Content.Size, "bytes")
	figure("publish1of200-manifest-bytes", v.Descriptor.Size, "bytes")
	first := w.verified("drone", bundle.Release{Sequence: w.now.Add(-4 * time.Hour).Unix()}.Tag())
	figure("publish1of200-manifest-without-bytes", first.Descriptor.Size, "bytes")

	change(4)
	w.now = w.now.Add(time.Hour)
	opts := w.opts
	opts.Now = func() time.Time { return w.now }
	p, err := newPublication(w.result, w.loc, []*keys.Key{w.key}, trust.PinnedBy([]*keys.Key{w.key}), opts)
	require.NoError(b, err)
	pl, err := p.plan(b.Context(), asked{ClusterTypeResult: w.result.ClusterTypes[0]}, state.Record{})
	require.NoError(b, err)
	const runs = 10
	began, cpu := time.Now(), cpuTime(b)
	for range runs {
		made, err := pack.Deltas(b.Context(), p.Reader, pl.Type, pl.tree, p.opts.Cache, p.opts.DeltaCommand)
		require.NoError(b, err)
		require.Len(b, made, 4)
	}
	figure("deltas1of200-ms", time.Since(began).Milliseconds()/runs, "ms")
	figure("deltas1of200-cpu-ms", (cpuTime(b)-cpu).Milliseconds()/runs, "ms")
}

// shops are assignments of a ConfigMap, a Deployment and a Namespace.
func shops(n int) []scheduler.Assignment {
	r := rand.New(rand.NewPCG(1, 2))
	var all []scheduler.Assignment
	for i := range n {
		a := assignment("drone", fmt.Sprintf("shop%03d-live", i), "")
		a.Files = []scheduler.File{
			{Path: "platform-config.yaml", Data: fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: platform-config\n  namespace: %s\ndata:\n  REGION: north\n  STORE: \"%d\"\n", a.Namespace, r.IntN(10_000))},
			{Path: "namespace.yaml", Data: fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n    environment: dev\n", a.Namespace)},
			{Path: "reconciler.yaml", Data: fmt.Appendf(nil, "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: shop\n  namespace: %s\nspec:\n  replicas: 1\n"+
				"  selector:\n    matchLabels:\n      app: shop\n  template:\n    metadata:\n      labels:\n        app: shop\n    spec:\n      containers:\n"+
				"        - name: shop\n          image: registry.example/shop@sha256:%064x\n", a.Namespace, i%5)},
		}
		all = append(all, a)
	}
	return all
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func figure(name string, value int64, unit string) {
	fmt.Printf("figure %s %d %s\n", name, value, unit)
}
