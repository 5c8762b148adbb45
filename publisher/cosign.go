package publisher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
)

const (
	// maxJoins is how often signatures are joined anew because others sign at the same time.
	maxJoins = 20
	// maxSigners bounds the tags of single signatures that are read of one manifest: as many as a trust
	// document may have release keys.
	maxSigners = 32
)

// signer signs what is pushed.
type signer struct {
	// keys sign, each a different one.
	keys []*keys.Key
	// known are the keys whose signatures count, and location is named by each signature.
	known    bundle.Keys
	location oci.Location
}

// cosign adds the signatures of s's keys to those of manifest d, and returns how many keys have signed it
// now, and whether one of s's is new.
//
// Registries have no compare-and-swap, and others may be signing at the same moment. So each signature first
// gets a tag of its own, which nobody else writes. What is under the tag that agents read is made of all of
// these, and made again until reading shows nothing more: whoever writes it last finds the signatures of all,
// since each has written theirs before.
func (s *signer) cosign(ctx context.Context, repo oci.Target, name string, d digest.Digest) (have int, added bool, err error) {
	for range maxJoins {
		layers, there, err := collectSignatures(ctx, repo, d)
		if err != nil {
			return 0, added, err
		}
		joined, ids, err := bundle.JoinSignatures(ctx, repo, d, s.known, layers)
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
	return 0, added, fmt.Errorf("signatures of %s: %w", d, releases.ErrRace)
}

// signAlone has those of s's keys sign d that are not among ids, each under a tag of its own.
func (s *signer) signAlone(ctx context.Context, repo oci.Target, name string, d digest.Digest, ids []string) (signed bool, err error) {
	for _, key := range s.keys {
		id, err := bundle.KeyID(key.Public())
		if err != nil {
			return signed, err
		}
		if slices.Contains(ids, id) {
			continue
		}
		own, err := bundle.SignManifest(d, s.location.Name(name), key)
		if err != nil {
			return signed, err
		}
		if err := pushSignatures(ctx, repo, own, ownSignatureTag(d, id)); err != nil {
			return signed, err
		}
		signed = true
	}
	return signed, nil
}

// ownSignatureTag is the tag of the signature over d by one key.
func ownSignatureTag(d digest.Digest, keyID string) string {
	return bundle.SignatureTag(d) + "-" + keyID[:16]
}

// collectSignatures returns the signatures over d under all tags, and what the one is that agents read.
func collectSignatures(ctx context.Context, repo oci.Target, d digest.Digest) (layers []ocispec.Descriptor, there digest.Digest, err error) {
	tags, err := repo.Tags(ctx)
	if err != nil {
		return nil, "", err
	}
	if layers, there, err = bundle.Signatures(ctx, repo, bundle.SignatureTag(d)); releases.UnlessRefused(err) != nil {
		return nil, "", err
	}
	own := slices.DeleteFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, bundle.SignatureTag(d)+"-") })
	for _, tag := range own[:min(len(own), maxSigners)] {
		more, _, err := bundle.Signatures(ctx, repo, tag)
		if releases.UnlessRefused(err) != nil {
			return nil, "", err
		}
		layers = append(layers, more...)
	}
	return layers, there, nil
}

func pushSignatures(ctx context.Context, repo oci.Target, s *bundle.Signed, tag string) error {
	for _, b := range append(s.Blobs, s.Manifest) {
		if err := releases.PushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	return releases.PutTag(ctx, repo, s.Manifest.Descriptor, tag)
}

// wait makes a complete artifact visible to those who are to sign it, and to nobody else.
func wait(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, tag string) error {
	now, err := releases.Current(ctx, repo, tag)
	if err != nil {
		return err
	}
	if now == "" {
		if err := releases.PutTag(ctx, repo, desc, tag); err != nil {
			return err
		}
	}
	return releases.ReadBack(ctx, repo, tag, desc.Digest)
}
