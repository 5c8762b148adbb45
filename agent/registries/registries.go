// Package registries keeps the order of an agent's registries, and the last answer of each.
//
// A pass begins with Book.Due, which lists the registries to ask, and calls Book.Note with each answer. A registry that did
// not answer rests for a while, so that a dead one does not delay each pass. Next makes the rows that the state file keeps
// and status shows.
//
// The package makes no request, reads no clock and verifies no answer: its caller does.
package registries

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

const (
	// firstRest and longestRest bound the rest of a registry that does not answer.
	firstRest, longestRest = 30 * time.Second, 10 * time.Minute
	// Patience bounds the wait for one registry's answer while another one may be asked. Only once none has answered,
	// those that were cut short are given the time that they need.
	Patience = 15 * time.Second
)

// Registry is a place that releases and trust documents come from.
type Registry struct {
	// Place names it to people, such as oci://first-box:5001/edge.
	Place string
	// Releases is the repository of the agent's stream, and Trust that of trust documents, which may be nil.
	Releases, Trust bundle.Source
}

// Known is the knowledge of a process about one registry.
type Known struct {
	// Seen is the manifest that the moving tag named when it was asked last in this process. It may be unjudged.
	Seen *bundle.Blob
	// Older is a verified manifest that is older than the agent's release. OlderBy identifies the trust
	// and the settings of that verification: if they change, it is verified again.
	Older   digest.Digest
	OlderBy string

	failures int
	rests    time.Time // until then it is not asked while another one answers
}

// Book holds the knowledge of a process about its registries. The zero value is empty. Only the running pass may use it.
type Book struct{ known []*Known }

// Of returns the knowledge about the registry at place i of the order, for reading and writing.
func (b *Book) Of(i int) *Known {
	for len(b.known) <= i {
		b.known = append(b.known, &Known{})
	}
	return b.known[i]
}

// Due returns the places of n registries: those that are asked now in their order, and those that rest and are asked only
// if none of the others answers. If all rest, or all is true, none rests.
func (b *Book) Due(n int, now time.Time, all bool) (due, resting []int) {
	for i := range n {
		if k := b.Of(i); !all && now.Before(k.rests) && k.rests.Sub(now) <= longestRest { // else the clock was set back
			resting = append(resting, i)
		} else {
			due = append(due, i)
		}
	}
	if len(due) == 0 {
		return resting, nil
	}
	return due, resting
}

// Note records whether the registry at place i has answered.
func (b *Book) Note(i int, answered bool, now time.Time) {
	k := b.Of(i)
	if answered {
		k.failures, k.rests = 0, time.Time{}
		return
	}
	k.rests = now.Add(retry.Backoff(firstRest, longestRest, k.failures))
	k.failures++
}

// Status is the last answer of one of several registries.
type Status struct {
	Registry string `json:"registry"`
	// Last is true for the one whose answer counted last.
	Last bool `json:"last,omitempty"`
	// Reason and Message tell why its answer did not count, and Since when that began. They are empty for one whose
	// answer counted, or that was not asked since.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Answer is the outcome of asking one registry.
type Answer struct {
	Place string
	// Reason and Message tell why its answer does not count; empty where it does.
	Reason, Message string
	// Asked is false for a registry that was not asked in this pass.
	Asked bool
}

// Next returns the rows that follow rows after a pass with these answers, one for each registry in order, and whether
// one says something else: a message alone, such as another port in it, is no change.
func Next(rows []Status, answers []Answer, now time.Time) (next []Status, changed bool) {
	counted := -1
	for i, a := range answers {
		if a.Asked && a.Reason == "" {
			counted = i
		}
	}
	changed = len(rows) != len(answers)
	for i, a := range answers {
		row := Status{Registry: a.Place}
		old := Status{}
		if i < len(rows) && rows[i].Registry == a.Place {
			old = rows[i]
		}
		switch {
		case !a.Asked, a.Reason != "" && a.Reason == old.Reason:
			row = old
			row.Registry = a.Place
		case a.Reason != "":
			row.Reason, row.Message, row.Since = a.Reason, a.Message, state.Stamp(now)
		}
		row.Last = i == counted || counted < 0 && old.Last
		changed = changed || row != old
		next = append(next, row)
	}
	return next, changed
}

// keyRows is the record of state.Meta with the rows.
const keyRows = "registries"

// Load reads the rows. An agent with one registry, or none, has none.
func Load(tx *bbolt.Tx) ([]Status, error) { return state.Load[[]Status](tx, state.Meta, keyRows) }

// Save saves rows for Load.
func Save(tx *bbolt.Tx, rows []Status) error {
	if rows == nil {
		return state.Drop(tx, state.Meta, keyRows)
	}
	return state.Save(tx, state.Meta, keyRows, rows)
}
