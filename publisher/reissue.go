package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// ErrUnfinished is wrapped by the error of Reissue if a publication to a ring was cut off before its record was written.
var ErrUnfinished = errors.New("a publication was cut off before it was recorded")

// Content is published content that rings of an environment are to have from now on.
type Content struct {
	// Releases names, by cluster type and ring, the manifest of the release whose content a ring is to have; the empty ring
	// is agents without one, and all agents where the record names no rings. An empty digest takes all assignments away from
	// the cluster type, and is given to all of its rings. Rings that are not named keep what they have.
	Releases map[string]map[string]digest.Digest
	// Packed is, by cluster type and ring, content that no release has yet. Releases names none for these rings.
	Packed map[string]map[string]Packed
	// Part says what becomes of one workload if nothing else changes; nil if whole releases are given.
	Part *Part
	// Message is that of the releases with packed content; may be empty.
	Message string
	// Why is the reason, for people; see PublishedRelease.Renewed.
	Why string
	// BaseCommit, BaseID, EnvironmentCommit, Incomplete and Previous are those of the new record.
	BaseCommit, BaseID, EnvironmentCommit string
	Incomplete                            []string
	Previous                              string
	// Undone is what the new record lists as undone; nil is what the record lists already. Reissue gives the last its time, and adds what
	// the rings have and no record names. If that is nothing, it leaves the last out.
	Undone []bundle.Undone
	// Anew makes a release also for rings that have the content already. Those of narrower rings stay unless it is for all.
	Anew bool
	// Recorded refuses rings of these cluster types that have other content than the record names, unless that is what they
	// are to have; see ErrUnfinished.
	Recorded bool
}

// Packed is content that takes the place of a release, with the same base commit and validity.
type Packed struct {
	Of        *bundle.Verified
	Tree      *bundle.Packed
	Artifacts bundle.Artifacts
}

// asRelease returns the release that p would be. It has no descriptor, as it is in no registry.
func (p Packed) asRelease() *bundle.Verified {
	v := &bundle.Verified{Release: p.Of.Release, Tree: bundle.NewBlob(bundle.MediaTypeTree, p.Tree.Gzip).Descriptor}
	v.Release.Content, v.Release.Artifacts = p.Tree.Content, p.Artifacts
	return v
}

// Part is what rings get of one workload.
type Part struct {
	ledger.Key
	// Rings are what rings get, each with the stay in which a ring had it before. The empty ring is that of a record without rings.
	Rings map[string]ledger.Revision
	// Proofs are those of what the rings get.
	Proofs []ledger.Proof
	// Undone is what they had. Reissue gives it its record and time.
	Undone ledger.Undone
}

// Reissue gives rings of an environment content that is published or packed already, without rendering: for each cluster type it makes
// new releases that refer to the same blobs, above all that are there, and names them in a new record. The newest of the
// narrowest ring is pushed first, so that at each moment each ring's newest release is one that it is to have.
//
// Choose decides, given the environment's verified record; it is called again if another publisher was at work. If it returns
// nil, nothing is done. Of PublishOptions, Reissue uses Trust, OCI, Parallel and Now. Like Publish it may be killed and repeated
// at any time, and leaves releases pending if more keys have to sign. The result's Assignments are not counted.
func Reissue(ctx context.Context, to oci.Location, keys []*keys.Key, environment string, choose func(ctx context.Context, at *state.Reader, record state.Record) (*Content, error), opts PublishOptions) (*Published, error) {
	return settled(environment+" at "+to.String(), &scheduler.Result{Environment: environment}, to, keys, opts, func(p *publication) (Published, error) {
		if err := p.ofRecord(ctx); err != nil {
			return p.nothingDone(), err
		}
		return p.reissue(ctx, choose)
	})
}

func (p *publication) reissue(ctx context.Context, choose func(context.Context, *state.Reader, state.Record) (*Content, error)) (Published, error) {
	record, err := p.Record(ctx)
	if err != nil {
		return p.nothingDone(), err
	}
	if record.Verified == nil {
		return p.nothingDone(), &bundle.Refusal{Reason: bundle.UntrustedKey, Message: fmt.Sprintf("there is no record of environment %s %s", p.Environment, p.Trust.SignedText())}
	}
	content, err := choose(ctx, p.Reader, record)
	if content == nil || err != nil {
		done := p.nothingDone()
		done.BaseCommit, done.EnvironmentCommit = record.Verified.Record.BaseCommit, record.Verified.Record.EnvironmentCommit
		done.Record = publishedRecord(record, releases.OutcomeUnchanged)
		return done, err
	}
	again := *p
	again.commits, again.rings, again.message = commits{content.BaseCommit, content.EnvironmentCommit, content.BaseID}, RingOrder(record.Verified.Record), content.Message
	p = &again
	done := p.nothingDone()
	names := slices.AppendSeq(slices.Collect(maps.Keys(content.Releases)), maps.Keys(content.Packed))
	slices.Sort(names)
	names = slices.Compact(names)
	plans := make([]*plan, len(names))
	err = p.each(len(names), func(p *publication, i int) (err error) {
		plans[i], err = p.planContent(ctx, names[i], *content, record)
		return err
	})
	if err != nil {
		return done, err
	}
	next := record.Verified.Record
	next.BaseCommit, next.BaseID, next.EnvironmentCommit = content.BaseCommit, content.BaseID, content.EnvironmentCommit
	next.Incomplete, next.Former = content.Incomplete, content.Previous
	if content.Undone != nil {
		next.Undone = p.undoneBy(plans, content.Undone)
	}
	err = p.writeAll(ctx, plans, record, next, content.Part, &done)
	return done, err
}

// writeAll pushes what the rings of plans are to have, and a record like next that names it. Part is that of Content. It adds to done.
func (p *publication) writeAll(ctx context.Context, plans []*plan, record state.Record, next bundle.EnvironmentRecord, part *Part, done *Published) error {
	rows := make([]*PublishedType, len(plans))
	last, err := p.lastLedger(ctx, record)
	if err == nil {
		err = p.mayKeep(record, last)
	}
	if err != nil {
		return err
	}
	err = p.each(len(plans), func(p *publication, i int) error {
		row, err := p.attempt(ctx, plans[i])
		rows[i] = &row
		return err
	})
	next.IssuedAt, next.ClusterTypes, next.Rings = p.IssuedAt, maps.Clone(next.ClusterTypes), maps.Clone(next.Rings)
	for i, row := range rows {
		if row != nil {
			done.ClusterTypes = append(done.ClusterTypes, *row)
			plans[i].recordIn(&next, *row)
		}
	}
	if err != nil {
		return err
	}
	var workloads *ledger.Ledger
	if part != nil {
		workloads = p.ledgerWith(*part, next, last)
	} else {
		workloads, err = p.ledgerOf(ctx, record, next, done.ClusterTypes, last)
	}
	if err == nil {
		done.Record, err = p.publishRecord(ctx, record, next, last, workloads, done.Pending() > 0)
	}
	return err
}

// undoneBy completes the last of what is undone by plans.
func (p *publication) undoneBy(plans []*plan, all []bundle.Undone) []bundle.Undone {
	all = slices.Clone(all)
	last := all[len(all)-1]
	last.At, last.Contents = p.IssuedAt, maps.Clone(last.Contents)
	if last.Contents == nil {
		last.Contents = map[string][]digest.Digest{}
	}
	for _, pl := range plans {
		for _, l := range pl.aim {
			if l.Release == nil || hasContent(l, pl.contents[l]) {
				continue
			}
			contents := append(slices.Clone(last.Contents[pl.Name]), l.Release.Release.Content.DiffID)
			slices.Sort(contents)
			last.Contents[pl.Name] = slices.Compact(contents)
		}
	}
	if last.BaseCommit == "" && len(last.Contents) == 0 {
		return all[:len(all)-1]
	}
	all[len(all)-1] = last
	return all
}

// RingOrder returns the rings that a record names, narrowest first as far as that is known: records of earlier versions do not
// say it.
func RingOrder(r bundle.EnvironmentRecord) []string {
	named := map[string]bool{}
	for _, rings := range r.Rings {
		for ring := range rings {
			named[ring] = true
		}
	}
	if len(named) == 0 {
		return nil
	}
	order := slices.DeleteFunc(slices.Clone(r.RingOrder), func(ring string) bool { return !named[ring] })
	for _, ring := range slices.Sorted(maps.Keys(named)) {
		if !slices.Contains(order, ring) { // given up, or of an earlier version
			order = slices.Insert(order, 0, ring)
		}
	}
	return order
}

// planContent plans the releases of a cluster type for the content that its rings are to have.
func (p *publication) planContent(ctx context.Context, name string, content Content, record state.Record) (*plan, error) {
	if err := oci.CheckName(name); err != nil || strings.Contains(name, "/") {
		return nil, usage.Errorf("cluster type: %w", cmp.Or(err, fmt.Errorf("%q holds a slash", name)))
	}
	t, err := p.Type(ctx, name)
	if err == nil {
		t, err = p.WithRings(ctx, t, p.rings, record)
	}
	if err != nil {
		return nil, err
	}
	if last := t.Verified; last != nil && last.Release.Platform != p.Platform {
		return nil, usage.Errorf("%s holds releases of the platform %q, the environment's record is of %q", p.Location.Name(t.Stream.Repository()), last.Release.Platform, p.Platform)
	}
	if len(record.Verified.Record.RingOrder) == 0 { // the release of a narrower ring is above that of a wider one
		slices.SortStableFunc(t.Rings[:len(t.Rings)-1], func(a, b *state.Ring) int {
			if a.Release == nil || b.Release == nil {
				return 0
			}
			return published.OrderOf(b.Release).Compare(published.OrderOf(a.Release))
		})
	}
	pl := &plan{
		asked: asked{ClusterTypeResult: scheduler.ClusterTypeResult{Name: name}}, found: found{Type: t},
		contents: map[*state.Ring]*bundle.Verified{}, why: content.Why, anew: content.Anew, row: PublishedType{ClusterType: name},
	}
	pl.packed = map[digest.Digest]*bundle.Packed{}
	read := p.releaseReader(t)
	for _, l := range t.Rings {
		ring, newest := l.Name, t.Rings.Newest()
		if len(p.rings) == 0 && ring != "" { // without named rings all agents that have the newest release are meant
			if newest == nil || l.Release == nil || l.Release.Descriptor.Digest != newest.Descriptor.Digest {
				continue
			}
			ring = ""
		}
		d, released := content.Releases[name][ring]
		made, packed := content.Packed[name][ring]
		switch {
		case packed:
			pl.contents[l], pl.packed[made.Tree.Content.DiffID] = made.asRelease(), made.Tree
		case !released:
			continue
		case d != "":
			if pl.contents[l], err = read(ctx, d); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		pl.aim = append(pl.aim, l)
	}
	if len(pl.aim) == 0 {
		return nil, usage.Errorf("%s has none of the rings that are to get something", name)
	}
	if content.Recorded {
		if err := pl.checkRecorded(ctx, read); err != nil {
			return nil, err
		}
	}
	if len(pl.contents) == 0 {
		pl.left, pl.validFor = true, DefaultValidity
		if last := t.Rings.Newest(); last != nil {
			pl.validFor = last.Release.ExpiresAt.Sub(last.Release.IssuedAt)
		}
		pl.tree, pl.artifacts, err = pack.Tree(nil, nil)
	}
	return pl, err
}

// releaseReader returns a function that reads a release of t by its digest, each once. The error is a *bundle.Refusal for one
// that is not trusted or of another stream, and a *state.LostError for one that is not there.
func (p *publication) releaseReader(t state.Type) func(context.Context, digest.Digest) (*bundle.Verified, error) {
	known := map[digest.Digest]*bundle.Verified{}
	for _, l := range t.Rings {
		if l.Release != nil {
			known[l.Release.Descriptor.Digest] = l.Release
		}
	}
	return func(ctx context.Context, d digest.Digest) (*bundle.Verified, error) {
		if v := known[d]; v != nil {
			return v, nil
		}
		v, _, err := t.Release(ctx, d.String())
		switch {
		case err != nil:
			return nil, err
		case v == nil:
			return nil, state.Lost("release %s is not there, or not %s", d, p.Trust.SignedText())
		case v.Release.Stream() != t.Stream:
			return nil, &bundle.Refusal{Reason: bundle.BadContent, Message: fmt.Sprintf("release %s is of %s", d, v.Release.Stream().Repository())}
		}
		known[d] = v
		return v, nil
	}
}

// checkRecorded returns an error wrapping ErrUnfinished if a ring has neither what the record names for it nor what it is to have.
func (pl *plan) checkRecorded(ctx context.Context, read func(context.Context, digest.Digest) (*bundle.Verified, error)) error {
	for _, l := range pl.Rings {
		if l.Release == nil || l.Recorded == "" || l.Recorded == l.Release.Descriptor.Digest || hasContent(l, pl.contents[l]) {
			continue
		}
		v, err := read(ctx, l.Recorded)
		if err != nil {
			return err
		}
		if !hasContent(l, v) {
			return fmt.Errorf("%s: ring %s has release %s, and the environment's record names %s: %w", pl.Name, state.Rings{l}, l.Release.Name(), v.Name(), ErrUnfinished)
		}
	}
	return nil
}

// hasContent reports whether a ring has the content of v; not if v is nil.
func hasContent(l *state.Ring, v *bundle.Verified) bool {
	return v != nil && l.Release != nil && l.Release.Release.SameContent(v.Release)
}

// addContents adds a release for each content that rings are to have and that not all of them have, up to the widest that lacks it.
func (pl *plan) addContents(all []*ringRelease) []*ringRelease {
	var groups []*ringRelease
	for _, l := range pl.Rings {
		v := pl.contents[l]
		if v == nil {
			continue
		}
		at := slices.IndexFunc(groups, func(i *ringRelease) bool {
			return i.from.Release.SameContent(v.Release)
		})
		if at < 0 {
			groups, at = append(groups, &ringRelease{from: v, other: true, why: pl.why}), len(groups)
		}
		groups[at].rings = append(groups[at].rings, l)
	}
	for _, i := range groups {
		for n := len(i.rings); n > 0 && !pl.anew && hasContent(i.rings[n-1], i.from); n-- {
			i.rings = i.rings[:n-1] // wider rings that have it need no new release
		}
		if len(i.rings) > 0 {
			all = append(withoutRings(all, i.rings), i)
		}
	}
	return all
}

// keepOrder sorts releases, that of the widest ring first, and has those of narrower rings made anew above one that is due: a
// cluster may move to a narrower ring at any time. With content that clusters have already this is so below a release for all
// rings alone.
func (pl *plan) keepOrder(all []*ringRelease) {
	widest := func(i *ringRelease) (at int) {
		for n, l := range pl.Rings {
			if i.covers(l) {
				at = n
			}
		}
		return at
	}
	slices.SortStableFunc(all, func(a, b *ringRelease) int { return widest(b) - widest(a) })
	due := false
	for _, i := range all {
		if due && i.why == "" && i.from != nil {
			i.why = "the release of a wider ring is made anew, and this one stays above it"
		}
		due = due || i.due() && (i.forAll() || !pl.anew)
	}
}

// recordIn puts what rings have into a record.
func (pl *plan) recordIn(r *bundle.EnvironmentRecord, row PublishedType) {
	name := pl.Name
	if pl.left {
		delete(r.ClusterTypes, name)
		delete(r.Rings, name)
		return
	}
	newest := row.releaseOf("").Digest
	if r.Rings != nil {
		r.Rings[name] = row.byRing()
	} else if len(row.Releases) > 0 {
		newest = row.Releases[0].Digest
	}
	if newest != "" {
		if r.ClusterTypes == nil {
			r.ClusterTypes = map[string]digest.Digest{}
		}
		r.ClusterTypes[name] = newest
	}
}
