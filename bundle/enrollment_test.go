package bundle

import (
	"crypto"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pemOf(t testing.TB, key crypto.PublicKey) string {
	t.Helper()
	pem, err := MarshalPublicKey(key)
	require.NoError(t, err)
	return string(pem)
}

func TestARequestIsSignedByEveryKeyThatItNames(t *testing.T) {
	key, pub := reportKey(t)
	former, formerPub := reportKey(t)
	stranger, _ := reportKey(t)
	r := EnrollmentRequest{Schema: EnrollmentSchema, Cluster: ReportCluster{UID: "u"}, Key: pemOf(t, pub), Former: pemOf(t, formerPub)}
	for name, keys := range map[string][]crypto.Signer{
		"the new key alone":          {key},
		"the former key alone":       {former},
		"the new key and a stranger": {key, stranger},
	} {
		sealed, err := SealEnrollmentRequest(r, keys...)
		require.NoError(t, err)
		_, _, err = OpenEnrollmentRequest(sealed)
		require.ErrorIs(t, err, ErrUntrusted, name)
	}
	sealed, err := SealEnrollmentRequest(r, key, former)
	require.NoError(t, err)
	got, id, err := OpenEnrollmentRequest(sealed)
	require.NoError(t, err)
	require.Equal(t, r, got)
	require.NoError(t, id.Validate())
	require.Regexp(t, `^sha256:`, id)
}

func TestAnEnrollmentIsBelievedOfTheHubThatWasNamed(t *testing.T) {
	hub, pub := reportKey(t)
	stranger, strangerPub := reportKey(t)
	id, err := KeyID(pub)
	require.NoError(t, err)
	other, err := KeyID(strangerPub)
	require.NoError(t, err)
	sealed, err := SealEnrollment(Enrollment{KeyID: "k"}, hub)
	require.NoError(t, err)
	for _, name := range []string{id, id[:HubIDLength]} {
		e, key, err := OpenEnrollment(sealed, name)
		require.NoError(t, err)
		require.Equal(t, "k", e.KeyID)
		require.Equal(t, pub, key)
	}
	for _, name := range []string{other, id[:HubIDLength-1], ""} {
		_, _, err := OpenEnrollment(sealed, name)
		require.ErrorIs(t, err, ErrUntrusted, "named as %q", name)
	}
	// Signed by a stranger who names the hub's key.
	body, err := json.Marshal(Enrollment{Schema: EnrollmentSchema, HubKey: pemOf(t, pub)})
	require.NoError(t, err)
	forged, err := SealEnvelope(PayloadTypeEnrollment, body, stranger)
	require.NoError(t, err)
	_, _, err = OpenEnrollment(forged, id)
	require.ErrorIs(t, err, ErrUntrusted)
}

func TestTokensAreReadBackAndKeepTheirSecret(t *testing.T) {
	_, pub := reportKey(t)
	token, err := NewEnrollToken(pub)
	require.NoError(t, err)
	again, err := ParseEnrollToken(" " + token.Reveal() + "\n")
	require.NoError(t, err)
	require.Equal(t, token.Reveal(), again.Reveal())
	secret := strings.Split(token.Reveal(), "_")[2]
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, token), secret)
		require.NotContains(t, fmt.Sprintf(verb, &token), secret)
	}
	for name, s := range map[string]string{
		"nothing":             "",
		"something else":      "hunter2",
		"another id":          "wht_000000000000_" + strings.SplitN(token.Reveal(), "_", 3)[2],
		"a part":              token.Reveal()[:60],
		"in capitals":         strings.ToUpper(token.Reveal()),
		"an unfinished digit": "wht_" + token.ID() + "_" + strings.Repeat("z", 52) + "_" + token.Hub,
	} {
		_, err := ParseEnrollToken(s)
		require.ErrorIs(t, err, ErrToken, name)
		require.NotContains(t, err.Error(), secret)
	}
}

func FuzzOpenEnrollmentRequest(f *testing.F) {
	key, pub := reportKey(f)
	sealed, err := SealEnrollmentRequest(EnrollmentRequest{Cluster: ReportCluster{UID: "u"}, Key: pemOf(f, pub)}, key)
	require.NoError(f, err)
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := OpenEnrollmentRequest(data)
		if err == nil && r.Key == pemOf(t, pub) {
			require.Equal(t, "u", r.Cluster.UID, "only this request was ever signed")
		}
	})
}
