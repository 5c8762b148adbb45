package hub

import (
	"crypto/ed25519"
	"encoding/json"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// signer signs for the hub.
type signer struct {
	key ed25519.PrivateKey
	now func() time.Time
}

// ack signs that the reports of a cluster are stored. Callers call it only after the commit.
func (s signer) ack(uid string, ids []digest.Digest) ([]byte, error) {
	body, err := json.Marshal(bundle.Ack{Schema: bundle.ReportSchema, Cluster: uid, IssuedAt: s.now().UTC(), Reports: ids})
	if err != nil {
		return nil, err
	}
	return bundle.SealEnvelope(bundle.PayloadTypeAck, body, s.key)
}

// decision signs a decision about promotion, of a person whose access token the hub has seen.
func (s signer) decision(d bundle.Decision) ([]byte, error) {
	body, err := d.Marshal()
	if err != nil {
		return nil, err
	}
	return bundle.SealEnvelope(bundle.PayloadTypeDecision, body, s.key)
}
