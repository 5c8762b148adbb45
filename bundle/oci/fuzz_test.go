package oci_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// FuzzLayout reads a folder on somebody's medium: any index, and any blob under its digest.
func FuzzLayout(f *testing.F) {
	const ref = `"annotations":{"org.opencontainers.image.ref.name":"bundles/dev/drone/latest"}`
	for _, index := range []string{
		`{"manifests":[]}`,
		`{"manifests":[{"digest":"","size":2,` + ref + `}]}`,
		`{"manifests":[{"digest":"sha256:../../../etc/passwd","size":-1,` + ref + `}]}`,
		`{"manifests":[{"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,` + ref + `}]}`,
		`{"manifests":[{"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":3,` + ref + `}]}`,
	} {
		f.Add([]byte(index), []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, index, blob []byte) {
		dir := t.TempDir()
		b := bundle.NewBlob("", blob).Descriptor
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs/sha256", b.Digest.Encoded()), blob, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600))
		store := oci.NewLayout(dir)
		_, _ = store.Repositories(t.Context())
		repo, err := store.Repository("bundles/dev/drone")
		require.NoError(t, err)
		_, _ = repo.Tags(t.Context())
		desc, err := repo.Resolve(t.Context(), "latest")
		if err != nil {
			return
		}
		require.NoError(t, desc.Digest.Validate())
		_, err = bundle.Verify(t.Context(), repo, desc, bundle.Trust{})
		require.Error(t, err, "nobody is trusted")
		_, _ = repo.Resolve(t.Context(), desc.Digest.String())
		if r, err := repo.Fetch(t.Context(), desc); err == nil {
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, blob, data)
			require.NoError(t, r.Close())
		}
	})
}
