package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle/show"
)

// expected lists what a stream needs as the list of contents has it, which nobody has signed: it is for refusing early.
// Unknown are manifests that are neither in the package nor in the store.
func (t *taking) expected(ctx context.Context, s *stream) (all, unknown []ocispec.Descriptor) {
	all = slices.Clone(s.blobs)
	if t.contents == nil {
		return all, nil
	}
	stored, _ := t.platformsOf(s)
	for _, a := range t.contents.Artifacts {
		if !slices.Contains(a.UsedBy, s.Name()) || a.Digest.Validate() != nil {
			continue
		}
		g, err := t.walk(ctx, a.Digest, stored)
		var missing *missingError
		switch {
		case errors.As(err, &missing):
			unknown = append(unknown, missing.Descriptor)
		case err == nil:
			all = append(all, g.All()...)
		} // else it is refused when the signed list asks for it
	}
	return all, unknown
}

// checkBases ends the streams that leave out what is not in the store.
func (t *taking) checkBases(ctx context.Context) {
	left := t.leftOut()
	if len(left) == 0 {
		return
	}
	for _, s := range t.left() {
		all, missing := t.expected(ctx, s)
		missing = slices.DeleteFunc(missing, func(d ocispec.Descriptor) bool { _, out := left[d.Digest]; return !out })
		for _, d := range all {
			if _, out := left[d.Digest]; out && !t.has(d) {
				missing = append(missing, d)
			}
		}
		if len(missing) > 0 {
			t.lacks(s, missing, sum(missing))
		}
	}
}

// leftOut has the blobs that the package says it leaves out.
func (t *taking) leftOut() map[digest.Digest]int64 {
	if t.contents == nil {
		return nil
	}
	all := map[digest.Digest]int64{}
	for _, b := range t.contents.LeftOut {
		all[b.Digest] = b.Size
	}
	return all
}

// lacks ends a stream of which content is neither in the package nor in the store.
func (t *taking) lacks(s *stream, missing []ocispec.Descriptor, bytes int64) {
	left := t.leftOut()
	out := slices.ContainsFunc(missing, func(d ocispec.Descriptor) bool { _, is := left[d.Digest]; return is })
	if !out {
		s.end(Refused, ReasonIncomplete, "the package lacks %s of release %s, %s: the first is %s", show.Count(len(missing), "blob"), s.Release, show.Size(bytes), missing[0].Digest)
		return
	}
	s.end(LacksBase, ReasonLacksBase, "%s first, or ask for a complete package: wherry airgap export --environment %s --cluster-type %s, without --since (%s, %s, missing)",
		t.buildsOn(s), s.Environment, s.ClusterType, show.Count(len(missing), "blob"), show.Size(bytes))
}

// buildsOn names the release on which a stream builds and that is not here, as far as it is known, and the medium that is needed.
func (t *taking) buildsOn(s *stream) string {
	base := ""
	for _, r := range t.contents.Releases {
		if r.Environment == s.Environment && r.ClusterType == s.ClusterType && r.BaseName != "" {
			base = "release " + show.Line(r.BaseName)
		}
	}
	switch {
	case base == "":
		return "builds on an earlier package that is not here: import that one"
	case s.here == "":
		return fmt.Sprintf("builds on %s, which is not here: import the medium with it", base)
	}
	return fmt.Sprintf("builds on %s, but release %s is here: import the medium with %s", base, s.here, base)
}

// missing lists what the store lacks of a stream.
func (t *taking) missing(s *stream) (all []ocispec.Descriptor, bytes int64) {
	for _, d := range s.blobs {
		if !t.has(d) {
			all = append(all, d)
		}
	}
	return all, sum(all)
}

func sum(all []ocispec.Descriptor) (n int64) {
	for _, d := range all {
		n += d.Size
	}
	return n
}

// has reports whether the store has a blob, going by its size.
func (k *Keeper) has(d ocispec.Descriptor) bool {
	here, err := k.blobs.Exists(context.Background(), d) // of the disk
	return here && err == nil
}

// once drops repeated descriptors.
func once(all []ocispec.Descriptor) (distinct []ocispec.Descriptor) {
	seen := map[digest.Digest]bool{}
	for _, d := range all {
		if !seen[d.Digest] {
			seen[d.Digest] = true
			distinct = append(distinct, d)
		}
	}
	return distinct
}

// admit ends the streams for which there is no room, by what the package says of itself.
func (t *taking) admit(ctx context.Context) error {
	needs := map[*stream][]ocispec.Descriptor{}
	for _, s := range t.left() {
		needs[s], _ = t.expected(ctx, s)
	}
	if err := t.forget(false); err != nil {
		return err
	}
	if t.fits(needs, false) {
		return nil
	}
	if err := t.forget(true); err != nil {
		return err
	}
	t.fits(needs, true)
	return nil
}

// fits reports whether there is room for all streams that are left, in their order. With end it ends those that do not
// fit.
func (t *taking) fits(needs map[*stream][]ocispec.Descriptor, end bool) bool {
	free, size, known := t.opts.Space(t.db.Dir())
	all, counted := true, map[digest.Digest]bool{}
	for _, s := range t.left() {
		need := once(needs[s])
		var missing int64
		for _, d := range need {
			if !counted[d.Digest] && !t.has(d) {
				missing += d.Size
			}
		}
		if why := t.tooMuch(s, sum(need), missing, free, size, known); why != "" {
			all = false
			if end {
				s.end(NoRoom, ReasonNoRoom, "%s", why)
			}
			continue
		}
		free -= missing
		for _, d := range need {
			counted[d.Digest] = true
		}
	}
	return all
}

// tooMuch says why there is no room for a stream of this many bytes, of which some are missing; empty if there is.
func (t *taking) tooMuch(s *stream, bytes, missing, free, size int64, known bool) string {
	reserve := int64(0)
	switch budget := t.opts.Budget; {
	case missing == 0:
		return ""
	case !s.Own && budget > 0 && bytes > budget:
		return fmt.Sprintf("it has %s, and the budget of a stream is %s: raise --import-budget", show.Size(bytes), show.Size(budget))
	case !s.Own && budget == 0:
		reserve = max(size/10, 1<<30)
	}
	switch {
	case !known || missing <= free-reserve:
		return ""
	case reserve == 0:
		return fmt.Sprintf("needs %s more, and %s of the disk are free: make room", show.Size(missing), show.Size(max(free, 0)))
	}
	return fmt.Sprintf("needs %s more, and %s of the disk are free, of which other cluster types leave %s: make room, or set --import-budget", show.Size(missing), show.Size(max(free, 0)), show.Size(reserve))
}

// forget drops what has arrived of earlier packages and will not be finished: what is superseded by this one, and what has
// waited too long; with all, whatever this package does not go on with. Then it is deleted.
func (t *taking) forget(all bool) error {
	offered := map[string]*stream{}
	for _, s := range t.left() {
		offered[state.OrderKey(s.place)] = s
	}
	now, dropped := t.opts.Now(), false
	err := t.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		var err error
		dropped, err = change(tx, func(key string, r *record) bool {
			a, s := r.Arriving, offered[key]
			if a == nil || s != nil && a.digest() == s.Digest || a.Whole {
				return false
			}
			if s == nil && !all && now.Sub(a.Since).Abs() <= patience {
				return false
			}
			r.Arriving = nil
			return true
		})
		return dropped, err
	})
	if err != nil || !dropped && !all {
		return err
	}
	t.changed = t.changed || dropped
	return t.opts.Prune() // with all also of what earlier packages have left, such as a release that a newer one has superseded
}

// missingError is the error of a manifest that is neither in the package nor in the store.
type missingError struct{ ocispec.Descriptor }

func (e *missingError) Error() string {
	return fmt.Sprintf("manifest %s is neither in the package nor in the store", e.Digest)
}
