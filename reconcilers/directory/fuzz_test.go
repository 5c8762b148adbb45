package directory

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/reconcilers"
)

// Whatever a registry serves, there are numbered files in the folder that was given, with clean paths to go
// to, and no more bytes than are allowed.
func FuzzAnArchiveStaysInItsFolder(f *testing.F) {
	var good bytes.Buffer
	w := tar.NewWriter(&good)
	require.NoError(f, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Size: 1, Mode: 0o755}))
	_, err := w.Write([]byte("x"))
	require.NoError(f, err)
	require.NoError(f, w.Close())
	f.Add(good.Bytes(), false)
	f.Add(bytes.ReplaceAll(good.Bytes(), []byte("a/b"), []byte("../")), false)
	f.Add([]byte("\x1f\x8b"), true)
	f.Fuzz(func(t *testing.T, data []byte, zipped bool) {
		const limit = 1 << 16
		dir := t.TempDir()
		to, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer to.Close()
		l := layer{Unpack: map[bool]string{true: "tar+gzip", false: "tar"}[zipped]}
		parts, err := l.store(t.Context(), bytes.NewReader(data), to, limit)
		if err != nil {
			require.NotNil(t, reconcilers.Known(err))
		}
		total := int64(0)
		for _, p := range parts {
			require.True(t, fs.ValidPath(p.Path) && !strings.HasPrefix(path.Base(p.Path), whiteout), p.Path)
			total += p.Size
		}
		require.LessOrEqual(t, total, int64(limit))
	})
}

func FuzzAManifestGivesLayersOrAReason(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"a.tar","digest":"sha256:` + strings.Repeat("0", 64) + `","size":7,"annotations":{"org.opencontainers.image.title":"x"}}]}`))
	f.Add([]byte(`{"manifests":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		layers, err := layersOf(data)
		if err != nil {
			require.NotNil(t, reconcilers.Known(err))
			return
		}
		require.NotEmpty(t, layers)
		for _, l := range layers {
			require.True(t, fs.ValidPath(l.key()) && l.Size >= 0 && (l.Title != "" || l.Unpack != ""))
		}
	})
}
