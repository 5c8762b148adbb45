package archive

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func tarOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}))
		_, err := w.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestLongNamesInATarAreNotKept(t *testing.T) {
	data := tarOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`, strings.Repeat("x", 1<<16), "", "index.json", "{}")
	l, err := Open(bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	require.Len(t, l.blobs.(tarFile).entries, 2)
	require.Greater(t, len(data), 1<<16)
}
