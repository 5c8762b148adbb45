package publisher

import (
	"context"
	"fmt"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
)

// attempt pushes what the rings of pl are to have, or finds that it is there. The newest goes first, so that at
// each moment the newest release for a ring is the one that the ring is to have.
func (ps *pusher) attempt(ctx context.Context, pl *plan) (PublishedType, error) {
	row := pl.row
	all, err := ps.ringReleases(ctx, pl)
	if err != nil {
		return row, err
	}
	made, err := ps.releasesOf(pl, all)
	if err != nil {
		return row, err
	}
	row.Releases = nil
	for n, i := range slices.Backward(all) {
		done, err := ps.carryOut(ctx, pl, i, made[n])
		if err != nil {
			return row, err
		}
		if made[n] != nil {
			pl.All = append(pl.All, made[n].release.Tag())
		}
		row.Releases = append(row.Releases, done)
	}
	row.Releases = append(row.Releases, pl.lostReleases(row)...)
	return pl.sumUp(row), nil
}

// madeRelease is the release that is made for some rings: a pending one or a new one.
type madeRelease struct {
	release bundle.Release
	waiting *bundle.Verified
}

// releasesOf makes each release that is due, in rising order; nil for the others.
func (ps *pusher) releasesOf(pl *plan, all []*ringRelease) ([]*madeRelease, error) {
	made := make([]*madeRelease, len(all))
	known, last, numbered, anew := pl.Tags, pl.lastOf(ps.Trust.Epoch), pl.highestNumbered(), false
	known.All = slices.Clone(known.All)
	for n, i := range all {
		if !i.due() {
			continue
		}
		r, renewal := ps.releaseOf(pl, i), ps.renewal()
		if i.from != nil {
			renewal.message = "" // it keeps its own
		}
		if v := i.rings[0].Waiting; v != nil && !anew && renewal.waitsFor(v, r) {
			made[n] = &madeRelease{v.Release, v}
			continue
		}
		anew = anew || i.forAll()
		var err error
		if r.Sequence, err = known.Next(r.Epoch, last, ps.IssuedAt); err != nil {
			return nil, fmt.Errorf("%s: %w", pl.Name, err)
		}
		r.Number = bundle.NextNumber(numbered)
		last, numbered, known.All = r.Sequence, &bundle.Verified{Release: r}, append(known.All, r.Tag())
		made[n] = &madeRelease{release: r}
	}
	return made, nil
}

// lastOf is the highest sequence that releases have in an epoch, those that wait among them.
func (f found) lastOf(epoch int64) int64 {
	last := state.LastSequence(f.Verified, epoch)
	for _, l := range f.Rings {
		last = max(last, state.LastSequence(l.Release, epoch), state.LastSequence(l.Waiting, epoch))
	}
	return last
}

// highestNumbered returns the release of the highest number that is known, those that wait among them; nil where there is
// none.
func (f found) highestNumbered() *bundle.Verified {
	highest := f.Verified
	for _, l := range f.Rings {
		for _, v := range []*bundle.Verified{l.Release, l.Waiting} {
			if v != nil && (highest == nil || v.Release.Number > highest.Release.Number) {
				highest = v
			}
		}
	}
	return highest
}

// releaseOf returns the release document of i, without its sequence and number.
func (ps *pusher) releaseOf(pl *plan, i *ringRelease) bundle.Release {
	r := ps.plannedRelease(pl)
	if i.from != nil {
		from := i.from.Release
		r.BaseCommit, r.EnvironmentCommit, r.Content, r.Artifacts, r.Platforms = from.BaseCommit, from.EnvironmentCommit, from.Content, from.Artifacts, from.Platforms
		if pl.validFor == 0 {
			r.ExpiresAt = ps.IssuedAt.Add(from.ExpiresAt.Sub(from.IssuedAt))
		}
	}
	r.Rings = i.rings.Names()
	return r
}

// carryOut publishes a release that is due, or sees to it that one that stays has its tags.
func (ps *pusher) carryOut(ctx context.Context, pl *plan, i *ringRelease, made *madeRelease) (PublishedRelease, error) {
	done := i.published()
	if made == nil {
		moved, err := releases.Settle(ctx, pl.Repo, i.from.Descriptor, i.from.Release.Tag(), i.rings.MovingTags(), pl.Tags)
		if moved {
			done.Result = releases.OutcomePublished
		}
		if v := i.waiting; v != nil {
			done.Result, done.Sequence, done.Number, done.Digest = releases.OutcomePending, v.Release.Sequence, v.Release.Number, v.Descriptor.Digest
			done.Signatures = &SignatureCount{len(v.KeyIDs), ps.Trust.Need()}
		}
		return done, err
	}
	done.Renewed = i.why
	r := made.release
	out := outgoing{repo: pl.Repo, repository: r.Stream().Repository(), seen: pl.Tags, epoch: r.Epoch, sequence: r.Sequence, moving: i.rings.MovingTags()}
	if made.waiting != nil {
		out.waiting = &made.waiting.Descriptor
	}
	s, err := ps.put(ctx, out, func() (releases.Artifact, error) {
		m := ps.maker()
		if message := ps.messageOf(pl); message != "" && i.from == nil {
			m.origin[bundle.AnnotationMessage] = message
		}
		return m.bundle(ctx, pl, r, i.from)
	})
	done.Sequence, done.Number, done.Digest, done.content = r.Sequence, r.Number, s.digest, r.Content.DiffID
	done.Result, done.Signatures = s.result, s.signatures
	return done, err
}

// published describes i before anything was done about it.
func (i *ringRelease) published() PublishedRelease {
	done := PublishedRelease{Rings: []string{}, Result: releases.OutcomeUnchanged}
	for _, l := range i.rings {
		if l.Name == "" {
			done.Latest = true
		} else {
			done.Rings = append(done.Rings, l.Name)
		}
	}
	if i.from != nil {
		r := i.from.Release
		done.Sequence, done.Number, done.Digest, done.content = r.Sequence, r.Number, i.from.Descriptor.Digest, r.Content.DiffID
	}
	return done
}

// lostReleases returns the releases that are lost and that row does not list: the record goes on to name them until others
// take their place.
func (f found) lostReleases(row PublishedType) []PublishedRelease {
	var all []PublishedRelease
	for _, l := range f.Rings {
		if l.Release == nil && l.Recorded != "" && row.releaseOf(l.Name).Digest == "" {
			lost := (&ringRelease{rings: state.Rings{l}}).published()
			lost.Digest = l.Recorded
			all = append(all, lost)
		}
	}
	return all
}

// sumUp returns row with what became of its releases as a whole. Its own is that of the widest ring that was published to.
func (pl *plan) sumUp(row PublishedType) PublishedType {
	own := row.releaseOf(pl.base().Name)
	row.Sequence, row.Number, row.Digest, row.Result = own.Sequence, own.Number, own.Digest, own.Result
	row.Renewed, row.Signatures = own.Renewed, own.Signatures
	for _, r := range row.Releases {
		row.assigns = row.assigns || row.Assignments == 0 && pl.tree != nil && r.content != pl.tree.Content.DiffID
		switch {
		case r.Result == releases.OutcomePending && row.Result != releases.OutcomePending:
			row.Result, row.Signatures = releases.OutcomePending, r.Signatures
		case r.Result == releases.OutcomePublished && row.Result == releases.OutcomeUnchanged:
			row.Result = releases.OutcomePublished
		}
	}
	return row
}
