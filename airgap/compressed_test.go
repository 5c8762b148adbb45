package airgap

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACompressedTarIsCalledThat(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(make([]byte, 1024))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for want, data := range map[string][]byte{"gunzip": b.Bytes(), "unzstd": {0x28, 0xb5, 0x2f, 0xfd, 0}} {
		path := filepath.Join(t.TempDir(), "site.tar")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_, err := ReadReports(path)
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, "the file is compressed: unpack it with "+want)
	}
}
