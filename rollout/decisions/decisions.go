// Package decisions keeps signed decisions about promotion in a registry, and says which of them count.
//
// [Write] signs a decision and puts it beside the records of its environment, under a tag of its signer and subject: a registry has
// no compare-and-swap, and nobody else writes that tag. A second tag, which is never moved, keeps it when a later one takes its
// place. [Read] returns the last ones of an environment, [ReadAbout] also those about the content of workloads that is open, and [ReadAll] all, verified by nobody yet. [Of], [Paused] and [List] judge them by the promotion policy and by the release keys in force.
//
// A decision cannot be forged, changed, or moved to another environment, commit or content. Whoever may write to the registry
// can delete one, and can bring an older one of the same person back: a hub that is asked as well remembers the newer one, and
// an approval that expires ends by itself.
package decisions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/releases"
)

const (
	// Max is how many decisions of one environment are read.
	Max = 1000
	// MaxKept is how many of one environment are read with those in whose place later ones are.
	MaxKept = 10 * Max
	// MaxContent is how many decisions of one environment about the content of workloads there may be, apart from all others.
	MaxContent = 10_000
	// MaxAhead is how far a decision's time of issue may be ahead of the reader's clock.
	MaxAhead = 10 * time.Minute
	// readers is how many decisions are read at a time.
	readers = 8
)

// ErrTooMany is wrapped by the error of Read if an environment has more than [Max] decisions, or more than [MaxContent] about content.
var ErrTooMany = errors.New("too many decisions")

// ErrNewer is wrapped by the error of Put if the same signer has decided later on the same subject.
var ErrNewer = errors.New("the same signer has decided later")

// Found is a decision as it was read. Nobody has verified it.
type Found struct {
	Envelope []byte
	// Tag is the tag that names it; empty for one from a hub.
	Tag string
	// Source is the location or the hub that has it, for people.
	Source string
}

// Written is what Write and Put did. Its JSON form is an interface.
type Written struct {
	Reference string           `json:"reference"`
	Decision  bundle.Decision  `json:"decision"`
	KeyID     string           `json:"keyId"`
	Result    releases.Outcome `json:"result"` // published, or unchanged if it is there already
	Replaced  *bundle.Decision `json:"replaced,omitempty"`
	Envelope  []byte           `json:"-"`
}

// Write signs d with key and puts it into its place at loc. Schema and, unless it is later than now, IssuedAt are set here; one
// second is added if the same signer has decided on the same subject in this second. To resume after somebody else's pause, set
// IssuedAt to a second after that of the pause: the newest counts.
func Write(ctx context.Context, loc oci.Location, opts oci.Options, d bundle.Decision, key signature.Signer, now time.Time) (*Written, error) {
	public, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	id, err := bundle.KeyID(public)
	if err != nil {
		return nil, err
	}
	e, err := open(loc, opts, d.Environment)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second)
	d.Schema = bundle.DecisionSchema
	if d.IssuedAt.Before(now) {
		d.IssuedAt = now
	}
	there, err := current(ctx, e, d.Tag(id), id)
	if err != nil {
		return nil, err
	}
	if there != nil && !d.IssuedAt.After(there.IssuedAt) {
		d.IssuedAt = there.IssuedAt.Add(time.Second)
	}
	if ahead := d.IssuedAt.Sub(now); ahead > MaxAhead {
		return nil, fmt.Errorf("the earlier decision was issued %s ahead of this clock: set the clock, or wait", ahead)
	}
	envelope, err := bundle.SealDecision(d, key)
	if err != nil {
		return nil, err
	}
	return put(ctx, e, envelope)
}

// open opens an environment, whose decisions nobody has verified.
func open(loc oci.Location, opts oci.Options, environment string) (published.Environment, error) {
	at, err := published.Open(loc, opts, published.AsItLies())
	if err != nil {
		return published.Environment{}, err
	}
	return at.Environment(environment)
}

// Put puts a decision that is signed already into its place at loc, such as one that a hub has signed. The error wraps [ErrNewer]
// if the place has a later one.
func Put(ctx context.Context, loc oci.Location, opts oci.Options, envelope []byte) (*Written, error) {
	d, _, err := bundle.ReadDecision(envelope)
	if err != nil {
		return nil, err
	}
	e, err := open(loc, opts, d.Environment)
	if err != nil {
		return nil, err
	}
	return put(ctx, e, envelope)
}

func put(ctx context.Context, e published.Environment, envelope []byte) (*Written, error) {
	d, id, err := bundle.ReadDecision(envelope)
	if err != nil {
		return nil, err
	}
	tag := d.Tag(id)
	done := &Written{
		Reference: e.String() + ":" + tag, Decision: d, KeyID: id, Result: releases.OutcomePublished, Envelope: envelope,
	}
	blobs, err := bundle.DecisionManifest(envelope)
	if err != nil {
		return nil, err
	}
	blobs, manifest := blobs[:len(blobs)-1], blobs[len(blobs)-1].WithData()
	kept := d.KeptTag(id, envelope)
	for try := 0; ; try++ {
		there, err := current(ctx, e, tag, id)
		switch {
		case err != nil:
			return nil, err
		case there != nil && bytes.Equal(there.Envelope, envelope):
			if try == 0 {
				done.Result = releases.OutcomeUnchanged
			}
			return done, nil
		case there != nil && !d.IssuedAt.After(there.IssuedAt):
			return nil, fmt.Errorf("%s: %w, at %s: %s", done.Reference, ErrNewer, there.IssuedAt.Format(time.RFC3339), there.Action)
		case try > releases.MaxRaces:
			return nil, fmt.Errorf("%s: %w", done.Reference, releases.ErrRace)
		case try == 0 && there != nil:
			done.Replaced = &there.Decision
		}
		for _, b := range blobs {
			if err := releases.PushBlob(ctx, e.Repo, b); err != nil {
				return nil, err
			}
		}
		if err := releases.PutTag(ctx, e.Repo, manifest, kept); err != nil && !errors.Is(err, releases.ErrRace) {
			return nil, err
		}
		// Another machine of the same person may write the same tag: look again, and let the later decision stand.
		if err := releases.PutTag(ctx, e.Repo, manifest, tag); err != nil && !errors.Is(err, releases.ErrRace) {
			return nil, err
		}
	}
}

// current returns the decision under a tag; nil where there is none, or one that is not of this place and signer, which may be
// overwritten.
func current(ctx context.Context, e published.Environment, tag, keyID string) (*published.UnverifiedDecision, error) {
	d, err := e.Decision(ctx, tag)
	if err != nil || d.KeyID != keyID || d.Tag(keyID) != tag {
		return nil, published.IgnoreRefused(err)
	}
	return &d, nil
}

// Read returns the decisions of an environment at loc but for those about the content of workloads, of each signer the last one on each
// subject, sorted by tag. One that is broken, or no decision, is passed over with a warning; nothing is verified. The error wraps
// [ErrTooMany] if there are more than [Max]. Warn may be nil.
func Read(ctx context.Context, loc oci.Location, opts oci.Options, environment string, warn func(format string, args ...any)) ([]Found, error) {
	return NewReader(loc, opts, environment, warn).read(ctx, false, nil)
}

// ReadAbout is Read for the environment of t's policy, with the decisions of those who may decide about these revisions of the environment
// from.
func ReadAbout(ctx context.Context, loc oci.Location, opts oci.Options, t Trust, from string, about []bundle.DecisionWorkload, warn func(format string, args ...any)) ([]Found, error) {
	return NewReader(loc, opts, t.Policy.Environment, warn).About(ctx, t, from, about)
}

// Reader reads the decisions of an environment as they are at one moment: it lists them once, and reads each once.
type Reader struct {
	loc         oci.Location
	opts        oci.Options
	environment string
	warn        func(format string, args ...any)

	listed []string
	known  map[string]*Found // by tag; nil for one that cannot be read
}

// NewReader returns a Reader of the environment at loc. Warn may be nil.
func NewReader(loc oci.Location, opts oci.Options, environment string, warn func(format string, args ...any)) *Reader {
	return &Reader{loc: loc, opts: opts, environment: environment, warn: warn, known: map[string]*Found{}}
}

// About is [ReadAbout] for the environment of r, which has to be that of t's policy.
func (r *Reader) About(ctx context.Context, t Trust, from string, about []bundle.DecisionWorkload) ([]Found, error) {
	if len(about) == 0 {
		return r.read(ctx, false, nil)
	}
	tags := t.contentTags(from, about)
	return r.read(ctx, false, func(tag string) bool { return tags[tag] })
}

// ReadAll is Read with all decisions about content, and those in whose place later ones are, each once. The latter are left out with a
// warning if there are more than [MaxKept], or more than [MaxContent] about content.
func ReadAll(ctx context.Context, loc oci.Location, opts oci.Options, environment string, warn func(format string, args ...any)) ([]Found, error) {
	found, err := NewReader(loc, opts, environment, warn).read(ctx, true, everything)
	// A decision in its place sorts before the same one under the tag that keeps it.
	seen := map[string]bool{}
	return slices.DeleteFunc(found, func(f Found) bool {
		again := bundle.IsKeptTag(f.Tag) && seen[string(f.Envelope)]
		seen[string(f.Envelope)] = true
		return again
	}), err
}

func everything(string) bool { return true }

// choose returns the tags of listed that are read; see read.
func choose(listed []string, all bool, about func(tag string) bool, warn func(format string, args ...any)) (chosen []string, _ error) {
	for _, group := range []struct {
		prefix       string
		max, maxKept int
		wants        func(tag string) bool
	}{{bundle.DecisionTagPrefix, Max, MaxKept, everything}, {bundle.ContentTagPrefix, MaxContent, MaxContent, about}} {
		if group.wants == nil {
			continue
		}
		var tags, kept []string
		for _, tag := range listed {
			switch {
			case !strings.HasPrefix(tag, group.prefix):
			case bundle.IsKeptTag(tag):
				kept = append(kept, tag)
			default:
				tags = append(tags, tag)
			}
		}
		switch {
		case len(tags) > group.max:
			return nil, fmt.Errorf("%w: %d under %s…, at most %d are read: delete old ones with wherry bundle gc", ErrTooMany, len(tags), group.prefix, group.max)
		case all && len(kept) <= group.maxKept:
			tags = append(tags, kept...)
		case all && warn != nil:
			warn("%d decisions under %s… are kept, so those in whose place later ones are are not read: delete old ones with wherry bundle gc", len(kept), group.prefix)
		}
		chosen = append(chosen, slices.DeleteFunc(tags, func(tag string) bool { return !group.wants(tag) })...)
	}
	return chosen, nil
}

// list lists the decisions, once.
func (r *Reader) list(ctx context.Context) (published.Environment, error) {
	e, err := open(r.loc, r.opts, r.environment)
	if err == nil && r.listed == nil {
		r.listed, err = e.Repo.Tags(ctx)
	}
	return e, err
}

// ContentTags returns the tags of all decisions about content, with those that keep them: each decision adds one.
func (r *Reader) ContentTags(ctx context.Context) ([]string, error) {
	_, err := r.list(ctx)
	var tags []string
	for _, tag := range r.listed {
		if strings.HasPrefix(tag, bundle.ContentTagPrefix) {
			tags = append(tags, tag)
		}
	}
	return tags, err
}

// read reads the decisions, those about content under tags for which about returns true, and those that are kept if all is true. About
// may be nil.
func (r *Reader) read(ctx context.Context, all bool, about func(tag string) bool) ([]Found, error) {
	e, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	tags, err := choose(r.listed, all, about, r.warn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, tag := range tags {
		mu.Lock()
		_, known := r.known[tag]
		mu.Unlock()
		if known {
			continue
		}
		g.Go(func() error {
			d, err := e.Decision(ctx, tag)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.known[tag] = &Found{d.Envelope, tag, r.loc.String()}
				return nil
			case errors.Is(err, errdef.ErrNotFound): // deleted meanwhile, or lost
			case published.IgnoreRefused(err) != nil:
				return err
			case r.warn != nil:
				r.warn("%s:%s is passed over: %v", e, tag, err)
			}
			r.known[tag] = nil
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := []Found{}
	for _, tag := range tags {
		if f := r.known[tag]; f != nil {
			found = append(found, *f)
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return cmp.Compare(a.Tag, b.Tag) })
	return found, nil
}
