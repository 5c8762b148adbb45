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

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// lastLedger returns the ledger of the record that stands; nil if there is none, or if it is lost: then all that is published is new.
func (p *publication) lastLedger(ctx context.Context, at state.Record) (*ledger.Ledger, error) {
	if at.Verified == nil {
		return nil, nil
	}
	l, err := at.Ledger(ctx, at.Verified)
	var refusal *bundle.Refusal
	if errors.As(err, &refusal) && refusal.Reason == bundle.UnsupportedSchema {
		return nil, err
	}
	if err != nil && published.IgnoreRefused(err) == nil {
		p.Warn("%s:%s: the ledger is lost, so that all workloads count as new: %v", at.Environment, at.Verified.Record.Tag(), err)
		return nil, nil
	}
	return l, err
}

// head is a workload as it was read, and what became of it.
type head struct {
	ledger.Revision
	// types get all of it, and unlike are cluster types on which something of it is held, failed or left out.
	types, unlike map[string]bool
	version       map[string]bool
	places        map[string]map[scheduler.Place]bool // by target
}

// reading is what a publication has read of workloads.
type reading struct {
	heads map[ledger.Key]*head
	// held are workloads of which a release keeps something of before.
	held map[ledger.Key]bool
	// unsure is true if it is not known what some cluster types or policies would have.
	unsure bool
}

// readingOf returns what result and plans say of workloads.
func readingOf(result *scheduler.Result, plans []*plan) reading {
	r := reading{heads: map[ledger.Key]*head{}, held: map[ledger.Key]bool{}, unsure: len(result.FailedPolicies) > 0}
	named := map[string][]ledger.Key{}
	for _, w := range result.Workloads {
		key := ledger.Key{Registration: w.Registration, Workload: w.Name}
		h := &head{types: map[string]bool{}, unlike: map[string]bool{}, version: map[string]bool{}, places: map[string]map[scheduler.Place]bool{}}
		h.Object, h.Source = w.Object, sourceOf(result.Places[w.Registration])
		for _, t := range w.Targets {
			named[t.FullName] = append(named[t.FullName], key)
			h.places[t.Name] = map[scheduler.Place]bool{}
		}
		r.heads[key] = h
	}
	needs := map[digest.Digest]bool{}
	for _, pl := range plans {
		r.addPlan(pl, named)
		if pl.row.Result == releases.OutcomeFailed || needs[pl.needs.ID] {
			continue
		}
		needs[pl.needs.ID] = true
		pl.needs.Each(func(k ledger.Key, a ledger.Artifact) {
			if h := r.heads[k]; h != nil {
				h.Artifacts = append(h.Artifacts, a)
			}
		})
	}
	for _, h := range r.heads {
		h.complete()
	}
	return r
}

func (r *reading) addPlan(pl *plan, named map[string][]ledger.Key) {
	rendered, failed := pl.rendered, pl.row.Result == releases.OutcomeFailed
	if failed {
		rendered, r.unsure = pl.Assignments, true
	}
	for i := range rendered {
		a := &rendered[i]
		h := r.heads[ledger.Key{Registration: a.Registration, Workload: a.Workload}]
		switch {
		case h == nil: // of a decision that was made elsewhere
		case failed:
			h.unlike[pl.Name] = true
		default:
			h.types[pl.Name] = true
			h.version[bundle.ShownVersion(a.Version)] = true
			if of := h.places[a.Target]; of != nil {
				of[artifacts.PlaceOf(a)] = true
			}
		}
	}
	for _, held := range pl.held {
		key := ledger.Key{Registration: held.Line.Registration, Workload: held.Line.Workload}
		r.held[key] = true
		if h := r.heads[key]; h != nil {
			h.unlike[pl.Name] = true
		}
	}
	for _, f := range slices.Concat(pl.failures, pl.dropped) {
		for _, key := range named[f.Name] {
			if !f.Taken || f.Registration == key.Registration {
				r.heads[key].unlike[pl.Name] = true
			}
		}
	}
}

// complete makes the revision.
func (h *head) complete() {
	for typ := range h.unlike {
		delete(h.types, typ)
	}
	for _, name := range slices.Sorted(maps.Keys(h.places)) {
		h.Targets = append(h.Targets, targetOf(name, h.places[name]))
	}
	if len(h.version) == 1 {
		h.Version = cmp.Or(slices.Collect(maps.Keys(h.version))[0], folderOf(h.Targets))
	}
	h.Artifacts = ledger.SortArtifacts(h.Artifacts)
	h.Revision.Revision = ledger.RevisionOf(h.Object, h.Targets, h.Artifacts)
}

// folderOf returns the first digits of the ID of the folder that all targets have, as the version of what says no other.
func folderOf(targets []ledger.Target) string {
	if len(targets) == 0 || slices.ContainsFunc(targets, func(t ledger.Target) bool { return t.ID != targets[0].ID }) {
		return ""
	}
	id := strings.TrimPrefix(targets[0].ID, digest.Canonical.String()+":")
	return id[:min(len(id), shortID)]
}

// shortID is the number of digits that artifacts and embed show of a folder's ID.
const shortID = 12

// targetOf returns a target with the place of what it names. If the places differ from cluster type to cluster type, the ID is
// that of them all.
func targetOf(name string, places map[scheduler.Place]bool) ledger.Target {
	all := slices.SortedFunc(maps.Keys(places), func(a, b scheduler.Place) int {
		if (a.ID == "") != (b.ID == "") { // the place that was read stands for all
			return strings.Compare(b.ID, a.ID)
		}
		return slices.Compare([]string{a.Repo, a.Ref, a.Path, a.ID, a.Commit}, []string{b.Repo, b.Ref, b.Path, b.ID, b.Commit})
	})
	if len(all) == 0 {
		return ledger.Target{Name: name}
	}
	t := ledger.Target{Name: name, Source: sourceOf(all[0]), Path: all[0].Path, ID: all[0].ID}
	if len(all) > 1 {
		var text strings.Builder
		for _, p := range all {
			text.WriteString(p.Repo + " " + p.Ref + " " + p.Path + " " + p.ID + "\n")
		}
		t.ID = digest.FromString(text.String()).String()
	}
	return t
}

func sourceOf(p scheduler.Place) ledger.Source {
	return ledger.Source{Repo: p.Repo, Ref: p.Ref, Commit: p.Commit}
}

// bound keeps what was read within the bounds of a ledger. The workloads of a registration that is too large are listed without their
// targets and artifacts, so that nobody can prove them: it costs nobody else.
func (r reading) bound() error {
	if n := len(r.heads); n > ledger.MaxWorkloads {
		return fmt.Errorf("%d workloads: %w (at most %d in an environment)", n, bundle.ErrTooLarge, ledger.MaxWorkloads)
	}
	size, sum := map[string]int{}, 0
	for key, h := range r.heads {
		w := ledger.Workload{Key: key, Revisions: []ledger.Revision{h.Revision}}
		size[key.Registration] += w.Size()
	}
	for registration, n := range size {
		if registration == "" || n <= ledger.MaxRegistrationBytes {
			sum += n
			continue
		}
		for key, h := range r.heads {
			if key.Registration == registration {
				h.Targets, h.Artifacts = nil, nil
			}
		}
	}
	if sum > ledger.MaxUnpackedBytes {
		return fmt.Errorf("%d bytes of workloads, with their targets and artifacts: %w (at most %d in an environment)", sum, bundle.ErrTooLarge, ledger.MaxUnpackedBytes)
	}
	return nil
}

// nextLedger returns the ledger of the record that a publication of plans writes. What is new has no record and no time yet; see stamp.
// Done is what was published, and last the ledger of the record that stands, or nil.
func (p *publication) nextLedger(read reading, result *scheduler.Result, plans []*plan, done Published, at state.Record, last *ledger.Ledger) *ledger.Ledger {
	next := p.carriedOn(last, p.commits.base)
	for name, place := range result.Places {
		if unread := (typeUnknowns{unknowns: p.unknowns}); !unread.isUnread(name) {
			next.Registrations = append(next.Registrations, ledger.Registration{Name: name, Source: sourceOf(place)})
		}
	}
	for _, u := range p.unknowns.unread { // of which nothing is taken, however far it could be read
		if last != nil && last.Registration(u.Registration) != nil {
			next.Registrations = append(next.Registrations, *last.Registration(u.Registration))
		}
	}
	all := newStays(last)
	aimed := p.aimedRings(plans, at)
	if first := ringsOf(p.rings)[0]; len(done.Proved) > 0 && aimed[first] && len(p.rings) > 1 {
		setBatch(next, first, ledger.Record{}, true) // that of this publication
	}
	for n, ring := range ringsOf(p.rings) {
		switch {
		case aimed[ring]:
			p.publishTo(ring, read, result, at, all)
			if n > 0 {
				copyBatch(next, next, p.rings[0], ring)
			}
		case n > 0 && haveSame(done, p.rings[n-1], ring):
			all.copyRing(p.rings[n-1], ring)
			copyBatch(next, next, p.rings[n-1], ring)
		default:
			for _, pl := range plans {
				if !at.Has(pl.Name) && len(pl.Assignments) > 0 { // a new cluster type gets all rings
					all.setUnlike(ring, pl.Name)
				}
			}
		}
	}
	if a := p.opts.Admission; a != nil {
		all.proofs = a.Proofs
	}
	all.addTo(next)
	return next
}

// setBatch says which record brought the batch that a ring has, if one has.
func setBatch(l *ledger.Ledger, ring string, record ledger.Record, has bool) {
	l.Batches = maps.Clone(l.Batches)
	if !has {
		delete(l.Batches, ring)
		return
	}
	if l.Batches == nil {
		l.Batches = map[string]ledger.Record{}
	}
	l.Batches[ring] = record
}

// copyBatch gives the ring to of l the batch that the ring from has according to other.
func copyBatch(l, other *ledger.Ledger, from, to string) {
	record, has := other.Batches[from]
	setBatch(l, to, record, has)
}

// carriedOn returns a ledger without workloads that has what the last one says beside them.
func (p *publication) carriedOn(last *ledger.Ledger, baseCommit string) *ledger.Ledger {
	next := &ledger.Ledger{Schema: ledger.Schema, Base: ledger.Base{Commit: baseCommit}}
	if a := p.opts.Admission; a != nil {
		next.Base.Unproved = a.Unproved
	}
	if last == nil {
		return next
	}
	next.Undone = last.Undone
	for _, ring := range p.rings {
		if record, has := last.Batches[ring]; has {
			setBatch(next, ring, record, true)
		}
	}
	if last.Base.Commit == baseCommit {
		next.Base = last.Base
		return next
	}
	stay := int64(p.IssuedAt.Sub(last.Base.Since) / time.Second)
	earlier := slices.Clone(last.Base.Earlier)
	if i := slices.IndexFunc(earlier, func(e ledger.Earlier) bool { return e.Commit == last.Base.Commit }); i >= 0 {
		stay += earlier[i].Seconds
		earlier = slices.Delete(earlier, i, i+1)
	}
	if last.Base.Commit != "" {
		earlier = append(earlier, ledger.Earlier{Commit: last.Base.Commit, Seconds: max(stay, 0)})
	}
	if more := len(earlier) - ledger.MaxEarlier; more > 0 {
		earlier = earlier[more:]
	}
	next.Base.Earlier = earlier
	return next
}

// ringsOf returns rings, or the one ring without a name of a platform that names none.
func ringsOf(rings []string) []string {
	if len(rings) == 0 {
		return []string{""}
	}
	return rings
}

// aimedRings returns the rings that a publication is for. A new cluster type is published to all rings, which says nothing of the
// others.
func (p *publication) aimedRings(plans []*plan, at state.Record) map[string]bool {
	if len(p.rings) == 0 {
		return map[string]bool{"": true}
	}
	known, all := map[string]bool{}, map[string]bool{}
	for _, pl := range plans {
		for _, l := range pl.aim {
			all[l.Name] = true
			known[l.Name] = known[l.Name] || at.Has(pl.Name)
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(known)), true) {
		return all
	}
	return known
}

// haveSame reports whether two rings of each cluster type have the same content.
func haveSame(done Published, a, b string) bool {
	for _, row := range done.ClusterTypes {
		one, other := row.releaseOf(a), row.releaseOf(b)
		if one.Digest != other.Digest && (one.content == "" || one.content != other.content) {
			return false
		}
	}
	return true
}

// publishTo gives a ring what was read.
func (p *publication) publishTo(ring string, read reading, result *scheduler.Result, at state.Record, all *stays) {
	fresh := ledger.Stay{Ring: ring, BaseCommit: p.commits.base}
	if at.Verified != nil {
		fresh.Before = ledger.RecordOf(at.Verified.Record)
	}
	for key, h := range read.heads {
		if len(h.types) == 0 {
			continue
		}
		stay := fresh
		if was, before := all.of(key, ring); was != nil && was.Revision == h.Revision.Revision {
			stay = before
			stay.BaseCommit = p.commits.base
		}
		stay = p.admitted(key, h.Revision, stay)
		stay.Unlike = slices.Sorted(maps.Keys(h.unlike))
		all.set(key, h.Revision, stay)
	}
	for _, key := range all.in(ring) {
		h := read.heads[key]
		_, registered := result.Declared[key.Registration]
		switch {
		case h != nil && len(h.types) > 0, read.held[key], read.unsure, p.isUnread(key.Registration), h != nil && len(h.unlike) > 0:
		case registered || key.Registration == "":
			all.remove(key, fresh)
		default:
			all.drop(key, ring)
		}
	}
}

// isUnread reports whether what a registration asks for is not known, or held as a whole.
func (p *publication) isUnread(registration string) bool {
	return typeUnknowns{unknowns: p.unknowns}.isUnread(registration) || p.unknowns.dropping[registration] != ""
}

// stays are the revisions that rings have of workloads, while they change.
type stays struct {
	revisions map[ledger.Key]map[digest.Digest]*ledger.Revision
	proofs    map[ledger.Key][]ledger.Proof
	removed   map[ledger.Key]*ledger.Removed
}

func newStays(l *ledger.Ledger) *stays {
	all := &stays{map[ledger.Key]map[digest.Digest]*ledger.Revision{}, map[ledger.Key][]ledger.Proof{}, map[ledger.Key]*ledger.Removed{}}
	if l == nil {
		return all
	}
	for _, w := range l.Workloads {
		all.revisions[w.Key], all.proofs[w.Key] = map[digest.Digest]*ledger.Revision{}, w.Proofs
		for _, r := range w.Revisions {
			r.In = slices.Clone(r.In)
			all.revisions[w.Key][r.Revision] = &r
		}
	}
	for _, r := range l.Removed {
		r.In = slices.Clone(r.In)
		all.removed[r.Key] = &r
	}
	return all
}

// of returns the revision of a workload that a ring has, and its stay; nil if it has none.
func (all *stays) of(key ledger.Key, ring string) (*ledger.Revision, ledger.Stay) {
	for _, r := range all.revisions[key] {
		for _, s := range r.In {
			if s.Ring == ring {
				return r, s
			}
		}
	}
	return nil, ledger.Stay{}
}

// in lists the workloads that a ring has, sorted.
func (all *stays) in(ring string) []ledger.Key {
	var keys []ledger.Key
	for key := range all.revisions {
		if r, _ := all.of(key, ring); r != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, ledger.Key.Compare)
	return keys
}

func withoutRing(in []ledger.Stay, ring string) []ledger.Stay {
	return slices.DeleteFunc(in, func(s ledger.Stay) bool { return s.Ring == ring })
}

// drop takes what a ring has of a workload away, and its removal.
func (all *stays) drop(key ledger.Key, ring string) {
	for _, r := range all.revisions[key] {
		r.In = withoutRing(r.In, ring)
	}
	if r := all.removed[key]; r != nil {
		r.In = withoutRing(r.In, ring)
	}
}

// set gives a ring a revision of a workload.
func (all *stays) set(key ledger.Key, r ledger.Revision, stay ledger.Stay) {
	all.drop(key, stay.Ring)
	if all.revisions[key] == nil {
		all.revisions[key] = map[digest.Digest]*ledger.Revision{}
	}
	r.In = []ledger.Stay{stay} // those of r may be of another record
	if known := all.revisions[key][r.Revision]; known != nil {
		r.In = append(slices.Clone(known.In), stay) // the commits of what was read last count
	}
	all.revisions[key][r.Revision] = &r
}

// remove takes a workload away from a ring, and lists that.
func (all *stays) remove(key ledger.Key, stay ledger.Stay) {
	all.drop(key, stay.Ring)
	if all.removed[key] == nil {
		all.removed[key] = &ledger.Removed{Key: key}
	}
	all.removed[key].In = append(all.removed[key].In, stay)
}

// copyRing gives the ring to what the ring from has: the stay is a new one where that is something else.
func (all *stays) copyRing(from, to string) {
	other := newStays(nil)
	for key := range all.revisions {
		if r, stay := all.of(key, from); r != nil {
			other.set(key, *r, stay)
		}
	}
	for key, r := range all.removed {
		for _, stay := range r.In {
			if stay.Ring == from {
				other.remove(key, stay)
			}
		}
	}
	all.takeRing(other, from, to)
}

// takeRing gives the ring to what other, which may be of another record, says of the ring from.
func (all *stays) takeRing(other *stays, from, to string) {
	had := all.in(to)
	for key := range other.revisions {
		r, stay := other.of(key, from)
		if r == nil {
			continue
		}
		was, before := all.of(key, to)
		if stay.Ring, stay.Since = to, (time.Time{}); was != nil && was.Revision == r.Revision && before.Record == stay.Record {
			stay.Since = before.Since
		}
		all.set(key, *r, stay)
	}
	for _, key := range had {
		if r, _ := other.of(key, from); r == nil {
			all.drop(key, to)
		}
	}
	for key, r := range other.removed {
		for _, stay := range r.In {
			if stay.Ring != from {
				continue
			}
			stay.Ring, stay.Since = to, time.Time{}
			if known := all.removed[key]; known != nil {
				for _, before := range known.In {
					if before.Ring == to && before.Record == stay.Record {
						stay.Since = before.Since
					}
				}
			}
			all.remove(key, stay)
		}
	}
}

// setUnlike notes that a cluster type has other content than what the ledger says of a ring.
func (all *stays) setUnlike(ring, clusterType string) {
	for _, key := range all.in(ring) {
		r, _ := all.of(key, ring)
		for i := range r.In {
			if s := &r.In[i]; s.Ring == ring && !slices.Contains(s.Unlike, clusterType) {
				s.Unlike = append(slices.Clone(s.Unlike), clusterType)
			}
		}
	}
}

// addTo adds all that a ring has to a ledger, and sorts it.
func (all *stays) addTo(l *ledger.Ledger) {
	for key, revisions := range all.revisions {
		w := ledger.Workload{Key: key, Proofs: all.proofs[key]}
		for _, r := range revisions {
			if len(r.In) > 0 {
				w.Revisions = append(w.Revisions, *r)
			}
		}
		if len(w.Revisions)+len(w.Proofs) > 0 {
			l.Workloads = append(l.Workloads, w)
		}
	}
	for key, proofs := range all.proofs { // of what is to come
		if all.revisions[key] == nil && len(proofs) > 0 {
			l.Workloads = append(l.Workloads, ledger.Workload{Key: key, Proofs: proofs})
		}
	}
	for _, r := range all.removed {
		if len(r.In) > 0 {
			l.Removed = append(l.Removed, *r)
		}
	}
	l.Sort()
	l.DropOldest()
}

// stamp returns a copy of a ledger in which what is new has its record and time.
func stamp(l *ledger.Ledger, record ledger.Record, at time.Time) *ledger.Ledger {
	stamped := *l
	if stamped.Base.Since.IsZero() {
		stamped.Base.Since = at
	}
	all := func(in []ledger.Stay) []ledger.Stay {
		in = slices.Clone(in)
		for i := range in {
			if in[i].Record == (ledger.Record{}) {
				in[i].Record = record
			}
			if in[i].Since.IsZero() {
				in[i].Since = at
			}
		}
		return in
	}
	for ring, batch := range l.Batches {
		if batch == (ledger.Record{}) {
			setBatch(&stamped, ring, record, true)
		}
	}
	stamped.Workloads, stamped.Removed, stamped.Undone = slices.Clone(l.Workloads), slices.Clone(l.Removed), slices.Clone(l.Undone)
	for i := range stamped.Undone {
		if u := &stamped.Undone[i]; u.Record == (ledger.Record{}) {
			u.Record, u.At = record, at
		}
	}
	for i := range stamped.Workloads {
		w := &stamped.Workloads[i]
		w.Revisions = slices.Clone(w.Revisions)
		for j := range w.Revisions {
			w.Revisions[j].In = all(w.Revisions[j].In)
		}
	}
	for i := range stamped.Removed {
		stamped.Removed[i].In = all(stamped.Removed[i].In)
	}
	stamped.Sort()
	return &stamped
}
