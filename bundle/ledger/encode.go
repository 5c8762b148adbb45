package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// Bounds on a ledger. Sizes are in bytes.
const (
	// MaxBytes bounds a ledger as it is stored, and MaxUnpackedBytes its JSON.
	MaxBytes         = 16 << 20
	MaxUnpackedBytes = 64 << 20
	// MaxRegistrationBytes bounds the JSON of the workloads of one registration, but for the platform's own.
	MaxRegistrationBytes = 2 << 20
	MaxWorkloads         = 20_000
	// MaxProofs bounds Workload.Proofs. The oldest go first, here and below.
	MaxProofs = 4
	// MaxRemoved and MaxUndone bound Ledger.Removed and Ledger.Undone, MaxEarlier bounds Base.Earlier and Proof.Met.
	MaxRemoved = 1_000
	MaxUndone  = 1_000
	MaxEarlier = 16
	// maxText bounds each name, reference, path and URL.
	maxText = 4 << 10
)

// Marshal sorts the ledger, and returns it as it is stored. Its bytes depend on the compressor and so on the Go release; the JSON does
// not. The error wraps bundle.ErrTooLarge for a ledger beyond the bounds.
func (l *Ledger) Marshal() ([]byte, error) {
	l.Sort()
	text, err := l.json()
	if err == nil && len(text) > MaxUnpackedBytes {
		err = fmt.Errorf("ledger of %d workloads: %d bytes: %w (at most %d)", len(l.Workloads), len(text), bundle.ErrTooLarge, MaxUnpackedBytes)
	}
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out) // without a name and a time
	_, err = zip.Write(text)
	if err = errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	if out.Len() > MaxBytes {
		return nil, fmt.Errorf("ledger of %d workloads: %d bytes packed: %w (at most %d)", len(l.Workloads), out.Len(), bundle.ErrTooLarge, MaxBytes)
	}
	return out.Bytes(), nil
}

func (l *Ledger) json() ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return text.Bytes(), err
}

// Size returns the length of a workload's JSON; see MaxRegistrationBytes.
func (w *Workload) Size() int {
	text, err := json.Marshal(w)
	if err != nil { // no value of ours fails
		return MaxUnpackedBytes
	}
	return len(text)
}

// Unpack returns the JSON of a ledger as it is stored, for people. Its errors are of type *bundle.Refusal.
func Unpack(packed []byte) ([]byte, error) {
	if len(packed) > MaxBytes {
		return nil, refuse(bundle.TooLarge, "%d bytes, at most %d are allowed", len(packed), MaxBytes)
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, refuse(bundle.BadContent, "not gzip: %v", err)
	}
	text, err := io.ReadAll(io.LimitReader(zip, MaxUnpackedBytes+1))
	switch {
	case err != nil:
		return nil, refuse(bundle.BadContent, "not gzip: %v", err)
	case len(text) > MaxUnpackedBytes:
		return nil, refuse(bundle.TooLarge, "more than %d bytes unpacked", MaxUnpackedBytes)
	}
	return text, nil
}

// Parse reads a ledger as it is stored, and checks its bounds and its order. Its errors are of type *bundle.Refusal; one of a later
// version of the format has the reason bundle.UnsupportedSchema.
func Parse(packed []byte) (*Ledger, error) {
	text, err := Unpack(packed)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, refuse(bundle.BadContent, "%v", err)
	}
	if head.Schema > Schema {
		return nil, refuse(bundle.UnsupportedSchema, "it has schema %d, this version reads %d: it needs a newer version of wherry", head.Schema, Schema)
	}
	l := new(Ledger)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, refuse(bundle.BadContent, "%v", err)
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

func refuse(reason bundle.Reason, format string, args ...any) error {
	return &bundle.Refusal{Reason: reason, Message: bundle.Clip("ledger: " + fmt.Sprintf(format, args...))}
}

// check returns a *bundle.Refusal for what is beyond the bounds, not in order, or no value of its kind.
func (l *Ledger) check() error {
	for _, list := range []struct {
		what    string
		n, most int
	}{{"workloads", len(l.Workloads), MaxWorkloads}, {"removed workloads", len(l.Removed), MaxRemoved}, {"undone revisions", len(l.Undone), MaxUndone}, {"earlier base commits", len(l.Base.Earlier), MaxEarlier}} {
		if list.n > list.most {
			return refuse(bundle.TooLarge, "%d %s, at most %d are allowed", list.n, list.what, list.most)
		}
	}
	if l.Schema != Schema {
		return refuse(bundle.BadContent, "it has schema %d, this version reads %d", l.Schema, Schema)
	}
	if !ordered(l.Registrations, func(a, b Registration) int { return strings.Compare(a.Name, b.Name) }) ||
		!ordered(l.Workloads, func(a, b Workload) int { return a.Key.Compare(b.Key) }) ||
		!ordered(l.Removed, func(a, b Removed) int { return a.Key.Compare(b.Key) }) {
		return refuse(bundle.BadContent, "its registrations or workloads are not in order, or there twice")
	}
	var c checker
	c.text(l.Base.Commit, l.Base.Unproved)
	for _, s := range l.Base.Earlier {
		c.text(s.Commit)
		c.notNegative(s.Seconds)
	}
	for ring := range l.Batches {
		c.text(ring)
	}
	for _, r := range l.Registrations {
		c.text(r.Name)
		c.source(r.Source)
	}
	for i := range l.Workloads {
		if w := &l.Workloads[i]; c.workload(w) != nil {
			return refuse(bundle.BadContent, "workload %q: %v", w.Key, c.err)
		}
	}
	for _, r := range l.Removed {
		c.key(r.Key)
		c.stays(r.In)
		for typ, names := range r.Assignments {
			c.text(typ)
			c.text(names...)
		}
	}
	for _, u := range l.Undone {
		c.key(u.Key)
		c.digest(u.Revision)
		if u.From != "" {
			c.digest(u.From)
		}
		c.text(u.Reason, u.Version)
	}
	if c.err != nil {
		return refuse(bundle.BadContent, "%v", c.err)
	}
	return nil
}

func ordered[T any](all []T, compare func(a, b T) int) bool {
	for i := 1; i < len(all); i++ {
		if compare(all[i-1], all[i]) >= 0 {
			return false
		}
	}
	return true
}

// checker keeps the first error.
type checker struct{ err error }

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checker) workload(w *Workload) error {
	c.key(w.Key)
	if len(w.Revisions)+len(w.Proofs) == 0 || len(w.Proofs) > MaxProofs {
		c.fail("it has %d revisions and %d proofs; it needs one of them, and may have %d proofs", len(w.Revisions), len(w.Proofs), MaxProofs)
	}
	seen := map[string]bool{}
	for _, r := range w.Revisions {
		c.digest(r.Revision)
		c.digest(r.Object)
		c.source(r.Source)
		c.stays(r.In)
		for _, in := range r.In {
			if seen[in.Ring] {
				c.fail("two revisions are in ring %q", in.Ring)
			}
			seen[in.Ring] = true
		}
		c.content(r.Targets, r.Artifacts)
		c.text(r.Version)
	}
	for _, p := range w.Proofs {
		if p.Removal == (p.Revision != "") {
			c.fail("a proof is of a revision or of a removal")
		}
		for _, d := range []digest.Digest{p.Revision, p.Object} {
			if d != "" {
				c.digest(d)
			}
		}
		c.source(p.Source)
		c.content(p.Targets, p.Artifacts)
		if len(p.Met) > MaxEarlier {
			c.fail("a proof has %d base commits, at most %d are allowed", len(p.Met), MaxEarlier)
		}
		for _, m := range p.Met {
			c.text(m.BaseCommit, m.By)
			c.notNegative(int64(m.Clusters))
			c.notNegative(int64(m.Compliant))
		}
	}
	return c.err
}

func (c *checker) key(k Key) {
	if k.Workload == "" {
		c.fail("a workload has no name")
	}
	c.text(k.Registration, k.Workload)
}

func (c *checker) stays(in []Stay) {
	if len(in) == 0 || !ordered(in, func(a, b Stay) int { return strings.Compare(a.Ring, b.Ring) }) {
		c.fail("its rings are not in order, or there are none")
	}
	for _, s := range in {
		c.text(s.Ring, s.BaseCommit, s.Unproved, s.From.Environment)
		if s.From.Revision != "" {
			c.digest(s.From.Revision)
		}
		c.text(s.Unlike...)
		if !ordered(s.Unlike, strings.Compare) {
			c.fail("ring %q: its cluster types are not in order", s.Ring)
		}
	}
}

func (c *checker) content(targets []Target, artifacts []Artifact) {
	if !ordered(targets, compareTargets) || !ordered(artifacts, compareArtifacts) {
		c.fail("its targets or artifacts are not in order, or there twice")
	}
	for _, t := range targets {
		c.source(t.Source)
		c.text(t.Name, t.Path, t.ID)
	}
	for _, a := range artifacts {
		c.text(string(a.Type), a.Reference, a.Digest, a.Version)
	}
}

func (c *checker) source(s Source) { c.text(s.Repo, s.Ref, s.Commit) }

func (c *checker) digest(d digest.Digest) {
	if err := d.Validate(); err != nil {
		c.fail("digest %q: %v", d, err)
	}
}

func (c *checker) text(all ...string) {
	for _, s := range all {
		if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			c.fail("a text of %d bytes has control characters or is too long", len(s))
		}
	}
}

func (c *checker) notNegative(n int64) {
	if n < 0 {
		c.fail("%d is negative", n)
	}
}

// Difference is how two ledgers differ. The zero value is that of equal ones.
type Difference struct {
	// Content is true if they differ in more than proofs and commits. Then the others are not known.
	Content bool
	// Proofs is true if they differ in proofs.
	Proofs bool
	// Commits is true if the same content was read at other commits.
	Commits bool
}

// Compare returns how two ledgers differ. A nil ledger is equal to nil alone. Both must be sorted.
func Compare(a, b *Ledger) Difference {
	if a == nil || b == nil {
		return Difference{Content: a != b}
	}
	bareA, bareB := a.withoutProofs(), b.withoutProofs()
	if !same(bareA.withoutCommits(), bareB.withoutCommits()) {
		return Difference{Content: true}
	}
	if same(a, b) {
		return Difference{}
	}
	return Difference{Proofs: !same(a.withoutCommits(), b.withoutCommits()), Commits: !same(bareA, bareB)}
}

// same reports whether two ledgers have the same JSON.
func same(a, b *Ledger) bool {
	textA, errA := a.json()
	textB, errB := b.json()
	return errA == nil && errB == nil && bytes.Equal(textA, textB)
}

// withoutProofs returns a copy of the ledger without proofs, and without workloads that have nothing else.
func (l *Ledger) withoutProofs() *Ledger {
	bare := *l
	bare.Workloads = nil
	for _, w := range l.Workloads {
		if w.Proofs = nil; len(w.Revisions) > 0 {
			bare.Workloads = append(bare.Workloads, w)
		}
	}
	return &bare
}

// withoutCommits returns a copy of the ledger without the commits of sources.
func (l *Ledger) withoutCommits() *Ledger {
	bare := *l
	bare.Registrations = slices.Clone(l.Registrations)
	for i := range bare.Registrations {
		bare.Registrations[i].Source.Commit = ""
	}
	bare.Workloads = slices.Clone(l.Workloads)
	for i := range bare.Workloads {
		w := &bare.Workloads[i]
		w.Revisions, w.Proofs = slices.Clone(w.Revisions), slices.Clone(w.Proofs)
		for j := range w.Revisions {
			r := &w.Revisions[j]
			r.Source.Commit, r.Targets = "", bareTargets(r.Targets)
		}
		for j := range w.Proofs {
			p := &w.Proofs[j]
			p.Source.Commit, p.Targets = "", bareTargets(p.Targets)
		}
	}
	return &bare
}

func bareTargets(all []Target) []Target {
	all = slices.Clone(all)
	for i := range all {
		all[i].Source.Commit = ""
	}
	return all
}
