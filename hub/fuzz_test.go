package hub

import (
	"crypto"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func ringOf(t testing.TB, a *agent) keyring {
	t.Helper()
	kid, err := bundle.KeyID(a.Key)
	require.NoError(t, err)
	return keyring{Current: map[string]crypto.PublicKey{kid: a.Key}}
}

// Nothing is taken from a body in which the cluster's key has signed nothing.
func FuzzRequest(f *testing.F) {
	a, stranger := newAgent(f, "plant-7"), newAgent(f, "stranger")
	keys := ringOf(f, a)
	f.Add("", requestOf(f, stranger.seal(f, a.report(1, 1, storetest.Item("drone", bundle.Compliant)))))
	f.Add("gzip", []byte{0x1f, 0x8b, 0x08})
	f.Add("", []byte(`{"reports":[null,{"payloadType":"application/vnd.wherry.report.v1+json","payload":"e30=","signatures":[{"sig":"AAAA"}]}]}`))
	f.Fuzz(func(t *testing.T, encoding string, body []byte) {
		all, _, err := parseReports(a.UID, encoding, body)
		if err != nil {
			return
		}
		for _, u := range all {
			_, refused := keys.open(u)
			require.NotNil(t, refused)
			require.Equal(t, store.Plain(refused.Message), refused.Message)
		}
	})
}

// All text that is taken from a signed report is plain and can be shown.
func FuzzSignedReport(f *testing.F) {
	a := newAgent(f, "plant-7")
	keys := ringOf(f, a)
	body, err := json.Marshal(a.report(1, 1, storetest.Item("drone", bundle.Compliant)))
	require.NoError(f, err)
	f.Add(body)
	f.Add([]byte(`{"schema":1,"cluster":{"uid":"uid-plant-7","labels":{"\u001b":"\u202e"}},"agent":{"incarnation":9223372036854775807,"seq":1},
		"kind":"k","state":"s","items":[{"assignment":"\u0000a","state":"x","since":"9999-12-31T23:59:59-23:59"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		u, refused := peek(0, a.sealBody(t, body), a.UID)
		if refused != nil {
			return
		}
		r, refused := keys.open(u)
		if refused != nil {
			return
		}
		claims, err := json.Marshal(r.Body.Cluster)
		require.NoError(t, err)
		said := string(claims) + r.Body.Reason + r.Body.Message
		for _, it := range r.Body.Items {
			said += it.Assignment + it.Workload + it.Target + string(it.State) + it.Reason + it.Message + it.Version + it.Revision
			_, err := json.Marshal(store.Moment(store.Millis(it.Since)))
			require.NoError(t, err)
		}
		require.Equal(t, store.Plain(said), said)
	})
}
