package assignments

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Rollout is the state of all assignments. It decides which of them have to wait; docs/workloads.md describes the rules.
type Rollout struct {
	records  map[string]*Record
	adapter  func(bundle.Assignment) string
	deadline time.Duration
	holds    []func(Record) Wait
}

// Wait is why an assignment may not begin yet. The zero value is that of one that may.
type Wait struct {
	State           bundle.State // Pending, or Pulling
	Reason, Message string
	// Moving is true if it ends by itself, so that higher waves wait as well. What needs a person, or a registry that
	// is out of reach, keeps no other assignment.
	Moving bool
}

// HoldBack has an assignment that is to get new content wait for as long as hold returns a Wait with a reason. It comes
// before waves and dependencies. Hold is called often; it costs no more than a look into a map. Of several holds, the
// one that was given first counts.
func (l *Rollout) HoldBack(hold func(Record) Wait) { l.holds = append(l.holds, hold) }

// held returns the first hold of r.
func (l *Rollout) held(r *Record) Wait {
	for _, hold := range l.holds {
		if w := hold(*r); w.Reason != "" {
			return w
		}
	}
	return Wait{}
}

// NewRollout returns the rollout of assignments with these records. Adapter returns the engine for an assignment; deadline
// bounds the time for which an assignment in progress keeps others waiting.
func NewRollout(records []Record, adapter func(bundle.Assignment) string, deadline time.Duration) *Rollout {
	l := &Rollout{records: map[string]*Record{}, adapter: adapter, deadline: deadline}
	for _, r := range records {
		l.Put(r)
	}
	return l
}

// Of returns the record of an assignment, and the zero value where there is none.
func (l *Rollout) Of(name string) Record {
	if r := l.records[name]; r != nil {
		return *r
	}
	return Record{}
}

// Put replaces the record of an assignment.
func (l *Rollout) Put(next Record) {
	if r := l.records[next.Spec.Name]; r != nil {
		*r = next
	} else {
		l.records[next.Spec.Name] = &next
	}
}

// Remove forgets an assignment that is gone.
func (l *Rollout) Remove(name string) { delete(l.records, name) }

// All yields the records, in no order.
func (l *Rollout) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range l.records {
			if !yield(*r) {
				return
			}
		}
	}
}

// Contains reports whether an assignment has a record for which f is true.
func (l *Rollout) Contains(f func(Record) bool) bool {
	for _, r := range l.records {
		if f(*r) {
			return true
		}
	}
	return false
}

// Sorted yields the records as they are to be begun, as far as nothing holds them back: by wave and name,
// and then those to be removed, the other way round. A record that changes meanwhile is yielded as it is by then.
func (l *Rollout) Sorted() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		rs := slices.Collect(maps.Values(l.records)) // pointers: a record is large, and every pass sorts all of them
		slices.SortFunc(rs, func(a, b *Record) int {
			switch {
			case a.Removing && b.Removing:
				return b.compare(a)
			case a.Removing:
				return 1
			case b.Removing:
				return -1
			}
			return a.compare(b)
		})
		for _, r := range rs {
			if !yield(*r) {
				return
			}
		}
	}
}

// compare orders by wave and name.
func (r *Record) compare(o *Record) int {
	return cmp.Or(cmp.Compare(r.Spec.Wave, o.Spec.Wave), cmp.Compare(r.Spec.Name, o.Spec.Name))
}

// Gate decides which assignments may begin at one moment: it is valid until a record changes.
type Gate struct {
	of  *Rollout
	now time.Time
	// first keeps higher waves from beginning, last keeps lower waves from being removed; nil if no assignment
	// does.
	first, last *Record
	// needers are the assignments that need the one with that name.
	needers map[string][]*Record
}

// Gate returns the gate at now.
func (l *Rollout) Gate(now time.Time) Gate {
	g := Gate{of: l, now: now, needers: map[string][]*Record{}}
	for _, r := range l.records {
		for _, name := range r.needs() {
			g.needers[name] = append(g.needers[name], r)
		}
	}
	for _, r := range l.records {
		switch {
		case !g.underWay(r):
		case r.Removing && (g.last == nil || g.last.compare(r) < 0):
			g.last = r
		case !r.Removing && (g.first == nil || g.first.compare(r) > 0):
			g.first = r
		}
	}
	return g
}

// underWay reports whether r keeps other waves waiting: it has begun and is not through, for no longer than
// the deadline, or could begin if it were not for its wave. What has failed, and what waits for a
// dependency, keeps nobody.
func (g Gate) underWay(r *Record) bool {
	switch {
	case !r.Unsettled():
		return false
	case r.Removing && r.AppliedAt.IsZero():
		return g.dependent(r) == nil
	case !r.Removing && r.Stale(g.of.adapter(r.Spec)):
		w := g.of.held(r)
		return (w.Reason == "" || w.Moving) && !slices.ContainsFunc(r.Spec.DependsOn, g.unready)
	}
	return g.now.Sub(r.AppliedAt).Abs() <= g.of.deadline // a clock may be set back
}

// Waits returns why r may not begin yet; its Reason is empty if r may. An assignment that is only applied again
// has begun already, and never waits.
func (g Gate) Waits(r Record) Wait {
	if r.Removing {
		reason, message := g.waitsToGo(&r)
		return Wait{State: bundle.Pending, Reason: reason, Message: message}
	}
	if !r.Stale(g.of.adapter(r.Spec)) {
		return Wait{}
	}
	if w := g.of.held(&r); w.Reason != "" {
		return w
	}
	reason, message := g.waitsForOthers(r)
	return Wait{State: bundle.Pending, Reason: reason, Message: message}
}

func (g Gate) waitsForOthers(r Record) (reason, message string) {
	var unready []string
	for _, name := range r.Spec.DependsOn {
		if g.unready(name) {
			unready = append(unready, g.of.standing(name))
		}
	}
	if len(unready) > 0 {
		return ReasonDependencyNotReady, reconcilers.Clip("waits for " + strings.Join(unready, ", "))
	}
	if f := g.first; f != nil && f.Spec.Wave < r.Spec.Wave {
		return ReasonWaveNotReady, fmt.Sprintf("wave %d begins after wave %d: %s", r.Spec.Wave, f.Spec.Wave, g.of.standing(f.Spec.Name))
	}
	return "", ""
}

func (g Gate) waitsToGo(r *Record) (reason, message string) {
	if !r.AppliedAt.IsZero() {
		return "", ""
	}
	if d := g.dependent(r); d != nil {
		return ReasonRemoving, "waits for " + g.of.standing(d.Spec.Name) + ", which depends on it"
	}
	if l := g.last; l != nil && l.Spec.Wave > r.Spec.Wave {
		return ReasonRemoving, fmt.Sprintf("wave %d goes after wave %d: %s", r.Spec.Wave, l.Spec.Wave, g.of.standing(l.Spec.Name))
	}
	return "", ""
}

// unready reports whether an assignment is not compliant in the content that it is to have.
func (g Gate) unready(name string) bool {
	d := g.of.records[name]
	return d == nil || d.Removing || d.Item.State != bundle.Compliant || d.Stale(g.of.adapter(d.Spec))
}

// dependent returns an assignment that still needs r, or nil. One that r needs in turn does not count, as
// both would stay for ever.
func (g Gate) dependent(r *Record) *Record {
	var found *Record
	for _, d := range g.needers[r.Spec.Name] {
		if (found == nil || d.compare(found) < 0) && !g.leads(r, d.Spec.Name, map[string]bool{}) {
			found = d
		}
	}
	return found
}

// leads reports whether r needs the named assignment, by whatever way.
func (g Gate) leads(r *Record, to string, seen map[string]bool) bool {
	if r == nil || seen[r.Spec.Name] {
		return false
	}
	if r.Spec.Name == to {
		return true
	}
	seen[r.Spec.Name] = true
	return slices.ContainsFunc(r.needs(), func(name string) bool { return g.leads(g.of.records[name], to, seen) })
}

// standing names an assignment and says how it stands.
func (l *Rollout) standing(name string) string {
	r := l.records[name]
	switch {
	case r == nil:
		return name + " (not in this release)"
	case r.Item.Reason == "":
		return fmt.Sprintf("%s (%s)", name, r.Item.State)
	}
	return fmt.Sprintf("%s (%s: %s)", name, r.Item.State, r.Item.Reason)
}
