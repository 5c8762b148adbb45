package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/artifact"
	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

type fixture struct {
	db    *state.DB
	files *content.Store
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	db, err := state.Open(t.TempDir(), content.BucketTrees, artifact.Bucket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
	return fixture{db, content.New(db, content.Options{Named: []func(*bbolt.Tx) ([]content.Named, error){artifact.Named}})}
}

func (f fixture) store() *artifact.Store { return artifact.New(f.db, f.files) }

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
	}
	return dir
}

func wanted(name, dir, id string) artifact.Wanted {
	return artifact.Wanted{Assignment: bundle.Assignment{Name: name, Delivery: bundle.Embedded}, Dir: dir, Folder: digest.FromString(id)}
}

var at = artifact.Endpoint{Host: "box:5001", Platform: "default"}

func chart(t *testing.T, yaml string) string {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "podinfo/Chart.yaml", Mode: 0o644, Size: int64(len(yaml))}))
	_, err := archive.Write([]byte(yaml))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, zip.Close())
	return out.String()
}

func TestAnArtifactIsAFunctionOfTheFolder(t *testing.T) {
	files := map[string]string{"reconciler.yaml": "a: 1\n", "manifests/b.yaml": "b: 1\n", "manifests/a/a.yaml": "a: 1\n"}
	var digests []digest.Digest
	for range 2 {
		s := newFixture(t).store()
		w := wanted("web", folder(t, files), "1")
		changed, dropped, err := s.Bring(t.Context(), []artifact.Wanted{w})
		require.NoError(t, err)
		require.True(t, changed)
		require.False(t, dropped)
		served, err := s.Served(w.Assignment, w.Folder, at)
		require.NoError(t, err)
		require.Nil(t, served.CA)
		require.Equal(t, "default/assignments/web", served.Manifests.Repository)
		digests = append(digests, served.Manifests.Digest)
	}
	require.Equal(t, digests[0], digests[1])
}

// The folder of the unchanged assignment is gone: making its artifact again would fail.
func TestNothingIsMadeAgainOfAnUnchangedFolder(t *testing.T) {
	f := newFixture(t)
	web, api := wanted("web", folder(t, map[string]string{"manifests/a.yaml": "a: 1\n"}), "1"), wanted("api", folder(t, map[string]string{"manifests/a.yaml": "a: 2\n"}), "2")
	web.Reached, api.Reached = true, true
	_, _, err := f.store().Bring(t.Context(), []artifact.Wanted{web, api})
	require.NoError(t, err)

	web.Dir = filepath.Join(web.Dir, "absent")
	s := f.store() // another process
	changed, _, err := s.Bring(t.Context(), []artifact.Wanted{web, api})
	require.NoError(t, err)
	require.False(t, changed)
	_, err = s.Served(web.Assignment, web.Folder, at)
	require.NoError(t, err)

	api.Folder = digest.FromString("3")
	require.NoError(t, os.WriteFile(filepath.Join(api.Dir, "manifests/a.yaml"), []byte("a: 3\n"), 0o644))
	changed, dropped, err := s.Bring(t.Context(), []artifact.Wanted{web, api})
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, dropped)
	_, err = s.Served(api.Assignment, digest.FromString("2"), at)
	require.ErrorContains(t, err, "not made yet")
}

func TestChartsAreStoredAsHelmDoes(t *testing.T) {
	f := newFixture(t)
	packed := chart(t, "apiVersion: v2\nname: podinfo\nversion: 6.7.1\n")
	w := wanted("web", folder(t, map[string]string{"charts/podinfo-6.7.1.tgz": packed, "manifests/a.yaml": "kind: A\napiVersion: v1\n"}), "1")
	s := f.store()
	_, _, err := s.Bring(t.Context(), []artifact.Wanted{w})
	require.NoError(t, err)
	served, err := s.Served(w.Assignment, w.Folder, at)
	require.NoError(t, err)
	require.NoError(t, f.files.Index())

	read := func(d digest.Digest) []byte {
		data, err := os.ReadFile(filepath.Join(f.db.Dir(), state.StoreDir, "blobs", "sha256", d.Encoded()))
		require.NoError(t, err)
		return data
	}
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(read(served.Charts["podinfo-6.7.1.tgz"].Digest), &m))
	require.Equal(t, "application/vnd.cncf.helm.config.v1+json", m.Config.MediaType)
	require.JSONEq(t, `{"apiVersion": "v2", "name": "podinfo", "version": "6.7.1"}`, string(read(m.Config.Digest)))
	require.Len(t, m.Layers, 1)
	require.Equal(t, "application/vnd.cncf.helm.chart.content.v1.tar+gzip", m.Layers[0].MediaType)
	require.Equal(t, packed, string(read(m.Layers[0].Digest)))

	require.NoError(t, json.Unmarshal(read(served.Manifests.Digest), &m))
	require.Equal(t, ocispec.MediaTypeEmptyJSON, m.Config.MediaType)
	require.Equal(t, ocispec.MediaTypeImageLayerGzip, m.Layers[0].MediaType)
}

func TestWhatIsNamedOutlivesAPrune(t *testing.T) {
	f := newFixture(t)
	w := wanted("web", folder(t, map[string]string{"manifests/a.yaml": "a: 1\n"}), "1")
	s := f.store()
	_, _, err := s.Bring(t.Context(), []artifact.Wanted{w})
	require.NoError(t, err)
	require.NoError(t, f.files.Index())
	require.NoError(t, f.files.Prune(nil, nil))
	changed, _, err := s.Bring(t.Context(), []artifact.Wanted{{Assignment: w.Assignment, Keep: true}})
	require.NoError(t, err)
	require.False(t, changed)
	w.Dir = "absent"
	_, _, err = s.Bring(t.Context(), []artifact.Wanted{w})
	require.NoError(t, err)
	_, err = s.Served(w.Assignment, w.Folder, at)
	require.NoError(t, err, "its blobs are still there")

	changed, dropped, err := s.Bring(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, changed && dropped)
	require.NoError(t, f.files.Prune(nil, nil))
	entries, err := os.ReadDir(filepath.Join(f.db.Dir(), state.StoreDir, "blobs", "sha256"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAFaultOfOneFolderStaysItsOwn(t *testing.T) {
	f := newFixture(t)
	bad := wanted("bad", folder(t, map[string]string{"charts/x-1.0.0.tgz": chart(t, "[")}), "1")
	good := wanted("good", folder(t, map[string]string{"manifests/a.yaml": "a: 1\n"}), "2")
	s := f.store()
	_, _, err := s.Bring(t.Context(), []artifact.Wanted{bad, good})
	require.NoError(t, err)
	_, err = s.Served(bad.Assignment, bad.Folder, at)
	require.ErrorContains(t, err, "chart x-1.0.0.tgz: ")
	require.Equal(t, reconcilers.FaultRelease, reconcilers.Known(err).Fault)
	_, err = s.Served(good.Assignment, good.Folder, at)
	require.NoError(t, err)

	gone := wanted("gone", filepath.Join(t.TempDir(), "absent"), "3")
	_, _, err = s.Bring(t.Context(), []artifact.Wanted{gone})
	require.NoError(t, err)
	_, err = s.Served(gone.Assignment, gone.Folder, at)
	require.ErrorAs(t, err, new(*state.LocalError))
}

// A process that ends before the record is written leaves blobs that nobody names, and the next one makes the rest. One that
// ends after it leaves an artifact that is whole.
func TestADeathAmidMakingLeavesNothingHalf(t *testing.T) {
	for _, moment := range []string{"commit: before", "commit: after"} {
		f := newFixture(t)
		w := wanted("web", folder(t, map[string]string{"manifests/a.yaml": "a: 1\n"}), "1")
		f.db.Moment = func(name string) {
			if name == moment {
				panic(name)
			}
		}
		require.Panics(t, func() { _, _, _ = f.store().Bring(t.Context(), []artifact.Wanted{w}) }, moment)
		f.db.Moment = nil
		require.NoError(t, f.db.View(func(tx *bbolt.Tx) error {
			named, err := artifact.Named(tx)
			require.Equal(t, moment == "commit: after", len(named) == 1, "named only once it is recorded")
			return err
		}))
		s := f.store()
		changed, _, err := s.Bring(t.Context(), []artifact.Wanted{w})
		require.NoError(t, err)
		require.Equal(t, moment == "commit: before", changed)
		_, err = s.Served(w.Assignment, w.Folder, at)
		require.NoError(t, err)
	}
}
