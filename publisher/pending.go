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
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// ErrNothingPending means that nothing in an environment waits for signatures.
var ErrNothingPending = errors.New("nothing waits for signatures")

// PendingOptions are the optional parts of OpenPending. The zero value takes the newest pending record.
type PendingOptions struct {
	// Tag names a record other than the newest pending one, such as pending-1-1795262400.
	Tag string
	// OCI configures the access to the registry.
	OCI oci.Options
	// Now is the clock. Nil is time.Now.
	Now func() time.Time
}

// Pending is a record of an environment that waits for signatures, with the releases that it names. Its JSON
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
	// Warnings are about the content at the location.
	Warnings []string `json:"warnings,omitempty"`

	at     state.Reader
	record state.Record // the one that stands
}

// PendingType is one cluster type of a Pending.
type PendingType struct {
	ClusterType string `json:"clusterType"`
	// Result is OutcomePending, OutcomeUnchanged if the release is published already, and OutcomePublished once
	// Sign has released it.
	Result    releases.Outcome `json:"result"`
	Sequence  int64            `json:"sequence"`
	Number    int64            `json:"number,omitempty"`
	Digest    digest.Digest    `json:"digest"`
	IssuedAt  time.Time        `json:"issuedAt"`
	ExpiresAt time.Time        `json:"expiresAt"`
	Rings     []string         `json:"rings,omitempty"`
	// Message is that of the publication; see bundle.CheckMessage.
	Message string `json:"message,omitempty"`
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
	// SiteValues lists the site values that differ; nil if none do.
	SiteValues *diff.SitesDifference `json:"siteValues,omitempty"`
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

// pendingPart is a release of a Pending as Sign needs it.
type pendingPart struct {
	at       *state.Type
	verified *bundle.Verified
	moving   []string // the tags that it moves
}

// OpenPending finds what waits for signatures in an environment, checks that it is meant for it and above what
// stands, reads it in full, and compares it with the releases that stand. It writes nothing. The error is a
// *bundle.Refusal where something that waits should not be signed, wraps ErrNothingPending where nothing waits,
// and is a *NoEnvironmentError where other environments alone are there.
func OpenPending(ctx context.Context, loc oci.Location, environment string, trust published.Signers, opts PendingOptions) (*Pending, error) {
	w := new(warnings)
	at, err := pendingReader(loc, environment, trust, opts, w.add)
	if err != nil {
		return nil, err
	}
	pending, err := openPending(ctx, at, opts.Tag)
	if err != nil {
		return nil, err
	}
	pending.Warnings = w.list
	return pending, nil
}

// pendingReader returns a reader of what waits in an environment.
func pendingReader(loc oci.Location, environment string, trust published.Signers, opts PendingOptions, warn func(format string, args ...any)) (state.Reader, error) {
	if err := oci.CheckName(environment); err != nil {
		return state.Reader{}, usage.Errorf("environment: %w", err)
	}
	if !trust.Documented() {
		return state.Reader{}, usage.Errorf("only a trust document asks for several signatures: give version 1 of it")
	}
	if opts.Tag != "" && published.ParseTag(opts.Tag).Kind != published.Pending {
		return state.Reader{}, usage.Errorf("%q is not a tag of what waits, which is like %s", opts.Tag, published.PendingTag(1, 1795262400))
	}
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	store, err := loc.Open(opts.OCI)
	if err != nil {
		return state.Reader{}, err
	}
	at := state.New(loc, store, trust, now(), trust.Document.Platform, environment, warn)
	return at, trust.Check(at.Platform, at.IssuedAt)
}

// openPending opens what waits under tag, or the newest where that is empty.
func openPending(ctx context.Context, at state.Reader, tag string) (*Pending, error) {
	last, err := at.Record(ctx)
	if err != nil {
		return nil, err
	}
	record, err := chooseRecord(ctx, &at, last, tag)
	if err != nil {
		return nil, err
	}
	r := record.Record
	pending := &Pending{
		Platform: r.Platform, Environment: r.Environment, Epoch: r.Epoch, BaseCommit: r.BaseCommit, Need: at.Trust.Need(), ClusterTypes: []PendingType{},
		Record:     PendingRecord{releases.OutcomePending, r.Sequence, record.Descriptor.Digest, r.IssuedAt, trust.NamesOf(at.Trust, record.KeyIDs)},
		Incomplete: r.Incomplete, at: at, record: last,
	}
	names := r.Types()
	if last.Verified != nil {
		names = append(names, last.Verified.Record.Types()...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		rows, err := pendingTypes(ctx, &at, name, r, last)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		pending.ClusterTypes = append(pending.ClusterTypes, rows...)
	}
	return pending, nil
}

// chooseRecord returns the record that waits under tag, or the newest where that is empty. Last is the one that stands.
func chooseRecord(ctx context.Context, at *state.Reader, last state.Record, tag string) (*bundle.VerifiedEnvironment, error) {
	if tag != "" {
		return at.RecordThatWaits(ctx, last, tag)
	}
	v, err := at.PendingRecord(ctx, last)
	if v != nil || err != nil {
		return v, err
	}
	// One that was released, and whose moving tag was not written: whoever did it was cut off.
	if v := last.Verified; v != nil && last.Current && last.Moving[bundle.LatestTag] != v.Descriptor.Digest {
		return v, nil
	}
	err = fmt.Errorf("%w in environment %s", ErrNothingPending, at.Environment)
	if len(last.All) == 0 {
		err = at.NothingEver(ctx, err)
	}
	return nil, err
}

// pendingTypes reads and judges the releases of one cluster type that the record r names, the newest first, or, where that
// names none because the cluster type leaves the environment, those that wait there. Each is compared with what the widest
// of its rings has. Last is the record that stands.
func pendingTypes(ctx context.Context, at *state.Reader, name string, r bundle.EnvironmentRecord, last state.Record) ([]PendingType, error) {
	if err := oci.CheckName(name); err != nil {
		return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: err.Error()}
	}
	t, err := at.Type(ctx, name)
	if err != nil {
		return nil, err
	}
	if t, err = at.WithRings(ctx, t, slices.Sorted(maps.Keys(r.Rings[name])), last); err != nil {
		return nil, err
	}
	ringsOf := map[digest.Digest]state.Rings{}
	for _, l := range t.Rings {
		d := r.ReleaseOf(name, l.Name)
		switch {
		case len(r.ReleasesOf(name)) == 0 && l.Waiting != nil: // the cluster type leaves
			d = l.Waiting.Descriptor.Digest
		case len(r.Rings[name]) == 0: // rings that were given up get it, too
			d = r.ReleaseOf(name, "")
		}
		if d != "" {
			ringsOf[d] = append(ringsOf[d], l)
		}
	}
	var rows []PendingType
	for _, d := range slices.Sorted(maps.Keys(ringsOf)) {
		rings := ringsOf[d]
		last, moving := rings.Newest(), rings.MovingTags()
		if slices.ContainsFunc(moving, func(tag string) bool { return t.Moving[tag] == d }) {
			v, _, err := t.Release(ctx, d.String())
			if err != nil {
				return nil, err
			}
			if v != nil {
				last = v // it stands, also where one for all rings has been released meanwhile
			}
		}
		row, err := pendingRelease(ctx, at, &t, d, last, moving)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b PendingType) int {
		return published.OrderOf(b.part.verified).Compare(published.OrderOf(a.part.verified))
	})
	return rows, nil
}

// pendingRelease returns the release with manifest d, which is to stand in the place of last and under the moving tags.
func pendingRelease(ctx context.Context, at *state.Reader, t *state.Type, d digest.Digest, last *bundle.Verified, moving []string) (PendingType, error) {
	row, v, err := PendingType{ClusterType: t.Stream.ClusterType, Result: releases.OutcomePending}, last, error(nil)
	if last != nil && last.Descriptor.Digest == d {
		row.Result = releases.OutcomeUnchanged
	} else if v, err = at.ReleaseThatWaits(ctx, *t, d, last); err != nil {
		return row, err
	}
	r := v.Release
	row.Sequence, row.Number, row.Digest, row.IssuedAt, row.ExpiresAt, row.Rings, row.SignedBy = r.Sequence, r.Number, d, r.IssuedAt, r.ExpiresAt, r.Rings, trust.NamesOf(at.Trust, v.KeyIDs)
	row.Message, row.part = bundle.MessageOf(v.Manifest), pendingPart{t, v, moving}
	if row.Result != releases.OutcomePending {
		return row, nil
	}
	if last != nil {
		row.Previous, row.PreviousNumber, row.PreviousDigest = last.Release.Sequence, last.Release.Number, last.Descriptor.Digest
	}
	return row, row.compare(ctx, t.Repo, v, last)
}

// readRelease reads all of a release, and returns its assignments and site values.
func readRelease(ctx context.Context, repo oci.Target, v *bundle.Verified) ([]bundle.Assignment, diff.Sites, error) {
	tree, err := published.OpenTree(ctx, repo, v.Tree, v.Release.Content)
	if err != nil {
		return nil, diff.Sites{}, err
	}
	document, rows, err := tree.Sites()
	return tree.Assignments, diff.Sites{Document: document, Rows: rows}, errors.Join(err, tree.Close())
}

// compare reads all of v, and says how its assignments differ from those of the release that stands.
func (t *PendingType) compare(ctx context.Context, repo oci.Target, v, last *bundle.Verified) error {
	now, sites, err := readRelease(ctx, repo, v)
	if err != nil {
		return err
	}
	before, sitesBefore := map[string]bundle.Assignment{}, diff.Sites{}
	if last != nil {
		var list []bundle.Assignment
		if list, sitesBefore, err = readRelease(ctx, repo, last); err != nil {
			return fmt.Errorf("release %s, which stands: %w", last.Name(), err)
		}
		for _, a := range list {
			before[a.Name] = a
		}
	}
	t.SiteValues = diff.SitesBetween(sitesBefore, sites)
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
