package bundle

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
)

// ErrUntrusted is wrapped by errors about envelopes without a valid signature of a known key.
var ErrUntrusted = errors.New("not signed by a trusted key")

// KeyID identifies a public key: the SHA-256 of its SubjectPublicKeyInfo in DER, in hex.
func KeyID(pub crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	return digest.SHA256.FromBytes(der).Encoded(), nil
}

// SealEnvelope returns body in a DSSE envelope of the given payload type, signed by each of keys.
func SealEnvelope(payloadType string, body []byte, keys ...crypto.Signer) ([]byte, error) {
	var signers []signature.Signer
	for _, key := range keys {
		signer, err := signature.LoadSigner(key, crypto.SHA256)
		if err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
		signers = append(signers, signer)
	}
	return SealEnvelopeBy(payloadType, body, signers...)
}

// SealEnvelopeBy is SealEnvelope for keys that may not be in memory, such as those of package publisher/keys.
func SealEnvelopeBy(payloadType string, body []byte, keys ...signature.Signer) ([]byte, error) {
	var signers []dsse.Signer
	for _, key := range keys {
		public, err := key.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
		id, err := KeyID(public)
		if err != nil {
			return nil, err
		}
		signers = append(signers, envelopeSigner{key, id})
	}
	es, err := dsse.NewEnvelopeSigner(signers...)
	if err != nil {
		return nil, err
	}
	env, err := es.SignPayload(context.Background(), payloadType, body)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", payloadType, err)
	}
	return json.Marshal(env)
}

// OpenEnvelope returns the body of an envelope of the given payload type, and the id of the key among
// keys that signed it. The error wraps ErrUntrusted if none of them did.
func OpenEnvelope(payloadType string, data []byte, keys ...crypto.PublicKey) (body []byte, keyID string, err error) {
	var env dsse.Envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return nil, "", fmt.Errorf("envelope: %w", err)
	}
	if env.PayloadType != payloadType {
		return nil, "", fmt.Errorf("envelope holds %q, want %q", env.PayloadType, payloadType)
	}
	var verifiers []dsse.Verifier
	for _, k := range keys {
		v, err := verifierOf(k)
		if err != nil {
			return nil, "", fmt.Errorf("public key: %w", err)
		}
		id, err := KeyID(k)
		if err != nil {
			return nil, "", err
		}
		verifiers = append(verifiers, envelopeVerifier{v, id, k})
	}
	if len(verifiers) == 0 {
		return nil, "", fmt.Errorf("envelope of %s: %w: no key is known", payloadType, ErrUntrusted)
	}
	ev, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return nil, "", err
	}
	accepted, err := ev.Verify(context.Background(), &env)
	if err != nil {
		return nil, "", fmt.Errorf("envelope of %s: %w: %v", payloadType, ErrUntrusted, err)
	}
	body, err = env.DecodeB64Payload()
	return body, accepted[0].KeyID, err
}

// envelopeSigner and envelopeVerifier fit sigstore's keys to DSSE's interfaces.
type envelopeSigner struct {
	signature.Signer
	id string
}

func (s envelopeSigner) Sign(_ context.Context, data []byte) ([]byte, error) {
	return s.SignMessage(bytes.NewReader(data))
}
func (s envelopeSigner) KeyID() (string, error) { return s.id, nil }

type envelopeVerifier struct {
	signature.Verifier
	id  string
	pub crypto.PublicKey
}

func (v envelopeVerifier) Verify(_ context.Context, data, sig []byte) error {
	return v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(data))
}
func (v envelopeVerifier) KeyID() (string, error)   { return v.id, nil }
func (v envelopeVerifier) Public() crypto.PublicKey { return v.pub }

// envelopeManifest returns the blobs that store an envelope as an artifact of a type, in the order in which to push them, the
// manifest last, which has the envelope in itself too.
func envelopeManifest(artifactType string, envelope []byte) ([]Blob, error) {
	config := NewBlob(artifactType, envelope)
	// Registries and tools expect a layer; the specification's empty one stands for none.
	empty := Blob{Descriptor: ocispec.DescriptorEmptyJSON, Data: ocispec.DescriptorEmptyJSON.Data}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: artifactType, Config: config.Descriptor, Layers: []ocispec.Descriptor{empty.Descriptor},
	}
	m.Config.Data = envelope
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return []Blob{config, empty, NewBlob(m.MediaType, data)}, nil
}
