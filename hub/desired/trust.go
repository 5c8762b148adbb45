package desired

import (
	"context"
	"errors"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// Trust says who may sign what a follower learns. The zero value trusts nobody.
type Trust struct {
	// Keys may each sign for platforms without a trust document.
	Keys bundle.Keys
	// Chains begin with version 1 of the trust document of a platform each, for which a person vouches. Later versions are
	// followed where the platform is published.
	Chains []bundle.TrustChain
}

// Given reports whether t trusts anybody.
func (t Trust) Given() bool { return len(t.Keys)+len(t.Chains) > 0 }

// signersOf returns those by whose signatures a platform's content is judged, after it has followed the trust documents at a place.
// The error is a *bundle.Refusal if nothing of the platform may be accepted.
func (f *Follower) signersOf(ctx context.Context, at *published.Place, platform string) (none published.Signers, err error) {
	chain, documented := f.known.chain(platform)
	if !documented {
		if len(f.known.keys) == 0 {
			return none, bundle.Refuse(bundle.WrongPlatform, "it is of platform %q, of which this hub has no trust document", platform)
		}
		return published.Pinned(f.known.keys), nil
	}
	if chain, err = f.followTrust(ctx, at, platform, chain); err != nil {
		return none, err
	}
	d := chain.Current()
	if highest := f.known.epoch(platform); d.Epoch < highest {
		return none, bundle.Refuse(bundle.OldEpoch, "the trust documents there end before the epoch of what the hub has learned already")
	}
	if err := d.Admits(platform, f.opts.Now()); err != nil {
		return none, refusalOf(err)
	}
	return published.Of(chain), nil
}

// refusalOf returns the *bundle.Refusal in an error, or the error.
func refusalOf(err error) error {
	var r *bundle.Refusal
	if errors.As(err, &r) {
		return r
	}
	return err
}

// followTrust adds the documents at a place that follow a chain. A document that is not trusted ends the chain there, since
// its roots have not signed it, and is logged once.
func (f *Follower) followTrust(ctx context.Context, at *published.Place, platform string, chain bundle.TrustChain) (bundle.TrustChain, error) {
	documents, err := at.Documents()
	if err != nil {
		return chain, err
	}
	chain, err = documents.Follow(ctx, chain)
	if errors.As(err, new(*bundle.Refusal)) {
		if f.logged.first("trust of "+platform, err.Error()) {
			f.log.Warn("no newer trust document can be taken", "platform", platform, "err", err)
		}
		err = nil
	}
	before, grown := f.known.grow(platform, chain)
	if d := grown.Current(); d.Version > before {
		f.log.Info("trust document accepted", "platform", platform, "version", d.Version, "epoch", d.Epoch, "expires", d.ExpiresAt.Format(time.RFC3339))
	}
	return grown, err
}
