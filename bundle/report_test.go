package bundle

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

func reportKey(t testing.TB) (ed25519.PrivateKey, crypto.PublicKey) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return key, pub
}

func TestEnvelopeOpensForItsKeyAlone(t *testing.T) {
	key, pub := reportKey(t)
	_, stranger := reportKey(t)
	sealed, err := SealEnvelope(PayloadTypeReport, []byte(`{"schema":1}`), key)
	require.NoError(t, err)

	body, id, err := OpenEnvelope(PayloadTypeReport, sealed, stranger, pub)
	require.NoError(t, err)
	require.Equal(t, `{"schema":1}`, string(body))
	want, err := KeyID(pub)
	require.NoError(t, err)
	require.Equal(t, want, id)

	_, _, err = OpenEnvelope(PayloadTypeReport, sealed, stranger)
	require.ErrorIs(t, err, ErrUntrusted)
	_, _, err = OpenEnvelope(PayloadTypeReport, sealed)
	require.ErrorIs(t, err, ErrUntrusted)
	_, _, err = OpenEnvelope(PayloadTypeAck, sealed, pub)
	require.ErrorContains(t, err, "envelope holds", "a report is no acknowledgement")
}

func TestEnvelopeWithAChangedBodyIsUntrusted(t *testing.T) {
	key, pub := reportKey(t)
	sealed, err := SealEnvelope(PayloadTypeAck, []byte(`{"a":1}`), key)
	require.NoError(t, err)
	var env map[string]any
	require.NoError(t, json.Unmarshal(sealed, &env))
	env["payload"] = "eyJhIjoyfQ=="
	forged, err := json.Marshal(env)
	require.NoError(t, err)
	_, _, err = OpenEnvelope(PayloadTypeAck, forged, pub)
	require.ErrorIs(t, err, ErrUntrusted)
}

func TestParseReportRefusesWhatItCannotOrder(t *testing.T) {
	good := Report{Schema: ReportSchema, Cluster: ReportCluster{UID: "u"}, Agent: ReportAgent{Incarnation: 1, Seq: 1}}
	for name, change := range map[string]func(*Report){
		"another schema": func(r *Report) { r.Schema = 9 },
		"no uid":         func(r *Report) { r.Cluster.UID = "" },
		"no sequence":    func(r *Report) { r.Agent.Seq = 0 },
		"no incarnation": func(r *Report) { r.Agent.Incarnation = 0 },
	} {
		r := good
		change(&r)
		body, err := json.Marshal(r)
		require.NoError(t, err)
		_, err = ParseReport(body)
		require.Error(t, err, name)
	}
	body, err := json.Marshal(good)
	require.NoError(t, err)
	got, err := ParseReport(body)
	require.NoError(t, err)
	require.Equal(t, good, got)
}

func TestParseAckNeedsACluster(t *testing.T) {
	_, err := ParseAck([]byte(`{"schema":1,"reports":[]}`))
	require.Error(t, err)
	a, err := ParseAck([]byte(`{"schema":1,"cluster":"u","reports":["` + digest.FromString("r").String() + `"]}`))
	require.NoError(t, err)
	require.Equal(t, []digest.Digest{digest.FromString("r")}, a.Reports)
}

func FuzzOpenEnvelope(f *testing.F) {
	key, pub := reportKey(f)
	sealed, err := SealEnvelope(PayloadTypeReport, []byte(`{"schema":1}`), key)
	require.NoError(f, err)
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if body, _, err := OpenEnvelope(PayloadTypeReport, data, pub); err == nil {
			require.Equal(t, `{"schema":1}`, string(body), "only this body was ever signed")
		}
	})
}
