package content_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

func TestWhatIsNamedStaysAndIsInTheIndex(t *testing.T) {
	db, err := state.Open(t.TempDir(), content.BucketTrees)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Init(state.CheckSchema, func(*bbolt.Tx) error { return nil }))
	var list []content.Named
	var fault error
	store := content.New(db, content.Options{Named: []func(*bbolt.Tx) ([]content.Named, error){
		func(*bbolt.Tx) ([]content.Named, error) { return list, fault },
	}})
	config, layer := bundle.NewBlob("text/plain", []byte("{}")), bundle.NewBlob("text/plain", []byte("layer"))
	data, err := json.Marshal(ocispec.Manifest{Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor}})
	require.NoError(t, err)
	manifest, waiting := bundle.NewBlob(ocispec.MediaTypeImageManifest, data), bundle.NewBlob("text/plain", []byte("waiting"))
	all := []bundle.Blob{config, layer, manifest, waiting}
	for _, b := range all {
		require.NoError(t, store.Blobs().Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}
	here := func() (n int) {
		for _, b := range all {
			there, err := store.Blobs().Exists(t.Context(), b.Descriptor)
			require.NoError(t, err)
			if there {
				n++
			}
		}
		return n
	}
	names := func() int {
		s, err := content.ReadStatus(db.Dir())
		require.NoError(t, err)
		require.Empty(t, s.Releases)
		return s.Others
	}

	list = []content.Named{{Repository: "assignments/web", Tag: "manifests", Manifest: manifest.Descriptor}, {Manifest: waiting.Descriptor}}
	require.NoError(t, store.Index())
	require.Equal(t, 1, names())
	require.NoError(t, store.Prune(nil, nil))
	require.Equal(t, 4, here())

	list, fault = nil, errors.New("the state cannot be read")
	require.ErrorIs(t, store.Prune(nil, nil), fault)
	require.ErrorIs(t, store.Index(), fault)
	require.Equal(t, 4, here(), "an unknown list deletes nothing")

	fault = nil
	require.NoError(t, store.Prune(nil, nil))
	require.Zero(t, names())
	require.Zero(t, here())
}
