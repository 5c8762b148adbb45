package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// Planned is an environment that is ready to be published.
type Planned struct {
	Loaded *platform.Loaded
	Result *scheduler.Result
	// Decision is what Result was rendered from; nil where it was the platform's scheduling policies.
	Decision *scheduler.Decision
}

// Compare says what publishing planned to a registry or layout would change. What is there must be signed
// as trust asks: the error is a *bundle.Refusal where it is not. It reads only, and fetches the files of those
// cluster types alone whose content digest differs.
func Compare(ctx context.Context, planned Planned, to oci.Location, trust trust.Signers, opts PublishOptions) (*Difference, error) {
	opts.Unread = planned.Loaded.Unread
	p, err := newPublication(planned.Result, to, nil, trust, opts)
	if err != nil {
		return nil, err
	}
	c, err := newComparison(planned, to.String())
	if err != nil {
		return nil, err
	}
	if err := c.published(ctx, p); err != nil {
		return nil, fmt.Errorf("compare with %s: %w", to, err)
	}
	c.conclude()
	return c.done, nil
}

// comparison is one run of Compare or CompareFolder.
type comparison struct {
	Planned
	done    *Difference
	explain *scheduler.Explainer
}

func newComparison(planned Planned, against string) (*comparison, error) {
	e, err := planned.Loaded.Model.Explainer(planned.Decision)
	if err != nil {
		return nil, err
	}
	result := planned.Result
	c := &comparison{Planned: planned, explain: e, done: &Difference{
		Platform: result.Platform, Environment: result.Environment, Against: against, BaseCommit: result.BaseCommit,
		ClusterTypes: []TypeDifference{}, Renames: []Rename{}, Waiting: []WaitingWorkspace{},
	}}
	for _, u := range planned.Loaded.Unread {
		c.done.Unread = append(c.done.Unread, UnreadRegistration{u.Registration, u.Err.Error()})
	}
	for _, f := range result.FailedPolicies {
		c.done.FailedPolicies = append(c.done.FailedPolicies, FailedPolicy{f.Name, f.Err.Error()})
	}
	return c, nil
}

// published compares with the newest releases, as Publish would find them.
func (c *comparison) published(ctx context.Context, p *publication) error {
	c.done.Platform = p.done.Platform
	if err := p.readRecord(ctx); err != nil {
		return err
	}
	if len(p.done.Warnings) > 0 {
		return foreign(p.done.Warnings[0])
	}
	if p.record != nil {
		c.done.OldBaseCommit = p.record.Record.BaseCommit
	}
	for i, ct := range append(slices.Clone(c.Result.ClusterTypes), p.leftTypes(c.Result)...) {
		d, err := c.release(ctx, p, ct)
		if err != nil {
			return err
		}
		d.Left = i >= len(c.Result.ClusterTypes)
		c.done.ClusterTypes = append(c.done.ClusterTypes, *d)
	}
	if err := p.trust.Check(p.done.Platform, p.issuedAt); err != nil {
		p.warn("publishing would be refused: %v", err)
	}
	c.done.Warnings = p.done.Warnings
	return p.checkDrops()
}

// foreign makes an error of what Publish only warns of: a plan that compares with an older release than
// the one that lies there would be wrong.
func foreign(what string) error {
	return &bundle.Refusal{Reason: bundle.UntrustedKey, Message: what}
}

// release compares one cluster type with its newest release.
func (c *comparison) release(ctx context.Context, p *publication, ct scheduler.ClusterTypeResult) (*TypeDifference, error) {
	pl, err := p.plan(ctx, ct)
	if err != nil {
		return nil, err
	}
	if tag := pl.standing.foreign; tag != "" {
		return nil, foreign(tag + " is not a release " + p.trust.SignedText())
	}
	if len(pl.lanes) > 0 {
		return c.rings(ctx, p, pl)
	}
	d, err := c.against(ctx, pl, pl.standing.verified)
	if err == nil && d.Result == StandingUnchanged && pl.content != nil {
		d = d.renewed(p, pl.standing)
	}
	return d.blocked(pl), err
}

// against compares what pl would have with one of its releases, or with nothing where that is nil.
func (c *comparison) against(ctx context.Context, pl *plan, last *bundle.Verified) (*TypeDifference, error) {
	now := plannedType(pl)
	if last == nil {
		return c.clusterType(ctx, now, nil)
	}
	if pl.content != nil && last.Release.Content == pl.content.Content {
		d := now.unchanged()
		d.against(last)
		return d, nil
	}
	tree, err := releases.OpenTree(ctx, pl.repo, last.Tree, last.Release.Content)
	if err != nil {
		return nil, err
	}
	d, err := c.clusterType(ctx, now, &standingTree{files: tree.Root.FS(), listed: tree.Assignments})
	if d.against(last); d.Result == StandingUnchanged {
		d.Result = StandingChanged // what is held says so
	}
	return d, errors.Join(err, tree.Close())
}

// against notes the release that is compared with.
func (d *TypeDifference) against(last *bundle.Verified) {
	d.OldSequence, d.OldNumber, d.OldDigest = last.Release.Sequence, last.Release.Number, last.Descriptor.Digest
}

func (d *TypeDifference) blocked(pl *plan) *TypeDifference {
	if pl.result.Result == releases.OutcomeFailed {
		d.Result, d.Blocked = StandingBlocked, pl.result.Reason
	}
	return d
}

// renewed says what publishing would do to a release of the same content.
func (d *TypeDifference) renewed(p *publication, s standing) *TypeDifference {
	r := s.verified.Release
	if !slices.Equal(r.Rings, p.opts.Rings) {
		d.Result, d.Rings = StandingChanged, &RingDifference{Old: r.Rings, New: p.opts.Rings}
		return d
	}
	d.Renewed = p.renewal(s) != ""
	return d
}

// conclude adds what concerns the environment as a whole.
func (c *comparison) conclude() {
	byWorkspace := map[string][]scheduler.WaitingTarget{}
	for _, t := range c.explain.Waiting() {
		byWorkspace[t.Workspace] = append(byWorkspace[t.Workspace], t)
	}
	for workspace, targets := range byWorkspace {
		c.done.Waiting = append(c.done.Waiting, WaitingWorkspace{workspace, targets})
	}
	slices.SortFunc(c.done.Waiting, func(a, b WaitingWorkspace) int { return cmp.Compare(a.Workspace, b.Workspace) })
	slices.SortFunc(c.done.Renames, func(a, b Rename) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
}
