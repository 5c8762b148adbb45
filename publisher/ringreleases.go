package publisher

import (
	"context"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/state"
)

// chooseAim returns those of all rings that a publication is for: the widest of the wanted rings and those before it, else
// the first. Rings are those that the platform names. The first publication of a cluster type, of which no release is
// recorded, is for all, since nothing runs there that a narrow ring would protect.
func chooseAim(all state.Rings, rings, wanted []string, recorded bool) state.Rings {
	latest := all[len(all)-1]
	unnamed := len(all) - 1 - len(rings)
	widest := 0
	for _, ring := range wanted {
		widest = max(widest, slices.Index(rings, ring))
	}
	if widest == len(rings)-1 || latest.Release == nil && !recorded {
		return all
	}
	return all[unnamed : unnamed+widest+1]
}

// base returns the widest ring that is published to: what fails is held from its release.
func (f found) base() *state.Ring { return f.aim[len(f.aim)-1] }

// hasRings reports whether the platform names rings, or did so for the newest release.
func (f found) hasRings() bool {
	return len(f.named) > 0 || f.Verified != nil && len(f.Verified.Release.Rings) > 0
}

// ringRelease is the release that some rings are to have: a new one, or the one that they have, renewed or as it is.
type ringRelease struct {
	rings state.Rings
	// from is the rings' release to keep or make anew; nil if the planned content replaces it.
	from           *bundle.Verified
	current, taken bool
	// why is the reason why from is made anew; empty if it stays.
	why string
	// other means that the rings get the content of from, which is another release than theirs.
	other bool
	// waiting is a release for these rings that others have yet to sign, and that this publication leaves alone; nil
	// if there is none.
	waiting *bundle.Verified
}

func (i *ringRelease) due() bool { return i.from == nil || i.why != "" }

// forAll reports whether agents of every ring may accept it.
func (i *ringRelease) forAll() bool { return len(i.rings.Names()) == 0 }

func (i *ringRelease) covers(l *state.Ring) bool { return slices.Contains(i.rings, l) }

// aimsAt reports whether a ring is published to.
func (f found) aimsAt(l *state.Ring) bool { return slices.Contains(f.aim, l) }

// ringReleases returns what the rings of pl are to have, each ring once, the oldest place first: a release that every ring
// may take comes before those of narrower rings.
func (ps *pusher) ringReleases(ctx context.Context, pl *plan) ([]*ringRelease, error) {
	all := pl.currentReleases(pl.content)
	if pl.tree != nil && slices.ContainsFunc(pl.aim, func(l *state.Ring) bool { return !pl.isOf(l.Release) }) {
		all = append(withoutRings(all, pl.aim), &ringRelease{rings: pl.aim})
	}
	all, pl.seen = pl.addContents(all), nil
	for _, i := range all {
		if err := ps.judge(ctx, pl, i); err != nil {
			return nil, err
		}
	}
	if pl.contents != nil {
		pl.keepOrder(all)
		return all, nil
	}
	slices.SortStableFunc(all, func(a, b *ringRelease) int {
		switch {
		case a.forAll() != b.forAll():
			if a.forAll() {
				return -1
			}
			return 1
		case a.from != nil && b.from != nil:
			return published.OrderOf(a.from).Compare(published.OrderOf(b.from))
		case a.from != nil:
			return -1
		}
		return 1
	})
	if len(all) > 0 && all[0].forAll() && all[0].due() {
		for _, i := range all[1:] {
			if i.from != nil && i.why == "" {
				i.why = "the release for all rings is made anew, and this one stays above it"
			}
		}
	}
	return all, nil
}

// currentReleases groups the rings by their release. C is the content planned for the rings to publish to.
func (f found) currentReleases(c content) []*ringRelease {
	var all []*ringRelease
	for _, l := range f.Rings {
		if l.Release == nil {
			continue
		}
		waiting := l.Waiting
		if f.aimsAt(l) && !c.isOf(waiting) {
			waiting = nil
		}
		at := slices.IndexFunc(all, func(i *ringRelease) bool {
			return i.from.Descriptor.Digest == l.Release.Descriptor.Digest && i.rings[0].IsFor(l.Release.Release) == l.IsFor(l.Release.Release) && sameRelease(i.waiting, waiting)
		})
		if at < 0 {
			all = append(all, &ringRelease{from: l.Release, current: l.Current, taken: l.Taken, waiting: waiting})
			at = len(all) - 1
		}
		all[at].rings = append(all[at].rings, l)
	}
	return all
}

func sameRelease(a, b *bundle.Verified) bool {
	return a == b || a != nil && b != nil && a.Descriptor.Digest == b.Descriptor.Digest
}

// withoutRings takes rings away from releases, and drops those that are left with none.
func withoutRings(all []*ringRelease, rings state.Rings) []*ringRelease {
	for _, i := range all {
		i.rings = slices.DeleteFunc(i.rings, func(l *state.Ring) bool { return slices.Contains(rings, l) })
	}
	return slices.DeleteFunc(all, func(i *ringRelease) bool { return len(i.rings) == 0 })
}

// judge sets the reason why a published release is made anew, if it is.
func (ps *pusher) judge(ctx context.Context, pl *plan, i *ringRelease) error {
	if i.from == nil {
		return nil
	}
	switch first := i.rings[0]; {
	case i.other:
	case !first.IsFor(i.from.Release):
		i.why = fmt.Sprintf("ring %s is new", first.Name)
	case i.taken:
		i.why = "another publisher took its tag"
	default:
		i.why = ps.renewal().why(i.from.Release, i.current)
	}
	for _, l := range i.rings {
		if v := l.Waiting; i.why == "" && v != nil && pl.aimsAt(l) {
			i.why = "release " + published.PendingTag(v.Release.Epoch, v.Release.Sequence) + " waits for signatures"
			if !pl.isOf(v) {
				i.why = "it takes the place of " + published.PendingTag(v.Release.Epoch, v.Release.Sequence)
			}
		}
	}
	there, err := pl.Repo.Exists(ctx, i.from.Tree)
	if there {
		pl.seen = append(pl.seen, i.from.Tree.Digest)
	}
	if err != nil || there {
		return err
	}
	if i.other && isPacked(i.from) {
		return nil
	}
	if i.other {
		return state.Lost("%s: the files of release %s are not there any more", pl.Name, i.from.Name())
	}
	if i.why == "" {
		i.why = "its files are not there any more"
	}
	if _, cached := pl.layerOf(i.from.Release.Content, ps.cache); !cached {
		i.why = "" // there is nothing to make it anew with
		ps.Warn("%s: the files of release %s, which %s has, are not there any more: publish to it anew", pl.Name, i.from.Name(), i.rings)
	}
	return nil
}
