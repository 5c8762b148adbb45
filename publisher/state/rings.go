package state

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

// Ring is a ring of a cluster type, or latest, with the release that it has.
type Ring struct {
	Name string // empty for latest
	// Release is the newest that is trusted and for the ring; nil where there is none. See Type for Current and Taken.
	Release        *bundle.Verified
	Current, Taken bool
	// Waiting is the newest release for the ring that waits for signatures; nil where there is none.
	Waiting *bundle.Verified
	// Recorded is the release that the environment's record names for the ring; empty where it names none.
	Recorded digest.Digest
}

// IsFor reports whether a release is for the ring.
func (l *Ring) IsFor(r bundle.Release) bool {
	return len(r.Rings) == 0 || l.Name != "" && slices.Contains(r.Rings, l.Name)
}

// Rings are several of the rings of a cluster type, and latest.
type Rings []*Ring

// Names returns the rings that a release for these rings names, sorted: none where latest is among them.
func (rings Rings) Names() []string {
	var names []string
	for _, l := range rings {
		if l.Name == "" {
			return nil
		}
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

// MovingTags returns the moving tags of rings, latest last.
func (rings Rings) MovingTags() []string {
	var tags []string
	latest := false
	for _, l := range rings {
		if l.Name == "" {
			latest = true
		} else {
			tags = append(tags, bundle.MovingTag(l.Name))
		}
	}
	slices.Sort(tags)
	if latest {
		tags = append(tags, bundle.LatestTag)
	}
	return tags
}

// String names rings for people.
func (rings Rings) String() string {
	var names []string
	for _, l := range rings {
		if l.Name == "" {
			names = append(names, bundle.LatestTag)
		} else {
			names = append(names, l.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Newest returns the newest release that any of these rings has; nil where they have none.
func (rings Rings) Newest() *bundle.Verified {
	var newest *bundle.Verified
	for _, l := range rings {
		if l.Release != nil && (newest == nil || published.OrderOf(l.Release).Compare(published.OrderOf(newest)) > 0) {
			newest = l.Release
		}
	}
	return newest
}

// WithRings returns t with what each of the named rings has, narrowest first, and latest. Rings that only have a tag come
// first: they were given up, or were named when the platform named none. The record is the environment's. Where t has no
// Foreign, it gets the first moving tag of a release that is not trusted.
func (rd *Reader) WithRings(ctx context.Context, t Type, named []string, record Record) (Type, error) {
	var rings Rings
	for _, tag := range t.RingTags() {
		if ring := strings.TrimPrefix(tag, bundle.RingTagPrefix); !slices.Contains(named, ring) {
			rings = append(rings, &Ring{Name: ring})
		}
	}
	for _, ring := range named {
		rings = append(rings, &Ring{Name: ring})
	}
	t.Rings = append(rings, &Ring{})
	s := &ringSearch{Reader: rd, Type: t, record: record, seen: map[digest.Digest]bool{}}
	for _, step := range []func(context.Context) error{s.recorded, s.moving, s.tagged, s.taken, s.waiting} {
		if err := step(ctx); err != nil {
			return Type{}, err
		}
	}
	s.fillFresh()
	return s.Type, nil
}

// ringSearch looks for the releases of rings.
type ringSearch struct {
	*Reader
	Type
	record Record
	seen   map[digest.Digest]bool
	// floor is the newest release that the record names: older releases were known when the record was written.
	floor bundle.Order
}

// consider gives v to the rings that it is for and that have no newer release.
func (s *ringSearch) consider(v *bundle.Verified, current, taken bool) {
	for _, l := range s.Rings {
		if l.IsFor(v.Release) && (l.Release == nil || published.OrderOf(v).Compare(published.OrderOf(l.Release)) > 0) {
			l.Release, l.Current, l.Taken = v, current, taken
		}
	}
}

// verify returns the release that ref, a tag or a digest, names; nil where that is none of this stream that is trusted.
func (s *ringSearch) verify(ctx context.Context, ref string) (v *bundle.Verified, current bool, err error) {
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
func (s *ringSearch) recorded(ctx context.Context) error {
	if s.record.Verified == nil {
		return nil
	}
	for _, l := range s.Rings {
		l.Recorded = s.record.ReleaseOf(s.Stream.ClusterType, l.Name)
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
func (s *ringSearch) moving(ctx context.Context) error {
	for _, l := range s.Rings {
		d := s.Moving[bundle.MovingTag(l.Name)]
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
		} else if name := s.Type.String() + ":" + bundle.MovingTag(l.Name); s.Foreign == "" {
			s.Foreign = name
			s.Warn("%s is not a release %s", name, s.Trust.SignedText())
		}
	}
	return nil
}

// tagged considers the newest releases' own tags, as long as something newer can be among them.
func (s *ringSearch) tagged(ctx context.Context) error {
	open := slices.Clone(s.Rings)
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
			open = slices.DeleteFunc(open, func(l *Ring) bool { return l.IsFor(v.Release) })
		}
	}
	return nil
}

// taken finds out of which releases the own tag names another one.
func (s *ringSearch) taken(ctx context.Context) error {
	known := map[digest.Digest]bool{}
	for _, l := range s.Rings {
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
func (s *ringSearch) waiting(ctx context.Context) error {
	newer := func(v *bundle.Verified, l *Ring) bool {
		return l.IsFor(v.Release) && (l.Release == nil || published.OrderOf(v).Compare(published.OrderOf(l.Release)) > 0)
	}
	return s.eachPending(ctx, s.Type, func(v *bundle.Verified) bool {
		open := false
		for _, l := range s.Rings {
			if l.Waiting == nil && newer(v, l) {
				l.Waiting = v
			}
			open = open || l.Waiting == nil
		}
		return open
	})
}

// fillFresh gives rings that were never published to what the next wider ring has.
func (s *ringSearch) fillFresh() {
	for i := len(s.Rings) - 2; i >= 0; i-- {
		l, wider := s.Rings[i], s.Rings[i+1]
		_, tagged := s.Moving[bundle.MovingTag(l.Name)]
		if tagged || l.Recorded != "" || wider.Release == nil || l.Release != nil && len(l.Release.Release.Rings) > 0 {
			continue
		}
		l.Release, l.Current, l.Taken, l.Recorded = wider.Release, wider.Current, wider.Taken, wider.Recorded
	}
}
