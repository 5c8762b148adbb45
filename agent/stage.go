package agent

import (
	"context"

	"github.com/wherry-dev/wherry/agent/content"
	"github.com/wherry-dev/wherry/agent/state"
)

// fetch brings the target's tree into the store, unless it is here already.
func (p *pass) fetch(ctx context.Context) outcome {
	if p.passesOver(p.target) {
		return idle
	}
	_, err := p.content.Assignments(p.target)
	p.staged = err == nil
	if p.staged && p.target.Digest() == p.running.Digest() && !p.isRefused(p.target) {
		return idle
	}
	return outcomeOf(ctx, p.content.Bring(ctx, content.Wanted{
		Release: p.target, Documents: p.from, Layers: p.offer, Staged: p.staged, New: p.taken,
		Bases: []*state.Release{p.running, p.good}, Keep: p.kept(),
	}))
}

// kept are the releases whose content stays in the store: what runs, what is to run, what ran well last and
// what did before, for a person who goes back to that without a link, and what a person has decided for. Deltas
// start from what runs and what ran well last.
func (p *pass) kept() []*state.Release {
	kept := []*state.Release{p.target, p.accepted, p.running, p.good, p.former}
	if p.held != nil {
		kept = append(kept, p.held.To)
	}
	return kept
}

// stage unpacks the target's tree from the store and checks it.
func (p *pass) stage(ctx context.Context) outcome {
	if p.staged {
		return done
	}
	err := p.content.Stage(ctx, p.target)
	p.staged = err == nil
	return outcomeOf(ctx, err)
}
