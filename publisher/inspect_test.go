package publisher

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/verify"
)

func (w *world) reference(s string) oci.Reference {
	w.t.Helper()
	ref, err := oci.ParseReference(w.loc.String() + "/" + s)
	require.NoError(w.t, err)
	return ref
}

func TestVerifyReference(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		_, p := w.mustPublish()
		keys := trustIn(w.key)
		got, err := verify.ByKeys(t.Context(), w.reference("bundles/dev/drone"), keys, w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, "bundle", got.Kind)
		require.Equal(t, row(t, p, "drone").Digest, got.Digest)
		require.Equal(t, 2, *got.Assignments)
		got, err = verify.ByKeys(t.Context(), w.reference("environments/dev:latest"), keys, w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, "environment", got.Kind)
		require.Len(t, got.ClusterTypes, 3)

		var refusal *bundle.Refusal
		for _, tc := range []struct {
			name  string
			trust bundle.Trust
			now   time.Time
			want  bundle.Reason
		}{
			{"another key", trustIn(keytest.New(t)), w.now, bundle.UntrustedKey},
			{"no key", bundle.Trust{}, w.now, bundle.UntrustedKey},
			{"after it expired", keys, w.now.AddDate(0, 0, 90), bundle.Expired},
		} {
			_, err = verify.ByKeys(t.Context(), w.reference("bundles/dev/drone"), tc.trust, tc.now, w.opts.OCI)
			require.ErrorAs(t, err, &refusal, tc.name)
			require.Equal(t, tc.want, refusal.Reason, tc.name)
		}
		_, err = verify.ByKeys(t.Context(), w.reference("bundles/dev/none"), keys, w.now, w.opts.OCI)
		require.ErrorIs(t, err, errdef.ErrNotFound)
	})
}

func TestAnUnsignedBundleAndAChangedLayerAreRefused(t *testing.T) {
	w := newWorld(t, "layout")
	w.mustPublish()
	v := w.verified("drone", "latest")
	index, err := os.ReadFile(filepath.Join(w.dir, "index.json"))
	require.NoError(t, err)
	unsigned := strings.ReplaceAll(string(index), "bundles/dev/drone/sha256-", "bundles/dev/drone/hidden-")
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "index.json"), []byte(unsigned), 0o600))
	var refusal *bundle.Refusal
	_, err = verify.ByKeys(t.Context(), w.reference("bundles/dev/drone"), trustIn(w.key), w.now, oci.Options{})
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.Unsigned, refusal.Reason)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "index.json"), index, 0o600))

	layer := filepath.Join(w.dir, "blobs", "sha256", v.Tree.Digest.Encoded())
	data, err := os.ReadFile(layer)
	require.NoError(t, err)
	t.Setenv("TMPDIR", t.TempDir())
	for _, at := range []int{0, len(data) / 2, len(data) - 1} {
		changed := bytes.Clone(data)
		changed[at] ^= 1
		require.NoError(t, os.WriteFile(layer, changed, 0o600))
		_, err = verify.ByKeys(t.Context(), w.reference("bundles/dev/drone"), trustIn(w.key), w.now, oci.Options{})
		require.ErrorAs(t, err, &refusal, "byte %d", at)
	}
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "unpacked trees are removed")
}

func TestInspectShowsWhatLiesThere(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		got, err := catalog.Inspect(t.Context(), w.reference("bundles/dev/drone"), w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, 1, got.Signatures)
		require.Equal(t, "drone", got.Release.ClusterType)
		require.Len(t, got.Assignments, 2)
		_, err = catalog.Inspect(t.Context(), w.reference("environments/dev"), w.opts.OCI)
		require.ErrorContains(t, err, "no bundle")
	})
}

func TestList(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		w.result.Environment = "stage"
		w.mustPublish()
		names := func(list []catalog.Listed) (names []string) {
			for _, l := range list {
				names = append(names, l.Environment+"/"+l.ClusterType)
			}
			return names
		}
		list, err := catalog.List(t.Context(), w.loc, "", w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, []string{"dev/drone", "dev/large", "dev/small", "stage/drone", "stage/large", "stage/small"}, names(list))
		list, err = catalog.List(t.Context(), w.loc, "dev", w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, []string{"dev/drone", "dev/large", "dev/small"}, names(list))
	})
}

func TestListFollowsTheRecordWhereTheRegistryHasNoCatalog(t *testing.T) {
	w := newWorld(t, "registry")
	w.mustPublish()
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		denied := r.URL.Path == "/v2/_catalog"
		if denied {
			rw.WriteHeader(http.StatusForbidden)
		}
		return denied
	}
	_, err := catalog.List(t.Context(), w.loc, "", w.now, w.opts.OCI)
	require.True(t, errors.Is(err, errors.ErrUnsupported), "%v", err)
	list, err := catalog.List(t.Context(), w.loc, "dev", w.now, w.opts.OCI)
	require.NoError(t, err)
	require.Len(t, list, 3)
}
