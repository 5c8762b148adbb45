package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Kind says what a tag names.
type Kind int

// The kinds of tags. Foreign is what wherry does not write.
const (
	Foreign Kind = iota
	Own          // a release or record, for ever
	Pending      // a release or record that waits for signatures
	Moving       // the newest release or record for all, or for a ring
	Signature
	Decision
)

// Tag is what a tag says of itself.
type Tag struct {
	Kind Kind
	// Epoch and Sequence are those of an own or a pending tag.
	Epoch, Sequence int64
	// Subject is the manifest that a signature is for.
	Subject digest.Digest
}

const pendingPrefix = "pending-"

// ParseTag reads a tag.
func ParseTag(tag string) Tag {
	if tag == bundle.LatestTag || strings.HasPrefix(tag, bundle.RingTagPrefix) {
		return Tag{Kind: Moving}
	}
	if bundle.IsDecisionTag(tag) {
		return Tag{Kind: Decision}
	}
	if rest, ok := strings.CutPrefix(tag, "sha256-"); ok {
		hex, rest, ok := strings.Cut(rest, ".sig")
		d := digest.NewDigestFromEncoded(digest.SHA256, hex)
		if ok && d.Validate() == nil && (rest == "" || len(rest) == 17 && rest[0] == '-' && strings.Trim(rest[1:], "0123456789abcdef") == "") {
			return Tag{Kind: Signature, Subject: d}
		}
		return Tag{}
	}
	kind := Pending
	rest, ok := strings.CutPrefix(tag, pendingPrefix)
	if !ok {
		kind = Own
		rest, ok = strings.CutPrefix(tag, "s")
	}
	epoch, sequence, both := strings.Cut(rest, "-")
	if !ok || !both {
		return Tag{}
	}
	t := Tag{Kind: kind}
	var err, err2 error
	t.Epoch, err = strconv.ParseInt(epoch, 10, 64)
	t.Sequence, err2 = strconv.ParseInt(sequence, 10, 64)
	if err != nil || err2 != nil || tag != PendingTag(t.Epoch, t.Sequence) && tag != ReleaseTag(t.Epoch, t.Sequence) {
		return Tag{}
	}
	return t
}

func (t Tag) numbered() bool { return t.Kind == Own || t.Kind == Pending }

// Order returns the place that an own or a pending tag names.
func (t Tag) Order() bundle.Order { return bundle.Order{Epoch: t.Epoch, Sequence: t.Sequence} }

// PendingTag returns the tag under which a release or record of that place waits for signatures.
func PendingTag(epoch, sequence int64) string {
	return fmt.Sprintf("%s%d-%d", pendingPrefix, epoch, sequence)
}

// ReleaseTag returns the own tag of the release or record of that place.
func ReleaseTag(epoch, sequence int64) string {
	return bundle.Release{Epoch: epoch, Sequence: sequence}.Tag()
}

// Tags are the tags of a repository at one moment.
type Tags struct {
	// All are in the order in which the registry lists them.
	All []string
	// Moving maps the tags that move from release to release to their manifests; nil if they were only listed.
	Moving map[string]digest.Digest
}

// Tags lists the tags and resolves the moving ones.
func (r Repository) Tags(ctx context.Context) (Tags, error) { return ReadTags(ctx, r.Repo) }

// ReadTags lists the tags of a repository and resolves the moving ones.
func ReadTags(ctx context.Context, repo oci.Target) (t Tags, err error) {
	if t.All, err = repo.Tags(ctx); err != nil {
		return Tags{}, err
	}
	t.Moving = map[string]digest.Digest{}
	for _, tag := range t.All {
		if ParseTag(tag).Kind != Moving {
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
	tags := slices.Sorted(maps.Keys(t.Moving))
	return slices.DeleteFunc(tags, func(tag string) bool { return tag == bundle.LatestTag })
}

// MaxRefused is how many releases that are refused are passed over when the newest one that counts is looked for.
const MaxRefused = 32

// Releases returns the newest MaxRefused of the own tags, newest first.
func (t Tags) Releases() []string { return t.Newest(Own, MaxRefused) }

// Pending returns the newest MaxRefused of the pending tags, newest first.
func (t Tags) Pending() []string { return t.Newest(Pending, MaxRefused) }

// Newest returns at most that many of the newest own or pending tags, newest first.
func (t Tags) Newest(kind Kind, most int) []string {
	order := map[string]bundle.Order{}
	var found []string
	for _, tag := range t.All {
		if parsed := ParseTag(tag); parsed.Kind == kind {
			order[tag] = parsed.Order()
			found = append(found, tag)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(order[b].Compare(order[a]), cmp.Compare(a, b)) })
	return found[:min(len(found), most)]
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
