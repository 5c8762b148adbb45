// Package ledger says which revision of each workload an environment has, since when, and which proofs it has seen.
//
// A Ledger is layer 0 of the manifest of an environment record (bundle.MediaTypeLedger), so that the record's signature covers it. [Ledger.Marshal] writes
// it and [Parse] reads it: the same ledger gives the same bytes, and a ledger beyond the bounds here is refused. Agents never read
// one. Nothing here reads a registry or a clock.
//
// A workload is a registration, empty for the platform's own, and the name of a Workload object: all its targets of an environment
// together. Its revision there is what [RevisionOf] makes of its object, the folders of its targets and its artifacts; commits are
// not part of it.
package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Schema is the version of the format that this code writes.
const Schema = 1

// Ledger is what one environment record says about workloads. Its lists are sorted; see [Ledger.Sort].
type Ledger struct {
	Schema int `json:"schema"`
	// Base is the base commit of the first ring.
	Base Base `json:"base,omitzero"`
	// Batches names, for each ring, the record that brought the batch of new revisions that the ring has.
	Batches map[string]Record `json:"batches,omitempty"`
	// Registrations are those of the environment, sorted by name, with the commit at which each was last read. The platform's own has
	// no name.
	Registrations []Registration `json:"registrations,omitempty"`
	// Workloads are those that a ring has, or is to get by their proofs, sorted by registration and name.
	Workloads []Workload `json:"workloads,omitempty"`
	// Removed are workloads that a ring has no more although the base has their registration, sorted like Workloads.
	Removed []Removed `json:"removed,omitempty"`
	// Undone are revisions that were taken back from the environment, oldest first. A revision stays out until another one comes, or
	// until a person says otherwise.
	Undone []Undone `json:"undone,omitempty"`
}

// Base is a base commit.
type Base struct {
	Commit string `json:"commit"`
	// Since is the time from which the environment has it without a break.
	Since time.Time `json:"since"`
	// Unproved is the reason of the person who took it without a proof; empty for all others.
	Unproved string `json:"unproved,omitempty"`
	// Earlier are the stays of base commits that ended, oldest first, each commit once.
	Earlier []Earlier `json:"earlier,omitempty"`
}

// Earlier is how long an environment had a base commit, all stays added up, in whole seconds.
type Earlier struct {
	Commit  string `json:"commit"`
	Seconds int64  `json:"seconds"`
}

// Source is a state of a git repository. Without a repository it is a plain folder, which has no commit. A reference that moves has no
// commit either: it is not known what clusters take.
type Source struct {
	Repo   string `json:"repo,omitempty"`
	Ref    string `json:"ref,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Registration is a WorkloadRegistration and where its workloads were read from.
type Registration struct {
	Name   string `json:"name"`
	Source Source `json:"source,omitzero"`
}

// Key names a workload.
type Key struct {
	// Registration is empty for the platform's own workloads.
	Registration string `json:"registration,omitempty"`
	Workload     string `json:"workload"`
}

// Compare orders keys by registration and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Registration, other.Registration), cmp.Compare(k.Workload, other.Workload))
}

// String returns REGISTRATION/WORKLOAD, as an exemption and a message name it.
func (k Key) String() string {
	if k.Registration == "" {
		return k.Workload
	}
	return k.Registration + "/" + k.Workload
}

// Workload is a workload with the revisions that the rings of the environment have.
type Workload struct {
	Key
	// Revisions are those that a ring has, newest first; see Revision.Newest. There are none of a workload that has proofs alone.
	Revisions []Revision `json:"revisions,omitempty"`
	// Proofs are about revisions of the environment below, newest first, at most MaxProofs.
	Proofs []Proof `json:"proofs,omitempty"`
}

// Revision is the content of a workload, and the rings that have it.
type Revision struct {
	// Revision is what RevisionOf makes of Object, Targets and Artifacts.
	Revision digest.Digest `json:"revision"`
	// Version is for people; empty if the targets have several.
	Version string `json:"version,omitempty"`
	// Object is the digest of the parsed Workload object, and Source the place that it was read from.
	Object digest.Digest `json:"object"`
	Source Source        `json:"source,omitzero"`
	// In are the rings that have the revision, sorted by name; one without a name if the platform names no rings.
	In []Stay `json:"in"`
	// Targets are the workload's targets in the environment, sorted by name.
	Targets []Target `json:"targets,omitempty"`
	// Artifacts are all images, charts, packages, models and OCI sources of the targets on all cluster types, sorted, each once.
	Artifacts []Artifact `json:"artifacts,omitempty"`
}

// Newest returns the place of the newest record among In; see Stay.Record.
func (r Revision) Newest() (newest Record) {
	for _, in := range r.In {
		if in.Record.Compare(newest) > 0 {
			newest = in.Record
		}
	}
	return newest
}

// Stay is the time in which a ring has a revision, or is without a workload.
type Stay struct {
	// Ring is empty if the platform names no rings.
	Ring string `json:"ring,omitempty"`
	// Since is the time from which the ring has it without a break, in UTC, in whole seconds.
	Since time.Time `json:"since"`
	// Record orders what comes and goes in one environment: the record in which it came to its first ring. It comes along from ring to
	// ring, and an undo gives the old one back.
	Record Record `json:"record"`
	// Before is the last record without it in the ring that got it first; zero if there was none.
	Before Record `json:"before,omitzero"`
	// BaseCommit is the base commit with which the files of the ring were rendered.
	BaseCommit string `json:"baseCommit,omitempty"`
	// From is the revision of the environment below of which it was made; zero in the first environment, and for what ran before there
	// was a chain.
	From From `json:"from,omitzero"`
	// Unproved is the reason of the person who took it without a proof; empty for all others.
	Unproved string `json:"unproved,omitempty"`
	// Unlike names the cluster types, sorted, that have other content of the workload in this ring: held, dropped, undone, or not
	// published to.
	Unlike []string `json:"unlike,omitempty"`
}

// Target is a deployment target of a workload.
type Target struct {
	// Name is the target's own, without the workload's.
	Name string `json:"name"`
	// Source is the place of what the target names; zero if that is no git repository and no folder.
	Source Source `json:"source,omitzero"`
	Path   string `json:"path,omitempty"`
	// ID is git's id of the folder or, if the build read more than the folder, the digest of the lines "PATH ID" of all that it read.
	// It is empty if the publisher does not read the folder.
	ID string `json:"id,omitempty"`
}

// Artifact is something outside the bundle that a workload needs.
type Artifact struct {
	Type bundle.ArtifactType `json:"type"`
	// Reference is the one in the manifests; the range of versions of a chart keeps its text.
	Reference string `json:"reference"`
	// Digest is what was taken, empty if it is not known. Version is what a range came to.
	Digest  string `json:"digest,omitempty"`
	Version string `json:"version,omitempty"`
}

// From is a revision of the environment below, or a removal there.
type From struct {
	Environment string `json:"environment"`
	// Revision is empty for a removal.
	Revision digest.Digest `json:"revision,omitempty"`
	// Record is that of its stay in the last ring below.
	Record Record `json:"record"`
}

// Proof says that clusters of the environment below ran a revision well.
type Proof struct {
	// Revision, Record, Object, Source, Targets and Artifacts are those of the environment below.
	Revision  digest.Digest `json:"revision"`
	Record    Record        `json:"record"`
	Object    digest.Digest `json:"object,omitempty"`
	Source    Source        `json:"source,omitzero"`
	Targets   []Target      `json:"targets,omitempty"`
	Artifacts []Artifact    `json:"artifacts,omitempty"`
	// Removal means that the workload was taken away there; then there is no Revision.
	Removal bool `json:"removal,omitempty"`
	// Proved is the time at which numbers and soak held together; zero if they have not yet.
	Proved time.Time `json:"proved,omitzero"`
	// Met are the base commits with which the numbers held once, oldest first.
	Met []Met `json:"met,omitempty"`
}

// Met says that enough clusters ran a revision well with a base commit.
type Met struct {
	BaseCommit string    `json:"baseCommit,omitempty"`
	At         time.Time `json:"at"`
	// By says who counted, such as "hub https://hub.example.com".
	By        string `json:"by,omitempty"`
	Clusters  int    `json:"clusters"`
	Compliant int    `json:"compliant"`
}

// Removed is a workload that rings have no more.
type Removed struct {
	Key
	In []Stay `json:"in"`
	// Assignments names, by cluster type, the assignments that were removed.
	Assignments map[string][]string `json:"assignments,omitempty"`
}

// Undone is a revision that was taken back.
type Undone struct {
	Key
	At time.Time `json:"at"`
	// Record is the one that took it back. A revision that comes in a later record is not undone.
	Record Record `json:"record"`
	Reason string `json:"reason,omitempty"`
	// Version is that of Revision, for people. Revision was taken back, and From is the revision of the environment below that it was
	// made of.
	Version  string        `json:"version,omitempty"`
	Revision digest.Digest `json:"revision"`
	From     digest.Digest `json:"from,omitempty"`
}

// String says what was taken back, when and why.
func (u Undone) String() string {
	text := u.Key.String()
	if u.Version != "" {
		text += " " + u.Version
	}
	text += " was undone at " + u.At.Format(time.RFC3339)
	if u.Reason != "" {
		text += " (" + u.Reason + ")"
	}
	return text
}

// Record names a record by the place in its tag: "s1-1795425120" is epoch 1, sequence 1795425120. The zero Record is none.
type Record struct{ Epoch, Sequence int64 }

// IsHeld reports whether something of the environment has come by a proof, or by a person's word in place of one: then it was in a chain,
// and not the first.
func (l *Ledger) IsHeld() bool {
	if l.Base.Unproved != "" {
		return true
	}
	for _, w := range l.Workloads {
		if len(w.Proofs) > 0 {
			return true
		}
		for _, r := range w.Revisions {
			if slices.ContainsFunc(r.In, func(s Stay) bool { return s.From != (From{}) || s.Unproved != "" }) {
				return true
			}
		}
	}
	return false
}

// RecordOf returns the name of a record.
func RecordOf(r bundle.EnvironmentRecord) Record { return Record{r.Epoch, r.Sequence} }

// Compare orders records as they were made.
func (r Record) Compare(other Record) int {
	return cmp.Or(cmp.Compare(r.Epoch, other.Epoch), cmp.Compare(r.Sequence, other.Sequence))
}

// String returns the record's tag, empty for none.
func (r Record) String() string {
	if r == (Record{}) {
		return ""
	}
	return bundle.EnvironmentRecord{Epoch: r.Epoch, Sequence: r.Sequence}.Tag()
}

// MarshalText writes the record's tag.
func (r Record) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a record's tag, as MarshalText writes it.
func (r *Record) UnmarshalText(text []byte) error {
	var read Record
	if len(text) > 0 {
		epoch, sequence, _ := strings.Cut(strings.TrimPrefix(string(text), "s"), "-")
		read.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
		read.Sequence, _ = strconv.ParseInt(sequence, 10, 64)
		if read.Epoch < 0 || read.Sequence < 1 || read.String() != string(text) {
			return fmt.Errorf("%s is not the tag of a record, such as s1-1795425120", bundle.Clip(strconv.Quote(string(text))))
		}
	}
	*r = read
	return nil
}

// RevisionOf returns the revision of a workload with this object, and these targets and artifacts, which are sorted: a digest of the
// object, the name and ID of each target, and the type, reference and digest of each artifact.
func RevisionOf(object digest.Digest, targets []Target, artifacts []Artifact) digest.Digest {
	d := digest.Canonical.Digester()
	fmt.Fprintf(d.Hash(), "%s\n", object)
	for _, t := range targets {
		fmt.Fprintf(d.Hash(), "target %q %q\n", t.Name, t.ID)
	}
	for _, a := range artifacts {
		fmt.Fprintf(d.Hash(), "artifact %q %q %q\n", a.Type, a.Reference, a.Digest)
	}
	return d.Digest()
}

// Find returns a workload; nil if no ring has it. The ledger must be sorted.
func (l *Ledger) Find(k Key) *Workload {
	i, found := slices.BinarySearchFunc(l.Workloads, k, func(w Workload, k Key) int { return w.Key.Compare(k) })
	if !found {
		return nil
	}
	return &l.Workloads[i]
}

// Batch returns the record that brought the batch which is on its way through rings, narrowest first: the first ring has it, and the last
// one does not. Since is the time from which the first has it. The record is zero if there is none, also because nothing of it is left.
func (l *Ledger) Batch(rings []string) (record Record, since time.Time) {
	if len(rings) < 2 {
		return Record{}, since
	}
	first, last := rings[0], rings[len(rings)-1]
	if record = l.Batches[first]; record == (Record{}) || record == l.Batches[last] {
		return Record{}, since
	}
	note := func(in []Stay) {
		for _, s := range in {
			if s.Ring == first && s.Record == record && (since.IsZero() || s.Since.Before(since)) {
				since = s.Since
			}
		}
	}
	for i := range l.Workloads {
		for _, r := range l.Workloads[i].Revisions {
			note(r.In)
		}
	}
	for i := range l.Removed {
		note(l.Removed[i].In)
	}
	if since.IsZero() {
		return Record{}, since
	}
	return record, since
}

// FindRemoved returns the removal of a workload; nil if there is none. The ledger must be sorted.
func (l *Ledger) FindRemoved(k Key) *Removed {
	i, found := slices.BinarySearchFunc(l.Removed, k, func(w Removed, k Key) int { return w.Key.Compare(k) })
	if !found {
		return nil
	}
	return &l.Removed[i]
}

// Registration returns a registration; nil if the ledger has none of that name.
func (l *Ledger) Registration(name string) *Registration {
	i, found := slices.BinarySearchFunc(l.Registrations, name, func(r Registration, name string) int { return cmp.Compare(r.Name, name) })
	if !found {
		return nil
	}
	return &l.Registrations[i]
}

// Named returns the workload that a person means by REGISTRATION/NAME, or by NAME if that is clear. It is nil if no ring has one of that
// name, and the error lists them if there are several.
func (l *Ledger) Named(name string) (found *Workload, err error) {
	var names []string
	for i := range l.Workloads {
		switch w := &l.Workloads[i]; {
		case len(w.Revisions) == 0:
		case w.Key.String() == name:
			return w, nil
		case w.Workload == name:
			found, names = w, append(names, w.Key.String())
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("workload %q is one of several: %s", name, strings.Join(names, ", "))
	}
	return found, nil
}

// Rejected returns the marks that keep revisions out of a ring, oldest first: those later than again, after which nothing else came to
// the ring. A revision that the ring has was taken back from other rings alone.
func (l *Ledger) Rejected(ring string, again time.Time) (all []Undone) {
	for _, u := range l.Undone {
		var stay Stay
		if w := l.Find(u.Key); w != nil {
			var has *Revision
			if has, stay = w.In(ring); has != nil && has.Revision == u.Revision {
				continue
			}
		}
		if r := l.FindRemoved(u.Key); r != nil && stay.Record == (Record{}) {
			if n := indexOf(r.In, ring); n >= 0 {
				stay = r.In[n]
			}
		}
		if u.At.After(again) && stay.Record.Compare(u.Record) <= 0 {
			all = append(all, u)
		}
	}
	return all
}

// In returns the revision that a ring has, and its stay there; nil if the ring does not have the workload.
func (w *Workload) In(ring string) (*Revision, Stay) {
	for i := range w.Revisions {
		if n := indexOf(w.Revisions[i].In, ring); n >= 0 {
			return &w.Revisions[i], w.Revisions[i].In[n]
		}
	}
	return nil, Stay{}
}

func indexOf(in []Stay, ring string) int {
	return slices.IndexFunc(in, func(s Stay) bool { return s.Ring == ring })
}

// Sort puts everything into its place: registrations, workloads and removals by name; revisions and proofs newest first; rings,
// targets and artifacts by name. What is listed oldest first stays as it is.
func (l *Ledger) Sort() {
	slices.SortFunc(l.Registrations, func(a, b Registration) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(l.Workloads, func(a, b Workload) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(l.Removed, func(a, b Removed) int { return a.Key.Compare(b.Key) })
	for i := range l.Workloads {
		w := &l.Workloads[i]
		for j := range w.Revisions {
			w.Revisions[j].sort()
		}
		slices.SortFunc(w.Revisions, func(a, b Revision) int {
			return cmp.Or(b.Newest().Compare(a.Newest()), cmp.Compare(a.Revision, b.Revision))
		})
		for _, p := range w.Proofs {
			slices.SortFunc(p.Targets, compareTargets)
			slices.SortFunc(p.Artifacts, compareArtifacts)
		}
		slices.SortFunc(w.Proofs, func(a, b Proof) int {
			return cmp.Or(b.Record.Compare(a.Record), cmp.Compare(a.Revision, b.Revision))
		})
	}
	for i := range l.Removed {
		sortStays(l.Removed[i].In)
		for _, names := range l.Removed[i].Assignments {
			slices.Sort(names)
		}
	}
}

func (r *Revision) sort() {
	sortStays(r.In)
	slices.SortFunc(r.Targets, compareTargets)
	slices.SortFunc(r.Artifacts, compareArtifacts)
}

func sortStays(in []Stay) {
	slices.SortFunc(in, func(a, b Stay) int { return cmp.Compare(a.Ring, b.Ring) })
	for _, s := range in {
		slices.Sort(s.Unlike)
	}
}

func compareTargets(a, b Target) int { return cmp.Compare(a.Name, b.Name) }

func compareArtifacts(a, b Artifact) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Reference, b.Reference), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Version, b.Version))
}

// SortArtifacts returns all sorted, each once.
func SortArtifacts(all []Artifact) []Artifact {
	slices.SortFunc(all, compareArtifacts)
	return slices.Compact(all)
}

// DropOldest drops the oldest removals and marks beyond the bounds.
func (l *Ledger) DropOldest() {
	if more := len(l.Undone) - MaxUndone; more > 0 {
		l.Undone = l.Undone[more:]
	}
	if more := len(l.Removed) - MaxRemoved; more > 0 {
		newest := func(r Removed) Record { return Revision{In: r.In}.Newest() }
		l.Removed = slices.Clone(l.Removed)
		slices.SortStableFunc(l.Removed, func(a, b Removed) int { return newest(a).Compare(newest(b)) })
		l.Removed = l.Removed[more:]
		l.Sort()
	}
}
