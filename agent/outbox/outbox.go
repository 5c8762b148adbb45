// Package outbox keeps compliance reports in the agent's state file until somebody has acknowledged them, and takes them
// to a hub or to a registry.
//
// Append adds a report within the transaction that numbers it. A HubSink and a RegistrySink send what waits, each
// with Run. People carry the rest: Reports returns the envelopes for a medium, and Acknowledge takes the answer.
//
// Package queue has the guarantee: delivery is at least once. A report is deleted for an acknowledgement that the hub has signed,
// because a newer one says all that it does (see coalesce.go), or because the queue is full, which Status counts. A report that a
// hub refuses is kept as a dead letter and offered again. Reports never hold up the agent: nothing here waits for a network but
// the sinks.
package outbox

import (
	"bytes"
	"cmp"
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// The defaults of Limits.
const (
	DefaultReports = 10_000
	DefaultBytes   = 64 << 20
)

// Limits bounds the reports that wait to be acknowledged. Zero means the defaults.
type Limits struct {
	Reports int
	Bytes   int64
}

// WithDefaults returns the limits that count.
func (l Limits) WithDefaults() Limits {
	return Limits{Reports: cmp.Or(l.Reports, DefaultReports), Bytes: cmp.Or(l.Bytes, DefaultBytes)}
}

// Status describes the queue. Its JSON is part of the agent's status.
type Status struct {
	Length int   `json:"length"`
	Bytes  int64 `json:"bytes"`
	// Oldest is the age of the queue; nil when it is empty.
	Oldest *time.Time `json:"oldest,omitempty"`
	// Coalesced counts the reports that newer ones have replaced before they were acknowledged, and
	// Dropped those that a full queue has dropped, since the state file was created.
	Coalesced int64 `json:"coalesced,omitempty"`
	Dropped   int64 `json:"dropped"`
	// Rejected counts the reports that the hub refuses, and LastRejection is its last reason.
	Rejected      int    `json:"rejected,omitempty"`
	LastRejection string `json:"lastRejection,omitempty"`
	// Unsent gives the reasons why a running agent's reports are not accepted, by destination. It is nil if they are, and
	// without a running agent.
	Unsent map[string]string `json:"unsent,omitempty"`
}

// What the state file has of the outbox. Buckets are made when something is to be in them.
const (
	bucketReports = "reports"       // a queue of queued by seq
	bucketDead    = "queue-dead"    // the same, of dead letters
	bucketPushed  = "queue-pushed"  // tag in the registry: pushed
	bucketFailing = "queue-failing" // failure: latest

	keyTotals = "queue"    // in state.Meta: totals
	keyLast   = "reporter" // in state.Meta: Last
)

// Outbox is the queue of reports in a state file. It may be used by several goroutines. The zero value is of no use.
type Outbox struct {
	db *state.DB
	// unsent has why reports are not taken, by where they go.
	unsent sync.Map
	// forHub and forRegistry hold a token when a report waits to be sent, hubKnown when there is another hub.
	forHub, forRegistry, hubKnown chan struct{}
}

// New returns the outbox of a state file.
func New(db *state.DB) *Outbox {
	return &Outbox{db: db, forHub: make(chan struct{}, 1), forRegistry: make(chan struct{}, 1), hubKnown: make(chan struct{}, 1)}
}

// Wake has the sinks look at the queue soon.
func (o *Outbox) Wake() {
	nudge(o.forHub)
	nudge(o.forRegistry)
}

// HubChanged has a HubSink that waits for a hub begin, and another send what waits.
func (o *Outbox) HubChanged() {
	nudge(o.hubKnown)
	nudge(o.forHub)
}

// nudge puts a token into c if it holds none.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Last is the memory of the report that was made last.
type Last struct {
	Seq int64 `json:"seq"`
	// Shown identifies its content, without times, numbers and messages.
	Shown string    `json:"shown,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// LoadLast returns the memory of the last report; the zero Last before the first.
func LoadLast(tx *bbolt.Tx) (Last, error) { return state.Load[Last](tx, state.Meta, keyLast) }

// Save replaces the saved memory by l.
func (l Last) Save(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, keyLast, l) }

// Entry is a report that is to be queued.
type Entry struct {
	// Report is its content, and Body the same as bytes, as sealed in Envelope.
	Report         bundle.Report
	Body, Envelope []byte
	// Last is the memory of this report.
	Last Last
}

// Append queues e and saves its Last. It deletes the reports that e makes superfluous, and drops the oldest ones above
// limits; zero limits mean the defaults.
func Append(tx *bbolt.Tx, e Entry, limits Limits) error {
	q := queued{
		ID: bundle.ReportID(e.Body), At: e.Last.At, Heartbeat: e.Report.Kind == bundle.Heartbeat,
		Incarnation: e.Report.Agent.Incarnation, seq: uint64(e.Last.Seq), envelope: e.Envelope,
	}
	return errors.Join(e.Last.Save(tx), enqueue(tx, q, failureKeys(e.Report), limits.WithDefaults()))
}

// Reports returns the envelopes of all reports that wait, oldest first, after those of dead letters.
func (o *Outbox) Reports() (envelopes [][]byte, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err != nil {
			return err
		}
		all, err := q.all(func(queued) bool { return true })
		for _, e := range all {
			envelope, err := q.of(e).Body(seqKey(e.seq))
			if err != nil {
				return err
			}
			envelopes = append(envelopes, bytes.Clone(envelope))
		}
		return err
	})
	return envelopes, err
}

// Status returns what waits, and why the sinks of this process cannot send it.
func (o *Outbox) Status() (s Status, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		s, err = ReadStatus(tx)
		return err
	})
	s.Unsent = o.Unsent()
	return s, err
}

// Unsent returns the reasons why reports are not accepted, by destination. It is nil if they are, or if no sink runs.
func (o *Outbox) Unsent() (unsent map[string]string) {
	o.unsent.Range(func(to, why any) bool {
		if unsent == nil {
			unsent = map[string]string{}
		}
		unsent[to.(string)] = why.(string)
		return true
	})
	return unsent
}
