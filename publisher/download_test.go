package publisher

import (
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	store "github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/directory"
	"github.com/wherry-dev/wherry/scheduler"
)

// device is a cluster with an agent, whose downloads are counted.
type device struct {
	agent *agent.Agent
	bytes atomic.Int64
}

// countedBody counts the bytes that are read from it.
type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func newDevice(t *testing.T, w *world, clusterType string) *device {
	d := new(device)
	opts := w.opts.OCI
	opts.HTTPClient = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		answer, err := w.opts.OCI.HTTPClient.Transport.RoundTrip(r)
		if err == nil && r.Method == http.MethodGet {
			answer.Body = countedBody{answer.Body, &d.bytes}
		}
		return answer, err
	})}
	stream := bundle.Stream{Platform: "edge", Environment: "dev", ClusterType: clusterType}
	repo, err := w.loc.Repository(stream.Repository(), opts)
	require.NoError(t, err)
	dir := t.TempDir()
	state, err := agent.OpenState(filepath.Join(dir, "state"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, state.Close()) })
	d.agent = agent.New(state, repo, trustIn(w.key),
		bundle.ReportCluster{Name: "plant-7", Platform: stream.Platform, Environment: stream.Environment, Type: stream.ClusterType},
		agent.Options{
			Engines: engines.Options{Reconcilers: map[string]reconcilers.Reconciler{"directory": directory.New(filepath.Join(dir, "host"), directory.Options{})}},
			Content: store.Options{Deltas: delta.Command(deltaCommand(t))},
			Now:     func() time.Time { return w.now },
		})
	return d
}

// update has the agent take the newest release, and returns the bytes that it downloaded, without headers.
func (d *device) update(t *testing.T) int64 {
	t.Helper()
	d.bytes.Store(0)
	result := d.agent.Once(t.Context(), time.Minute)
	require.Equal(t, bundle.Compliant, result.Status.State, "%+v", result)
	return d.bytes.Load()
}

// planned returns the facts of a plan.
func (w *world) planned(fleet ...impact.Cluster) *impact.Facts {
	w.t.Helper()
	built := platform.Built{Loaded: &platform.Loaded{Model: scheduler.NewModel("dev")}, Result: w.result}
	w.opts.Fleet = &impact.Fleet{From: impact.FromRoster, Clusters: fleet}
	d, err := w.compare(built)
	require.NoError(w.t, err)
	return d.Impact
}

func TestThePlannedBytesAreThoseThatAnAgentDownloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "inmemory")
	w.result.ClusterTypes = []scheduler.ClusterTypeResult{{Name: "drone", Assignments: onDirectory(shops(200))}}
	plant := impact.Cluster{Name: "plant-7", ClusterType: "drone"}
	f := w.planned(plant, plant, impact.Cluster{Name: "elsewhere", ClusterType: "large"})
	require.Equal(t, 2, f.ChangedClusters)
	require.Equal(t, 2*f.Bytes, f.TotalBytes)
	w.mustPublish()
	d := newDevice(t, w, "drone")
	require.Equal(t, f.Bytes, d.update(t), "the first release, in full")

	change(w, 7)
	w.now = w.now.Add(time.Hour)
	f = w.planned(plant)
	full := f.Bytes
	require.Less(t, f.Bytes, int64(4000), "a delta, not the tree")
	require.False(t, f.UpTo)
	w.mustPublish()
	require.Equal(t, f.Bytes, d.update(t), "one of 200 assignments changed")

	require.Zero(t, w.planned(plant).ChangedClusters)
	require.Zero(t, w.planned(plant).TotalBytes)

	w.now = w.now.Add(80 * 24 * time.Hour)
	f = w.planned(plant)
	require.Zero(t, f.ChangedClusters, "the same content again")
	require.NotZero(t, f.TotalBytes)
	w.mustPublish()
	require.Equal(t, f.Bytes, d.update(t), "renewed")

	change(w, 8)
	w.now = w.now.Add(time.Hour)
	plant.Release = "sha256:another"
	f = w.planned(plant)
	require.True(t, f.UpTo, "it is not known what a delta from that release would cost")
	require.Greater(t, f.TotalBytes, full)
}

func TestOfLargeTreesAPlanTriesNoDelta(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.result.ClusterTypes = w.result.ClusterTypes[:1]
	w.grow(noise(maxTriedBytes/2 - 10_000))
	w.mustPublish()
	w.grow(append([]byte("# changed\n"), noise(maxTriedBytes/2)...))
	f := w.planned()
	require.True(t, f.UpTo)
	require.Greater(t, f.Bytes, int64(maxTriedBytes/8), "the whole tree")
}

// onDirectory gives assignments to the adapter that needs no cluster.
func onDirectory(all []scheduler.Assignment) []scheduler.Assignment {
	for i := range all {
		all[i].Adapter = "directory"
	}
	return all
}

// change changes one assignment of the first cluster type.
func change(w *world, n int) {
	all := w.result.ClusterTypes[0].Assignments
	files := append([]scheduler.File(nil), all[n].Files...)
	files[len(files)-1].Data = append([]byte("# changed\n"), files[len(files)-1].Data...)
	all[n].Files = files
}
