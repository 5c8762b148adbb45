package roster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func privateKey(seed byte) ed25519.PrivateKey {
	key := make([]byte, ed25519.SeedSize)
	key[0] = seed
	return ed25519.NewKeyFromSeed(key)
}

func sealed(t *testing.T, key crypto.Signer, uid string, seq int64, state bundle.State) []byte {
	t.Helper()
	body, err := json.Marshal(bundle.Report{
		Schema: 1, Cluster: bundle.ReportCluster{UID: uid, Name: "says-" + uid, Type: "says", Environment: "prod"},
		Agent: bundle.ReportAgent{Incarnation: 1, Seq: seq}, OccurredAt: start.Add(time.Duration(seq) * time.Hour), State: state,
		Items: []bundle.Item{{Assignment: "a", State: state}, {Assignment: "b", State: bundle.Compliant}},
	})
	require.NoError(t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, key)
	require.NoError(t, err)
	return envelope
}

func TestAReviewDependsOnTheSetOfReportsAlone(t *testing.T) {
	clusters := []scheduler.Cluster{
		{Name: "plant-7", UID: "u7", ClusterType: "drone", PublicKey: publicKey(t, 7), Reporting: true},
		{Name: "plant-8", UID: "u8", ClusterType: "drone", PublicKey: publicKey(t, 8), Reporting: true},
		{Name: "plant-9", UID: "u9", ClusterType: "till", PublicKey: publicKey(t, 9), Reporting: true},
		{Name: "quiet", UID: "u10", ClusterType: "till"},
		{Name: "keyless", UID: "u11", ClusterType: "till", Reporting: true},
	}
	envelopes := [][]byte{
		sealed(t, privateKey(7), "u7", 1, bundle.Failed), sealed(t, privateKey(7), "u7", 2, bundle.Compliant), sealed(t, privateKey(7), "u7", 3, bundle.Compliant),
		sealed(t, privateKey(8), "u8", 4, bundle.Compliant), sealed(t, privateKey(8), "u8", 5, bundle.Failed),
		sealed(t, privateKey(9), "u8", 6, bundle.Compliant), // by another's key
		sealed(t, privateKey(1), "stranger", 1, bundle.Compliant), sealed(t, privateKey(11), "u11", 1, bundle.Compliant),
		[]byte("hello"),
	}
	want := []Reported{
		{
			UID: "u8", Name: "plant-8", Environment: "prod", ClusterType: "drone", State: bundle.Failed, Since: start.Add(5 * time.Hour), LastSeen: start.Add(5 * time.Hour),
			Items: map[bundle.State]int{bundle.Failed: 1, bundle.Compliant: 1}, Reports: 2,
		},
		{UID: "u11", Name: "keyless", ClusterType: "till"},
		{UID: "u9", Name: "plant-9", ClusterType: "till"},
		{
			UID: "u7", Name: "plant-7", Environment: "prod", ClusterType: "drone", State: bundle.Compliant, Since: start.Add(2 * time.Hour), LastSeen: start.Add(3 * time.Hour),
			Items: map[bundle.State]int{bundle.Compliant: 2}, Reports: 3,
		},
	}
	refused := []Refused{
		{"", 1, "not a report"},
		{"stranger", 1, "no Cluster of the roster has this uid"},
		{"u11", 1, "its Cluster has no public key"},
		{"u8", 1, "the key of its Cluster has not signed it"},
	}
	random := mathrand.New(mathrand.NewPCG(1, 1))
	ackKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer, err := signature.LoadSigner(ackKey, crypto.SHA256)
	require.NoError(t, err)
	for range 20 {
		r, err := NewReview(clusters)
		require.NoError(t, err)
		for range 2 { // each twice, in any order
			random.Shuffle(len(envelopes), func(i, j int) { envelopes[i], envelopes[j] = envelopes[j], envelopes[i] })
			for _, e := range envelopes {
				r.Add(e)
			}
		}
		got := r.Clusters()
		for i := range got {
			got[i].ids = nil
		}
		require.Equal(t, want, got)
		require.Equal(t, refused, r.Refused())

		acks, n, err := r.Acknowledge(start, signer)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		var named []digest.Digest
		for i, uid := range []string{"u7", "u8"} {
			body, _, err := bundle.OpenEnvelope(bundle.PayloadTypeAck, acks[i], ackKey.Public())
			require.NoError(t, err)
			ack, err := bundle.ParseAck(body)
			require.NoError(t, err)
			require.Equal(t, uid, ack.Cluster)
			named = append(named, ack.Reports...)
		}
		require.Len(t, acks, 2)
		require.Len(t, named, 5)
	}
}

func TestWithoutARosterReportsAreShownAndNotAcknowledged(t *testing.T) {
	r, err := NewReview(nil)
	require.NoError(t, err)
	r.Add(sealed(t, privateKey(1), "u7", 1, bundle.Drifted))
	require.Equal(t, "says-u7", r.Clusters()[0].Name)
	_, _, err = r.Acknowledge(start)
	require.Error(t, err)
}

func TestARosterThatContradictsItselfIsRefused(t *testing.T) {
	_, err := NewReview([]scheduler.Cluster{{Name: "a", UID: "u"}, {Name: "b", UID: "u"}})
	require.ErrorContains(t, err, "another Cluster")
	_, err = NewReview([]scheduler.Cluster{{Name: "a", UID: "u", PublicKey: "hello"}})
	require.ErrorContains(t, err, "public key of cluster a")
}
