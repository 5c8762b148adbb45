package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASupportBundleHasNoSecretsAndTheSameBytes(t *testing.T) {
	const secret = `a"b&c<d`
	t.Setenv("SOME_API_KEY", secret)
	write := func() []byte {
		var s Support
		s.Add("b.json", map[string]string{"text": "with " + secret + " in it"}, nil)
		s.Add("a.json", nil, errors.New("read https://user:other@host/path?token=1"))
		s.AddText("c.txt", []byte("wha_0123456789ab_"+strings.Repeat("x", 43)+" -----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY----- cosign:pkcs11:x?pin-value=1234&y"))
		s.AddText("long.txt", append(bytes.Repeat([]byte("x"), maxSupportFile), "end"...))
		var out bytes.Buffer
		require.NoError(t, s.write(&out))
		return out.Bytes()
	}
	bundle := write()
	require.Equal(t, bundle, write())

	z, err := gzip.NewReader(bytes.NewReader(bundle))
	require.NoError(t, err)
	files := map[string]string{}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		files[strings.TrimPrefix(h.Name, "wherry-support/")] = string(data)
	}
	require.Len(t, files["long.txt"], maxSupportFile+1)
	require.True(t, strings.HasSuffix(files["long.txt"], "xend\n"))
	delete(files, "long.txt")
	require.Equal(t, map[string]string{
		"a.json.error": "read https://host/path\n",
		"b.json":       "{\n  \"text\": \"with REDACTED in it\"\n}\n",
		"c.txt":        "REDACTED REDACTED cosign:pkcs11:x?REDACTED&y\n",
	}, files)
}
