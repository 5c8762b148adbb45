package agent

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// learn asks for trust documents before it judges a new manifest, once a day, when a person asks, and at every poll while
// the document in force has expired. A document that is not trusted, or cannot be read, keeps a new release out; it does
// not affect an accepted release, and is only put aside if nothing new is offered.
func (p puller) learn(ctx context.Context, s source, offered digest.Digest) (aside, out outcome) {
	if s.Trust == nil || len(p.state.trust.Chain()) == 0 {
		return aside, done
	}
	now, fresh := p.opts.Now(), p.unjudged(offered)
	if valid := now.Before(p.state.trust.Chain().Current().ExpiresAt); valid && !fresh && !p.ask && !p.asked.Due(now) {
		return aside, done
	}
	out = p.walkFrom(ctx, s)
	if out.Verdict == Interrupted || out.Verdict == Broken {
		return aside, out
	}
	if err := p.noteAsked(out, now); err != nil {
		return aside, outcomeOf(ctx, err)
	}
	if out.Verdict != Done && !fresh {
		return out, done
	}
	return aside, out
}

// unjudged reports whether verify is about to judge a manifest.
func (p puller) unjudged(manifest digest.Digest) bool {
	return manifest != p.accepted.Digest() && !(p.refused != nil && p.remembered(*p.refused, manifest))
}

// walkFrom accepts newer trust documents of s. Each proves itself, so that those after s are asked while one does not
// answer.
func (p puller) walkFrom(ctx context.Context, s source) outcome {
	out := outcomeOf(ctx, p.walk(ctx, s.Trust))
	for _, next := range p.sources()[s.place+1:] {
		if out.Verdict != Unreachable || next.Trust == nil {
			break
		}
		out = outcomeOf(ctx, p.walk(ctx, next.Trust))
	}
	return out
}

// walk accepts the trust documents that are newer than the one in force.
func (p puller) walk(ctx context.Context, documents bundle.Source) error {
	if repo, ok := documents.(oci.Target); ok {
		documents = p.onePerManifest(repo, bundle.TrustDocumentRejected)
	}
	return p.state.trust.Follow(ctx, documents, p.opts.Log)
}

// noteAsked keeps the outcome of asking for trust documents, and saves it only if it has changed.
func (p puller) noteAsked(out outcome, now time.Time) error {
	next := trust.Asked{At: p.asked.At, Reason: out.reason()}
	var refusal *bundle.Refusal
	switch {
	case errors.As(out.Err, &refusal):
		next.Message = bundle.Clip(refusal.Message)
	case out.Err != nil:
		next.Message = bundle.Clip(out.Err.Error())
	}
	if out.Verdict != Unreachable {
		next.At = state.Stamp(now)
	}
	if next == p.asked {
		return nil
	}
	if next.Reason != "" && next.Reason != p.asked.Reason {
		p.opts.Log.Warn("no newer trust document can be taken", "reason", next.Reason, "message", next.Message)
	}
	p.asked = next
	return p.state.db.Update(func(tx *bbolt.Tx) error { return next.Save(tx) })
}

// judge is what a release is judged by at this moment.
func (a *Agent) judge() trust.Judge { return a.state.trust.Judge(a.pinned) }

// judgedBy identifies all that a release is judged by.
func (a *Agent) judgedBy() string { return a.judge().Sum(a.opts.Version, a.stream(), a.cluster.Ring) }

// InstallTrust is trust.Store.Install for the agent's platform, in an agent that may be running. A running agent then
// judges the offered release again.
func (a *Agent) InstallTrust(envelopes ...[]byte) (trust.Change, error) {
	c, err := a.state.trust.Install(a.cluster.Platform, envelopes...)
	if d := c.After; d != nil && (c.Before == nil || c.Before.Version < d.Version) {
		a.opts.Log.Info("trust document installed", "version", d.Version, "epoch", d.Epoch, "expires", d.ExpiresAt)
		a.eager.Store(true)
		nudge(a.wake)
	}
	return c, err
}

// Trust returns the trust documents of the agent, with the keys that it has pinned.
func (a *Agent) Trust() (trust.Known, error) {
	t, err := a.state.trust.Known()
	t.Pinned = trust.KeyIDs(a.pinned.Keys)
	return t, err
}
