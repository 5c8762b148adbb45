package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

const (
	// memoryTime bounds the requests of a pass about its memory.
	memoryTime = 30 * time.Second
	// deniedTime is how long a no of the cluster is believed.
	deniedTime = time.Hour
)

// memoryState is what a process knows of the cluster's memory. A pass that runs has it for itself.
type memoryState struct {
	known bool           // it was read, or nobody may, in the term of the Lease
	term  int            // of the Lease
	err   error          // why it was not read
	bad   *freeze.Freeze // why its content cannot be used
	// last is the cluster's content; nil if there is none, or if it is older than the state.
	last       *backup.Backup
	sum        string // of last
	generation int64  // of what the cluster holds
	// inherited is the memory to take over once a release runs that is as new.
	inherited *backup.Backup
	// unforeseen are assignments whose objects no engine has predicted.
	unforeseen map[string]bool
	seen       int // the transaction after which the state was compared with last
	// deniedAt is the time of the cluster's refusal; see deniedTime.
	deniedAt time.Time
}

// recall takes the Lease, reads the memory unless that was done in this term, and takes over its newer parts:
// the higher of both orders, later trust documents and, once a release runs that is as new, the inventory.
// The memory is not signed. Anybody who can write it can stop updates, but cannot make an agent accept a release that
// it would refuse without the memory.
func (p *pass) recall(ctx context.Context) error {
	if p.lease.Due() {
		_ = p.lease.Attend(ctx) // the freezes report the result
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

// learnFrom takes over the memory that was read.
func (p *pass) learnFrom(data []byte) error {
	m := p.memory
	m.known = true
	note, err := backup.ReadNote(p.state.db)
	if err != nil {
		return err
	}
	if data == nil {
		if note == nil || !note.Known { // the first start in this cluster
			return p.saveMemoryNote(func(n *backup.Note) { n.Known = true })
		}
		return nil
	}
	doc, err := backup.Unpack(data)
	if err != nil {
		m.bad = &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonMemoryUnreadable, Message: fmt.Sprintf("%s: %v: have a later version of the agent read it, or delete it to do without what it knows", p.opts.Memory, err)}
		return nil
	}
	m.generation = doc.Generation
	if m.sum, err = doc.Sum(); err != nil {
		return err
	}
	n := cmp.Or(note, &backup.Note{})
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
	note, err := backup.ReadNote(p.state.db)
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
	note, err := backup.ReadNote(p.state.db)
	if err != nil || note != nil && note.Reason == reason && note.Message == reconcilers.Clip(message) {
		return err
	}
	if reason != "" {
		p.opts.Log.Warn("the cluster's memory is not kept as it should be", "memory", p.opts.Memory.String(), "reason", reason, "message", message)
	}
	return p.saveMemoryNote(func(n *backup.Note) { n.Reason, n.Message = reason, reconcilers.Clip(message) })
}

func (p *pass) saveMemoryNote(change func(*backup.Note)) error {
	return p.state.db.Update(func(tx *bbolt.Tx) error {
		note, err := backup.LoadNote(tx)
		if err != nil {
			return err
		}
		note = cmp.Or(note, &backup.Note{})
		note.Where = p.opts.Memory.String()
		change(note)
		return note.Save(tx)
	})
}

// jsonOnly returns entry as the memory keeps it; nil where it is no JSON.
func jsonOnly(entry []byte) json.RawMessage {
	if !json.Valid(entry) {
		return nil
	}
	return json.RawMessage(entry)
}
