package content

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
)

// Reading says at which state the sources of an environment are read for a decision.
//
// A registration is read at one commit: the one of the newest revision of its workloads that is proved, else the one that own has. A
// workload of it that is another one there, and not proved, keeps its files; see [Reading.Waiting].
type Reading struct {
	decision *Decision
	below    string
	places   map[place]state
	versions map[reference]state
	shared   map[place]bool  // those that the environment below reads, too
	folders  map[folder]bool // those that it reads
	open     bool            // for what only own reads
}

// place is a ref of a repository that a registration reads.
type place struct{ registration, repo, ref string }

// folder is one that a target of a registration names.
type folder struct {
	place
	path string
}

// reference is how a registration names an artifact.
type reference struct {
	registration string
	Type         bundle.ArtifactType
	reference    string
}

// state is what a place or reference is read at; the newest record counts.
type state struct {
	at, version string
	free        bool // at its head
	proved      bool
	earlier     bool // of a proof that neither own has nor is to get
	record      ledger.Record
}

// newer reports whether s counts more than other.
func (s state) newer(other state) bool {
	switch {
	case s.free != other.free:
		return s.free
	case s.proved != other.proved:
		return s.proved
	case s.earlier != other.earlier:
		return other.earlier
	}
	return s.record.Compare(other.record) > 0
}

// Reading returns how to read the sources for the answer to q.
func (d *Decision) Reading(q Question) *Reading {
	r := &Reading{
		decision: d, below: q.Policy.Below(), open: q.Closed == "",
		places: map[place]state{}, versions: map[reference]state{}, shared: map[place]bool{}, folders: map[folder]bool{},
	}
	if q.Below != nil {
		for _, of := range q.Below.Registrations {
			at := placeOf(of.Name, of.Source)
			r.shared[at] = true
			r.settle(at, state{at: of.Source.Commit})
		}
		for _, w := range q.Below.Workloads {
			for _, v := range w.Revisions {
				for _, s := range sourcesOf(v.Source, v.Targets) {
					r.shared[placeOf(w.Registration, s)] = true
					r.settle(placeOf(w.Registration, s), state{at: s.Commit})
				}
				r.addFolders(w.Registration, v.Targets)
			}
		}
	}
	for _, t := range d.Takes {
		switch {
		case t.Kind == Head:
			r.free(q, t)
		case t.Kind == Proved && !t.Removed:
			r.add(t.Registration, t.Proof.Source, t.Proof.Targets, t.Proof.Artifacts, state{proved: true, record: t.Proof.Record})
			r.addFolders(t.Registration, t.Proof.Targets)
		}
		if t.Entry != nil && t.Kind != Head {
			stay := cmp.Or(stayIn(t.Entry.In, q.OwnRing), new(ledger.Stay))
			r.add(t.Registration, t.Entry.Source, t.Entry.Targets, t.Entry.Artifacts, state{record: cmp.Or(stay.From.Record, stay.Record)})
		}
	}
	for k, proofs := range d.Proofs { // which own's manifests may name
		for _, p := range proofs {
			if !p.Proved.IsZero() {
				r.addVersions(k.Registration, p.Artifacts, state{earlier: true, record: p.Record})
			}
		}
	}
	return r
}

// free lets the sources of a workload that nothing holds be read at their heads.
func (r *Reading) free(q Question, t Take) {
	head := state{free: true}
	if q.Below == nil {
		return
	}
	if of := q.Below.Registration(t.Registration); of != nil {
		r.settle(placeOf(of.Name, of.Source), head)
	}
	if w := q.Below.Find(t.Key); w != nil {
		for _, v := range w.Revisions {
			for _, s := range sourcesOf(v.Source, v.Targets) {
				r.settle(placeOf(t.Registration, s), head)
			}
		}
	}
}

// add notes what a revision was read at.
func (r *Reading) add(registration string, source ledger.Source, targets []ledger.Target, artifacts []ledger.Artifact, s state) {
	for _, from := range sourcesOf(source, targets) {
		s.at = from.Commit
		r.settle(placeOf(registration, from), s)
	}
	r.addVersions(registration, artifacts, s)
}

// addVersions notes what references came to.
func (r *Reading) addVersions(registration string, artifacts []ledger.Artifact, s state) {
	for _, a := range artifacts {
		s.at, s.version = a.Digest, a.Version
		at := reference{registration, a.Type, a.Reference}
		if known, is := r.versions[at]; a.Digest != "" && (!is || s.newer(known)) {
			r.versions[at] = s
		}
	}
}

func (r *Reading) settle(at place, s state) {
	if at.repo == "" || s.at == "" && !s.free {
		return // a plain folder, or a reference that moves
	}
	if known, is := r.places[at]; !is || s.newer(known) {
		r.places[at] = s
	}
}

func placeOf(registration string, s ledger.Source) place { return place{registration, s.Repo, s.Ref} }

func sourcesOf(source ledger.Source, targets []ledger.Target) []ledger.Source {
	all := []ledger.Source{source}
	for _, t := range targets {
		all = append(all, t.Source)
	}
	return all
}

// Commit returns the commit at which a registration reads a ref of a repository; empty for its head.
func (r *Reading) Commit(registration, repo, ref string) string {
	at := place{registration, repo, ref}
	if !r.shared[at] && r.open {
		return "" // nobody below can have it
	}
	return r.places[at].at
}

// Version returns the digest and the version that an artifact of a registration has, by the reference in its manifests; empty for what
// the reference names now.
func (r *Reading) Version(registration string, of bundle.ArtifactType, name string) (revision, version string) {
	s := r.versions[reference{registration, of, name}]
	return s.at, s.version
}

func (r *Reading) addFolders(registration string, targets []ledger.Target) {
	for _, t := range targets {
		r.folders[folder{placeOf(registration, t.Source), t.Path}] = true
	}
}

// Decided lists what was rendered of a workload that no environment below reads, and that own does not have like this: the team has decided
// on it, and nobody has proved it. Each is a repository, a ref and a folder; the Workload object stands for the folder that it was read from.
func (r *Reading) Decided(k ledger.Key, made ledger.Revision) (places []string) {
	t := r.decision.Take(k)
	if t == nil || t.Kind == Head {
		return nil
	}
	add := func(s ledger.Source, path string) {
		if text := strings.Join(strings.Fields(s.Repo+" "+s.Ref+" "+path), " "); s.Repo != "" && !slices.Contains(places, text) {
			places = append(places, text)
		}
	}
	if !r.shared[placeOf(k.Registration, made.Source)] && (t.Entry == nil || t.Entry.Object != made.Object) {
		add(made.Source, "")
	}
	for _, target := range made.Targets {
		had := t.Entry != nil && slices.ContainsFunc(t.Entry.Targets, func(o ledger.Target) bool {
			return placeOf("", o.Source) == placeOf("", target.Source) && o.Path == target.Path && o.ID == target.ID
		})
		if !had && target.ID != "" && !r.folders[folder{placeOf(k.Registration, target.Source), target.Path}] {
			add(target.Source, target.Path)
		}
	}
	return places
}

// Waiting returns the workloads that keep the files that they have, each with what it waits for. Rendered has what was made of each
// workload that the sources have, as it would stand in a ledger.
func (r *Reading) Waiting(rendered map[ledger.Key]ledger.Revision) map[ledger.Key]string {
	waiting := map[ledger.Key]string{}
	for _, k := range slices.SortedFunc(maps.Keys(rendered), ledger.Key.Compare) {
		if why := r.waits(k, rendered[k]); why != "" {
			waiting[k] = why
		}
	}
	for _, t := range r.decision.Takes { // what own has and its sources have no more
		_, is := rendered[t.Key]
		if !is && t.Entry != nil && t.Kind != Head && !(t.Kind == Proved && t.Removed) {
			waiting[t.Key] = cmp.Or(t.Waits, fmt.Sprintf("%s waits: %s has not proved its removal", t.Workload, r.below))
		}
	}
	return waiting
}

// Overridable reports whether no proof can let in what was rendered of a workload that waits, so that only people can: the environment below
// does not have the workload, or it names artifacts that were not proved there.
func (r *Reading) Overridable(k ledger.Key, made ledger.Revision) bool {
	t := r.decision.Take(k)
	unknown := func(t ledger.Target) bool { return t.ID == "" && (t.Path != "" || t.Source.Repo != "") }
	switch {
	case k.Registration != "" && made.Source.Repo == "", slices.ContainsFunc(made.Targets, unknown): // the revision does not say what it is
		return false
	case t == nil, t.alone:
		return true
	case t.Removed:
		return false
	case t.Kind == Proved:
		return r.isOf(k, made, t.Proof.Source, t.Proof.Object, t.Proof.Targets, t.Entry)
	case t.Kind == Admitted:
		return r.isOf(k, made, t.Entry.Source, t.Entry.Object, t.Entry.Targets, t.Entry)
	}
	return false
}

// waits returns why a workload keeps its files; empty if it may be published as it was rendered.
func (r *Reading) waits(k ledger.Key, made ledger.Revision) string {
	t := r.decision.Take(k)
	if t == nil {
		return fmt.Sprintf("%s waits: %s", k.Workload, lacks(r.below, k))
	}
	c := r.decision.Check(made, k)
	switch {
	case t.Kind == Head:
		return ""
	case k.Registration != "" && made.Source.Repo == "":
		return fmt.Sprintf("%s waits: registration %s was read from a folder, so no commit says what %s would have proved", k.Workload, k.Registration, r.below)
	case t.Kind == Proved && !t.Removed && !r.isOf(k, made, t.Proof.Source, t.Proof.Object, t.Proof.Targets, t.Entry):
	case t.Kind == Admitted && !t.Removed && made.Revision != t.Entry.Revision && !r.isOf(k, made, t.Entry.Source, t.Entry.Object, t.Entry.Targets, t.Entry):
	case (t.Kind == Proved || t.Kind == Admitted) && !t.Removed && c.Passes():
		return ""
	case len(c.Missing) > 0 && t.Kind != FilesStay:
		a := c.Missing[0]
		name := fmt.Sprintf("%s %s", a.Type, a.Reference)
		if a.Digest == "" || !strings.HasSuffix(a.Reference, a.Digest) {
			name += " at " + cmp.Or(a.Digest, "an unknown digest")
		}
		return fmt.Sprintf("%s waits: %s has not proved %s", k.Workload, r.below, name)
	}
	if t.Waits != "" {
		return t.Waits
	}
	for _, s := range sourcesOf(made.Source, made.Targets) {
		if at := r.Commit(k.Registration, s.Repo, s.Ref); at != "" && s.Commit != at {
			return fmt.Sprintf("%s waits: commit %s is gone from %s of %s, which has other content now", k.Workload, short(at), cmp.Or(s.Ref, "the default branch"), s.Repo)
		}
	}
	return fmt.Sprintf("%s waits: its repository was read where another workload is proved", k.Workload)
}

// isOf reports whether what was rendered was made of a revision: the same object and the same content of each folder, as far as they come
// from places that both read. A folder of such a place that own alone reads has to be as at the commit of the revision, or as own has it:
// where a neighbour is proved, it may belong to another revision. Where a force-push has removed the commit, the head was read, which may
// have anything: then all of it has to be known.
func (r *Reading) isOf(k ledger.Key, made ledger.Revision, source ledger.Source, object digest.Digest, targets []ledger.Target, own *ledger.Revision) bool {
	at := r.Commit(k.Registration, made.Source.Repo, made.Source.Ref)
	// At one commit, an environment may have a Workload of its own beside that of the environment below.
	if at != "" && object != made.Object && (made.Source.Commit != at || placeOf("", made.Source) == placeOf("", source) && source.Commit != at) {
		return false
	}
	for _, t := range made.Targets {
		at := r.Commit(k.Registration, t.Source.Repo, t.Source.Ref)
		same := func(other ledger.Target) bool {
			return placeOf("", t.Source) == placeOf("", other.Source) && t.Path == other.Path
		}
		i := slices.IndexFunc(targets, same)
		switch {
		case at == "":
		case i >= 0:
			if t.ID != targets[i].ID {
				return false
			}
		case t.Source.Commit == at && slices.ContainsFunc(sourcesOf(source, targets), func(s ledger.Source) bool { return placeOf("", s) == placeOf("", t.Source) && s.Commit == at }):
		case own == nil || !slices.ContainsFunc(own.Targets, func(o ledger.Target) bool { return same(o) && o.ID == t.ID }):
			return false
		}
	}
	return true
}
