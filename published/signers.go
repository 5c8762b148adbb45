package published

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Signers are those by whose signatures releases and records are judged. The zero value trusts nobody.
type Signers struct {
	// Trust is in force now.
	bundle.Trust
	// Document is the trust document in force; the zero value where keys are pinned.
	Document bundle.TrustDocument

	// before and ended are what earlier documents asked, newest first: those of the same epoch, and those of epochs that have ended.
	before, ended []bundle.Trust
	asItLies      bool
}

// AsItLies are the signers of content that is not verified.
func AsItLies() Signers { return Signers{asItLies: true} }

// Pinned is the trust of those who have public keys and no trust document.
func Pinned(keys bundle.Keys) Signers { return Signers{Trust: bundle.Pinned(keys)} }

// Of is the trust of those who have a chain of trust documents.
func Of(chain bundle.TrustChain) Signers {
	s := Signers{Trust: chain.Current().Trust(), Document: chain.Current()}
	for _, link := range slices.Backward(chain[:max(len(chain)-1, 0)]) {
		if link.Document.Epoch == s.Epoch {
			s.before = append(s.before, link.Document.Trust())
		} else {
			s.ended = append(s.ended, link.Document.Trust())
		}
	}
	return s
}

// Verify reports whether signatures are verified; it is false for AsItLies alone.
func (s Signers) Verify() bool { return !s.asItLies }

// Documented reports whether there is a trust document.
func (s Signers) Documented() bool { return s.Document.Version > 0 }

// SignedText returns, for a message, the signatures that s requires.
func (s Signers) SignedText() string {
	if s.Documented() {
		return "signed as the trust document asks"
	}
	return "that this key has signed"
}

// Check returns nil if new content of a platform may be accepted at the time now; see bundle.TrustDocument.Admits. Pinned keys
// fit every platform and never expire.
func (s Signers) Check(platform string, now time.Time) error {
	if !s.Documented() {
		return nil
	}
	return s.Document.Admits(platform, now)
}

// AnyKey is the trust of those who want to see one of the keys at least: enough to read on, and to accept nothing.
func (s Signers) AnyKey() Signers {
	s.before, s.ended = nil, nil
	s.Threshold = 1
	return s
}

// InForce is the trust in force without that of earlier documents, which cover earlier content alone.
func (s Signers) InForce() Signers {
	s.before = nil
	return s
}

// Need is how many keys have to sign.
func (s Signers) Need() int { return max(s.Threshold, 1) }

// SignersOf returns the ids of the keys that have signed a manifest, sorted; none for AsItLies. A release or record counts, as
// history too: content is held from it, sequences continue after it, and equal content is not published again,
//
//   - if it meets the trust in force, in any epoch: the present signers vouch for everything that their keys have signed;
//   - or if it meets an earlier document of the epoch in force, so that a rotation of keys loses nothing. After a theft of
//     keys a new epoch begins, and content that only the stolen keys have signed counts no more.
//
// Current is true in the first case. Content that is not current is published again, since agents judge by the trust in
// force alone. The error is that of the trust in force, but says so if keys of an epoch that has ended have signed.
func (s Signers) SignersOf(ctx context.Context, src bundle.Source, d digest.Digest) (ids []string, current bool, err error) {
	if s.asItLies {
		return nil, false, nil
	}
	layers, err := bundle.SignatureLayers(ctx, src, d)
	if err != nil {
		return nil, false, err
	}
	ids, err = bundle.VerifyLayers(ctx, src, layers, d, s.Trust)
	var refusal *bundle.Refusal
	if !errors.As(err, &refusal) {
		return ids, err == nil, err
	}
	for _, t := range s.before {
		if ids, err := bundle.VerifyLayers(ctx, src, layers, d, t); !errors.As(err, new(*bundle.Refusal)) {
			return ids, false, err
		}
	}
	if refusal.Reason == bundle.UntrustedKey {
		for _, t := range s.ended {
			if _, err := bundle.VerifyLayers(ctx, src, layers, d, t); err == nil {
				return nil, false, bundle.Refuse(bundle.OldEpoch, "it is signed by keys of an earlier epoch alone, which the roots have ended")
			}
		}
	}
	return nil, false, err
}

// checkPlace refuses content of an epoch to come, and content of another place than ref says, which may be a release's own tag
// or a pending one.
func (s Signers) checkPlace(ref string, epoch, sequence int64) error {
	switch tag := ParseTag(ref); {
	case epoch > s.Epoch:
		return bundle.Refuse(bundle.OldEpoch, "it has epoch %d, the trust in force has %d", epoch, s.Epoch)
	case tag.numbered() && (tag.Epoch != epoch || tag.Sequence != sequence):
		return bundle.Refuse(bundle.BadContent, "%s names %s", ref, ReleaseTag(epoch, sequence))
	}
	return nil
}
