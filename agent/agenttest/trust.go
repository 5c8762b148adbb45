package agenttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// NewKey returns a key that signs releases or trust documents.
func NewKey() crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // there is no randomness
	}
	return key
}

// Trust is a version of a trust document before it is published.
type Trust struct {
	Document bundle.TrustDocument
	// Signers sign it, all of them; nobody else is asked.
	Signers []crypto.Signer
}

// NewTrust returns version 1 of a platform's trust document, issued at that time and valid for a year, in
// which root and release keys are one each.
func NewTrust(platform string, issued time.Time, root, release crypto.Signer) Trust {
	issued = issued.UTC().Truncate(time.Second)
	return Trust{
		Document: bundle.TrustDocument{
			Schema: bundle.TrustSchema, Platform: platform, Version: 1, Epoch: bundle.FirstEpoch,
			IssuedAt: issued, ExpiresAt: issued.AddDate(1, 0, 0), Root: Role(1, root), Release: Role(1, release),
		},
		Signers: []crypto.Signer{root},
	}
}

// Next returns the version after t, the same but for its number and its time of issue.
func (t Trust) Next(issued time.Time) Trust {
	d := &t.Document
	valid := d.ExpiresAt.Sub(d.IssuedAt)
	d.Version, d.IssuedAt = d.Version+1, issued.UTC().Truncate(time.Second)
	d.ExpiresAt = d.IssuedAt.Add(valid)
	return t
}

// Role returns the role of keys, threshold of which have to sign. It panics for a key that has no public
// half of a usual kind.
func Role(threshold int, keys ...crypto.Signer) bundle.Role {
	r := bundle.Role{Threshold: threshold}
	for _, k := range keys {
		key, err := bundle.NewTrustKey("", k.Public())
		if err != nil {
			panic(err)
		}
		r.Keys = append(r.Keys, key)
	}
	return r
}

// Envelope returns the document with its signatures.
func (t Trust) Envelope() ([]byte, error) {
	envelope, err := bundle.SealTrust(t.Document)
	for _, key := range t.Signers {
		if err != nil {
			return nil, err
		}
		var signer signature.Signer
		if signer, err = signature.LoadSigner(key, crypto.SHA256); err == nil {
			envelope, err = bundle.SignTrust(envelope, signer)
		}
	}
	return envelope, err
}

// Publish pushes the document to repo, the repository of trust documents, under its version's tag.
func (t Trust) Publish(ctx context.Context, repo oci.Target) error {
	envelope, err := t.Envelope()
	if err != nil {
		return err
	}
	return PublishEnvelope(ctx, repo, t.Document.Version, envelope)
}

// PublishEnvelope pushes any bytes as the envelope of a version.
func PublishEnvelope(ctx context.Context, repo oci.Target, version int64, envelope []byte) error {
	blobs, err := bundle.TrustManifest(envelope)
	if err != nil {
		return err
	}
	if err := push(ctx, repo, blobs...); err != nil {
		return err
	}
	return repo.Tag(ctx, blobs[len(blobs)-1].Descriptor, bundle.TrustTag(version))
}
