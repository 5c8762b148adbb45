package desired

import (
	"context"
	"errors"
	"time"

	"github.com/wherry-dev/wherry/bundle"
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

// judge is the trust by which content of a platform is judged.
type judge struct {
	// force is the trust in force.
	force bundle.Trust
	// before is the trust of earlier documents of the same epoch, the newest first. It covers earlier content alone.
	before []bundle.Trust
	// former is the trust of earlier epochs, which covers nothing; it tells why content is refused.
	former []bundle.Trust
}

// judgeOf returns the judge of a platform's content, after it has followed the trust documents at a place. The error is a
// *bundle.Refusal if nothing of the platform may be accepted.
func (f *Follower) judgeOf(ctx context.Context, at place, platform string) (judge, error) {
	chain, documented := f.known.chain(platform)
	if !documented {
		if len(f.known.keys) == 0 {
			return judge{}, &bundle.Refusal{Reason: bundle.WrongPlatform, Message: bundle.Clip("it is of platform \"" + platform + "\", of which this hub has no trust document")}
		}
		return judge{force: bundle.Pinned(f.known.keys)}, nil
	}
	chain, err := f.followTrust(ctx, at, platform, chain)
	if err != nil {
		return judge{}, err
	}
	d := chain.Current()
	if highest := f.known.epoch(platform); d.Epoch < highest {
		return judge{}, &bundle.Refusal{Reason: bundle.OldEpoch, Message: bundle.Clip("the trust documents there end before the epoch of what the hub has learned already")}
	}
	if err := d.Admits(platform, f.opts.Now()); err != nil {
		return judge{}, refusalOf(err)
	}
	j := judge{force: d.Trust()}
	for i := len(chain) - 2; i >= 0; i-- {
		if earlier := chain[i].Document; earlier.Epoch == d.Epoch {
			j.before = append(j.before, earlier.Trust())
		} else {
			j.former = append(j.former, earlier.Trust())
		}
	}
	return j, nil
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
func (f *Follower) followTrust(ctx context.Context, at place, platform string, chain bundle.TrustChain) (bundle.TrustChain, error) {
	repo, err := at.repository(bundle.TrustRepository)
	if err != nil {
		return chain, err
	}
	for more := true; more && err == nil; {
		chain, more, err = chain.Next(ctx, repo)
	}
	if errors.As(err, new(*bundle.Refusal)) {
		if f.said.first("trust of "+platform, err.Error()) {
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

// verified calls verify with the trust in force and, for content that need not be new, with that of earlier documents of
// the epoch. The error is that of the trust in force, but says so if keys of an earlier epoch have signed.
func verified[T any](j judge, new bool, verify func(bundle.Trust) (T, error)) (T, error) {
	v, err := verify(j.force)
	var refusal *bundle.Refusal
	if !errors.As(err, &refusal) {
		return v, err
	}
	if !new {
		for _, t := range j.before {
			if v, err := verify(t); !errors.As(err, &refusal) {
				return v, err
			}
		}
	}
	var none T
	if refusal.Reason == bundle.UntrustedKey {
		for _, t := range j.former {
			if _, err := verify(t); err == nil {
				return none, &bundle.Refusal{Reason: bundle.OldEpoch, Message: "it is signed by keys of an earlier epoch alone, which the roots have ended"}
			}
		}
	}
	return none, err
}
