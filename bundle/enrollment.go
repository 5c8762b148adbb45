package bundle

import (
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// EnrollmentSchema is the version of enrollments, and of requests for them, that this code writes.
const EnrollmentSchema = 1

// ErrEnrollment is wrapped by errors about enrollments, and requests, that cannot be read.
var ErrEnrollment = errors.New("not an enrolment")

// EnrollmentRequest asks a hub, or a person with a roster, to register an agent's cluster and key. Its envelope is signed
// by the private half of every key that it names.
type EnrollmentRequest struct {
	Schema  int           `json:"schema"`
	Cluster ReportCluster `json:"cluster"`
	// Agent is the agent's version, and the incarnation and seq of its newest report. Reports up to there may
	// be signed by Former alone.
	Agent ReportAgent `json:"agent"`
	// Key is the public key of the reports to come, in PEM.
	Key string `json:"key"`
	// Former is the public key that Key replaces, in PEM; empty for a new cluster.
	Former string `json:"former,omitempty"`
	// Token is the id of the EnrollToken whose key signed the request too; empty without a token.
	Token string `json:"token,omitempty"`
	// Hub is the beginning of the id of the addressed hub's key; see IsHub. It is empty in a file, which any hub may
	// accept.
	Hub string `json:"hub,omitempty"`
	// IssuedAt is the time of the agent's clock, and makes each request unique.
	IssuedAt time.Time `json:"issuedAt"`
}

// Keys returns the public keys that the request names: the new one, and the former, nil without one. Both have to be
// Ed25519, which agents sign reports with.
func (r EnrollmentRequest) Keys() (key, former ed25519.PublicKey, err error) {
	if key, err = reportKeyOf(r.Key); err != nil {
		return nil, nil, err
	}
	if r.Former != "" {
		former, err = reportKeyOf(r.Former)
	}
	return key, former, err
}

func reportKeyOf(pem string) (ed25519.PublicKey, error) {
	parsed, err := onlyKey(pem)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: key: %w: %T; agents sign with Ed25519", ErrEnrollment, ErrKeyKind, parsed)
	}
	return key, nil
}

func onlyKey(pem string) (crypto.PublicKey, error) {
	keys, err := ParsePublicKeys([]byte(pem))
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%d keys", len(keys))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w", ErrEnrollment, err)
	}
	return keys[0], nil
}

// SealEnrollmentRequest returns the request in an envelope signed by each of keys.
func SealEnrollmentRequest(r EnrollmentRequest, keys ...crypto.Signer) ([]byte, error) {
	r.Schema = EnrollmentSchema
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return SealEnvelope(PayloadTypeEnrollmentRequest, body, keys...)
}

// OpenEnrollmentRequest returns the request in an envelope, and its id, after verifying the signature of each key that it
// names. The caller judges whether those keys may enroll, and verifies the signature of a token's key. The error wraps
// ErrUntrusted or ErrEnrollment.
func OpenEnrollmentRequest(envelope []byte) (r EnrollmentRequest, id digest.Digest, err error) {
	body, err := peekEnrollment(PayloadTypeEnrollmentRequest, envelope, &r)
	if err != nil {
		return r, "", err
	}
	if r.Schema != EnrollmentSchema || r.Cluster.UID == "" {
		return r, "", fmt.Errorf("%w: request has schema %d and cluster uid %q", ErrEnrollment, r.Schema, r.Cluster.UID)
	}
	key, former, err := r.Keys()
	if err != nil {
		return r, "", err
	}
	for _, k := range []ed25519.PublicKey{key, former} {
		if k == nil {
			continue
		}
		if _, _, err := OpenEnvelope(PayloadTypeEnrollmentRequest, envelope, k); err != nil {
			return r, "", err
		}
	}
	return r, digest.FromBytes(body), nil
}

// Enrollment is the hub's answer to a request: the registered cluster, and the key that acknowledges its reports from then
// on.
type Enrollment struct {
	Schema  int           `json:"schema"`
	Cluster ReportCluster `json:"cluster"` // as registered
	// KeyID is the id of the key that signs the cluster's reports; see KeyID.
	KeyID string `json:"keyID"`
	// Incarnation is the newest one among the hub's reports of the cluster; zero if it has none. The agent's
	// incarnation must not be lower, or the hub would take its reports for old ones.
	Incarnation int64 `json:"incarnation,omitempty"`
	// Request is the id of the answered request, so that no older answer passes for this one.
	Request digest.Digest `json:"request"`
	// HubKey is the public half of the key that signed this answer, in PEM.
	HubKey   string    `json:"hubKey"`
	IssuedAt time.Time `json:"issuedAt"`
}

// SealEnrollment returns the answer in an envelope signed by the hub's key.
func SealEnrollment(e Enrollment, hub crypto.Signer) ([]byte, error) {
	pem, err := MarshalPublicKey(hub.Public())
	if err != nil {
		return nil, err
	}
	e.Schema, e.HubKey = EnrollmentSchema, string(pem)
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return SealEnvelope(PayloadTypeEnrollment, body, hub)
}

// OpenEnrollment returns the answer in an envelope, and the hub's key, if hub names that key: by its whole id, or by the
// part of the id that a token carries. The error wraps ErrUntrusted or ErrEnrollment.
func OpenEnrollment(envelope []byte, hub string) (e Enrollment, key crypto.PublicKey, err error) {
	if _, err = peekEnrollment(PayloadTypeEnrollment, envelope, &e); err != nil {
		return e, nil, err
	}
	if e.Schema != EnrollmentSchema {
		return e, nil, fmt.Errorf("%w: it has schema %d", ErrEnrollment, e.Schema)
	}
	if key, err = onlyKey(e.HubKey); err != nil {
		return e, nil, err
	}
	id, err := KeyID(key)
	if err != nil {
		return e, nil, err
	}
	if !IsHub(id, hub) {
		return e, nil, fmt.Errorf("enrollment: %w: the hub that answered has key %s, and not %s", ErrUntrusted, id, hub)
	}
	_, _, err = OpenEnvelope(PayloadTypeEnrollment, envelope, key)
	return e, key, err
}

// HubIDLength is the number of hex digits of a hub key's id that identify the key: 128 bits, for which nobody can find a
// second key.
const HubIDLength = 32

// IsHub reports whether hub, the beginning of a key's id with at least HubIDLength digits, names the key with that id.
func IsHub(id, hub string) bool { return len(hub) >= HubIDLength && strings.HasPrefix(id, hub) }

// peekEnrollment reads the body of an envelope without verifying its signatures.
func peekEnrollment(payloadType string, envelope []byte, into any) (body []byte, err error) {
	if len(envelope) > MaxEnrollmentBytes {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrEnrollment, MaxEnrollmentBytes)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnrollment, err)
	}
	if e.PayloadType != payloadType {
		return nil, fmt.Errorf("%w: the envelope holds %q, want %q", ErrEnrollment, e.PayloadType, payloadType)
	}
	if len(e.Signatures) > maxEnrollmentSignatures {
		return nil, fmt.Errorf("%w: it has %d signatures, at most %d", ErrEnrollment, len(e.Signatures), maxEnrollmentSignatures)
	}
	body, err = e.DecodeB64Payload()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnrollment, err)
	}
	return body, nil
}

// maxEnrollmentSignatures allows signatures of the new key, the former key and a token's key, and one to spare.
const maxEnrollmentSignatures = 4
