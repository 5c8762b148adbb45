package bundle

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// annotationSignature holds a signature's base64 on a layer of a signature manifest, as cosign writes it.
const annotationSignature = "dev.cosignproject.cosign/signature"

// SignatureTag returns the tag under which cosign looks for the signatures of the manifest with digest d.
func SignatureTag(d digest.Digest) string {
	return fmt.Sprintf("%s-%s.sig", d.Algorithm(), d.Encoded())
}

// Signed is a signature manifest and its blobs, in the order in which to push them.
type Signed struct {
	Blobs    []Blob
	Manifest Blob
}

// Blob is content with its descriptor.
type Blob struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}

// NewBlob returns data as a blob of the given media type.
func NewBlob(mediaType string, data []byte) Blob {
	return Blob{Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, Data: data}
}

// WithData returns the descriptor with the content embedded in it, as oci.CopyBlob takes it.
func (b Blob) WithData() ocispec.Descriptor {
	d := b.Descriptor
	d.Data = b.Data
	return d
}

// SignManifest signs the claim that the repository named reference, such as
// registry.plant-7:5000/edge/bundles/dev/drone, offers manifest. The result has one layer per signer, in
// cosign's simple signing format, and carries the claim in the layers' descriptors as well.
func SignManifest(manifest digest.Digest, reference string, signers ...signature.Signer) (*Signed, error) {
	claim, err := json.Marshal(payload.SimpleContainerImage{
		Critical: payload.Critical{
			Identity: payload.Identity{DockerReference: reference},
			Image:    payload.Image{DockerManifestDigest: manifest.String()},
			Type:     payload.CosignSignatureType,
		},
	})
	if err != nil {
		return nil, err
	}
	claimBlob := NewBlob(MediaTypeSimpleSigning, claim)
	var layers []ocispec.Descriptor
	for _, s := range signers {
		sig, err := s.SignMessage(bytes.NewReader(claim))
		if err != nil {
			return nil, fmt.Errorf("sign manifest %s: %w", manifest, err)
		}
		layer := claimBlob.Descriptor
		layer.Annotations = map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(sig)}
		layer.Data = claim
		layers = append(layers, layer)
	}
	return signatureManifest(layers)
}

// signatureManifest returns a signature manifest of layers, each of which carries a claim and the signature over it.
func signatureManifest(layers []ocispec.Descriptor) (*Signed, error) {
	signed := &Signed{}
	var seen []digest.Digest
	for _, layer := range layers {
		if !slices.Contains(seen, layer.Digest) {
			signed.Blobs = append(signed.Blobs, NewBlob(layer.MediaType, layer.Data))
		}
		seen = append(seen, layer.Digest)
	}
	configBlob, err := SignatureConfig(layers)
	if err != nil {
		return nil, err
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: configBlob.Descriptor, Layers: layers,
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	signed.Blobs, signed.Manifest = append(signed.Blobs, configBlob), NewBlob(m.MediaType, data)
	return signed, nil
}

// SignatureConfig returns the config that a signature manifest with these layers has here, so that a reader need not fetch
// it. Other tools write others.
func SignatureConfig(layers []ocispec.Descriptor) (Blob, error) {
	// cosign writes an image config that lists the layers, and some registries look at it.
	config := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	for _, layer := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, layer.Digest)
	}
	data, err := json.Marshal(config)
	return NewBlob(ocispec.MediaTypeImageConfig, data), err
}

// Keys are public keys that may sign. Nil trusts nobody.
type Keys []crypto.PublicKey

// ParsePublicKeys parses one or more public keys in PEM, such as a cosign.pub. The error wraps ErrKeyKind if
// CheckPublicKey refuses one of them.
func ParsePublicKeys(pem []byte) (Keys, error) {
	var keys Keys
	for rest := bytes.TrimSpace(pem); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		end := bytes.Index(rest, []byte("-----END"))
		if end < 0 {
			return nil, fmt.Errorf("no public key in PEM")
		}
		if line := bytes.IndexByte(rest[end:], '\n'); line >= 0 {
			end += line + 1
		} else {
			end = len(rest)
		}
		key, err := cryptoutils.UnmarshalPEMToPublicKey(rest[:end])
		if err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		if err := CheckPublicKey(key); err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		keys, rest = append(keys, key), rest[end:]
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no public key in PEM")
	}
	return keys, nil
}

// MarshalPublicKey returns pub in PEM, as ParsePublicKeys reads it.
func MarshalPublicKey(pub crypto.PublicKey) ([]byte, error) {
	return cryptoutils.MarshalPublicKeyToPEM(pub)
}
