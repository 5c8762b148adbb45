package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// ErrNothingPending means that nothing in an environment waits for signatures.
var ErrNothingPending = errors.New("nothing waits for signatures")

// PendingOptions holds what is not required. The zero value takes the newest record that waits.
type PendingOptions struct {
	// Tag names another record than the newest that waits, such as pending-1-1795262400.
	Tag string
	// OCI says how to talk to the registry.
	OCI oci.Options
	// Now is the clock. Nil is time.Now.
	Now func() time.Time
}

// Pending is what waits for signatures in an environment: a record, and the releases that it names. Its JSON
// form is an interface.
type Pending struct {
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	Epoch       int64  `json:"epoch"`
	BaseCommit  string `json:"baseCommit,omitempty"`
	// Need is how many release keys have to sign.
	Need int `json:"need"`
	// ClusterTypes lists all releases that the record names, and those of cluster types that leave the environment, by
	// cluster type and the newest first. Where the platform names rings, a cluster type may have several.
	ClusterTypes []PendingType `json:"clusterTypes"`
	// Record is the zero value, and not in JSON, where nothing waits.
	Record PendingRecord `json:"record,omitzero"`
	// Incomplete names the cluster types of which something is held, left out, dropped or not published.
	Incomplete []string `json:"incomplete,omitempty"`
	// Added reports whether Sign has added a signature.
	Added bool `json:"added"`
	// Warnings are about what was found at the location.
	Warnings []string `json:"warnings,omitempty"`

	p *publication
}

// PendingType is one cluster type of a Pending.
type PendingType struct {
	ClusterType string `json:"clusterType"`
	// Result is OutcomePending, OutcomeUnchanged where the release stands already, and OutcomePublished once
	// Sign has released it.
	Result    releases.Outcome `json:"result"`
	Sequence  int64            `json:"sequence"`
	Number    int64            `json:"number,omitempty"`
	Digest    digest.Digest    `json:"digest"`
	IssuedAt  time.Time        `json:"issuedAt"`
	ExpiresAt time.Time        `json:"expiresAt"`
	Rings     []string         `json:"rings,omitempty"`
	// Previous is the sequence of the release that stands, with which it is compared; 0 where there is none.
	Previous int64 `json:"previous,omitempty"`
	// PreviousNumber and PreviousDigest are that release's, too.
	PreviousNumber int64         `json:"previousNumber,omitempty"`
	PreviousDigest digest.Digest `json:"previousDigest,omitempty"`
	// Assignments counts those of the release. Added, Changed and Removed name those that differ, and Held those
	// whose content is of an earlier release.
	Assignments int      `json:"assignments"`
	Added       []string `json:"added,omitempty"`
	Changed     []string `json:"changed,omitempty"`
	Removed     []string `json:"removed,omitempty"`
	Held        []string `json:"held,omitempty"`
	// SignedBy lists the release keys that have signed it.
	SignedBy []trust.KeyName `json:"signedBy"`

	part pendingPart
}

// PendingRecord is the environment's record of a Pending.
type PendingRecord struct {
	Result   releases.Outcome `json:"result"`
	Sequence int64            `json:"sequence"`
	Digest   digest.Digest    `json:"digest"`
	IssuedAt time.Time        `json:"issuedAt"`
	SignedBy []trust.KeyName  `json:"signedBy"`
}

// pendingPart is what Sign needs of a cluster type.
type pendingPart struct {
	plan     *plan
	verified *bundle.Verified
	moving   []string // the tags that it moves
}

// OpenPending finds what waits for signatures in an environment, checks that it is meant for it and above what
// stands, reads it in full, and compares it with the releases that stand. It writes nothing. The error is a
// *bundle.Refusal where something that waits should not be signed, wraps ErrNothingPending where nothing waits,
// and is a *NoEnvironmentError where other environments alone are there.
func OpenPending(ctx context.Context, loc oci.Location, environment string, trust trust.Signers, opts PendingOptions) (*Pending, error) {
	p, err := newSigning(loc, environment, trust, opts)
	if err != nil {
		return nil, err
	}
	return p.openPending(ctx, opts.Tag)
}

// newSigning returns a publication that publishes nothing but what waits.
func newSigning(loc oci.Location, environment string, trust trust.Signers, opts PendingOptions) (*publication, error) {
	if err := oci.CheckName(environment); err != nil {
		return nil, usage.Errorf("environment: %w", err)
	}
	if !trust.Documented() {
		return nil, usage.Errorf("only a trust document asks for several signatures: give version 1 of it")
	}
	if opts.Tag != "" && len(releases.Tags{All: []string{opts.Tag}}.Pending()) == 0 {
		return nil, usage.Errorf("%q is not a tag of what waits, which is like %s", opts.Tag, releases.PendingTag(1, 1795262400))
	}
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	store, err := loc.Open(opts.OCI)
	if err != nil {
		return nil, err
	}
	done := &Published{Platform: trust.Document.Platform, Environment: environment}
	p := &publication{reader: newReader(loc, store, trust, now(), done), signer: signer{known: trust.Keys, location: loc}, done: done}
	return p, trust.Check(p.platform, p.issuedAt)
}

func (p *publication) openPending(ctx context.Context, tag string) (*Pending, error) {
	var err error
	if p.record, err = p.readRecord(ctx); err != nil {
		return nil, err
	}
	repo, err := p.recordRepository()
	if err != nil {
		return nil, err
	}
	record, err := p.chooseRecord(ctx, repo, tag)
	if err != nil {
		return nil, err
	}
	r := record.Record
	pending := &Pending{
		Platform: r.Platform, Environment: r.Environment, Epoch: r.Epoch, BaseCommit: r.BaseCommit, Need: p.trust.Need(), ClusterTypes: []PendingType{},
		Record:     PendingRecord{releases.OutcomePending, r.Sequence, record.Descriptor.Digest, r.IssuedAt, p.names(record.KeyIDs)},
		Incomplete: r.Incomplete, p: p,
	}
	names := r.Types()
	if p.record.verified != nil {
		names = append(names, p.record.verified.Record.Types()...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := pending.take(ctx, name, r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	pending.Warnings = p.done.Warnings
	return pending, nil
}

// chooseRecord returns the record that waits under tag, or the newest where that is empty.
func (p *publication) chooseRecord(ctx context.Context, repo oci.Target, tag string) (*bundle.VerifiedEnvironment, error) {
	if tag != "" {
		return p.recordThatWaits(ctx, repo, tag, p.record.verified)
	}
	v, err := p.pendingRecord(ctx, repo, p.record)
	if v == nil && err == nil {
		// One that was released, and whose moving tag was not written: whoever did it was cut off.
		if last := p.record.verified; last != nil && p.record.current && p.record.tags.Moving[bundle.LatestTag] != last.Descriptor.Digest {
			return last, nil
		}
		err = fmt.Errorf("%w in environment %s", ErrNothingPending, p.done.Environment)
		if len(p.record.tags.All) == 0 {
			err = p.nothingEver(ctx, err)
		}
	}
	return v, err
}

// nothingEver is the error where an environment has no record at all. A registry need not list what it has, or not
// to everybody.
func (rd *reader) nothingEver(ctx context.Context, err error) error {
	if repositories, unlisted := rd.store.Repositories(ctx); unlisted == nil {
		if lack := catalog.CheckEnvironment(rd.environment, rd.to, repositories); lack != nil {
			return lack
		}
	}
	return fmt.Errorf("%w: nothing was ever published there", err)
}

// take reads and judges the releases of one cluster type that the record r names, or, where that names none because
// the cluster type leaves the environment, the one that waits there.
func (e *Pending) take(ctx context.Context, name string, r bundle.EnvironmentRecord) error {
	p := e.p
	stream := bundle.Stream{Platform: e.Platform, Environment: e.Environment, ClusterType: name}
	if err := oci.CheckName(name); err != nil {
		return &bundle.Refusal{Reason: bundle.BadContent, Message: err.Error()}
	}
	repo, err := p.store.Repository(stream.Repository())
	if err != nil {
		return err
	}
	pl := &plan{repo: repo}
	pl.clusterType.Name = name
	if pl.standing, err = p.look(ctx, repo, stream); err != nil {
		return err
	}
	if rings := r.Rings[name]; len(rings) > 0 {
		return e.takeRings(ctx, pl, stream, r)
	}
	d := r.ClusterTypes[name]
	if d == "" && pl.standing.pending == nil {
		return nil // it has left
	} else if d == "" {
		d = pl.standing.pending.Descriptor.Digest
	}
	return e.takeRelease(ctx, pl, stream, d, pl.standing.verified, nil)
}

// takeRings takes the releases that the record r names for the rings of a cluster type, the newest first: each of them
// is compared with what the widest of its rings has.
func (e *Pending) takeRings(ctx context.Context, pl *plan, stream bundle.Stream, r bundle.EnvironmentRecord) error {
	name := stream.ClusterType
	named := slices.Sorted(maps.Keys(r.Rings[name]))
	var err error
	if pl.lanes, pl.standing.foreign, err = e.p.lookRings(ctx, pl.repo, stream, pl.standing, named, e.p.record.verified); err != nil {
		return err
	}
	first := len(e.ClusterTypes)
	for _, d := range r.ReleasesOf(name) {
		var lanes []*lane
		for _, l := range pl.lanes {
			if r.ReleaseOf(name, l.ring) == d {
				lanes = append(lanes, l)
			}
		}
		last := newestRelease(lanes)
		if slices.ContainsFunc(tagsOf(lanes), func(tag string) bool { return pl.standing.Moving[tag] == d }) {
			v, _, err := e.p.verifyRelease(ctx, pl.repo, d.String())
			if err != nil {
				return err
			}
			if v != nil {
				last = v // it stands, also where one for all rings has been released meanwhile
			}
		}
		if err := e.takeRelease(ctx, pl, stream, d, last, tagsOf(lanes)); err != nil {
			return err
		}
	}
	slices.SortFunc(e.ClusterTypes[first:], func(a, b PendingType) int { return orderOf(b.part.verified).Compare(orderOf(a.part.verified)) })
	return nil
}

// newestRelease returns the newest release that any of these lanes has; nil where they have none.
func newestRelease(lanes []*lane) *bundle.Verified {
	var newest *bundle.Verified
	for _, l := range lanes {
		if l.release != nil && (newest == nil || orderOf(l.release).Compare(orderOf(newest)) > 0) {
			newest = l.release
		}
	}
	return newest
}

// takeRelease takes the release with manifest d, which is to stand in the place of last and under the moving tags;
// without any these follow from the rings that it names.
func (e *Pending) takeRelease(ctx context.Context, pl *plan, stream bundle.Stream, d digest.Digest, last *bundle.Verified, moving []string) error {
	p, v, err := e.p, last, error(nil)
	row := PendingType{ClusterType: stream.ClusterType, Result: releases.OutcomePending}
	if last != nil && last.Descriptor.Digest == d {
		row.Result = releases.OutcomeUnchanged
	} else if v, err = p.releaseThatWaits(ctx, pl.repo, pl.standing.verified, stream, d, last); err != nil {
		return err
	}
	r := v.Release
	if moving == nil {
		moving = movingTags(r.Rings, pl.standing)
	}
	row.Sequence, row.Number, row.Digest, row.IssuedAt, row.ExpiresAt, row.Rings, row.SignedBy = r.Sequence, r.Number, d, r.IssuedAt, r.ExpiresAt, r.Rings, p.names(v.KeyIDs)
	if row.Result == releases.OutcomePending {
		if last != nil {
			row.Previous, row.PreviousNumber, row.PreviousDigest = last.Release.Sequence, last.Release.Number, last.Descriptor.Digest
		}
		err = row.compare(ctx, pl.repo, v, last)
	}
	row.part = pendingPart{pl, v, moving}
	e.ClusterTypes = append(e.ClusterTypes, row)
	return err
}

// releaseThatWaits returns the release with manifest d, if it may be signed and stand in the place of last. Newest is the
// newest release of the stream that stands; both may be nil.
func (rd *reader) releaseThatWaits(ctx context.Context, repo oci.Target, newest *bundle.Verified, stream bundle.Stream, d digest.Digest, last *bundle.Verified) (*bundle.Verified, error) {
	desc, err := repo.Resolve(ctx, d.String())
	if err != nil {
		return nil, err
	}
	v, err := bundle.Verify(ctx, repo, desc, rd.trust.AnyKey())
	if err != nil {
		return nil, err
	}
	if err := releases.CheckLayers(v.Manifest); err != nil {
		return nil, err
	}
	r := v.Release
	expect := bundle.Expect{Stream: stream, Epoch: rd.trust.Epoch, Now: rd.issuedAt}
	if last != nil {
		expect.Highest = orderOf(last)
	}
	if len(r.Rings) > 0 {
		expect.Ring = r.Rings[0] // it is no ring's agent that asks
	}
	if err := expect.Check(r, d); err != nil {
		return nil, err
	}
	if !credible(orderOf(v), lastSequence(newest, r.Epoch), rd.issuedAt) {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("release %s was issued at %s: no publisher numbers like that",
			r.Tag(), r.IssuedAt.Format(time.RFC3339))}
	}
	return v, nil
}

// compare reads all of v, and says how its assignments differ from those of the release that stands.
func (t *PendingType) compare(ctx context.Context, repo oci.Target, v, last *bundle.Verified) error {
	now, err := releases.ReadTree(ctx, repo, v.Tree, v.Release.Content)
	if err != nil {
		return err
	}
	before := map[string]bundle.Assignment{}
	if last != nil {
		list, err := releases.ReadTree(ctx, repo, last.Tree, last.Release.Content)
		if err != nil {
			return fmt.Errorf("release %s, which stands: %w", last.Name(), err)
		}
		for _, a := range list {
			before[a.Name] = a
		}
	}
	t.Assignments = len(now)
	for _, a := range now {
		old, had := before[a.Name]
		switch {
		case !had:
			t.Added = append(t.Added, a.Name)
		case !reflect.DeepEqual(old, a):
			t.Changed = append(t.Changed, a.Name)
		}
		if a.HeldFrom != nil {
			t.Held = append(t.Held, a.Name)
		}
		delete(before, a.Name)
	}
	t.Removed = slices.Sorted(maps.Keys(before))
	return nil
}

// names lists release keys by their ids.
func (rd *reader) names(ids []string) []trust.KeyName {
	return slices.DeleteFunc(trust.NamesOf(rd.trust.Document.Release.Keys), func(k trust.KeyName) bool { return !slices.Contains(ids, k.ID) })
}
