package publisher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/publisher/state"
)

// ringContents compares what rings have according to records.
type ringContents struct {
	*state.Reader
	// made has the tree of each release that this run has made or found, by its manifest.
	made map[digest.Digest]digest.Digest
}

// same reports whether ring a of one record and ring b of another have the same content on all cluster types.
func (c *ringContents) same(ctx context.Context, one bundle.EnvironmentRecord, a string, other bundle.EnvironmentRecord, b string) (bool, error) {
	names := append(one.Types(), other.Types()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		here, there := one.ReleaseOf(name, a), other.ReleaseOf(name, b)
		if here == there {
			continue
		}
		if here == "" || there == "" {
			return false, nil
		}
		first, err := c.tree(ctx, name, here)
		if err != nil || first == "" {
			return false, err
		}
		if second, err := c.tree(ctx, name, there); err != nil || first != second {
			return false, err
		}
	}
	return true, nil
}

// tree returns the tree of a release; empty if it is lost.
func (c *ringContents) tree(ctx context.Context, clusterType string, d digest.Digest) (digest.Digest, error) {
	if tree := c.made[d]; tree != "" {
		return tree, nil
	}
	v, err := c.ReleaseOf(ctx, clusterType, d)
	if errors.As(err, new(*state.LostError)) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return v.Release.Content.DiffID, nil
}

// ledgerOf returns the ledger for the record next, whose rings have content that was published before: of another ring, or of the record
// that next goes back to. Rows are what this run did, and last is the ledger of the record that stands, or nil.
func (p *publication) ledgerOf(ctx context.Context, at state.Record, next bundle.EnvironmentRecord, rows []PublishedType, last *ledger.Ledger) (*ledger.Ledger, error) {
	now := at.Verified.Record
	contents := &ringContents{p.Reader, map[digest.Digest]digest.Digest{}}
	for _, row := range rows {
		for _, r := range row.Releases {
			contents.made[r.Digest] = r.content
		}
	}
	l, all, before := p.carriedOn(last, next.BaseCommit), newStays(last), newStays(last)
	if last != nil {
		l.Registrations = slices.Clone(last.Registrations)
	}
	var former *ledger.Ledger
	var formerRecord bundle.EnvironmentRecord
	if next.Former != "" && next.Former != now.Former {
		v, err := p.RecordAt(ctx, at, next.Former)
		if err == nil && v != nil {
			formerRecord = v.Record
			former, err = at.Ledger(ctx, v)
		}
		if err != nil && !errors.As(err, new(*bundle.Refusal)) {
			return nil, err
		}
	}
	rings := ringsOf(p.rings)
	for n, ring := range rings {
		is, err := contents.same(ctx, next, ring, now, ring)
		if is && err == nil {
			continue
		}
		if former != nil && err == nil {
			if is, err = contents.same(ctx, next, ring, formerRecord, ring); is && err == nil {
				all.takeRing(newStays(former), ring, ring)
				copyBatch(l, former, ring, ring)
				continue
			}
		}
		// The ring before comes first: that is where what is advanced comes from.
		for _, from := range append(slices.Clone(rings[max(n-1, 0):n]), rings...) {
			if is || err != nil {
				break
			}
			if is, err = contents.same(ctx, next, ring, now, from); is && err == nil {
				all.takeRing(before, from, ring)
				if last != nil {
					copyBatch(l, last, from, ring)
				}
			}
		}
		if err != nil {
			return nil, err
		}
		if !is {
			for _, row := range rows {
				all.setUnlike(ring, row.ClusterType)
			}
		}
	}
	if n := len(next.Undone); n > 0 && (len(now.Undone) == 0 || !next.Undone[n-1].At.Equal(now.Undone[len(now.Undone)-1].At)) {
		all.markUndone(l, before, rings, next.Undone[n-1])
	}
	all.addTo(l)
	return l, nil
}

// ledgerWith returns the ledger for the record next, in which rings have something else of one workload than in last, which may be nil.
func (p *publication) ledgerWith(part Part, next bundle.EnvironmentRecord, last *ledger.Ledger) *ledger.Ledger {
	l, all, before := p.carriedOn(last, next.BaseCommit), newStays(last), newStays(last)
	if last != nil {
		l.Registrations = slices.Clone(last.Registrations)
	}
	for ring, r := range part.Rings {
		stay := r.In[0]
		stay.Ring, stay.Since = ring, time.Time{}
		all.set(part.Key, r, stay)
	}
	for _, proof := range part.Proofs {
		is := func(p ledger.Proof) bool { return p.Revision == proof.Revision && p.Record == proof.Record }
		if known := all.proofs[part.Key]; len(known) < ledger.MaxProofs && !slices.ContainsFunc(known, is) {
			all.proofs[part.Key] = append(slices.Clone(known), proof)
		}
	}
	all.unmark(l, before, slices.Collect(maps.Keys(part.Rings)))
	l.Undone = append(l.Undone, part.Undone)
	all.addTo(l)
	return l
}

// unmark takes from l the marks of revisions that rings have and did not have before: a person has given them back.
func (all *stays) unmark(l *ledger.Ledger, before *stays, rings []string) {
	l.Undone = slices.DeleteFunc(slices.Clone(l.Undone), func(u ledger.Undone) bool {
		return slices.ContainsFunc(rings, func(ring string) bool {
			now, _ := all.of(u.Key, ring)
			was, _ := before.of(u.Key, ring)
			return now != nil && now.Revision == u.Revision && (was == nil || was.Revision != u.Revision)
		})
	})
}

// markUndone lists in l the revisions that rings had before and have no more.
func (all *stays) markUndone(l *ledger.Ledger, before *stays, rings []string, why bundle.Undone) {
	all.unmark(l, before, rings)
	marked := map[ledger.Key]bool{}
	for _, ring := range rings {
		for _, key := range before.in(ring) {
			was, stay := before.of(key, ring)
			if now, _ := all.of(key, ring); marked[key] || now != nil && now.Revision == was.Revision {
				continue
			}
			marked[key] = true
			l.Undone = append(l.Undone, ledger.Undone{Key: key, Reason: why.Reason, Version: was.Version, Revision: was.Revision, From: stay.From.Revision})
		}
	}
}
