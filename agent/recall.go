package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

const (
	keyMemory = "memory" // of state.Meta: memoryNote
)

const (
	// memoryTime bounds the requests of a pass about its memory.
	memoryTime = 30 * time.Second
	// deniedTime is how long a no of the cluster is believed.
	deniedTime = time.Hour
)

// memoryNote is what the state knows of the cluster's memory.
type memoryNote struct {
	// Known is true once the memory was read, or there was none. Before that the state may be that of a machine
	// which was set up anew.
	Known bool `json:"known,omitempty"`
	// Generation and Sum are of what was saved last, or was about to be, or was taken over.
	Generation int64  `json:"generation"`
	Sum        string `json:"sum,omitempty"`
	// Ahead is how far the cluster was, by stream, when that was more than this state knew.
	Ahead map[string]position `json:"ahead,omitempty"`
	// Trust is the version of the trust document that was in force here, as the memory says.
	Trust int64 `json:"trust,omitempty"`
	// Where names the memory, SavedAt is when it was written last. Reason and Message say what people are to
	// know of it.
	Where   string    `json:"where,omitempty"`
	SavedAt time.Time `json:"savedAt,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}

func (s *State) memoryNote() (n *memoryNote, err error) {
	err = s.db.View(func(tx *bbolt.Tx) (err error) {
		n, err = state.Load[*memoryNote](tx, state.Meta, keyMemory)
		return err
	})
	if err != nil {
		return nil, state.Local("read state: %w", err)
	}
	return n, nil
}

// memoryState is what a process knows of the cluster's memory. A pass that runs has it for itself.
type memoryState struct {
	known bool    // it was read, or nobody may, in the term of the Lease
	term  int     // of the Lease
	err   error   // why it was not read
	bad   *freeze // why what was read is of no use
	// last is what the cluster holds; nil where that is nothing, or older than the state.
	last       *backup
	sum        string // of last's body
	generation int64  // of what the cluster holds
	// inherited is what is to be taken over once a release runs that is as new.
	inherited *backup
	// unforeseen are assignments of which no engine has said what they would bring.
	unforeseen map[string]bool
	seen       int // the transaction after which the state was compared with last
	// deniedAt is when the cluster said no; see deniedTime.
	deniedAt time.Time
}

// recall has the Lease, reads the memory where that was not done since, and takes over what it knows better:
// the higher of both orders, later trust documents and, once a release runs that is as new, the inventory.
// Nobody vouches for it. Whoever may write it can stop updates, and make no agent accept what it would not
// have accepted without.
func (p *pass) recall(ctx context.Context) error {
	if p.lease.Due() {
		_ = p.lease.Attend(ctx) // the freezes say how that ended
	}
	m := p.memory
	if err := p.noteLease(); err != nil {
		return err
	}
	switch {
	case p.opts.Memory == nil:
		return nil
	case !p.lease.Holds():
		m.known = false
		return nil
	case m.known && m.term == p.lease.Term() && (m.deniedAt.IsZero() || p.opts.Now().Sub(m.deniedAt).Abs() < deniedTime):
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	data, err := p.opts.Memory.Load(ctx)
	*m = memoryState{err: err, term: p.lease.Term(), unforeseen: map[string]bool{}}
	switch {
	case errors.Is(err, lease.ErrDenied):
		m.known, m.deniedAt = true, p.opts.Now()
		return p.noteMemory(ReasonMemoryDenied, err.Error())
	case err != nil:
		return nil
	}
	return p.learnFrom(data)
}

// learnFrom takes account of what was read.
func (p *pass) learnFrom(data []byte) error {
	m := p.memory
	m.known = true
	note, err := p.state.memoryNote()
	if err != nil {
		return err
	}
	if data == nil {
		if note == nil || !note.Known { // a first start, of which nobody knows anything
			return p.saveMemoryNote(func(n *memoryNote) { n.Known = true })
		}
		return nil
	}
	doc, err := unpackKeepsake(data)
	if err != nil {
		m.bad = &freeze{State: bundle.Pending, Reason: ReasonMemoryUnreadable, Message: fmt.Sprintf("%s: %v: have a later version of the agent read it, or delete it to do without what it knows", p.opts.Memory, err)}
		return nil
	}
	m.generation = doc.Generation
	body, err := doc.body()
	if err != nil {
		return err
	}
	m.sum = sumOf(body)
	n := cmp.Or(note, &memoryNote{})
	if doc.Generation < n.Generation || doc.Generation == n.Generation && m.sum == n.Sum {
		if doc.Generation == n.Generation {
			m.last = doc
		}
		return nil
	}
	m.last = doc
	return p.inherit(doc, !n.Known && p.running == nil)
}

// noteLease keeps that there may be no Lease, and that there may again.
func (p *pass) noteLease() error {
	note, err := p.state.memoryNote()
	if err != nil || p.opts.Memory == nil {
		return err
	}
	denied, known := p.lease.DeniedBy() != nil, note != nil && note.Reason == ReasonLeaseDenied
	if denied == known || denied && note != nil && note.Reason != "" {
		return nil
	}
	return p.noteMemory("", "")
}

// noteMemory keeps what people are to know of the memory; an empty reason is that all is well.
func (p *pass) noteMemory(reason, message string) error {
	if denied := p.lease.DeniedBy(); reason == "" && denied != nil {
		reason, message = ReasonLeaseDenied, denied.Error()
	}
	note, err := p.state.memoryNote()
	if err != nil || note != nil && note.Reason == reason && note.Message == reconcilers.Clip(message) {
		return err
	}
	if reason != "" {
		p.opts.Log.Warn("the cluster's memory is not kept as it should be", "memory", p.opts.Memory.String(), "reason", reason, "message", message)
	}
	return p.saveMemoryNote(func(n *memoryNote) { n.Reason, n.Message = reason, reconcilers.Clip(message) })
}

func (p *pass) saveMemoryNote(change func(*memoryNote)) error {
	return p.state.db.Update(func(tx *bbolt.Tx) error {
		note, err := state.Load[memoryNote](tx, state.Meta, keyMemory)
		if err != nil {
			return err
		}
		note.Where = p.opts.Memory.String()
		change(&note)
		return state.Save(tx, state.Meta, keyMemory, note)
	})
}

// jsonOnly returns entry as the memory keeps it; nil where it is no JSON.
func jsonOnly(entry []byte) json.RawMessage {
	if !json.Valid(entry) {
		return nil
	}
	return json.RawMessage(entry)
}
