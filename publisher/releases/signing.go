package releases

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
)

const (
	// maxJoins is how often signatures are joined anew because others sign at the same time.
	maxJoins = 20
	// maxSigners bounds the tags of single signatures that are read of one manifest: as many as a trust
	// document may have release keys.
	maxSigners = 32
)

// Signer signs the pushed manifests.
type Signer struct {
	// Keys sign. They are distinct.
	Keys []*keys.Key
	// Known are the keys whose signatures count. Each signature names Location.
	Known    bundle.Keys
	Location oci.Location
}

// Artifact is a manifest with all that belongs to it.
type Artifact struct {
	// Blobs may be there already. Document, the manifest's config, the manifest and the signature are made anew each time.
	Blobs              []bundle.Blob
	Document, Manifest bundle.Blob
	Signature          *bundle.Signed
}

// Sign returns the artifact of a manifest, whose version and media type it sets, in the repository of that name. Blobs are
// its layers that may not be there yet, and document is its config.
func (s Signer) Sign(repository string, m ocispec.Manifest, blobs []bundle.Blob, document bundle.Blob) (Artifact, error) {
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	data, err := json.Marshal(m)
	if err != nil {
		return Artifact{}, err
	}
	if len(data) > bundle.MaxManifestBytes {
		return Artifact{}, fmt.Errorf("manifest of %s: %w", repository, bundle.ErrTooLarge)
	}
	a := Artifact{Blobs: blobs, Document: document, Manifest: bundle.NewBlob(m.MediaType, data)}
	var signers []signature.Signer
	for _, k := range s.Keys {
		signers = append(signers, k)
	}
	a.Signature, err = bundle.SignManifest(a.Manifest.Descriptor.Digest, s.Location.Name(repository), signers...)
	return a, err
}

// Push sends all parts of a. Nothing of it is visible before it gets a tag, except the signature, which is found by the
// manifest's digest alone.
func (a Artifact) Push(ctx context.Context, repo oci.Target) error {
	for _, b := range a.Blobs {
		if err := PushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	for _, b := range append([]bundle.Blob{a.Document, a.Manifest}, a.Signature.Blobs...) {
		if err := PushNew(ctx, repo, b); err != nil {
			return err
		}
	}
	return PutTag(ctx, repo, a.Signature.Manifest.WithData(), bundle.SignatureTag(a.Manifest.Descriptor.Digest))
}

// Cosign adds the signatures of s's keys to those of manifest d in the repository of that name, and returns how many keys have signed it
// now, and whether one of s's is new.
//
// Registries have no compare-and-swap, and others may be signing at the same moment. So each signature first
// gets a tag of its own, which nobody else writes. The manifest under the tag that agents read joins all of
// these signatures, and is written again until reading finds no new one: the last writer finds the signatures of all
// signers, since each has written its own before.
func (s Signer) Cosign(ctx context.Context, repo oci.Target, name string, d digest.Digest) (have int, added bool, err error) {
	for range maxJoins {
		layers, there, err := collectSignatures(ctx, repo, d)
		if err != nil {
			return 0, added, err
		}
		joined, ids, err := bundle.JoinSignatures(ctx, repo, d, s.Known, layers)
		if err != nil {
			return 0, added, err
		}
		signed, err := s.signAlone(ctx, repo, name, d, ids)
		if err != nil {
			return 0, added, err
		}
		switch added = added || signed; {
		case signed: // read again
		case joined.Manifest.Descriptor.Digest == there:
			return len(ids), added, nil
		default:
			if err := pushSignatures(ctx, repo, joined, bundle.SignatureTag(d)); err != nil {
				return 0, added, err
			}
		}
	}
	return 0, added, fmt.Errorf("signatures of %s: %w", d, ErrRace)
}

// signAlone has those of s's keys sign d that are not among ids, each under a tag of its own.
func (s Signer) signAlone(ctx context.Context, repo oci.Target, name string, d digest.Digest, ids []string) (signed bool, err error) {
	for _, key := range s.Keys {
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return signed, err
		}
		if slices.Contains(ids, id) {
			continue
		}
		own, err := bundle.SignManifest(d, s.Location.Name(name), key)
		if err != nil {
			return signed, err
		}
		if err := pushSignatures(ctx, repo, own, TagOf(d, id)); err != nil {
			return signed, err
		}
		signed = true
	}
	return signed, nil
}

// TagOf returns the tag of the signature over d by the key with that id.
func TagOf(d digest.Digest, keyID string) string {
	return bundle.SignatureTag(d) + "-" + keyID[:16]
}

// collectSignatures returns the signatures over d under all tags, and what the one is that agents read.
func collectSignatures(ctx context.Context, repo oci.Target, d digest.Digest) (layers []ocispec.Descriptor, there digest.Digest, err error) {
	tags, err := repo.Tags(ctx)
	if err != nil {
		return nil, "", err
	}
	if layers, there, err = bundle.Signatures(ctx, repo, bundle.SignatureTag(d)); published.IgnoreRefused(err) != nil {
		return nil, "", err
	}
	own := slices.DeleteFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, bundle.SignatureTag(d)+"-") })
	for _, tag := range own[:min(len(own), maxSigners)] {
		more, _, err := bundle.Signatures(ctx, repo, tag)
		if published.IgnoreRefused(err) != nil {
			return nil, "", err
		}
		layers = append(layers, more...)
	}
	return layers, there, nil
}

func pushSignatures(ctx context.Context, repo oci.Target, s *bundle.Signed, tag string) error {
	for _, b := range s.Blobs { // those of other signers are the same
		if err := PushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	return PutTag(ctx, repo, s.Manifest.WithData(), tag)
}
