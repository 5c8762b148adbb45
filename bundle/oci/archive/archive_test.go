package archive

import (
	"archive/tar"
	"bytes"
	"errors"
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

func TestDamageIsToldFromFilesOfOthers(t *testing.T) {
	whole := tarOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`, "index.json", `{"schemaVersion":2,"manifests":[]}`)
	flipped := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	for name, test := range map[string]struct {
		content []byte
		damaged bool
	}{
		"cut short in the first header": {whole[:100], true},
		"cut short in the second":       {whole[:1100], true},
		"cut short between two":         {whole[:1024], true},
		"a name changed":                {flipped(3), true},
		"a later header changed":        {flipped(1024 + 110), true},
		"a text":                        {[]byte("hello"), false},
		"a long text":                   {bytes.Repeat([]byte("hello"), 1000), false},
		"nothing":                       {nil, false},
	} {
		_, err := Open(bytes.NewReader(test.content), int64(len(test.content)))
		require.ErrorIs(t, err, ErrFormat, name)
		require.Equal(t, test.damaged, errors.Is(err, ErrDamaged), name)
	}
}
