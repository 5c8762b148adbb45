package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/usage"
)

// Workload says what becomes of one workload. Its JSON form is an interface.
type Workload struct {
	ledger.Key
	// Left is what rings had, and Previous what they get; it is the zero value if nothing is to be done.
	Left     Revision `json:"left"`
	Previous Revision `json:"previous,omitzero"`
}

// Revision names a revision of a workload.
type Revision struct {
	Version  string        `json:"version,omitempty"` // may be empty
	Revision digest.Digest `json:"revision"`
}

// String returns the version, or the first digits of the revision.
func (r Revision) String() string {
	return cmp.Or(r.Version, r.short())
}

func (r Revision) short() string {
	const digits = 12
	text := strings.TrimPrefix(r.Revision.String(), digest.Canonical.String()+":")
	return text[:min(digits, len(text))]
}

// Names names Left and Previous for people: by their versions if these differ.
func (w Workload) Names() (left, previous string) {
	if w.Left.Version == w.Previous.Version {
		return w.Left.short(), w.Previous.short()
	}
	return w.Left.String(), w.Previous.String()
}

func revisionOf(r *ledger.Revision) Revision { return Revision{r.Version, r.Revision} }

// earlier is what a ring had of a workload.
type earlier struct {
	at   *bundle.VerifiedEnvironment
	ring string // that had it
	ledger.Revision
	all []ledger.Proof // of the workload
}

// proofs returns the proof of what e was made of, if there is one.
func (e earlier) proofs() []ledger.Proof {
	from := e.In[0].From
	return slices.DeleteFunc(slices.Clone(e.all), func(p ledger.Proof) bool { return p.Revision != from.Revision || p.Record != from.Record })
}

// workload finds what rings had of one workload, and packs it with all else that they have.
func (s *search) workload(ctx context.Context) (found, error) {
	if s.ClusterType != "" {
		return found{}, usage.Errorf("a workload is undone on all cluster types at once")
	}
	if err := s.checkScope(); err != nil {
		return found{}, err
	}
	now, err := s.record.Ledger(ctx, s.record.Verified)
	if err != nil {
		return found{}, err
	}
	w, has, rings, err := s.hasOf(now)
	if err != nil {
		return found{}, err
	}
	f := found{workload: &Workload{Key: w.Key, Left: revisionOf(has)}}
	back, err := s.earlierOf(ctx, now, w.Key, has, rings)
	if len(back) == 0 || err != nil {
		return f, err
	}
	var first string // the narrowest ring, where new content comes first
	for _, ring := range rings {
		if _, is := back[ring]; is {
			first = ring
			break
		}
	}
	from := back[first]
	f.previous, f.workload.Previous = from.at, revisionOf(&from.Revision)
	_, stay := w.In(first)
	left, previous := f.workload.Names()
	goesBackTo := from.at.Record.Tag()
	if goesBackTo == s.now.Tag() { // another ring has it
		goesBackTo = stay.Before.String()
	}
	f.content = &publisher.Content{
		Why: "a workload is undone", Previous: goesBackTo, Recorded: true,
		BaseCommit: s.now.BaseCommit, BaseID: s.now.BaseID, EnvironmentCommit: s.now.EnvironmentCommit, Incomplete: s.now.Incomplete,
		Message: fmt.Sprintf("%s back from %s to %s: %s", w.Key, left, previous, s.Reason),
		Part: &publisher.Part{
			Key: w.Key, Rings: map[string]ledger.Revision{}, Proofs: from.proofs(),
			Undone: ledger.Undone{Key: w.Key, Reason: s.Reason, Version: has.Version, Revision: has.Revision, From: stay.From.Revision},
		},
	}
	if bundle.CheckMessage(f.content.Message) != nil {
		f.content.Message = ""
	}
	for ring, e := range back {
		f.content.Part.Rings[ring] = e.Revision
	}
	f.content.Packed, f.changes, err = s.pack(ctx, w.Key, back)
	return f, err
}

// hasOf returns the workload that s is about, the revision to take back, and the rings that have it, narrowest first: the newest one,
// or that of a ring.
func (s *search) hasOf(now *ledger.Ledger) (*ledger.Workload, *ledger.Revision, []string, error) {
	if now == nil {
		return nil, nil, nil, fmt.Errorf("%w: record %s does not say which revisions of workloads it has: publish once", ErrNoPrevious, s.now.Tag())
	}
	w, err := now.Named(s.Workload)
	if err != nil {
		return nil, nil, nil, &usage.Error{Err: err}
	}
	if w == nil {
		return nil, nil, nil, usage.Errorf("environment %s has no workload %q", s.Environment, s.Workload)
	}
	if s.Ring != "" {
		r, _ := w.In(s.Ring)
		if r == nil {
			return nil, nil, nil, usage.Errorf("ring %s does not have workload %s", s.Ring, w.Key)
		}
		return w, r, []string{s.Ring}, nil
	}
	r := &w.Revisions[0]
	var rings []string
	for _, ring := range s.ledgerRings() {
		if has, _ := w.In(ring); has == r {
			rings = append(rings, ring)
		}
	}
	if len(rings) == 0 {
		return nil, nil, nil, usage.Errorf("no ring of environment %s has workload %s any more", s.Environment, w.Key)
	}
	return w, r, rings, nil
}

// ledgerRings returns the rings of the present record as its ledger names them, narrowest first.
func (s *search) ledgerRings() []string {
	if order := publisher.RingOrder(s.now); len(order) > 0 {
		return order
	}
	return []string{""}
}

// earlierOf returns what rings had before they got a revision, or what s.To names; nothing if it was undone already.
func (s *search) earlierOf(ctx context.Context, now *ledger.Ledger, key ledger.Key, has *ledger.Revision, rings []string) (map[string]earlier, error) {
	back := map[string]earlier{}
	if s.To != "" {
		to, err := s.version(ctx, key, has)
		if err != nil || to == nil {
			return nil, err
		}
		for _, ring := range rings {
			back[ring] = *to
		}
		return back, nil
	}
	known := map[ledger.Record]*ledgerAt{}
	for _, ring := range rings {
		if slices.ContainsFunc(now.Rejected(ring, time.Time{}), func(u ledger.Undone) bool { return u.Key == key }) {
			continue
		}
		e, err := s.entryBefore(ctx, now, key, has, ring, known)
		if err != nil {
			return nil, err
		}
		back[ring] = *e
	}
	return back, nil
}

// ledgerAt is an earlier record with its ledger.
type ledgerAt struct {
	record *bundle.VerifiedEnvironment
	ledger *ledger.Ledger
}

// entryBefore returns what a ring had of a workload before a revision: never what was undone since.
func (s *search) entryBefore(ctx context.Context, now *ledger.Ledger, key ledger.Key, has *ledger.Revision, ring string, known map[ledger.Record]*ledgerAt) (*earlier, error) {
	stay := has.In[slices.IndexFunc(has.In, func(in ledger.Stay) bool { return in.Ring == ring })]
	for range MaxRecords {
		at := known[stay.Before]
		if at == nil && stay.Before != (ledger.Record{}) {
			v, err := s.at.RecordAt(ctx, s.record, stay.Before.String())
			if err != nil {
				return nil, err
			}
			if v == nil {
				return nil, s.gone(ctx, key, has, stay.Before)
			}
			at = &ledgerAt{record: v}
			if at.ledger, err = s.record.Ledger(ctx, v); err != nil {
				return nil, err
			}
			known[stay.Before] = at
		}
		var w *ledger.Workload
		if at != nil && at.ledger != nil {
			w = at.ledger.Find(key)
		}
		if w == nil {
			break
		}
		r, was := w.In(ring)
		if r == nil {
			break
		}
		undone := slices.ContainsFunc(now.Undone, func(u ledger.Undone) bool {
			return u.Key == key && u.Revision == r.Revision && was.Record.Compare(u.Record) <= 0
		})
		if r.Revision != has.Revision && !undone {
			return &earlier{at.record, ring, inRing(r, was), w.Proofs}, nil
		}
		stay = was
	}
	return nil, fmt.Errorf("%w of %s: it came with %s", ErrNoPrevious, key, revisionOf(has))
}

// inRing returns a revision with one of its stays alone.
func inRing(r *ledger.Revision, stay ledger.Stay) ledger.Revision {
	one := *r
	one.In = []ledger.Stay{stay}
	return one
}

// entries yields what records have of a workload, newest first, until one cannot be read.
func (s *search) entries(ctx context.Context, key ledger.Key) iter.Seq2[earlier, error] {
	return func(yield func(earlier, error) bool) {
		for v, err := range s.records(ctx, s.newest()) {
			var l *ledger.Ledger
			if err == nil {
				l, err = s.record.Ledger(ctx, v)
			}
			if err != nil {
				yield(earlier{}, err)
				return
			}
			if l == nil || published.OrderOfRecord(v).Compare(published.OrderOfRecord(s.record.Verified)) > 0 || l.Find(key) == nil {
				continue
			}
			w := l.Find(key)
			for i := range w.Revisions {
				r := &w.Revisions[i]
				if !yield(earlier{v, r.In[0].Ring, inRing(r, r.In[0]), w.Proofs}, nil) {
					return
				}
			}
		}
	}
}

// version returns the newest content of a workload that s.To names; nil if that is what it has.
func (s *search) version(ctx context.Context, key ledger.Key, has *ledger.Revision) (*earlier, error) {
	const least = 7 // digits of a revision
	named := func(r ledger.Revision) bool {
		return r.Version == s.To || len(s.To) >= least && strings.HasPrefix(r.Revision.Encoded(), strings.ToLower(s.To))
	}
	if named(*has) {
		return nil, nil
	}
	for e, err := range s.entries(ctx, key) {
		if err != nil || named(e.Revision) {
			return &e, err
		}
	}
	left, err := s.left(ctx, key, has)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w of %s that is %q: %s", ErrNoPrevious, key, s.To, left)
}

// gone returns the error for a record that is not there any more.
func (s *search) gone(ctx context.Context, key ledger.Key, has *ledger.Revision, record ledger.Record) error {
	left, err := s.left(ctx, key, has)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w of %s: record %s, the last one before %s, is not there any more: %s", ErrNoPrevious, key, record, revisionOf(has), left)
}

// left says which other content of a workload records still have.
func (s *search) left(ctx context.Context, key ledger.Key, has *ledger.Revision) (string, error) {
	const most = 5
	var names []string
	seen := map[digest.Digest]bool{has.Revision: true}
	for e, err := range s.entries(ctx, key) {
		if err != nil {
			return "", err
		}
		if seen[e.Revision.Revision] {
			continue
		}
		if seen[e.Revision.Revision] = true; len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, revisionOf(&e.Revision).String())
	}
	if len(names) == 0 {
		return "nothing else of it is left", nil
	}
	return "what is left is " + strings.Join(names, ", "), nil
}

// pack returns, by cluster type and ring, what rings have with the workload as others had it, and what that changes.
func (s *search) pack(ctx context.Context, key ledger.Key, back map[string]earlier) (map[string]map[string]publisher.Packed, []Change, error) {
	order := publisher.RingOrder(s.now)
	var mu sync.Mutex
	all := map[string]map[string]publisher.Packed{}
	changes := map[string][]Change{}
	var emptied []string
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, name := range s.now.Types() {
		g.Go(func() error {
			p := &packing{s, name, key, map[[2]digest.Digest]*repacked{}}
			rings, plan, empties := map[string]publisher.Packed{}, new(Plan), false
			for _, ring := range s.rings(name) {
				of := ring
				if ring == "" && len(order) > 0 { // agents without a ring have what the last ring has
					of = order[len(order)-1]
				}
				e, is := back[of]
				has := releaseOf(s.now, name, ring)
				if !is || has == "" {
					continue
				}
				r, err := p.with(reading, has, releaseOf(e.at.Record, name, e.ring))
				if err != nil {
					return err
				}
				if empties = empties || r.empties; r.packed != nil {
					rings[ring] = *r.packed
					plan.add(name, ring, r.has, r.had)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if empties {
				emptied = append(emptied, name)
			}
			if len(rings) > 0 {
				all[name], changes[name] = rings, plan.Changes
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if slices.Sort(emptied); len(emptied) > 0 && !s.AllowEmpty {
		return nil, nil, &EmptiesError{emptied, key.String()}
	}
	sorted := []Change{}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		sorted = append(sorted, changes[name]...)
	}
	return all, sorted, nil
}

// packing packs what rings of one cluster type get.
type packing struct {
	*search
	name string
	key  ledger.Key
	made map[[2]digest.Digest]*repacked // by the release that a ring has and the one that it had
}

// repacked is what a release becomes.
type repacked struct {
	has, had *bundle.Verified  // had is nil if the cluster type had nothing then
	packed   *publisher.Packed // nil if nothing changes
	empties  bool              // it loses the workload
}

// with returns the release has with the workload as the release had has it; had is empty if there was none.
func (p *packing) with(ctx context.Context, has, had digest.Digest) (*repacked, error) {
	if known := p.made[[2]digest.Digest{has, had}]; known != nil {
		return known, nil
	}
	made := new(repacked)
	p.made[[2]digest.Digest{has, had}] = made
	if has == had {
		return made, nil
	}
	v, now, err := p.open(ctx, has)
	if err != nil {
		return nil, err
	}
	defer func() { _ = now.Close() }() // a temporary folder
	made.has = v
	then := new(published.Tree)
	if had != "" {
		if made.had, then, err = p.open(ctx, had); err != nil {
			return nil, err
		}
		defer func() { _ = then.Close() }()
	}
	held, empties, err := p.lines(now, then)
	if err != nil || held == nil {
		return made, err
	}
	made.empties = empties
	document, rows, err := now.Sites()
	if err == nil && document == nil && had != "" { // what comes back may need them
		document, rows, err = then.Sites()
	}
	if err != nil {
		return nil, state.LostIfRefused(err, "release %s", v.Name())
	}
	files, err := pack.SiteFiles(document, rows)
	if err != nil {
		return nil, err
	}
	tree, artifacts, err := pack.Tree(nil, held, files...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if tree.Content != v.Release.Content {
		made.packed = &publisher.Packed{Of: v, Tree: tree, Artifacts: artifacts}
	}
	return made, nil
}

// open returns a release and its tree, which the caller closes.
func (p *packing) open(ctx context.Context, d digest.Digest) (*bundle.Verified, *published.Tree, error) {
	v, err := p.at.ReleaseOf(ctx, p.name, d)
	if err != nil {
		return nil, nil, err
	}
	t, err := p.at.Place.Type(v.Release.Stream())
	if err != nil {
		return nil, nil, err
	}
	tree, err := t.Tree(ctx, v)
	if err != nil {
		return nil, nil, state.LostIfRefused(err, "%s: release %s", p.name, v.Name())
	}
	return v, tree, nil
}

// lines returns the assignments of now, with those of the workload as then has them; nil if neither has any. Empties is true if then has
// none.
func (p *packing) lines(now, then *published.Tree) (held []pack.Held, empties bool, err error) {
	is := func(a bundle.Assignment) bool {
		return a.Registration == p.key.Registration && a.Workload == p.key.Workload
	}
	if !slices.ContainsFunc(now.Assignments, is) && !slices.ContainsFunc(then.Assignments, is) {
		return nil, false, nil
	}
	add := func(t *published.Tree, a bundle.Assignment) {
		files, failed := t.Files(a)
		held = append(held, pack.Held{Line: a, Files: files, Artifacts: t.ArtifactsOf(a.Name), Sources: t.SourcesOf(a.Name)})
		err = errors.Join(err, failed)
	}
	taken, accounts := map[string]ledger.Key{}, map[string]string{}
	for _, a := range now.Assignments {
		if is(a) {
			accounts[a.Name] = a.ServiceAccount
			continue
		}
		taken[a.Name] = ledger.Key{Registration: a.Registration, Workload: a.Workload}
		add(now, a)
	}
	back := 0
	for _, a := range then.Assignments {
		if !is(a) {
			continue
		}
		if other, is := taken[a.Name]; is {
			return nil, false, usage.Errorf("%s: assignment %s is one of %s now", p.name, a.Name, other)
		}
		if account, is := accounts[a.Name]; is { // permissions follow the present platform
			a.ServiceAccount = account
		}
		add(then, a)
		back++
	}
	return held, back == 0, err
}
