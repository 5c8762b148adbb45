package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// search looks for previous content in the records of an environment.
type search struct {
	Options
	at     *state.Reader
	record state.Record
	now    bundle.EnvironmentRecord // the record that stands
}

// undo finds what the scope of s had before.
func (s *search) undo(ctx context.Context) (found, error) {
	if err := s.checkScope(); err != nil {
		return found{}, err
	}
	if s.To != "" {
		return s.undoTo(ctx)
	}
	v, err := s.previous(ctx)
	if v == nil || err != nil {
		return found{}, err
	}
	return s.backTo(ctx, v)
}

// checkScope refuses cluster types and rings that are not there.
func (s *search) checkScope() error {
	if t := s.ClusterType; t != "" && !slices.Contains(s.now.Types(), t) {
		return usage.Errorf("unknown cluster type %q (known: %s)", t, strings.Join(s.now.Types(), ", "))
	}
	if s.Ring == "" {
		return nil
	}
	order := publisher.RingOrder(s.now)
	if len(order) == 0 {
		return usage.Errorf("environment %s has no rings: leave out --ring", s.Environment)
	}
	if !slices.Contains(order, s.Ring) {
		return usage.Errorf("unknown ring %q (known: %s)", s.Ring, strings.Join(order, ", "))
	}
	if len(s.now.RingOrder) == 0 {
		return usage.Errorf("the record of environment %s does not say the order of its rings: leave out --ring, or publish once", s.Environment)
	}
	return nil
}

// previous returns the newest complete record whose content differs and was not undone; nil if the present content was given back
// already.
func (s *search) previous(ctx context.Context) (*bundle.VerifiedEnvironment, error) {
	older := s.newest()
	older = older[slices.Index(older, s.now.Tag())+1:] // all of them, if the record's tag was taken from it
	for v := s.record.Verified; ; {
		differs, err := s.differs(ctx, v.Record)
		switch {
		case err != nil:
			return nil, err
		case differs && !s.incomplete(v.Record):
			return v, nil
		case v.Record.Former != "":
			rest, again, err := s.wentBack(ctx, v.Record, differs, older)
			if again || err != nil {
				return nil, err
			}
			older = rest
		}
		if v, older, err = s.next(ctx, older); v == nil || err != nil {
			return nil, cmp.Or(err, fmt.Errorf("%w among the records of environment %s", ErrNoPrevious, s.Environment))
		}
	}
}

// next returns the newest of the older records that is trusted, still there and not above the present one, and the tags of those before it.
func (s *search) next(ctx context.Context, older []string) (*bundle.VerifiedEnvironment, []string, error) {
	for i, tag := range older {
		v, err := s.at.RecordAt(ctx, s.record, tag)
		if err != nil || v != nil && published.OrderOfRecord(v).Compare(published.OrderOfRecord(s.record.Verified)) <= 0 {
			return v, older[i+1:], err
		}
	}
	return nil, nil, nil
}

// wentBack returns which of the older records come next after r, which went back to an earlier one: what lies between was undone. Again
// reports whether r is how the present content was given back; then the record before r differs.
func (s *search) wentBack(ctx context.Context, r bundle.EnvironmentRecord, differs bool, older []string) (rest []string, again bool, err error) {
	f, err := s.at.RecordAt(ctx, s.record, r.Former)
	if err != nil {
		return nil, false, err
	}
	if f == nil {
		return nil, false, fmt.Errorf("%w: record %s, to which %s went back, is not there any more", ErrNoPrevious, r.Former, r.Tag())
	}
	elsewhere, err := s.differs(ctx, f.Record)
	if err != nil {
		return nil, false, err
	}
	if differs || elsewhere {
		return older[max(0, slices.Index(older, r.Former)):], false, nil
	}
	for before, err := range s.records(ctx, older) {
		if err == nil {
			again, err = s.differs(ctx, before.Record)
		}
		return older, again, err
	}
	return older, false, nil
}

// records yields the records under tags that are trusted and still there, until one cannot be read.
func (s *search) records(ctx context.Context, tags []string) iter.Seq2[*bundle.VerifiedEnvironment, error] {
	return func(yield func(*bundle.VerifiedEnvironment, error) bool) {
		for _, tag := range tags {
			v, err := s.at.RecordAt(ctx, s.record, tag)
			if (v != nil || err != nil) && (!yield(v, err) || err != nil) {
				return
			}
		}
	}
}

// newest returns the own tags of the environment's records that are looked through, newest first.
func (s *search) newest() []string { return s.record.Newest(published.Own, MaxRecords) }

// incomplete reports whether something that s is about is incomplete in a record.
func (s *search) incomplete(r bundle.EnvironmentRecord) bool {
	if s.ClusterType != "" {
		return slices.Contains(r.Incomplete, s.ClusterType)
	}
	return len(r.Incomplete) > 0
}

// differs reports whether the scope of s has other content in r than now. Without a ring, the content of a cluster type is what
// its narrowest ring has: new content comes there first, and a step to the next ring is no other content.
func (s *search) differs(ctx context.Context, r bundle.EnvironmentRecord) (bool, error) {
	if r.Tag() == s.now.Tag() {
		return false, nil
	}
	var open []pair
	for _, name := range s.types(r) {
		for _, ring := range s.judged(name) {
			a, b := releaseOf(s.now, name, ring), releaseOf(r, name, ring)
			switch {
			case a == b:
			case a == "" || b == "":
				return true, nil
			default:
				open = append(open, pair{name, a, b})
			}
		}
	}
	return s.anyDiffers(ctx, open)
}

// types returns the cluster types that s is about, of the present record and of r, sorted.
func (s *search) types(r bundle.EnvironmentRecord) []string {
	if s.ClusterType != "" {
		return []string{s.ClusterType}
	}
	names := append(s.now.Types(), r.Types()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// judged returns the rings by which the content of a cluster type is compared.
func (s *search) judged(name string) []string {
	rings := s.rings(name)
	switch {
	case s.Ring != "":
		return []string{s.Ring}
	case len(s.now.RingOrder) == 0: // an earlier version wrote it: which ring is the narrowest is not known
		return rings
	}
	return rings[:1]
}

// releaseOf returns what a record names for a ring; where it does not name the ring, what agents without a ring have.
func releaseOf(r bundle.EnvironmentRecord, name, ring string) digest.Digest {
	if d := r.ReleaseOf(name, ring); d != "" {
		return d
	}
	return r.ClusterTypes[name]
}

// undoTo goes back to what s.To names.
func (s *search) undoTo(ctx context.Context) (found, error) {
	matched := false
	for v, err := range s.records(ctx, s.newest()) {
		if err != nil {
			return found{}, err
		}
		if !s.names(v.Record) {
			continue
		}
		matched = true
		f, err := s.backTo(ctx, v)
		if err != nil || f.content != nil {
			return f, err
		}
	}
	if matched {
		return found{}, nil // it has that
	}
	if s.ClusterType != "" {
		if _, err := bundle.ParseReleaseQuery(s.To); err == nil {
			return s.undoToRelease(ctx)
		}
	}
	return found{}, usage.Errorf("no record of environment %s is of %q: give its commit, with 7 digits or more, or its tag", s.Environment, s.To)
}

// names reports whether s.To is a record's tag or one of its commits.
func (s *search) names(r bundle.EnvironmentRecord) bool {
	const least = 7 // digits of a commit
	is := func(commit string) bool { return len(s.To) >= least && strings.HasPrefix(commit, s.To) }
	return s.To == r.Tag() || is(r.BaseCommit) || is(r.EnvironmentCommit)
}

// undoToRelease gives the rings of a cluster type, as far as the release that s.To names was for them, its content.
func (s *search) undoToRelease(ctx context.Context) (found, error) {
	stream := bundle.Stream{Platform: s.at.Platform, Environment: s.at.Environment, ClusterType: s.ClusterType}
	t, err := s.at.Place.Type(stream)
	if err != nil {
		return found{}, err
	}
	desc, err := t.Find(ctx, s.To, errdef.ErrNotFound)
	if err != nil {
		return found{}, err
	}
	v, err := s.at.ReleaseOf(ctx, s.ClusterType, desc.Digest)
	if err != nil {
		return found{}, err
	}
	for r, err := range s.records(ctx, s.newest()) {
		if err != nil {
			return found{}, err
		}
		if !slices.Contains(r.Record.ReleasesOf(s.ClusterType), desc.Digest) {
			continue
		}
		rings := map[string]digest.Digest{}
		for _, ring := range s.scope(s.ClusterType) {
			if len(v.Release.Rings) == 0 || slices.Contains(v.Release.Rings, ring) {
				rings[ring] = desc.Digest
			}
		}
		if len(rings) == 0 {
			return found{}, usage.Errorf("release %s was for %s alone", v.Name(), strings.Join(v.Release.Rings, ", "))
		}
		return s.give(ctx, r, map[string]map[string]digest.Digest{s.ClusterType: rings})
	}
	return found{}, usage.Errorf("release %s is in no record of environment %s", v.Name(), s.Environment)
}

// scope returns the rings of a cluster type that s is about: with a ring that one, and the wider ones that have the same.
func (s *search) scope(name string) []string {
	rings := s.rings(name)
	at := slices.Index(rings, s.Ring)
	if s.Ring == "" || at < 0 {
		return rings
	}
	same := releaseOf(s.now, name, s.Ring)
	end := at + 1
	for end < len(rings) && releaseOf(s.now, name, rings[end]) == same {
		end++
	}
	if end == len(rings)-1 {
		end++ // agents without a ring have what the last ring has
	}
	return rings[at:end]
}

// backTo gives what s is about what v names for it.
func (s *search) backTo(ctx context.Context, v *bundle.VerifiedEnvironment) (found, error) {
	all := map[string]map[string]digest.Digest{}
	var emptied []string
	for _, name := range s.types(v.Record) {
		rings := map[string]digest.Digest{}
		for _, ring := range s.scope(name) {
			if d := releaseOf(v.Record, name, ring); d != "" {
				rings[ring] = d
			} else if !slices.Contains(emptied, name) {
				emptied = append(emptied, name)
			}
		}
		if slices.Contains(emptied, name) {
			rings = map[string]digest.Digest{}
			for _, ring := range s.rings(name) {
				rings[ring] = ""
			}
		}
		all[name] = rings
	}
	if len(emptied) > 0 && !s.AllowEmpty {
		return found{}, &EmptiesError{ClusterTypes: emptied}
	}
	return s.give(ctx, v, all)
}

// give returns what makes rings have the given releases; nothing if they have that content.
func (s *search) give(ctx context.Context, previous *bundle.VerifiedEnvironment, all map[string]map[string]digest.Digest) (found, error) {
	var open []pair
	changes := false
	for name, rings := range all {
		for ring, d := range rings {
			switch has := releaseOf(s.now, name, ring); {
			case has == d:
			case has == "" || d == "":
				changes = true
			default:
				open = append(open, pair{name, has, d})
			}
		}
	}
	differs, err := s.anyDiffers(ctx, open)
	if err != nil || !differs && !changes {
		return found{}, err
	}
	r := previous.Record
	g := &publisher.Content{
		Releases: all, Why: "it is undone", Previous: r.Tag(), Recorded: s.To == "",
		BaseCommit: s.now.BaseCommit, BaseID: s.now.BaseID, EnvironmentCommit: s.now.EnvironmentCommit, Incomplete: slices.Clone(s.now.Incomplete),
	}
	switch narrowest := s.Ring == "" || s.Ring == s.now.RingOrder[0]; {
	case s.ClusterType == "" && narrowest:
		g.BaseCommit, g.BaseID, g.EnvironmentCommit, g.Incomplete = r.BaseCommit, r.BaseID, r.EnvironmentCommit, r.Incomplete
	case s.ClusterType != "" && narrowest:
		// The cluster type is not as the record's commit says, unless it goes forward to that again.
		at := slices.Index(g.Incomplete, s.ClusterType)
		asCommitted := r.BaseCommit == s.now.BaseCommit && r.EnvironmentCommit == s.now.EnvironmentCommit && !s.incomplete(r)
		if asCommitted && at >= 0 {
			g.Incomplete = slices.Delete(g.Incomplete, at, at+1)
		} else if !asCommitted && at < 0 {
			g.Incomplete = append(g.Incomplete, s.ClusterType)
			slices.Sort(g.Incomplete)
		}
	}
	return found{previous: previous, content: g}, nil
}

// recorded gives what s is about what the record that stands names for it.
func (s *search) recorded(context.Context) (found, error) {
	all := map[string]map[string]digest.Digest{}
	for _, name := range s.types(s.now) {
		all[name] = map[string]digest.Digest{}
		for _, ring := range s.scope(name) {
			if d := releaseOf(s.now, name, ring); d != "" {
				all[name][ring] = d
			}
		}
	}
	return found{previous: s.record.Verified, content: &publisher.Content{
		Releases: all, Why: "it is undone", Previous: s.now.Tag(),
		BaseCommit: s.now.BaseCommit, BaseID: s.now.BaseID, EnvironmentCommit: s.now.EnvironmentCommit, Incomplete: s.now.Incomplete,
	}}, nil
}

// abort gives the narrower rings what the widest has.
func (s *search) abort(ctx context.Context) (found, error) {
	if err := s.checkScope(); err != nil {
		return found{}, err
	}
	if len(s.now.Rings) == 0 {
		return found{}, usage.Errorf("environment %s has no rings: use undo", s.Environment)
	}
	all := map[string]map[string]digest.Digest{}
	for _, name := range s.types(s.now) {
		widest := s.now.ClusterTypes[name]
		if widest == "" {
			continue
		}
		rings := map[string]digest.Digest{}
		var open []pair
		for _, ring := range s.rings(name) {
			rings[ring] = widest
			if has := releaseOf(s.now, name, ring); has != widest {
				open = append(open, pair{name, has, widest})
			}
		}
		differs, err := s.anyDiffers(ctx, open)
		if err != nil {
			return found{}, err
		}
		if differs {
			all[name] = rings
		}
	}
	if len(all) == 0 {
		return found{}, nil
	}
	g := &publisher.Content{
		Releases: all, Why: "the rollout is aborted",
		BaseCommit: s.now.BaseCommit, BaseID: s.now.BaseID, EnvironmentCommit: s.now.EnvironmentCommit, Incomplete: slices.Clone(s.now.Incomplete),
	}
	previous, whole, err := s.recordOf(ctx, all)
	switch {
	case err != nil:
		return found{}, err
	case previous != nil:
		g.Previous = previous.Record.Tag()
	}
	if whole {
		r := previous.Record
		g.BaseCommit, g.BaseID, g.EnvironmentCommit, g.Incomplete = r.BaseCommit, r.BaseID, r.EnvironmentCommit, r.Incomplete
	} else {
		g.Incomplete = append(g.Incomplete, slices.Collect(maps.Keys(all))...)
		slices.Sort(g.Incomplete)
		g.Incomplete = slices.Compact(g.Incomplete)
	}
	return found{previous: previous, content: g}, nil
}

// recordOf returns the newest record in which the narrowest rings of all have what they are given now; nil if there is none.
// Whole reports whether the other cluster types have there what they have now, too.
func (s *search) recordOf(ctx context.Context, all map[string]map[string]digest.Digest) (_ *bundle.VerifiedEnvironment, whole bool, err error) {
	var partly *bundle.VerifiedEnvironment
	for v, err := range s.records(ctx, s.newest()) {
		if err != nil {
			return nil, false, err
		}
		if v.Record.Tag() == s.now.Tag() {
			continue
		}
		same := func(names []string) (bool, error) {
			var open []pair
			for _, name := range names {
				ring := s.rings(name)[0]
				want := releaseOf(s.now, name, ring)
				if rings := all[name]; rings != nil {
					want = rings[ring]
				}
				switch has := releaseOf(v.Record, name, ring); {
				case has == want:
				case has == "" || want == "":
					return false, nil
				default:
					open = append(open, pair{name, has, want})
				}
			}
			differs, err := s.anyDiffers(ctx, open)
			return !differs, err
		}
		matches, err := same(slices.Sorted(maps.Keys(all)))
		if err != nil {
			return nil, false, err
		}
		if !matches {
			continue
		}
		if partly == nil {
			partly = v
		}
		names := append(s.now.Types(), v.Record.Types()...)
		slices.Sort(names)
		if whole, err := same(slices.Compact(names)); whole || err != nil {
			return v, whole, err
		}
	}
	return partly, false, nil
}

// pair are two releases of a cluster type.
type pair struct {
	clusterType string
	a, b        digest.Digest
}

// parallel is how many pairs of releases are read at once.
const parallel = 4

// anyDiffers reports whether the two releases of any pair differ in content. A release that is lost differs from all others.
func (s *search) anyDiffers(ctx context.Context, all []pair) (bool, error) {
	found := errors.New("these differ")
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, p := range all {
		if reading.Err() != nil {
			break
		}
		g.Go(func() error {
			a, err := s.at.ReleaseOf(reading, p.clusterType, p.a)
			if err == nil {
				var b *bundle.Verified
				if b, err = s.at.ReleaseOf(reading, p.clusterType, p.b); err == nil && a.Release.SameContent(b.Release) {
					return nil
				}
			}
			if err == nil || errors.As(err, new(*state.LostError)) {
				return found
			}
			return err
		})
	}
	err := g.Wait()
	if errors.Is(err, found) {
		return true, nil
	}
	if err == nil {
		err = ctx.Err() // then not all were read
	}
	return false, err
}
