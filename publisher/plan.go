package publisher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// plan is what is to be done for one cluster type.
type plan struct {
	clusterType scheduler.ClusterTypeResult
	result      PublishedType
	repo        oci.Target
	// rendered and held are what is published; failed is by name, and had is what the last release has, if
	// anything failed.
	rendered  []scheduler.Assignment
	held      []pack.Held
	failed    map[string]FailedAssignment
	had       map[string]bundle.Assignment
	content   *bundle.Packed
	artifacts bundle.Artifacts
	validFor  time.Duration
	standing  standing
	// lanes are the rings and latest, narrowest first, where the platform names rings; aim are those that are published
	// to.
	lanes, aim []*lane
	// force is the ring whose release is made anew in any case, because of forced; nil where there is none.
	force  *lane
	forced string
}

// standing is what a repository of releases holds.
type standing struct {
	releases.Tags
	// verified is the newest release that our key signed; nil where there is none. Current says whether it is
	// signed as the trust in force asks.
	verified *bundle.Verified
	current  bool
	// pending is the newest release after it that waits for signatures; nil where there is none.
	pending *bundle.Verified
	// foreign is the newest tag, newer than verified, of what our key did not sign; empty where there is none.
	foreign string
	// taken means that verified's own tag names another release: a publisher overwrote it and went no further.
	taken bool
}

// plan decides what to do for ct and what keeps it from being done. Its error stops everything.
func (p *publication) plan(ctx context.Context, ct scheduler.ClusterTypeResult) (*plan, error) {
	pl := &plan{clusterType: ct, result: PublishedType{ClusterType: ct.Name, Assignments: len(ct.Assignments)}}
	if err := p.find(ctx, pl); err != nil || pl.result.Result == releases.OutcomeFailed {
		return pl, err
	}
	if err := p.hold(ctx, pl); err != nil || pl.result.Result == releases.OutcomeFailed {
		return pl, err
	}
	pl.result.Assignments = len(pl.rendered) + len(pl.held)
	err := artifacts.CheckPinned(ct)
	if err != nil {
		return pl.fail("%v", err), nil
	}
	if known, ok := p.opts.Packed.Of(ct.Name); ok {
		pl.content, pl.artifacts = known.Tree, known.Artifacts
	} else if pl.content, pl.artifacts, err = pack.Once(p.opts.Cache, pl.rendered, pl.held); err != nil {
		return pl.fail("%v", err), nil
	}
	if pl.validFor, err = validityOf(ct, p.opts.ValidFor); err != nil {
		return pl.fail("%v", err), nil
	}
	if p.opts.RenewBefore >= pl.validFor {
		p.warn("%s: its releases are valid for %s, so renewing them %s before they expire renews them every time", ct.Name, validityText(pl.validFor), validityText(p.opts.RenewBefore))
	}
	if pl.result.Assignments > 0 || p.opts.AllowEmpty {
		return pl, nil
	}
	had, err := pl.hadAssignments(ctx)
	if had {
		pl.fail("it had assignments and now has none, which deletes them all: confirm with --allow-empty")
	}
	return pl, err
}

// find finds what is published of pl's cluster type, or fails pl because nothing can be published there.
func (p *publication) find(ctx context.Context, pl *plan) error {
	name := pl.clusterType.Name
	stream := bundle.Stream{Platform: p.done.Platform, Environment: p.done.Environment, ClusterType: name}
	err := oci.CheckName(name)
	if err != nil || strings.Contains(name, "/") {
		pl.fail("a cluster type's name becomes the name of a repository: %v", err)
		return nil
	}
	if pl.repo, err = p.store.Repository(stream.Repository()); err != nil {
		return err
	}
	if pl.standing, err = p.look(ctx, pl.repo, stream); err != nil {
		return err
	}
	if last := pl.standing.verified; last != nil {
		pl.result.Sequence, pl.result.Digest, pl.result.Number = last.Release.Sequence, last.Descriptor.Digest, last.Release.Number
		if last.Release.Platform != p.done.Platform {
			pl.fail("%s holds releases of the platform %q, this one is %q: publish to another prefix, or name the platform",
				p.to.Name(stream.Repository()), last.Release.Platform, p.done.Platform)
			return nil
		}
	}
	if len(p.rings) == 0 {
		return nil
	}
	if pl.lanes, pl.standing.foreign, err = p.lookRings(ctx, pl.repo, stream, pl.standing, p.rings, p.record.verified); err != nil {
		return err
	}
	pl.chooseAim(p.rings, p.opts.Rings, p.record.has(name))
	pl.describeRings()
	return nil
}

func (pl *plan) fail(format string, args ...any) *plan {
	pl.result.Result, pl.result.Reason = releases.OutcomeFailed, fmt.Sprintf(format, args...)
	return pl
}

// lacksSomething reports whether anything of pl fails.
func (pl *plan) lacksSomething() bool {
	return pl.result.Result == releases.OutcomeFailed || len(pl.result.Failures) > 0
}

// hadAssignments reports whether the last release has any; pl.content is empty here. Where our key has signed none,
// somebody's agents may run what the moving tags name, which counts as having some unless it says itself that it
// has none: that nobody vouches for it is no danger, as whoever can lie there can also take the tags away.
func (pl *plan) hadAssignments(ctx context.Context) (bool, error) {
	empty := func(r bundle.Release) bool { return r.Content.DiffID == pl.content.Content.DiffID }
	if len(pl.lanes) > 0 && pl.standing.verified != nil {
		return slices.ContainsFunc(pl.aim, func(l *lane) bool { return l.release != nil && !empty(l.release.Release) }), nil
	}
	if last := pl.standing.verified; last != nil {
		return !empty(last.Release), nil
	}
	for tag := range pl.standing.Moving {
		desc, err := pl.repo.Resolve(ctx, tag)
		var v *bundle.Verified
		if err == nil {
			v, err = bundle.Read(ctx, pl.repo, desc)
		}
		if err != nil || !empty(v.Release) {
			return true, releases.UnlessRefused(err)
		}
	}
	return false, nil
}

// validityOf returns how long releases of a cluster type may be accepted: what it says itself, else validFor, else
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

// validityText is d as people write validities, such as 90d.
func validityText(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day || d%day != 0 {
		return d.String()
	}
	return fmt.Sprintf("%dd", d/day)
}

// look returns what the repository of a stream holds, the newest release that is trusted above all. A registry's tags are
// no proof of anything: what the newest tag names may be foreign, or an older release.
func (rd *reader) look(ctx context.Context, repo oci.Target, stream bundle.Stream) (s standing, err error) {
	if s.Tags, err = releases.ReadTags(ctx, repo); err != nil {
		return s, err
	}
	consider := func(tag string) (found bool, err error) {
		v, current, err := rd.verifyRelease(ctx, repo, tag)
		if err != nil {
			return false, err
		}
		moving := s.Moving[tag] != ""
		// One of an epoch to come is none that agents take.
		if v == nil || !moving && v.Release.Tag() != tag || v.Release.Epoch > rd.trust.Epoch ||
			v.Release.Environment != stream.Environment || v.Release.ClusterType != stream.ClusterType {
			if s.foreign == "" { // the newest says it for all
				s.foreign = fmt.Sprintf("%s:%s", rd.to.Name(stream.Repository()), tag)
				rd.warn("%s is not a release %s", s.foreign, rd.trust.SignedText())
			}
			return false, nil
		}
		if last := s.verified; last == nil || orderOf(v).Compare(orderOf(last)) > 0 {
			s.verified, s.current = v, current
		}
		return true, nil
	}
	for _, tag := range s.Releases() {
		if found, err := consider(tag); err != nil {
			return s, err
		} else if found {
			break
		}
	}
	// A registry's retention may have taken the tag of the release that latest still names, or another publisher.
	latest, last := s.Moving[bundle.LatestTag], s.verified
	if latest != "" && (last == nil || latest != last.Descriptor.Digest) {
		if _, err = consider(bundle.LatestTag); err != nil {
			return s, err
		}
	}
	if v := s.verified; v != last {
		s.taken = slices.Contains(s.All, v.Release.Tag())
	}
	s.pending, err = rd.pendingRelease(ctx, repo, s, stream)
	return s, err
}

func orderOf(v *bundle.Verified) bundle.Order { return bundle.OrderOf(v.Release, v.Descriptor.Digest) }

// verifyRelease returns nil for a release that is not trusted, or of which a registry has the tag only. For
// current see trust.Recognise.
func (rd *reader) verifyRelease(ctx context.Context, repo oci.Target, tag string) (v *bundle.Verified, current bool, err error) {
	desc, err := repo.Resolve(ctx, tag)
	if err != nil {
		return nil, false, releases.UnlessRefused(err)
	}
	v, current, err = trust.Recognise(rd.trust, func(t bundle.Trust) (*bundle.Verified, error) { return bundle.Verify(ctx, repo, desc, t) })
	return v, current, releases.UnlessRefused(err)
}
