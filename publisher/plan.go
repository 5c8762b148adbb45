package publisher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// planner decides the content of a cluster type's next release, and whether it may be published. It writes nothing.
type planner struct {
	*state.Reader
	unknowns unknowns
	opts     PublishOptions
	// packer is opts.Packed, or one that has packed nothing yet.
	packer *pack.Packer
	// rings are the platform's rings, narrowest first.
	rings []string
	// accountOf is scheduler.Result.ServiceAccount.
	accountOf func(workspace, namespace string) string
	// maxRemoved and declared are those of scheduler.Result.
	maxRemoved scheduler.MaxRemoved
	declared   map[string]map[string]bool
}

// asked is the wanted content of one cluster type.
type asked struct {
	scheduler.ClusterTypeResult
	// left means that the cluster type has left the environment.
	left bool
}

// askedOf returns the cluster types of result, and, without assignments, those that the last record names and result does
// not. A signed, empty release tells the agents of such a type that they have no assignment any more.
func askedOf(result *scheduler.Result, record state.Record) []asked {
	var all []asked
	for _, ct := range result.ClusterTypes {
		all = append(all, asked{ClusterTypeResult: ct})
	}
	if record.Verified == nil {
		return all
	}
	var left []asked
	for _, name := range record.Verified.Record.Types() {
		if !slices.ContainsFunc(result.ClusterTypes, func(ct scheduler.ClusterTypeResult) bool { return ct.Name == name }) {
			left = append(left, asked{scheduler.ClusterTypeResult{Name: name}, true})
		}
	}
	slices.SortFunc(left, func(a, b asked) int { return cmp.Compare(a.Name, b.Name) })
	return append(all, left...)
}

// found is the published state of one cluster type, and the rings to publish to.
type found struct {
	state.Type
	// aim are the rings to publish to, narrowest first.
	aim state.Rings
	// named are the rings that the platform names.
	named []string
	// refused is the reason why the cluster type cannot be published; empty if it can.
	refused string
}

// plan is the work on one cluster type.
type plan struct {
	asked
	found
	kept
	content
	loses    loss
	layers   map[digest.Digest][]byte // compressed trees that were fetched, by the trees' digests; see openTree
	validFor time.Duration            // zero is that of the release which is made anew
	// contents has the release whose content a ring is to have, for the reason why; nil unless Reissue plans; see there. One without a
	// descriptor is in no registry yet, and packed has its tree.
	contents map[*state.Ring]*bundle.Verified
	why      string
	anew     bool // see Content
	// seen are the trees that were found in the repository when the releases were judged.
	seen []digest.Digest
	// row is what the result says before anything was done.
	row PublishedType
}

// content is what a release consists of.
type content struct {
	tree      *bundle.Packed // nil where there is none: the plan failed before
	artifacts bundle.Artifacts
	platforms []string // of the type's clusters
	needs     pack.Needs
	packed    map[digest.Digest]*bundle.Packed // further trees at hand, by their digests
}

// isOf reports whether a release, which may be nil, has this content.
func (c content) isOf(v *bundle.Verified) bool {
	return v != nil && c.tree != nil && v.Release.Content == c.tree.Content && v.Release.Artifacts == c.artifacts && slices.Equal(v.Release.Platforms, c.platforms)
}

// plan decides what to do for ct and what keeps it from being done. Its error stops everything.
func (n *planner) plan(ctx context.Context, ct asked, record state.Record) (*plan, error) {
	pl := &plan{asked: ct, layers: map[digest.Digest][]byte{}}
	var err error
	if pl.found, err = n.find(ctx, ct.Name, record); err != nil {
		return pl, err
	}
	pl.row = pl.standingRow(ct.Name, len(ct.Assignments))
	if pl.refused != "" {
		return pl.fail("%s", pl.refused), nil
	}
	if pl.kept, err = n.hold(ctx, ct, pl.found, record); err != nil {
		return pl, err
	}
	pl.row.Failures, pl.row.Waiting, pl.row.Dropped, pl.row.FailedSites = pl.failures, pl.waiting, pl.dropped, pl.sites.failures
	if pl.lost != "" {
		return pl.fail("%s", pl.lost), nil
	}
	pl.row.Assignments = len(pl.rendered) + len(pl.held)
	if pl.content, err = n.pack(ct.ClusterTypeResult, pl.kept); err != nil {
		return pl.fail("%v", err), nil
	}
	if pl.validFor, err = validityOf(ct.ClusterTypeResult, n.opts.ValidFor); err != nil {
		return pl.fail("%v", err), nil
	}
	if n.opts.RenewBefore >= pl.validFor {
		n.Warn("%s: its releases are valid for %s, so renewing them %s before they expire renews them every time", ct.Name, validityText(pl.validFor), validityText(n.opts.RenewBefore))
	}
	if pl.loses, err = n.loss(ctx, pl); err != nil || pl.row.Assignments > 0 || n.opts.AllowEmpty {
		return pl, err
	}
	had, err := pl.hadAssignments(ctx, pl.tree.Content.DiffID)
	if had {
		pl.fail("it had assignments and now has none, which deletes them all: confirm with --allow-empty")
	}
	return pl, err
}

func (pl *plan) fail(format string, args ...any) *plan {
	pl.row.Result, pl.row.Reason = releases.OutcomeFailed, fmt.Sprintf(format, args...)
	return pl
}

// lacksSomething reports whether anything of pl fails.
func (pl *plan) lacksSomething() bool {
	return pl.row.Result == releases.OutcomeFailed || len(pl.row.Failures)+len(pl.row.FailedSites) > 0
}

// find reads the published state of a cluster type, and whether it can be published.
func (n *planner) find(ctx context.Context, name string, record state.Record) (f found, err error) {
	if err := oci.CheckName(name); err != nil || strings.Contains(name, "/") {
		f.refused = fmt.Sprintf("a cluster type's name becomes the name of a repository: %v", err)
		return f, nil
	}
	if f.Type, err = n.Type(ctx, name); err != nil {
		return f, err
	}
	if last := f.Verified; last != nil && last.Release.Platform != n.Platform {
		f.refused = fmt.Sprintf("%s holds releases of the platform %q, this one is %q: publish to another prefix, or name the platform",
			n.Location.Name(f.Stream.Repository()), last.Release.Platform, n.Platform)
		return f, nil
	}
	if f.Type, err = n.WithRings(ctx, f.Type, n.rings, record); err != nil {
		return f, err
	}
	f.named = n.rings
	if f.aim = f.Rings; len(n.rings) > 0 { // else rings that have a tag were given up, and what each has is replaced
		f.aim = chooseAim(f.Rings, n.rings, n.opts.Rings, record.Has(name))
	}
	return f, nil
}

// standingRow is what the result says of a cluster type with so many assignments before anything was done.
func (f found) standingRow(name string, assignments int) PublishedType {
	row := PublishedType{ClusterType: name, Assignments: assignments}
	if last := f.Verified; last != nil {
		row.Sequence, row.Digest, row.Number = last.Release.Sequence, last.Descriptor.Digest, last.Release.Number
	}
	for _, i := range slices.Backward(f.currentReleases(content{})) {
		row.Releases = append(row.Releases, i.published())
	}
	row.Releases = append(row.Releases, f.lostReleases(row)...)
	return row
}

// pack returns the content of a cluster type's rendered and held assignments.
func (n *planner) pack(ct scheduler.ClusterTypeResult, k kept) (c content, err error) {
	if err := artifacts.CheckPinned(ct); err != nil {
		return c, err
	}
	if c.platforms, err = scheduler.ParsePlatforms(ct.Annotations[scheduler.PlatformsAnnotation]); err != nil {
		return c, fmt.Errorf("annotation %s: %w", scheduler.PlatformsAnnotation, err)
	}
	if known, ok := n.packer.Of(ct.Name); ok {
		if len(k.held) == 0 && len(k.rendered) == len(ct.Assignments) {
			return content{tree: known.Tree, artifacts: known.Artifacts, platforms: c.platforms, needs: known.Needs}, nil
		}
		if k.rendered, err = n.packer.Restore(ct.Name, k.rendered); err != nil {
			return c, err
		}
	}
	var sites []bundle.File
	if len(k.rendered)+len(k.held) > 0 {
		sites, err = pack.SiteFiles(k.sites.document, k.sites.rows)
	}
	var made pack.Bundle
	if err == nil {
		made, err = n.packer.Once(k.rendered, k.held, sites...)
	}
	c.tree, c.artifacts, c.needs = made.Tree, made.Artifacts, made.Needs
	return c, err
}

// hadAssignments reports whether the last release has any, where empty is the tree of one without. Where our key has signed
// none, somebody's agents may run what the moving tags name, which counts as having some unless it says itself that it
// has none: that nobody vouches for it is no danger, as whoever can lie there can also take the tags away.
func (f found) hadAssignments(ctx context.Context, empty digest.Digest) (bool, error) {
	if f.Verified != nil {
		return slices.ContainsFunc(f.aim, func(l *state.Ring) bool { return l.Release != nil && l.Release.Release.Content.DiffID != empty }), nil
	}
	for tag := range f.Moving {
		v, _, err := f.By(published.AsItLies()).Read(ctx, tag)
		if err != nil || v.Release.Content.DiffID != empty {
			return true, published.IgnoreRefused(err)
		}
	}
	return false, nil
}

// validityOf returns the time for which releases of a cluster type may be accepted: its own annotation, else validFor, else
// [DefaultValidity].
func validityOf(ct scheduler.ClusterTypeResult, validFor time.Duration) (time.Duration, error) {
	if text := ct.Annotations[scheduler.ValidityAnnotation]; text != "" {
		d, err := scheduler.ParseValidity(text)
		if err != nil {
			return 0, fmt.Errorf("annotation %s: %w", scheduler.ValidityAnnotation, err)
		}
		return d, nil
	}
	return cmp.Or(validFor, DefaultValidity), nil
}

// validityText formats d as people write validities, such as 90d.
func validityText(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day || d%day != 0 {
		return d.String()
	}
	return fmt.Sprintf("%dd", d/day)
}
