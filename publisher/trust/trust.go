// Package trust tells who may sign a platform's releases, and writes, signs, publishes and follows trust documents.
//
// [Signers] judges releases: by pinned keys ([Pinned]) or by the chain of documents at a location ([Walk], [Of]). A
// document is made by [New], changed by [Edit], signed by [Sign] and put in place by [Publish]; versions are never
// replaced. What a document means is said by [bundle.TrustDocument]; agents use that and nothing of this package.
package trust

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Signers are those by whose signatures releases and records are judged. The zero value trusts nobody.
type Signers struct {
	// Trust is in force now.
	bundle.Trust
	// Document is the trust document in force; the zero value where keys are pinned.
	Document bundle.TrustDocument
	// before is what the earlier documents of the same epoch asked, newest first.
	before []bundle.Trust
}

// Pinned is the trust of those who have public keys and no trust document.
func Pinned(keys bundle.Keys) Signers { return Signers{Trust: bundle.Pinned(keys)} }

// Of is the trust of those who have a chain of trust documents.
func Of(chain bundle.TrustChain) Signers {
	t := Signers{Trust: chain.Current().Trust(), Document: chain.Current()}
	for _, link := range slices.Backward(chain[:max(len(chain)-1, 0)]) {
		if link.Document.Epoch == t.Epoch {
			t.before = append(t.before, link.Document.Trust())
		}
	}
	return t
}

// Documented reports whether there is a trust document.
func (t Signers) Documented() bool { return t.Document.Version > 0 }

// NamesOf returns the names of the release keys with these ids.
func (t Signers) NamesOf(ids []string) []KeyName {
	return slices.DeleteFunc(NamesOf(t.Document.Release.Keys), func(k KeyName) bool { return !slices.Contains(ids, k.ID) })
}

// SignedText returns, for a message, the signatures that t requires.
func (t Signers) SignedText() string {
	if t.Documented() {
		return "signed as the trust document asks"
	}
	return "that this key has signed"
}

// Check returns nil if new content of a platform may be accepted at the time now; see
// bundle.TrustDocument.Admits. Pinned keys fit every platform and never expire.
func (t Signers) Check(platform string, now time.Time) error {
	if !t.Documented() {
		return nil
	}
	return t.Document.Admits(platform, now)
}

// AnyKey is the trust of those who want to see one of the keys at least: enough to read on, and to accept nothing.
func (t Signers) AnyKey() bundle.Trust {
	one := t.Trust
	one.Threshold = 1
	return one
}

// Recognise verifies an earlier release or record. A recognised one counts as history: content is held from it, sequences
// continue after it, and equal content is not published again. It is recognised
//
//   - if it meets the trust in force, in any epoch: the present signers vouch for everything that their keys have
//     signed;
//   - or if it meets an earlier document of the epoch in force, so that a rotation of keys loses nothing. After a theft of
//     keys a new epoch begins, and content that only the stolen keys have signed counts no more.
//
// Current is true in the first case. Content that is not current is published again, since agents judge by the trust in
// force alone. The error is that of the trust in force.
func Recognise[T any](t Signers, verify func(bundle.Trust) (T, error)) (v T, current bool, err error) {
	v, err = verify(t.Trust)
	if err == nil || !errors.As(err, new(*bundle.Refusal)) {
		return v, err == nil, err
	}
	for _, earlier := range t.before {
		if v, err := verify(earlier); err == nil || !errors.As(err, new(*bundle.Refusal)) {
			return v, false, err
		}
	}
	return v, false, err
}

// ErrNoReleaseKey means that a key may not sign by the trust document in force.
var ErrNoReleaseKey = errors.New("no release key")

// CheckKeys returns an error unless keys may sign under t. For a key that the trust document does not name, it wraps ErrNoReleaseKey.
func (t Signers) CheckKeys(keys []*keys.Key) error {
	if len(keys) == 0 {
		return usage.Errorf("nobody signs: give a key")
	}
	var ids, strangers []string
	for _, k := range keys {
		id, err := bundle.KeyID(k.Public())
		if err != nil {
			return err
		}
		if slices.Contains(ids, id) {
			return usage.Errorf("key %s is given twice: each signs once", ShortKeyID(id))
		}
		ids = append(ids, id)
		if t.Documented() && indexOfKey(t.Document.Release, id) < 0 {
			strangers = append(strangers, ShortKeyID(id))
		}
	}
	if len(strangers) > 0 {
		return usage.Errorf("%w in version %d of the trust document: %s; those are %s", ErrNoReleaseKey,
			t.Document.Version, strings.Join(strangers, ", "), listKeys(NamesOf(t.Document.Release.Keys)))
	}
	return nil
}

// Need is how many keys have to sign.
func (t Signers) Need() int { return max(t.Threshold, 1) }

// PinnedBy is the trust of agents that pin the public halves of keys.
func PinnedBy(keys []*keys.Key) Signers {
	var public bundle.Keys
	for _, k := range keys {
		public = append(public, k.Public())
	}
	return Pinned(public)
}

// RefuseUndocumented refuses to publish without a trust document where there is one: agents that have it
// would take nothing of that.
func RefuseUndocumented(ctx context.Context, store oci.Store) error {
	repo, err := store.Repository(bundle.TrustRepository)
	if err != nil {
		return err
	}
	_, err = repo.Resolve(ctx, bundle.TrustTag(1))
	switch {
	case errors.Is(err, errdef.ErrNotFound), errors.Is(err, oci.ErrUnauthorized):
		return nil // some registries answer "unauthorized" for missing content
	case err != nil:
		return err
	}
	return usage.Errorf("there is a trust document, and agents that follow it refuse what does not: give version 1 of it with --trust")
}
