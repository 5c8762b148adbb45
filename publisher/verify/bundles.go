package verify

import (
	"context"
	"crypto"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/cosign/v2/pkg/types"
	sigstore "github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
)

const (
	// bundleType is the artifact type and the layer's media type of a Sigstore bundle, as cosign 3 writes it.
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// maxBundles bounds the Sigstore bundles about one manifest that are read.
	maxBundles = 64
)

// referring is a repository that lists the manifests about another one.
type referring interface {
	bundle.Source
	Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error)
}

// signersOf returns the ids of those keys that have signed a manifest in a Sigstore bundle, which is a referrer of the manifest and what
// "cosign sign" writes from version 3 on. Attestations are no signatures: what they say of the manifest may be anything. Nothing is
// asked about logs.
func signersOf(ctx context.Context, src referring, manifest ocispec.Descriptor, keys bundle.Keys) (ids []string, err error) {
	all, err := src.Referrers(ctx, manifest)
	if err != nil {
		return nil, err
	}
	read := 0
	for _, d := range all {
		switch d.ArtifactType {
		case bundleType, "", ocispec.MediaTypeEmptyJSON: // a folder does not say it, and cosign's own list says the config's
		default:
			continue
		}
		if read++; read > maxBundles {
			break
		}
		data, err := readBundle(ctx, src, d)
		if errors.As(err, new(*bundle.Refusal)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("signature of %s: %w", manifest.Digest, err)
		}
		for _, key := range keys {
			if verifyBundle(data, manifest.Digest, key) != nil {
				continue
			}
			id, err := bundle.KeyID(key)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// readBundle reads the Sigstore bundle in a referrer.
func readBundle(ctx context.Context, src bundle.Source, d ocispec.Descriptor) ([]byte, error) {
	data, err := bundle.ReadBlob(ctx, src, d, bundle.MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if json.Unmarshal(data, &m) != nil || len(m.Layers) != 1 || m.Layers[0].MediaType != bundleType {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: "it is no Sigstore bundle"}
	}
	return bundle.ReadBlob(ctx, src, m.Layers[0], bundle.MaxManifestBytes)
}

// verifyBundle returns an error unless key has signed the manifest with that digest.
func verifyBundle(data []byte, manifest digest.Digest, key crypto.PublicKey) error {
	var b sigstore.Bundle
	if err := b.UnmarshalJSON(data); err != nil {
		return err
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return err
	}
	trusted := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(verifier, time.Time{}, time.Time{}), nil
	})
	v, err := verify.NewVerifier(trusted, verify.WithNoObserverTimestamps())
	if err != nil {
		return err
	}
	sum, err := hex.DecodeString(manifest.Encoded())
	if err != nil {
		return err
	}
	result, err := v.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest(manifest.Algorithm().String(), sum), verify.WithKey()))
	if err != nil {
		return err
	}
	if result.Statement == nil || result.Statement.PredicateType != types.CosignSignPredicateType {
		return errors.New("not a signature of a manifest")
	}
	return nil
}
