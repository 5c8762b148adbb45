package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
)

// An attacker who can write to the registry, and whose keys do not suffice.
func TestAttackWithoutTheKey(t *testing.T) {
	stranger := newTestKey(t)
	mountAll(t, []attack{
		{name: "an unsigned release", want: bundle.Unsigned, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Signer = nil })
		}},
		{name: "a release signed with an unknown key", want: bundle.UntrustedKey, mount: func(s *siege) digest.Digest {
			return s.offer(6, func(d *draft) { d.Signer = stranger })
		}},
		{name: "a good release's signature for another", want: bundle.DigestMismatch, mount: func(s *siege) digest.Digest {
			offered := s.offer(6, func(d *draft) { d.Signer = nil })
			s.sign(s.good.Digest, offered, s.key)
			return offered
		}},
		{name: "a good manifest with another tree", want: bundle.Unsigned, mount: func(s *siege) digest.Digest {
			other := s.offer(6, nil)
			m := s.manifestOf(s.good.Digest)
			m.Layers = s.manifestOf(other).Layers
			return s.offerManifest(m)
		}},
		{name: "one signed release's document with another's tree", want: bundle.DigestMismatch, mount: func(s *siege) digest.Digest {
			other := s.offer(6, nil)
			m := s.manifestOf(other)
			m.Layers = s.manifestOf(s.good.Digest).Layers
			offered := s.offerManifest(m)
			s.sign(other, offered, s.key)
			return offered
		}},
		{name: "a signature over no claim", want: bundle.DigestMismatch, mount: func(s *siege) digest.Digest {
			offered := s.offer(6, func(d *draft) { d.Signer = nil })
			s.sign("", offered, s.key)
			return offered
		}},
		{name: "an empty signature manifest", want: bundle.Unsigned, mount: func(s *siege) digest.Digest {
			offered := s.offer(6, func(d *draft) { d.Signer = nil })
			s.sign(offered, offered)
			return offered
		}},
		{name: "too many signatures", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			offered := s.offer(6, func(d *draft) { d.Signer = nil })
			layer := bundle.NewBlob(bundle.MediaTypeSimpleSigning, []byte("{}")).Descriptor
			layer.Data = []byte("{}")
			s.signatureManifest(offered, ocispec.Manifest{Layers: slices.Repeat([]ocispec.Descriptor{layer}, 65)})
			return offered
		}},
		{name: "a too large signature manifest", want: bundle.TooLarge, mount: func(s *siege) digest.Digest {
			offered := s.offer(6, func(d *draft) { d.Signer = nil })
			s.signatureManifest(offered, ocispec.Manifest{Annotations: map[string]string{"pad": strings.Repeat("x", bundle.MaxManifestBytes)}})
			return offered
		}},
	})
}

// A threshold of two keys, of which a thief has one.
func TestAttackBelowTheThreshold(t *testing.T) {
	other, revoked := newTestKey(t), newTestKey(t)
	twoOf := func(s *siege) {
		// The key that the thief has is listed twice, as a careless document would.
		s.pinned = &bundle.Trust{Keys: bundle.Keys{s.key.Public(), other.Public(), s.key.Public()}, Threshold: 2}
		s.alsoSigns = other
	}
	mountAll(t, []attack{
		{name: "one key of two", want: bundle.BelowThreshold, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) { s.sign(offered, offered, s.key) })
		}},
		{name: "one key that signs twice", want: bundle.BelowThreshold, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) { s.sign(offered, offered, s.key, s.key) })
		}},
		{name: "one key and an unknown one", want: bundle.BelowThreshold, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) { s.sign(offered, offered, s.key, revoked) })
		}},
		{name: "one key, and the other's older signature", want: bundle.BelowThreshold, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) {
				mine, theirs := s.signatures(offered, s.key), s.signatures(s.good.Digest, other)
				s.signatureManifest(offered, ocispec.Manifest{Layers: append(mine, theirs...)})
			})
		}},
		{name: "keys that are no longer trusted", want: bundle.UntrustedKey, mount: func(s *siege) digest.Digest {
			return s.offerUnsigned(func(offered digest.Digest) { s.sign(offered, offered, revoked, revoked) })
		}},
	}, twoOf)
}

// offerUnsigned publishes release 6 without a signature, and calls sign to add the attacker's.
func (s *siege) offerUnsigned(sign func(digest.Digest)) digest.Digest {
	s.t.Helper()
	offered := s.offer(6, func(d *draft) { d.Signer = nil })
	sign(offered)
	return offered
}

// offerManifest publishes m, without a signature, as latest.
func (s *siege) offerManifest(m ocispec.Manifest) digest.Digest {
	s.t.Helper()
	return s.tag(m, bundle.LatestTag)
}
