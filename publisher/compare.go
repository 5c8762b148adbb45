package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

// Compare returns the changes that publishing planned to a registry or layout would make. The published releases must meet
// trust: otherwise the error is a *bundle.Refusal. Compare only reads, and fetches the files of a cluster type only if its
// content digest differs, unless opts.Cache has them. It takes the trees in opts.Packed, which were packed during rendering.
func Compare(ctx context.Context, planned platform.Built, to oci.Location, trust published.Signers, opts PublishOptions) (*diff.Difference, error) {
	opts.Unread = planned.Loaded.Unread
	p, err := newPublication(planned.Result, to, nil, trust, opts)
	if err != nil {
		return nil, err
	}
	c, err := diff.New(planned, to.String())
	if err != nil {
		return nil, err
	}
	if opts.Fleet != nil {
		c.Fleet = *opts.Fleet
	}
	if err := (comparing{c, opts}).published(ctx, p); err != nil {
		return nil, fmt.Errorf("compare with %s: %w", to, err)
	}
	c.Conclude()
	return c.Done, nil
}

// published compares with the newest releases, as Publish would find them.
func (c comparing) published(ctx context.Context, p *publication) error {
	c.Done.Platform = p.Platform
	record, err := p.Record(ctx)
	if err != nil {
		return err
	}
	if len(p.warnings.list) > 0 {
		return foreign(p.warnings.list[0])
	}
	if record.Verified != nil {
		c.Done.OldBaseCommit = record.Verified.Record.BaseCommit
	}
	plans, _, err := p.planned(ctx, c.Result, record, newProgress())
	if err != nil {
		return err
	}
	read := readingOf(c.Result, plans)
	c.Done.Dropping, c.Done.AwaitingProof, c.Done.NotHeld, c.Done.Decided = p.unknowns.droppingOf(), p.awaitingProof(), p.notHeld(read), p.decidedOf(read)
	for _, pl := range plans {
		d, err := c.release(ctx, p, pl)
		if err != nil {
			return err
		}
		d.Left = pl.left
		c.Done.ClusterTypes = append(c.Done.ClusterTypes, *d)
	}
	if err := errors.Join(p.Trust.Check(p.Platform, p.IssuedAt), p.refused(plans)); err != nil {
		p.Warn("publishing would be refused: %v", err)
	}
	p.opts.Fleet = &c.Fleet
	c.Done.Checks = append(p.judgeRemovals(plans), p.judgePlans(c.Result.Checks, plans)...)
	c.Done.Warnings = p.warnings.list
	return nil
}

// foreign makes an error of what Publish only warns of: a plan that compares with an older release than
// the one that lies there would be wrong.
func foreign(what string) error {
	return &bundle.Refusal{Reason: bundle.UntrustedKey, Message: what}
}

// release compares one cluster type with its newest release.
func (c comparing) release(ctx context.Context, p *publication, pl *plan) (*diff.TypeDifference, error) {
	if tag := pl.Foreign; tag != "" {
		return nil, foreign(tag + " is not a release " + p.Trust.SignedText())
	}
	s := &download{publication: p, plan: pl}
	if pl.refused != "" {
		d, err := c.against(ctx, s, pl.Verified)
		return blocked(d, pl), err
	}
	return c.rings(ctx, s)
}

// against compares what pl would have with one of its releases, or with nothing where that is nil.
func (c comparing) against(ctx context.Context, s *download, last *bundle.Verified) (*diff.TypeDifference, error) {
	pl := s.plan
	now := plannedType(pl)
	if last != nil && pl.tree != nil && last.Release.Content == pl.tree.Content {
		d := now.Unchanged()
		d.OldRelease = diff.OldReleaseOf(last)
		return d, nil
	}
	var err error
	if now.Rendered, err = c.opts.Packed.Restore(pl.Name, now.Rendered); err != nil {
		return nil, err
	}
	if last == nil {
		d, err := c.Type(ctx, now, nil)
		if err == nil && pl.tree != nil {
			d.Fetch, err = s.to(ctx, nil)
		}
		if err == nil {
			d.Carried, err = newlyCarried(pl, nil)
		}
		return d, err
	}
	tree, err := pl.openTree(ctx, last, c.opts.Cache)
	if err != nil {
		return nil, err
	}
	old, err := oldTree(tree)
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	d, err := c.Type(ctx, now, old)
	if d.OldRelease = diff.OldReleaseOf(last); d.Result == diff.ResultUnchanged {
		d.Result = diff.ResultChanged // only the marks of held assignments differ
	}
	if err == nil && pl.tree != nil {
		d.Fetch, err = s.to(ctx, last)
	}
	if err == nil {
		d.Carried, err = newlyCarried(pl, tree)
	}
	return d, errors.Join(err, tree.Close())
}

// maxKeptLayer bounds the compressed trees that a plan keeps, in bytes: a larger one is fetched each time.
const maxKeptLayer = 1 << 20

// openTree opens the tree of a release, from the cache if that has it. It is fetched once, unless it is large.
func (pl *plan) openTree(ctx context.Context, v *bundle.Verified, cache scheduler.Cache) (*published.Tree, error) {
	layer, err := pl.layer(ctx, v, cache)
	if err != nil {
		return nil, err
	}
	if layer == nil {
		return pl.Type.Type.Tree(ctx, v)
	}
	return published.ReadLayer(bytes.NewReader(layer), v.Release.Content)
}

// listAssignments returns the assignments of a release. It reads no more of the tree than it has to.
func (pl *plan) listAssignments(ctx context.Context, v *bundle.Verified, cache scheduler.Cache) ([]bundle.Assignment, error) {
	layer, err := pl.layer(ctx, v, cache)
	if err != nil {
		return nil, err
	}
	if layer == nil {
		return pl.Type.Type.Assignments(ctx, v)
	}
	return published.ListLayer(layer, v.Release.Content)
}

// layer returns the compressed tree of a release with the digest that its manifest names, from the cache if that has it; nil for
// a large one, which is not kept.
func (pl *plan) layer(ctx context.Context, v *bundle.Verified, cache scheduler.Cache) ([]byte, error) {
	if layer, ok := pl.layers[v.Release.Content.DiffID]; ok {
		return layer, nil
	}
	if layer, ok := pack.Before(cache, v.Release.Content); ok {
		return layer, nil
	}
	if v.Tree.Size > maxKeptLayer {
		return nil, nil
	}
	layer, err := bundle.ReadBlob(ctx, pl.Repo, v.Tree, maxKeptLayer)
	if err == nil {
		pl.layers[v.Release.Content.DiffID] = layer
	}
	return layer, err
}

// oldTree returns the tree of a release for a comparison.
func oldTree(tree *published.Tree) (*diff.Tree, error) {
	document, rows, err := tree.Sites()
	return &diff.Tree{Listed: tree.Assignments, Sources: tree.Sources, Sites: diff.Sites{Document: document, Rows: rows}, Read: func(a bundle.Assignment) (map[string][]byte, error) {
		list, err := tree.Files(a)
		files := map[string][]byte{}
		for _, f := range list {
			files[f.Path] = f.Data
		}
		return files, err
	}}, err
}

func blocked(d *diff.TypeDifference, pl *plan) *diff.TypeDifference {
	if pl.row.Result == releases.OutcomeFailed {
		d.Result, d.Blocked = diff.ResultBlocked, pl.row.Reason
	}
	return d
}

// comparing is a comparison with the releases in a registry or layout.
type comparing struct {
	*diff.Comparison
	opts PublishOptions
}
