package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// SourceUnreadable is the reason of an assignment that is held because the source of its registration
// could not be fetched or parsed. It says no more, so that an outage which changes its face from one run
// to the next gives no new releases.
const SourceUnreadable scheduler.FailureReason = "SourceUnreadable"

// PolicyFailed is the reason of an assignment that is held because a scheduling policy that had selected it has a
// mistake in its selectors, so that it is not known whether it still does.
const PolicyFailed scheduler.FailureReason = "PolicyFailed"

// lostError says why what failed assignments had is not known.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

func lost(format string, args ...any) error { return &lostError{fmt.Sprintf(format, args...)} }

// hold decides what becomes of pl's failed assignments: dropped on purpose, held with the content that they
// had, or left out because they never had any. Where what they had is not known, pl fails: leaving
// one out would order its deletion.
func (p *publication) hold(ctx context.Context, pl *plan) error {
	pl.rendered, pl.failed, pl.had = pl.clusterType.Assignments, map[string]FailedAssignment{}, map[string]bundle.Assignment{}
	for _, f := range pl.clusterType.Failures {
		if f.Taken {
			continue
		}
		pl.failed[f.Name] = FailedAssignment{Name: f.Name, Error: f.Err.Error(), Reason: cmp.Or(f.Reason, scheduler.RenderFailed)}
	}
	last, err := p.openLast(ctx, pl)
	if err == nil && last != nil {
		defer func() { _ = last.tree.Close() }() // a temporary folder
		p.compare(pl, last)
	}
	if err == nil {
		err = p.keep(pl, last)
	}
	var unknown *lostError
	if errors.As(err, &unknown) {
		p.failLost(pl, unknown)
		pl.addTaken()
		return nil
	}
	p.judgeDrops(pl, p.warn)
	pl.addTaken()
	return err
}

// addTaken lists the failures of those whose names others have: nothing is held for them.
func (pl *plan) addTaken() {
	for _, f := range pl.clusterType.Failures {
		if f.Taken {
			pl.result.Failures = append(pl.result.Failures, FailedAssignment{
				Name: f.Name, Error: f.Err.Error(), Reason: f.Reason, Taken: true, Registration: f.Registration,
			})
		}
	}
	slices.SortStableFunc(pl.result.Failures, func(a, b FailedAssignment) int { return cmp.Compare(a.Name, b.Name) })
}

// keep takes from last what failed and is not dropped.
func (p *publication) keep(pl *plan, last *lastRelease) error {
	for _, name := range slices.Sorted(maps.Keys(pl.failed)) {
		f := pl.failed[name]
		if p.drops[pl.drop(name)] {
			pl.result.Dropped = append(pl.result.Dropped, f)
			continue
		}
		if a, published := pl.had[name]; published {
			h, err := last.hold(a, f.Reason)
			h.Line.ServiceAccount = p.accountOf(a.Workspace, a.Namespace) // who may do what is not up to what is held
			if err != nil {
				return lostIfRefused(err, "release %s", last.name)
			}
			pl.held, f.HeldFrom = append(pl.held, h), h.Line.HeldFrom
		}
		pl.result.Failures = append(pl.result.Failures, f)
	}
	return nil
}

// drop is how --drop names an assignment of pl.
func (pl *plan) drop(name string) string { return pl.clusterType.Name + "/" + name }

// lastRelease is a release of ours with its content.
type lastRelease struct {
	name    string
	release bundle.Release
	tree    *releases.Tree
}

// hold takes an assignment over. One that is held already names the release in which it was last rendered.
func (l *lastRelease) hold(a bundle.Assignment, reason scheduler.FailureReason) (pack.Held, error) {
	files, err := l.tree.Files(a)
	from := bundle.Held{Sequence: l.release.Sequence, BaseCommit: l.release.BaseCommit, Reason: string(reason)}
	if a.HeldFrom != nil {
		from.Sequence, from.BaseCommit = a.HeldFrom.Sequence, a.HeldFrom.BaseCommit
	}
	a.HeldFrom = &from
	return pack.Held{Line: a, Files: files, Artifacts: l.tree.ArtifactsOf(a.Name)}, err
}

// openLast opens the release that failed assignments keep their content from. It returns nil where there
// never was one, or it is not needed, and a *lostError where it cannot be fetched and verified.
func (p *publication) openLast(ctx context.Context, pl *plan) (*lastRelease, error) {
	if !p.needLast(pl) {
		return nil, nil
	}
	v, err := p.lastVerified(ctx, pl)
	if v == nil || err != nil {
		return nil, err
	}
	tree, err := releases.OpenTree(ctx, pl.repo, v.Tree, v.Release.Content)
	if err != nil {
		return nil, lostIfRefused(err, "release %s", v.Name())
	}
	return &lastRelease{v.Name(), v.Release, tree}, nil
}

// lostIfRefused makes a *lostError of the error of content that is not there, or not what was signed.
func lostIfRefused(err error, what string, args ...any) error {
	if releases.UnlessRefused(err) == nil {
		return lost(what+": %v", append(args, err)...)
	}
	return err
}

// lastVerified returns the newest release of ours that is for all rings which are published to, or, where the platform
// names rings, for the widest of these; nil where there never was a release. What the environment's record names, which is signed too, must be among those
// considered: else whoever can delete a release or its signature could have an older one taken for the last.
func (p *publication) lastVerified(ctx context.Context, pl *plan) (*bundle.Verified, error) {
	v, recorded := pl.standing.verified, digest.Digest("")
	if p.record.verified != nil {
		recorded = p.record.verified.Record.ClusterTypes[pl.clusterType.Name]
	}
	ringed := len(pl.lanes) > 0
	if ringed {
		v, recorded = pl.base().release, cmp.Or(pl.base().recorded, recorded)
	}
	switch {
	case recorded == "" && len(pl.standing.Releases())+len(pl.standing.Moving) == 0:
		return nil, nil
	case recorded == "" && pl.standing.foreign != "":
		return nil, lost("%s is not a release %s, and no record of the environment says what the last one is", pl.standing.foreign, p.trust.SignedText())
	case recorded != "" && (v == nil || v.Descriptor.Digest != recorded):
		r, err := p.recordedRelease(ctx, pl.repo, recorded)
		if err != nil {
			return nil, err
		}
		if (v == nil || orderOf(r).Compare(orderOf(v)) > 0) && (!ringed || pl.base().isFor(r.Release)) {
			v = r
		}
	}
	if v == nil {
		return nil, lost("there is no release here %s", p.trust.SignedText())
	}
	if ringed {
		return v, nil
	}
	return p.forRings(ctx, pl, v)
}

// recordedRelease returns the release that the environment's record names.
func (rd *reader) recordedRelease(ctx context.Context, repo oci.Target, d digest.Digest) (*bundle.Verified, error) {
	desc, err := repo.Resolve(ctx, d.String())
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, lost("the last release, %s, is not there", d)
	}
	if err != nil {
		return nil, err
	}
	v, _, err := trust.Recognise(rd.trust, func(t bundle.Trust) (*bundle.Verified, error) { return bundle.Verify(ctx, repo, desc, t) })
	if err != nil {
		return nil, lostIfRefused(err, "the last release, %s", d)
	}
	return v, nil
}

// forRings returns v, or the newest release before it, that all rings have which are published to. What one
// ring tries out must not reach the others because something else failed.
func (p *publication) forRings(ctx context.Context, pl *plan, v *bundle.Verified) (*bundle.Verified, error) {
	if reaches(v.Release.Rings, p.opts.Rings) {
		return v, nil
	}
	for _, tag := range pl.standing.Releases() {
		before, _, err := p.verifyRelease(ctx, pl.repo, tag)
		switch {
		case err != nil:
			return nil, err
		case before == nil || before.Release.Tag() != tag:
			return nil, lost("%s is not a release %s", tag, p.trust.SignedText())
		case reaches(before.Release.Rings, p.opts.Rings):
			return before, nil
		}
	}
	return nil, lost("no release so far is for %s", ringsText(p.opts.Rings))
}

// reaches reports whether a release for some rings, or all, is for all those that are wanted.
func reaches(rings, wanted []string) bool {
	if len(rings) == 0 || len(wanted) == 0 {
		return len(rings) == 0
	}
	for _, ring := range wanted {
		if !slices.Contains(rings, ring) {
			return false
		}
	}
	return true
}

func ringsText(rings []string) string {
	if len(rings) == 0 {
		return "all rings"
	}
	return "the rings " + strings.Join(rings, ", ")
}
