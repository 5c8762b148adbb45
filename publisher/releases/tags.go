// Package releases reads and writes the releases and records of one repository of a registry or OCI layout.
//
// Publishing, copying and listing share it: [ReadTags] and the order of [Tags], [OpenTree] for the files of a release,
// [Settle] to make a pushed release visible. Registries have no compare-and-swap, so writers read the tags before and
// after a write: [ErrRace] means that another writer interfered, and that the caller has to plan anew, at most [MaxRaces]
// times. The package verifies no signature.
package releases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// maxUnverified is how many releases that this key did not sign are passed over when the last one that
// it signed is looked for.
const maxUnverified = 32

// Tags are the tags of a repository at one moment.
type Tags struct {
	// All are in the order in which the registry lists them.
	All []string
	// Moving maps the tags that move from release to release to their manifests.
	Moving map[string]digest.Digest
}

// ReadTags lists the tags of repo and resolves the moving ones.
func ReadTags(ctx context.Context, repo oci.Target) (Tags, error) {
	t := Tags{Moving: map[string]digest.Digest{}}
	var err error
	if t.All, err = repo.Tags(ctx); err != nil {
		return Tags{}, err
	}
	for _, tag := range t.All {
		if tag != bundle.LatestTag && !strings.HasPrefix(tag, bundle.RingTagPrefix) {
			continue
		}
		desc, err := repo.Resolve(ctx, tag)
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return Tags{}, err
		}
		t.Moving[tag] = desc.Digest
	}
	return t, nil
}

// RingTags returns the moving tags of rings, sorted.
func (t Tags) RingTags() []string {
	tags := slices.DeleteFunc(slices.Collect(maps.Keys(t.Moving)), func(tag string) bool { return tag == bundle.LatestTag })
	slices.Sort(tags)
	return tags
}

// Releases returns the newest of those tags that are releases' own, newest first.
func (t Tags) Releases() []string {
	return t.Newest(ReleaseFormat, maxUnverified)
}

// Pending returns the newest of those tags under which something waits for signatures, newest first.
func (t Tags) Pending() []string { return t.Newest(pendingFormat, maxUnverified) }

// Newest returns at most that many of the newest tags of that form, newest first.
func (t Tags) Newest(format string, most int) []string {
	type release struct {
		tag             string
		epoch, sequence int64
	}
	var found []release
	for _, tag := range t.All {
		r := release{tag: tag}
		if n, _ := fmt.Sscanf(tag, format, &r.epoch, &r.sequence); n == 2 && tag == fmt.Sprintf(format, r.epoch, r.sequence) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b release) int {
		return cmp.Or(cmp.Compare(b.epoch, a.epoch), cmp.Compare(b.sequence, a.sequence))
	})
	var newest []string
	for _, r := range found[:min(len(found), most)] {
		newest = append(newest, r.tag)
	}
	return newest
}

// Next returns the sequence after last. It rises by the clock as well, so that it also does where a
// registry's history is lost, and passes over tags that releases of other keys have taken.
func (t Tags) Next(epoch, last int64, issuedAt time.Time) (int64, error) {
	if last == bundle.MaxSequence {
		return 0, fmt.Errorf("the last release has the highest sequence, %d: a new epoch is needed (wherry trust rotate --raise-epoch)", last)
	}
	sequence := max(last+1, issuedAt.Unix(), 1)
	for sequence < bundle.MaxSequence && (slices.Contains(t.All, ReleaseTag(epoch, sequence)) || slices.Contains(t.All, PendingTag(epoch, sequence))) {
		sequence++
	}
	return sequence, nil
}

const (
	// ReleaseFormat is the form of releases' own tags; see bundle.Release.Tag.
	ReleaseFormat = "s%d-%d"
	// pendingFormat is the form of the tags under which releases and records wait for signatures.
	pendingFormat = "pending-%d-%d"
)

// PendingTag returns the tag under which a release or record of that place waits for signatures.
func PendingTag(epoch, sequence int64) string { return fmt.Sprintf(pendingFormat, epoch, sequence) }

// ReleaseTag returns the own tag of the release or record of that place.
func ReleaseTag(epoch, sequence int64) string {
	return bundle.Release{Epoch: epoch, Sequence: sequence}.Tag()
}

// PlaceOf reads the epoch and sequence that a tag names after prefix.
func PlaceOf(prefix, tag string) (o bundle.Order, ok bool) {
	rest, ok := strings.CutPrefix(tag, prefix)
	if !ok {
		return o, false
	}
	n, _ := fmt.Sscanf(rest, "%d-%d", &o.Epoch, &o.Sequence)
	return o, n == 2 && rest == fmt.Sprintf("%d-%d", o.Epoch, o.Sequence)
}
