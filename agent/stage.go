package agent

import (
	"context"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
)

// fetchAndStage makes the tree of a release usable, and reports whether it is. Places are those that may have it.
func (p puller) fetchAndStage(ctx context.Context, places []offer, v verified) (staged bool, out outcome) {
	p.enter("fetch")
	if staged, out = p.fetch(ctx, places, v); out.Verdict != Done || staged {
		return staged, out
	}
	p.enter("stage")
	return p.stage(ctx, v.release)
}

// fetch brings a release's tree into the store, unless it is here already. It reports whether it is staged already. A
// later place goes on where an earlier one has stopped: all content is named by digests.
func (p puller) fetch(ctx context.Context, places []offer, v verified) (staged bool, out outcome) {
	if p.passesOver(v.release) {
		return false, idle
	}
	_, err := p.content.Assignments(v.release)
	staged = err == nil
	if staged && v.release.Digest() == p.running.Digest() && !p.isRefused(v.release) {
		return staged, idle
	}
	for i, o := range places {
		next := outcomeOf(ctx, p.content.Bring(ctx, content.Wanted{
			Release: v.release, Documents: o.documents, Layers: o.layers, Staged: staged, New: v.taken && i == 0,
			Bases: []*state.Release{p.running, p.good}, Keep: p.kept(v.release),
		}))
		if i == 0 || next.Verdict != Unreachable && next.Verdict != Refused {
			out = next
		}
		if next.Verdict != Unreachable && next.Verdict != Refused {
			break
		}
	}
	return staged, out
}

// stage unpacks a release's tree from the store and checks it.
func (p puller) stage(ctx context.Context, r *state.Release) (staged bool, out outcome) {
	err := p.content.Stage(ctx, r)
	return err == nil, outcomeOf(ctx, err)
}

// kept returns the releases whose content stays in the store: the target, the accepted and the running one, the last good
// one and the good one before, for a rollback without a link, and the one to which a person has rolled back. Deltas
// start from the running and the last good one.
func (e earlier) kept(target *state.Release) []*state.Release {
	kept := []*state.Release{target, e.accepted, e.running, e.good, e.previous}
	if e.held != nil {
		kept = append(kept, e.held.To)
	}
	return kept
}
