package archive

import (
	"bytes"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// FuzzParts reads anything as the manifest of parts.
func FuzzParts(f *testing.F) {
	good := Parts{Name: "site.tar", Bytes: 3, Digest: digest.FromString("x"), Parts: []Part{{"site.tar.001", 2, digest.FromString("a")}, {"site.tar.002", 1, digest.FromString("b")}}}
	data, err := good.Marshal()
	require.NoError(f, err)
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("site.tar.002"), []byte("../site.tar")))
	f.Add(bytes.ReplaceAll(data, []byte(`"bytes": 2`), []byte(`"bytes": 9223372036854775807`)))
	f.Add([]byte(`{"schema":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseParts(data)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		var sum int64
		for _, part := range p.Parts {
			require.NotContains(t, part.Name, "/")
			require.False(t, strings.HasPrefix(part.Name, ".."))
			require.Positive(t, part.Bytes)
			sum += part.Bytes
		}
		require.Equal(t, p.Bytes, sum)
		printed, err := p.Marshal()
		require.NoError(t, err)
		again, err := ParseParts(printed)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
