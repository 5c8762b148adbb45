package standing

import (
	"context"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// Each ring that a platform names has the newest release that is for it, and so has latest, which the last ring
// shares. A platform without rings has latest alone. A publication makes one release for the rings that it is for, and renews what the others have. As long
// as every release moves the tags of all rings that it names, and one that is renewed for all is followed by those of
// narrower rings, the newest release for a ring is the one that its tag should name: whoever was cut off is put right by
// the next publication.

// Lane is a ring, or latest, and the release that it has.
type Lane struct {
	Ring string // empty for latest
	// Release is the newest that is trusted and for the ring; nil where there is none. See Type for Current and Taken.
	Release        *bundle.Verified
	Current, Taken bool
	// Waiting is the newest release for the ring that waits for signatures; nil where there is none.
	Waiting *bundle.Verified
	// Recorded is the release that the environment's record names for the ring; empty where it names none.
	Recorded digest.Digest
}

// IsFor reports whether a release is for the ring.
func (l *Lane) IsFor(r bundle.Release) bool {
	return len(r.Rings) == 0 || l.Ring != "" && slices.Contains(r.Rings, l.Ring)
}

// Lanes are several of the rings of a cluster type, and latest.
type Lanes []*Lane

// Rings returns the rings that a release for these lanes names, sorted: none where latest is among them.
func (lanes Lanes) Rings() []string {
	var rings []string
	for _, l := range lanes {
		if l.Ring == "" {
			return nil
		}
		rings = append(rings, l.Ring)
	}
	slices.Sort(rings)
	return rings
}

// MovingTags returns the moving tags of lanes, latest last.
func (lanes Lanes) MovingTags() []string {
	var tags []string
	latest := false
	for _, l := range lanes {
		if l.Ring == "" {
			latest = true
		} else {
			tags = append(tags, bundle.MovingTag(l.Ring))
		}
	}
	slices.Sort(tags)
	if latest {
		tags = append(tags, bundle.LatestTag)
	}
	return tags
}

// String names lanes for people.
func (lanes Lanes) String() string {
	var names []string
	for _, l := range lanes {
		if l.Ring == "" {
			names = append(names, bundle.LatestTag)
		} else {
			names = append(names, l.Ring)
		}
	}
	return strings.Join(names, ", ")
}

// Newest returns the newest release that any of these lanes has; nil where they have none.
func (lanes Lanes) Newest() *bundle.Verified {
	var newest *bundle.Verified
	for _, l := range lanes {
		if l.Release != nil && (newest == nil || published.OrderOf(l.Release).Compare(published.OrderOf(newest)) > 0) {
			newest = l.Release
		}
	}
	return newest
}

// Rings returns t with what each of the named rings has, narrowest first, and latest. Rings that only have a tag come
// first: they were given up, or were named when the platform named none. The record is the environment's. Where t has no
// Foreign, it gets the first moving tag of a release that is not trusted.
func (rd *Reader) Rings(ctx context.Context, t Type, named []string, record Record) (Type, error) {
	var lanes Lanes
	for _, tag := range t.RingTags() {
		if ring := strings.TrimPrefix(tag, bundle.RingTagPrefix); !slices.Contains(named, ring) {
			lanes = append(lanes, &Lane{Ring: ring})
		}
	}
	for _, ring := range named {
		lanes = append(lanes, &Lane{Ring: ring})
	}
	t.Lanes = append(lanes, &Lane{})
	s := &laneSearch{Reader: rd, Type: t, record: record, seen: map[digest.Digest]bool{}}
	for _, step := range []func(context.Context) error{s.recorded, s.moving, s.tagged, s.taken, s.waiting} {
		if err := step(ctx); err != nil {
			return Type{}, err
		}
	}
	s.fillFresh()
	return s.Type, nil
}

// laneSearch looks for the releases of lanes.
type laneSearch struct {
	*Reader
	Type
	record Record
	seen   map[digest.Digest]bool
	// floor is the newest release that the record names: older releases were known when the record was written.
	floor bundle.Order
}

// consider gives v to the lanes that it is for and that have no newer release.
func (s *laneSearch) consider(v *bundle.Verified, current, taken bool) {
	for _, l := range s.Lanes {
		if l.IsFor(v.Release) && (l.Release == nil || published.OrderOf(v).Compare(published.OrderOf(l.Release)) > 0) {
			l.Release, l.Current, l.Taken = v, current, taken
		}
	}
}

// verify returns the release that ref, a tag or a digest, names; nil where that is none of this stream that is trusted.
func (s *laneSearch) verify(ctx context.Context, ref string) (v *bundle.Verified, current bool, err error) {
	if last := s.Verified; last != nil && (ref == last.Descriptor.Digest.String() || ref == last.Release.Tag() && !s.Taken) {
		return last, s.Current, nil
	}
	v, current, err = s.Type.Release(ctx, ref)
	if v == nil || v.Release.Stream() != s.Stream {
		return nil, false, err
	}
	return v, current, err
}

// recorded considers the releases in the environment's record.
func (s *laneSearch) recorded(ctx context.Context) error {
	if s.record.Verified == nil {
		return nil
	}
	for _, l := range s.Lanes {
		l.Recorded = s.record.ReleaseOf(s.Stream.ClusterType, l.Ring)
	}
	for _, d := range s.record.Verified.Record.ReleasesOf(s.Stream.ClusterType) {
		s.seen[d] = true
		v, current, err := s.verify(ctx, d.String())
		if err != nil {
			return err
		}
		if v != nil {
			s.consider(v, current, v != s.Verified || s.Taken) // until its own tag was looked at, which Type has done for the newest
			if o := published.OrderOf(v); o.Compare(s.floor) > 0 {
				s.floor = o
			}
		}
	}
	return nil
}

// moving considers the releases under the moving tags.
func (s *laneSearch) moving(ctx context.Context) error {
	for _, l := range s.Lanes {
		d := s.Moving[bundle.MovingTag(l.Ring)]
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
		} else if name := s.Type.String() + ":" + bundle.MovingTag(l.Ring); s.Foreign == "" {
			s.Foreign = name
			s.Warn("%s is not a release %s", name, s.Trust.SignedText())
		}
	}
	return nil
}

// tagged considers the newest releases' own tags, as long as something newer can be among them.
func (s *laneSearch) tagged(ctx context.Context) error {
	open := slices.Clone(s.Lanes)
	for _, tag := range s.Releases() {
		if place := published.ParseTag(tag); len(open) == 0 || place.Epoch < s.floor.Epoch || place.Epoch == s.floor.Epoch && place.Sequence <= s.floor.Sequence {
			return nil
		}
		v, current, err := s.verify(ctx, tag)
		if err != nil {
			return err
		}
		if v != nil {
			s.consider(v, current, false)
			open = slices.DeleteFunc(open, func(l *Lane) bool { return l.IsFor(v.Release) })
		}
	}
	return nil
}

// taken finds out of which releases the own tag names another one.
func (s *laneSearch) taken(ctx context.Context) error {
	known := map[digest.Digest]bool{}
	for _, l := range s.Lanes {
		if !l.Taken {
			continue
		}
		d := l.Release.Descriptor.Digest
		taken, asked := known[d]
		if tag := l.Release.Release.Tag(); !asked && slices.Contains(s.All, tag) {
			now, err := releases.Current(ctx, s.Repo, tag)
			if err != nil {
				return err
			}
			taken = now != "" && now != d
		}
		l.Taken, known[d] = taken, taken
	}
	return nil
}

// waiting finds the newest release for each ring that waits for signatures.
func (s *laneSearch) waiting(ctx context.Context) error {
	newer := func(v *bundle.Verified, l *Lane) bool {
		return l.IsFor(v.Release) && (l.Release == nil || published.OrderOf(v).Compare(published.OrderOf(l.Release)) > 0)
	}
	return s.eachPending(ctx, s.Type, func(v *bundle.Verified) bool {
		open := false
		for _, l := range s.Lanes {
			if l.Waiting == nil && newer(v, l) {
				l.Waiting = v
			}
			open = open || l.Waiting == nil
		}
		return open
	})
}

// fillFresh gives rings that were never published to what the next wider ring has.
func (s *laneSearch) fillFresh() {
	for i := len(s.Lanes) - 2; i >= 0; i-- {
		l, wider := s.Lanes[i], s.Lanes[i+1]
		_, tagged := s.Moving[bundle.MovingTag(l.Ring)]
		if tagged || l.Recorded != "" || wider.Release == nil || l.Release != nil && len(l.Release.Release.Rings) > 0 {
			continue
		}
		l.Release, l.Current, l.Taken, l.Recorded = wider.Release, wider.Current, wider.Taken, wider.Recorded
	}
}
