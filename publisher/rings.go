package publisher

import (
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Where a platform names its rings, each of them has the newest release that is for it, and so has latest, which the
// last ring shares. A publication makes one release for the rings that it is for, and renews what the others have; see
// issues. As long as every release moves the tags of all rings that it names, and one that is renewed for all is
// followed by those of narrower rings, the newest release for a ring is the one that its tag should name: whoever was
// cut off is put right by the next publication.

// lane is a ring, or latest, and the release that it has.
type lane struct {
	ring string // empty for latest
	// release is the newest of ours that is for the ring; nil where there is none. See standing for current and taken.
	release        *bundle.Verified
	current, taken bool
	// waiting is the newest release for the ring that waits for signatures; nil where there is none.
	waiting *bundle.Verified
	// recorded is what the environment's record says that the ring has; empty where it does not.
	recorded digest.Digest
}

// isFor reports whether a release is for the ring.
func (l *lane) isFor(r bundle.Release) bool {
	return len(r.Rings) == 0 || l.ring != "" && slices.Contains(r.Rings, l.ring)
}

// suggestRing makes an error of the rings that the platform does not name.
func suggestRing(wanted, named []string) error {
	for _, ring := range wanted {
		if len(named) > 0 && !slices.Contains(named, ring) {
			return usage.Errorf("unknown ring %q (known: %s)", ring, strings.Join(named, ", "))
		}
	}
	return nil
}

// ringsOf returns the rings that a release for these lanes names: none where latest is among them.
func ringsOf(lanes []*lane) []string {
	var rings []string
	for _, l := range lanes {
		if l.ring == "" {
			return nil
		}
		rings = append(rings, l.ring)
	}
	slices.Sort(rings)
	return rings
}

// tagsOf returns the moving tags of lanes, latest last.
func tagsOf(lanes []*lane) []string {
	var tags []string
	latest := false
	for _, l := range lanes {
		if l.ring == "" {
			latest = true
		} else {
			tags = append(tags, bundle.MovingTag(l.ring))
		}
	}
	slices.Sort(tags)
	if latest {
		tags = append(tags, bundle.LatestTag)
	}
	return tags
}

// lookRings returns what each of the named rings has, narrowest first, and latest, where at is what their repository holds
// and record, which may be nil, the environment's. Rings that only have a tag come first: they were given up, or were
// named when the platform named none. Foreign is at's, or else the first moving tag of what is not trusted.
func (rd *reader) lookRings(ctx context.Context, repo oci.Target, stream bundle.Stream, at standing, named []string, record *bundle.VerifiedEnvironment) (lanes []*lane, foreign string, err error) {
	for _, tag := range at.RingTags() {
		if ring := strings.TrimPrefix(tag, bundle.RingTagPrefix); !slices.Contains(named, ring) {
			lanes = append(lanes, &lane{ring: ring})
		}
	}
	for _, ring := range named {
		lanes = append(lanes, &lane{ring: ring})
	}
	lanes = append(lanes, &lane{})
	s := &laneSearch{reader: rd, repo: repo, stream: stream, at: at, record: record, lanes: lanes, seen: map[digest.Digest]bool{}}
	for _, step := range []func(context.Context) error{s.recorded, s.moving, s.tagged, s.taken, s.waiting} {
		if err := step(ctx); err != nil {
			return nil, "", err
		}
	}
	s.fillFresh()
	return lanes, s.at.foreign, nil
}

// laneSearch looks for the releases of lanes.
type laneSearch struct {
	*reader
	repo   oci.Target
	at     standing
	record *bundle.VerifiedEnvironment
	lanes  []*lane
	stream bundle.Stream
	seen   map[digest.Digest]bool
	// floor is the newest release that the record names: what is older was known when that was written.
	floor bundle.Order
}

// consider gives v to the lanes that it is for and that have nothing newer.
func (s *laneSearch) consider(v *bundle.Verified, current, taken bool) {
	for _, l := range s.lanes {
		if l.isFor(v.Release) && (l.release == nil || orderOf(v).Compare(orderOf(l.release)) > 0) {
			l.release, l.current, l.taken = v, current, taken
		}
	}
}

// verify returns the release that ref, a tag or a digest, names; nil where that is none of this stream that is trusted.
func (s *laneSearch) verify(ctx context.Context, ref string) (v *bundle.Verified, current bool, err error) {
	if last := s.at.verified; last != nil && (ref == last.Descriptor.Digest.String() || ref == last.Release.Tag() && !s.at.taken) {
		return last, s.at.current, nil
	}
	v, current, err = s.verifyRelease(ctx, s.repo, ref)
	if v == nil || v.Release.Stream() != s.stream || v.Release.Epoch > s.trust.Epoch {
		return nil, false, err
	}
	return v, current, err
}

// recorded considers what the environment's record names.
func (s *laneSearch) recorded(ctx context.Context) error {
	if s.record == nil {
		return nil
	}
	for _, l := range s.lanes {
		l.recorded = s.record.Record.ReleaseOf(s.stream.ClusterType, l.ring)
	}
	for _, d := range s.record.Record.ReleasesOf(s.stream.ClusterType) {
		s.seen[d] = true
		v, current, err := s.verify(ctx, d.String())
		if err != nil {
			return err
		}
		if v != nil {
			s.consider(v, current, true) // until its own tag was looked at
			if o := orderOf(v); o.Compare(s.floor) > 0 {
				s.floor = o
			}
		}
	}
	return nil
}

// moving considers what the moving tags name.
func (s *laneSearch) moving(ctx context.Context) error {
	for _, l := range s.lanes {
		d := s.at.Moving[bundle.MovingTag(l.ring)]
		if d == "" || s.seen[d] {
			continue
		}
		s.seen[d] = true
		v, current, err := s.verify(ctx, d.String())
		if err != nil {
			return err
		}
		if v != nil {
			s.consider(v, current, true)
		} else if name := s.to.Name(s.stream.Repository()) + ":" + bundle.MovingTag(l.ring); s.at.foreign == "" {
			s.at.foreign = name
			s.warn("%s is not a release %s", name, s.trust.SignedText())
		}
	}
	return nil
}

// tagged considers the newest releases' own tags, as long as something newer can be among them.
func (s *laneSearch) tagged(ctx context.Context) error {
	open := slices.Clone(s.lanes)
	for _, tag := range s.at.Releases() {
		if place, _ := releases.PlaceOf("s", tag); len(open) == 0 || place.Epoch < s.floor.Epoch || place.Epoch == s.floor.Epoch && place.Sequence <= s.floor.Sequence {
			return nil
		}
		v, current, err := s.verify(ctx, tag)
		if err != nil {
			return err
		}
		if v != nil && v.Release.Tag() == tag {
			s.consider(v, current, false)
			open = slices.DeleteFunc(open, func(l *lane) bool { return l.isFor(v.Release) })
		}
	}
	return nil
}

// taken finds out of which releases the own tag names another one.
func (s *laneSearch) taken(ctx context.Context) error {
	known := map[digest.Digest]bool{}
	for _, l := range s.lanes {
		if !l.taken {
			continue
		}
		d := l.release.Descriptor.Digest
		taken, asked := known[d]
		if tag := l.release.Release.Tag(); !asked && slices.Contains(s.at.All, tag) {
			now, err := releases.Current(ctx, s.repo, tag)
			if err != nil {
				return err
			}
			taken = now != "" && now != d
		}
		l.taken, known[d] = taken, taken
	}
	return nil
}

// waiting finds the newest release for each ring that waits for signatures.
func (s *laneSearch) waiting(ctx context.Context) error {
	newer := func(v *bundle.Verified, l *lane) bool {
		return l.isFor(v.Release) && (l.release == nil || orderOf(v).Compare(orderOf(l.release)) > 0)
	}
	return s.eachPending(ctx, s.repo, s.at, s.stream, func(v *bundle.Verified) bool {
		open := false
		for _, l := range s.lanes {
			if l.waiting == nil && newer(v, l) {
				l.waiting = v
			}
			open = open || l.waiting == nil
		}
		return open
	})
}

// fillFresh gives rings that were never published to what the next wider ring has.
func (s *laneSearch) fillFresh() {
	for i := len(s.lanes) - 2; i >= 0; i-- {
		l, wider := s.lanes[i], s.lanes[i+1]
		_, tagged := s.at.Moving[bundle.MovingTag(l.ring)]
		if tagged || l.recorded != "" || wider.release == nil || l.release != nil && len(l.release.Release.Rings) > 0 {
			continue
		}
		l.release, l.current, l.taken, l.recorded = wider.release, wider.current, wider.taken, wider.recorded
	}
}
