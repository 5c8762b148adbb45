package publisher

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

// tags are a repository's.
type tags struct {
	all []string
	// moving maps those that move from release to release to what they point at.
	moving map[string]digest.Digest
}

func readTags(ctx context.Context, repo oci.Target) (tags, error) {
	t := tags{moving: map[string]digest.Digest{}}
	var err error
	if t.all, err = repo.Tags(ctx); err != nil {
		return tags{}, err
	}
	for _, tag := range t.all {
		if tag != bundle.LatestTag && !strings.HasPrefix(tag, bundle.RingTagPrefix) {
			continue
		}
		desc, err := repo.Resolve(ctx, tag)
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return tags{}, err
		}
		t.moving[tag] = desc.Digest
	}
	return t, nil
}

// ringTags returns the moving tags of rings, sorted.
func (t tags) ringTags() []string {
	tags := slices.DeleteFunc(slices.Collect(maps.Keys(t.moving)), func(tag string) bool { return tag == bundle.LatestTag })
	slices.Sort(tags)
	return tags
}

// releases returns the newest of those tags that are releases' own, newest first.
func (t tags) releases() []string {
	return t.newest(releaseFormat, maxUnverified)
}

// pending returns the newest of those tags under which something waits for signatures, newest first.
func (t tags) pending() []string { return t.newest(pendingFormat, maxUnverified) }

// newest returns at most that many of the newest tags of that form, newest first.
func (t tags) newest(format string, most int) []string {
	type release struct {
		tag             string
		epoch, sequence int64
	}
	var found []release
	for _, tag := range t.all {
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

// next returns the sequence after last. It rises by the clock as well, so that it also does where a
// registry's history is lost, and passes over tags that releases of other keys have taken.
func (t tags) next(epoch, last int64, issuedAt time.Time) (int64, error) {
	if last == bundle.MaxSequence {
		return 0, fmt.Errorf("the last release has the highest sequence, %d: a new epoch is needed (wherry trust rotate --raise-epoch)", last)
	}
	sequence := max(last+1, issuedAt.Unix(), 1)
	for sequence < bundle.MaxSequence && (slices.Contains(t.all, releaseTag(epoch, sequence)) || slices.Contains(t.all, pendingTag(epoch, sequence))) {
		sequence++
	}
	return sequence, nil
}

const (
	// releaseFormat is the form of releases' own tags; see bundle.Release.Tag.
	releaseFormat = "s%d-%d"
	// pendingFormat is the form of the tags under which releases and records wait for signatures.
	pendingFormat = "pending-%d-%d"
)

func pendingTag(epoch, sequence int64) string { return fmt.Sprintf(pendingFormat, epoch, sequence) }

func releaseTag(epoch, sequence int64) string {
	return bundle.Release{Epoch: epoch, Sequence: sequence}.Tag()
}
