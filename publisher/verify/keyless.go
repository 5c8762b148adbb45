package verify

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	rekor "github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v2/pkg/oci"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore-go/pkg/root"

	"github.com/wherry-dev/wherry/bundle"
)

// publicGood is what Sigstore publishes by TUF about its public instance, as the module
// github.com/sigstore/sigstore v1.10.3 carries it. It is not asked for anew: --trusted-root has a newer one.
//
//go:embed trusted_root.json
var publicGood []byte

// MaxTrustedRootBytes bounds a trusted_root.json. Sigstore's has 7 KiB.
const MaxTrustedRootBytes = 1 << 20

// Identity is whom a certificate was issued to, and by whose word.
type Identity struct {
	// Subject is an e-mail address, or the URI of a workflow.
	Subject string `json:"subject"`
	// Issuer is the URL of the OpenID Connect provider that vouched for the subject.
	Issuer string `json:"issuer"`
	// LoggedAt is when the signature was entered in the log, which is when the certificate had to be valid.
	LoggedAt time.Time `json:"loggedAt,omitzero"`
}

// Keyless is the trust in signatures by a certificate that was valid for minutes, with no key that anybody
// keeps: an identity, exactly as it is in the certificate, and the authorities and logs that vouch for it.
type Keyless struct {
	subject, issuer string
	root            root.TrustedMaterial
}

// NewKeyless returns the trust in a subject and its issuer. A nil trustedRoot is that of Sigstore's public
// instance; else it is a trusted_root.json.
func NewKeyless(subject, issuer string, trustedRoot []byte) (*Keyless, error) {
	if subject == "" || issuer == "" {
		return nil, errors.New("an identity is a subject and its issuer, both not empty") // empty would be anybody
	}
	if trustedRoot == nil {
		trustedRoot = publicGood
	}
	material, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, fmt.Errorf("trusted root: %w", err)
	}
	return &Keyless{subject, issuer, material}, nil
}

// Verify returns the identity that has signed manifest d if k trusts it, and a *bundle.Refusal otherwise. It makes requests
// to src only.
func (k *Keyless) Verify(ctx context.Context, src bundle.Source, d digest.Digest) (*Identity, error) {
	layers, err := bundle.SignatureLayers(ctx, src, d)
	if err != nil {
		return nil, err
	}
	refusal := &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("manifest %s is signed, but by no certificate", d)}
	for _, layer := range layers {
		if layer.MediaType != bundle.MediaTypeSimpleSigning || layer.Annotations[static.CertificateAnnotationKey] == "" {
			continue // a key's signature, which may be in the same manifest
		}
		claim, err := bundle.ReadBlob(ctx, src, layer, bundle.MaxManifestBytes)
		if err != nil {
			return nil, fmt.Errorf("signature of %s: %w", d, err)
		}
		loggedAt, err := k.verifyLayer(ctx, layer, claim, d)
		if err == nil {
			return &Identity{k.subject, k.issuer, loggedAt}, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		refusal = &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("manifest %s is not signed by %s of %s: %v", d, k.subject, k.issuer, err)}
		if errors.Is(err, errOtherClaim) {
			refusal = &bundle.Refusal{Reason: bundle.DigestMismatch, Message: err.Error()}
		}
	}
	return nil, refusal
}

// errOtherClaim is what a transplanted signature looks like.
var errOtherClaim = errors.New("the signature is for another manifest")

// verifyLayer returns when a good signature was logged.
func (k *Keyless) verifyLayer(ctx context.Context, layer ocispec.Descriptor, claim []byte, d digest.Digest) (time.Time, error) {
	entry, err := logEntry(layer)
	if err != nil {
		return time.Time{}, err
	}
	sig, err := static.NewSignature(claim, layer.Annotations[static.SignatureAnnotationKey], static.WithBundle(entry),
		static.WithCertChain([]byte(layer.Annotations[static.CertificateAnnotationKey]), []byte(layer.Annotations[static.ChainAnnotationKey])))
	if err != nil {
		return time.Time{}, err
	}
	hash, err := v1.NewHash(d.String())
	if err != nil {
		return time.Time{}, err
	}
	_, err = cosign.VerifyImageSignature(ctx, sig, hash, &cosign.CheckOpts{
		TrustedMaterial: k.root, Offline: true,
		Identities: []cosign.Identity{{Subject: k.subject, Issuer: k.issuer}},
		ClaimVerifier: func(sig oci.Signature, hash v1.Hash, annotations map[string]any) error {
			if err := cosign.SimpleClaimVerifier(sig, hash, annotations); err != nil {
				return fmt.Errorf("%w: %w", errOtherClaim, err)
			}
			return nil
		},
	})
	return time.Unix(entry.Payload.IntegratedTime, 0).UTC(), err
}

// logEntry returns a layer's entry in a log of signatures. It accepts only the kind of entry that cosign makes for
// images, since that binds the signature, the signed digest and the certificate.
func logEntry(layer ocispec.Descriptor) (*rekor.RekorBundle, error) {
	text := layer.Annotations[static.BundleAnnotationKey]
	if text == "" {
		return nil, errors.New("it lacks the promise of a log, without which nobody knows when it was made")
	}
	entry := new(rekor.RekorBundle)
	if err := json.Unmarshal([]byte(text), entry); err != nil {
		return nil, fmt.Errorf("the log's entry: %w", err)
	}
	body, ok := entry.Payload.Body.(string)
	if !ok {
		return nil, errors.New("the log's entry has no body")
	}
	data, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, fmt.Errorf("the log's entry: %w", err)
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(data, &kind); err != nil || kind.Kind != "hashedrekord" {
		return nil, fmt.Errorf("the log's entry is a %q and not of a signature", kind.Kind)
	}
	return entry, nil
}
