// Package trust writes, signs, publishes and follows trust documents, and checks who may sign a platform's releases.
//
// A document is made by [New], changed by [Edit], signed by [Sign] and put in place by [Publish]; versions are never
// replaced. [published.FollowTrust] follows those at a location. What a document means is said by [bundle.TrustDocument]; agents use
// that and nothing of this package.
package trust

import (
	"context"
	"errors"
	"slices"
	"strings"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// ErrNoReleaseKey means that a key may not sign by the trust document in force.
var ErrNoReleaseKey = errors.New("no release key")

// NamesOf returns the names of the release keys with these ids.
func NamesOf(t published.Signers, ids []string) []KeyName {
	return slices.DeleteFunc(namesOf(t.Document.Release.Keys), func(k KeyName) bool { return !slices.Contains(ids, k.ID) })
}

// CheckKeys returns an error unless keys may sign under t. For a key that the trust document does not name, it wraps ErrNoReleaseKey.
func CheckKeys(t published.Signers, keys []*keys.Key) error {
	if len(keys) == 0 {
		return usage.Errorf("no signing key: pass --key")
	}
	var ids, unlisted []string
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
			unlisted = append(unlisted, ShortKeyID(id))
		}
	}
	if len(unlisted) > 0 {
		return usage.Errorf("%w in version %d of the trust document: %s; those are %s", ErrNoReleaseKey,
			t.Document.Version, strings.Join(unlisted, ", "), listKeys(namesOf(t.Document.Release.Keys)))
	}
	return nil
}

// PinnedBy is the trust of agents that pin the public halves of keys.
func PinnedBy(keys []*keys.Key) published.Signers {
	var public bundle.Keys
	for _, k := range keys {
		public = append(public, k.Public())
	}
	return published.Pinned(public)
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
