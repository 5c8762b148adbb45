package publisher

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/verify"
)

const deltaChild = "delta-child"

// TestMain is the process of a delta where it is told to be one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == deltaChild {
		os.Exit(delta.Child(os.Stdin, os.Stdout, delta.Make))
	}
	debug.SetGCPercent(400) // the heap is small; at the default, a sixth of the time would be garbage collection
	os.Exit(m.Run())
}

func deltaCommand(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return []string{self, deltaChild}
}

// noise is text that does not compress to less than half.
func noise(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	for out.Len() < size {
		fmt.Fprintf(&out, "# %016x%016x\n", r.Uint64(), r.Uint64())
	}
	return out.Bytes()[:size]
}

// grow gives dev's drone a file of its own.
func (w *world) grow(text []byte) {
	files := &w.result.ClusterTypes[0].Assignments[0].Files
	(*files)[2].Data = text
}

// release publishes version of drone, whose files are large, an hour later.
func (w *world) release(version int, rings ...string) *bundle.Verified {
	w.t.Helper()
	w.now = w.now.Add(time.Hour)
	w.result.ClusterTypes[0].Assignments[1] = assignment("drone", "db-live", fmt.Sprint("v", version))
	w.result.Rings = []string{"edge", "canary", "broad"}
	if w.opts.Rings = rings; len(rings) == 0 {
		w.opts.Rings = w.result.Rings[2:]
	}
	_, p := w.mustPublish()
	require.Empty(w.t, p.Warnings)
	return w.verified("drone", row(w.t, p, "drone").Digest.String())
}

// froms lists the trees that a bundle's deltas start from, and checks them.
func (w *world) froms(v *bundle.Verified) []digest.Digest {
	w.t.Helper()
	at, err := published.Open(w.loc, w.opts.OCI, published.AsItLies())
	require.NoError(w.t, err)
	drone, err := at.Named("bundles/dev/drone")
	require.NoError(w.t, err)
	list, err := catalog.ApplyDeltas(w.t.Context(), drone, v)
	require.NoError(w.t, err)
	require.Len(w.t, v.Manifest.Layers, 1+len(list), "all are deltas")
	require.NoError(w.t, published.CheckLayers(v.Manifest))
	var froms []digest.Digest
	for _, d := range list {
		require.True(w.t, d.Applied, d.Problem)
		require.Less(w.t, d.Size, v.Tree.Size/4)
		froms = append(froms, d.From)
	}
	return froms
}

func trees(releases ...*bundle.Verified) []digest.Digest {
	var all []digest.Digest
	for _, r := range releases {
		all = append(all, r.Release.Content.DiffID)
	}
	return all
}

func TestAReleaseHasDeltasFromWhatAgentsHave(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.grow(noise(20 << 10))
		r1 := w.release(1)
		require.Empty(t, w.froms(r1))
		r2 := w.release(2)
		require.Equal(t, trees(r1), w.froms(r2))
		r3 := w.release(3, "canary")
		require.Equal(t, trees(r2, r1), w.froms(r3))
		r4, r5, r6 := w.release(4, "edge"), w.release(5, "edge"), w.release(6, "edge")
		require.Equal(t, trees(r3, r2, r1), w.froms(r4))
		require.Equal(t, trees(r4, r3, r2, r1), w.froms(r5))
		require.Equal(t, trees(r5, r3, r2, r4), w.froms(r6), "what rings are at comes first: edge is at 5, canary at 3, latest at 2")

		again := w.release(6, "edge", "canary")
		require.Equal(t, r6.Manifest.Layers, again.Manifest.Layers, "the same content keeps its layers")
		back := w.release(2)
		require.NotContains(t, w.froms(back), back.Release.Content.DiffID)
	})
}

func TestTheSameInputsGiveTheSameManifest(t *testing.T) {
	t.Parallel()
	w, v := newWorld(t, "layout"), newWorld(t, "layout")
	v.key = w.key
	for version := range 4 {
		w.grow(noise(20 << 10))
		v.grow(noise(20 << 10))
		require.Equal(t, w.release(version).Descriptor, v.release(version).Descriptor)
	}
}

func TestSmallBundlesAndLargeChangesHaveNoDeltas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.release(1)
	require.Empty(t, w.froms(w.release(2)), "it would save less than its descriptor costs")
	w.grow(noise(20 << 10))
	require.Empty(t, w.froms(w.release(3)), "nearly all is new")
}

func TestTreesThatAreNotSmallAreGivenToAnotherProcess(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	w := newWorld(t, "layout")
	w.grow(noise(2200 << 10))
	r1 := w.release(1)
	require.Empty(t, w.froms(w.release(2)), "nobody says which process")
	w.opts.DeltaCommand = deltaCommand(t)
	require.Len(t, w.froms(w.release(3)), 2)

	w.opts.DeltaCommand = []string{"/bin/false"}
	w.now = w.now.Add(time.Hour)
	w.result.ClusterTypes[0].Assignments[1] = assignment("drone", "db-live", "v4")
	_, p := w.mustPublish()
	require.Contains(t, strings.Join(p.Warnings, "\n"), "drone: there is no delta from release "+r1.Name()+": delta: the process for it has failed")
	require.Len(t, w.verified("drone", "latest").Manifest.Layers, 1)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestABaseThatCannotBeHadCostsItsDeltaAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.grow(noise(20 << 10))
	r1, r2 := w.release(1), w.release(2)
	publish := func(version int) (*bundle.Verified, string) {
		w.now = w.now.Add(time.Hour)
		w.result.ClusterTypes[0].Assignments[1] = assignment("drone", "db-live", fmt.Sprint("v", version))
		_, p := w.mustPublish()
		return w.verified("drone", "latest"), strings.Join(p.Warnings, "\n")
	}
	answer := func(what string, with func(http.ResponseWriter)) {
		w.front = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/"+what) {
				return false
			}
			with(rw)
			return true
		}
	}
	answer(r2.Tree.Digest.String(), func(rw http.ResponseWriter) { http.Error(rw, "gone", http.StatusNotFound) })
	r3, warned := publish(3)
	w.front = nil
	require.Contains(t, warned, "drone: there is no delta from release "+r2.Name())
	require.Equal(t, trees(r1), w.froms(r3))

	other, err := bundle.Pack([]bundle.File{{Path: "evil/file", Data: noise(20 << 10)}})
	require.NoError(t, err)
	answer(r1.Tree.Digest.String(), func(rw http.ResponseWriter) { _, _ = rw.Write(other.Gzip) })
	r4, warned := publish(4)
	w.front = nil
	require.Contains(t, warned, "drone: there is no delta from release "+r1.Name())
	require.Equal(t, trees(r3, r2), w.froms(r4))

	answer("drone/manifests/"+r1.Release.Tag(), func(rw http.ResponseWriter) { http.Error(rw, "later", http.StatusServiceUnavailable) })
	r5, warned := publish(5)
	w.front = nil
	require.Contains(t, warned, "drone: there may be deltas from fewer releases")
	require.Equal(t, trees(r4, r3, r2), w.froms(r5))
}

// Each request of a publication with deltas fails in turn: the connection is lost, for a moment or for good.
func TestADeltaWhoseAnyRequestFailsLeavesNothingIncomplete(t *testing.T) {
	t.Parallel()
	for _, kills := range []bool{false, true} {
		w, line := newWiredWorld(t)
		agent := w.newFollower(line.handler)
		text := string(noise(20 << 10))
		publishes := func(k int) { w.publishes(fmt.Sprint(text, "v: ", k)) }
		publishes(0)
		w.mustPublish()
		cost := 0 // of deltas that could not be made
		for k, met := 1, true; met; k += 5 {
			publishes(k)
			var err error
			met, _, err = publishWith(w, line, breaks("", false, kills, syscall.ECONNRESET), k)
			if err != nil {
				require.ErrorIs(t, err, oci.ErrUnreachable, "request %d", k)
			} else if met {
				require.False(t, kills, "request %d", k)
				cost++
			}
			require.NoError(t, agent.poll(), "request %d", k)
			w.mustPublish()
			agent.requireSettled("request %d", k)
			require.NoError(t, published.CheckLayers(w.verified("drone", "latest").Manifest))
			require.Less(t, k, 100)
		}
		require.Equal(t, !kills, cost > 0)
		require.NotEmpty(t, published.DeltasOf(w.verified("drone", "latest").Manifest))
	}
}

func TestABaseIsTakenFromTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.opts.Cache = newRenderCache(t, t.TempDir(), 0)
	w.grow(noise(20 << 10))
	r1 := w.release(1)
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		if fetched := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, r1.Tree.Digest.String()); fetched {
			t.Error("the base is fetched")
		}
		return false
	}
	r2 := w.release(2)
	w.front = nil
	require.Equal(t, trees(r1), w.froms(r2))
}

func TestWhatWaitsForSignaturesHasDeltasThatOthersSign(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	q := newQuorum(w, 2)
	w.grow(noise(20 << 10))
	release := func(version int) {
		w.now = w.now.Add(time.Hour)
		w.result.ClusterTypes[0].Assignments[1] = assignment("drone", "db-live", fmt.Sprint("v", version))
		require.Equal(t, releases.OutcomePending, q.outcomes(q.anna)["drone"])
	}
	release(1)
	q.sign(q.bob)
	release(2)
	w.opts.Cache = newRenderCache(t, t.TempDir(), 0) // another person, elsewhere
	require.Equal(t, releases.OutcomePublished, q.outcomes(q.bob)["drone"])
	require.Len(t, w.froms(q.released("drone")), 1)
}

// A release that waits may be of one stolen key. Whoever signs it has seen its document, and not its layers.
func TestNobodySignsLayersThatAgentsDoNotTake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	q := newQuorum(w, 2)
	require.Equal(t, releases.OutcomePending, q.outcomes(q.anna)["drone"])
	repo := w.repository("bundles/dev/drone")
	tag := published.PendingTag(1, w.now.Unix())
	desc, err := repo.Resolve(t.Context(), tag)
	require.NoError(t, err)
	v, err := bundle.Verify(t.Context(), repo, desc, bundle.Pinned(bundle.Keys{q.anna.Public()}))
	require.NoError(t, err)
	more := bundle.NewBlob(bundle.MediaTypeTree, []byte("another tree"))
	m := v.Manifest
	m.Layers = append(m.Layers, more.Descriptor)
	a, err := q.maker(q.anna).signer.Sign("bundles/dev/drone", m, []bundle.Blob{more}, bundle.NewBlob(m.Config.MediaType, m.Config.Data))
	require.NoError(t, err)
	require.NoError(t, a.Push(t.Context(), repo))
	require.NoError(t, repo.Tag(t.Context(), a.Manifest.Descriptor, tag))

	w.now = w.now.Add(time.Minute)
	require.Equal(t, releases.OutcomePending, q.outcomes(q.bob)["drone"], "it makes one of its own")
	require.NotEqual(t, a.Manifest.Descriptor.Digest, q.pendingDigest("drone"))
	at := q.reader()
	_, err = at.ReleaseThatWaits(t.Context(), state.Type{Stream: v.Release.Stream()}, a.Manifest.Descriptor.Digest, nil)
	require.ErrorContains(t, err, "1 of its 2 layers are neither its tree nor a delta")
}

// pendingDigest is the newest that waits of a cluster type.
func (q *quorum) pendingDigest(clusterType string) digest.Digest {
	q.t.Helper()
	repo := q.repository("bundles/dev/" + clusterType)
	named, err := published.ReadTags(q.t.Context(), repo)
	require.NoError(q.t, err)
	desc, err := repo.Resolve(q.t.Context(), named.Pending()[0])
	require.NoError(q.t, err)
	return desc.Digest
}

func TestVerifyTriesDeltas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.grow(noise(20 << 10))
	r1, r2 := w.release(1), w.release(2)
	ref := oci.Reference{Location: oci.Location{Host: w.loc.Host}, Repository: w.loc.Prefix + "/bundles/dev/drone", Tag: "latest"}
	look := func() catalog.Delta {
		v, err := verify.ByKeys(t.Context(), ref, trustIn(w.key), w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Len(t, v.Deltas, 1)
		return v.Deltas[0]
	}
	layer := r2.Manifest.Layers[1]
	want := catalog.Delta{Digest: layer.Digest, Size: layer.Size, From: r1.Release.Content.DiffID, Base: r1.Release.Tag(), Applied: true}
	require.Equal(t, want, look())
	i, err := catalog.Inspect(t.Context(), ref, w.opts.OCI)
	require.NoError(t, err)
	want.Applied = false
	require.Equal(t, []catalog.Delta{want}, i.Deltas)

	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		hit := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layer.Digest.String())
		if hit {
			_, _ = rw.Write(make([]byte, layer.Size))
		}
		return hit
	}
	got := look()
	require.Contains(t, got.Problem, "DigestMismatch")
	require.False(t, got.Applied)
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		hit := strings.HasSuffix(r.URL.Path, r1.Release.Tag())
		if hit {
			http.Error(rw, "gone", http.StatusNotFound)
		}
		return hit
	}
	want.Base = ""
	require.Equal(t, want, look(), "what it starts from is no longer here")
}

func TestZstdReadsWhatIsPublished(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("zstd")
	if err != nil {
		t.Log("there is no zstd to ask")
		return
	}
	w := newWorld(t, "layout")
	w.grow(noise(20 << 10))
	r1, r2 := w.release(1), w.release(2)
	dir, repo := t.TempDir(), w.repository("bundles/dev/drone")
	var base, next bytes.Buffer
	require.NoError(t, published.FetchTar(t.Context(), repo, r1.Tree, r1.Release.Content, &base))
	require.NoError(t, published.FetchTar(t.Context(), repo, r2.Tree, r2.Release.Content, &next))
	data, err := bundle.ReadBlob(t.Context(), repo, r2.Manifest.Layers[1], delta.MaxBytes)
	require.NoError(t, err)
	for name, data := range map[string][]byte{"base": base.Bytes(), "delta": data} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	said, err := exec.Command(program, "-d", "--patch-from="+filepath.Join(dir, "base"), filepath.Join(dir, "delta"), "-o", filepath.Join(dir, "next")).CombinedOutput()
	require.NoError(t, err, "%s", said)
	got, err := os.ReadFile(filepath.Join(dir, "next"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(next.Bytes(), got))
}

func newRenderCache(t *testing.T, dir string, maxBytes int64) *rendercache.Cache {
	t.Helper()
	c, err := rendercache.Open(dir, rendercache.Options{MaxBytes: maxBytes})
	require.NoError(t, err)
	return c
}
