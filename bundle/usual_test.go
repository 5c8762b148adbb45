package bundle

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzUsualEnvelope(f *testing.F) {
	public, private, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("seed", 8)))
	require.NoError(f, err)
	sealed, err := SealEnvelope(PayloadTypeReport, []byte(`{"schema":1}`), private)
	require.NoError(f, err)
	id, err := KeyID(public)
	require.NoError(f, err)
	f.Add(sealed)
	f.Add([]byte(strings.Replace(string(sealed), `"payload":"`, `"payload":"\n`, 1)))
	f.Add([]byte(strings.Replace(string(sealed), `"sig":"`, `"sig":"AAAA`, 1)))
	f.Add(append(sealed, sealed...))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, rest, ok := ParseUsualEnvelope(PayloadTypeReport, data)
		if !ok {
			return
		}
		envelope := data[:len(data)-len(rest)]
		require.Equal(t, string(envelope), string(e.AppendTo(nil)), "byte for byte")
		body, kid, err := OpenEnvelope(PayloadTypeReport, envelope, public)
		signed := e.SignedBy(public) && e.KeyID == id
		require.Equal(t, err == nil, signed)
		if signed {
			require.Equal(t, string(body), string(e.Body))
			require.Equal(t, kid, e.KeyID)
		}
	})
}
