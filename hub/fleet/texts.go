package fleet

import (
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// A table holds each value once. Rows have handles: places in values. Readers keep a copy of the slice, and read the places
// that their rows name; the writer appends, and uses a place again only in a slice that no older reader has.
type table[T comparable] struct {
	values  []T
	handles map[T]uint32
	free    []uint32
}

// put returns the handle of v.
func (t *table[T]) put(v T) uint32 {
	if h, known := t.handles[v]; known {
		return h
	}
	if t.handles == nil {
		t.handles = map[T]uint32{}
	}
	var h uint32
	if n := len(t.free); n > 0 {
		h, t.free = t.free[n-1], t.free[:n-1]
		t.values[h] = v
	} else {
		h = uint32(len(t.values)) //nolint:gosec // a fleet has less than 2^32 texts
		t.values = append(t.values, v)
	}
	t.handles[v] = h
	return h
}

// size is the number of values.
func (t *table[T]) size() int { return len(t.values) - len(t.free) }

// sweep forgets the values that are not used.
func (t *table[T]) sweep(used []bool) {
	var none T
	values := make([]T, len(t.values))
	copy(values, t.values)
	t.free = t.free[:0]
	for h := len(values) - 1; h >= 0; h-- {
		if used[h] {
			continue
		}
		delete(t.handles, values[h])
		values[h] = none
		t.free = append(t.free, uint32(h)) //nolint:gosec // see put
	}
	t.values = values
}

// tables are the values that rows have in common.
type tables struct {
	texts table[string]
	kinds table[kind]
	// messages are kept while they have few bytes in all, at most maxMessages. The first is none.
	messages                  table[string]
	messageBytes, maxMessages int
	// releases are those that clusters run, or were offered. The first is none.
	releases table[bundle.ReportRelease]
	// kept is how many values there were after the last sweep.
	kept int
}

// kind is what an assignment is, by handles: all that does not change while it runs.
type kind struct {
	assignment, workspace, application, workload, target, adapter uint32
}

// The handles of texts that every table has. Those of the known states follow them, in the order of store.States.
const (
	noText uint32 = iota
	firstState
)

var (
	knownStates                                 = store.States()
	staleState, unreportedState, compliantState = stateHandle(store.Stale), stateHandle(store.Unreported), stateHandle(bundle.Compliant)
	rejectedState                               = stateHandle(bundle.Rejected)
)

// stateHandle returns the handle of a known state.
func stateHandle(s bundle.State) uint32 {
	for i, known := range knownStates {
		if s == known {
			return firstState + uint32(i) //nolint:gosec // there are few
		}
	}
	panic("state " + s + " has no handle")
}

func newTables() *tables {
	t := &tables{maxMessages: maxMessages}
	t.texts.put("")
	for _, s := range knownStates {
		t.texts.put(string(s))
	}
	t.releases.put(bundle.ReportRelease{})
	t.messages.put("")
	t.kept = t.size()
	return t
}

func (t *tables) size() int {
	return t.texts.size() + t.kinds.size() + t.releases.size() + t.messages.size()
}

// maxMessages is the usual bound of the messages that are kept, in bytes. The same problem has the same message on many clusters.
const maxMessages = 16 << 20

// message returns the handle of a message, or that it is not kept.
func (t *tables) message(s string) (h uint32, unread bool) {
	if h, known := t.messages.handles[s]; known {
		return h, false
	}
	if t.messageBytes+len(s) > t.maxMessages {
		return 0, true
	}
	t.messageBytes += len(s)
	return t.messages.put(s), false
}

// slack is the garbage that is not worth a sweep.
const slack = 1 << 14

// crowded reports whether there is as much garbage as there are values in use. Agents may send new texts in each report.
func (t *tables) crowded() bool { return t.size() > 2*t.kept+slack }

// sweep forgets what none of the clusters uses.
func (t *tables) sweep(clusters []*cluster) {
	texts, kinds := make([]bool, len(t.texts.values)), make([]bool, len(t.kinds.values))
	releases, messages := make([]bool, len(t.releases.values)), make([]bool, len(t.messages.values))
	for h := range int(firstState) + len(knownStates) {
		texts[h] = true
	}
	releases[0], messages[0] = true, true
	for _, c := range clusters {
		for _, h := range []uint32{c.platform, c.environment, c.typ, c.ring, c.state, c.reason, c.agentVersion, c.mismatch, c.sharedHow, c.via} {
			texts[h] = true
		}
		for _, l := range c.labels {
			texts[l.key], texts[l.value] = true, true
		}
		releases[c.offered], releases[c.observed], messages[c.message] = true, true, true
		for i := range c.deployments {
			d := &c.deployments[i]
			kinds[d.kind], messages[d.message] = true, true
			texts[d.state], texts[d.reason], texts[d.version], texts[d.config], texts[d.content], texts[d.revision] = true, true, true, true, true, true
		}
	}
	for h, used := range kinds {
		if k := t.kinds.values[h]; used {
			texts[k.assignment], texts[k.workspace], texts[k.application], texts[k.workload], texts[k.target], texts[k.adapter] = true, true, true, true, true, true
		}
	}
	t.texts.sweep(texts)
	t.kinds.sweep(kinds)
	t.releases.sweep(releases)
	t.messages.sweep(messages)
	t.messageBytes = 0
	for _, m := range t.messages.values {
		t.messageBytes += len(m)
	}
	t.kept = t.size()
}
