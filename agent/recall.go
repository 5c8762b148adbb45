package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/engines"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

const (
	// memoryTime bounds the requests of a pass about its memory.
	memoryTime = 30 * time.Second
	// deniedTime is how long a no of the cluster is believed.
	deniedTime = time.Hour
)

// clusterMemory is what the cluster keeps for its agent: it reads it, takes it over, and writes it. A pass that runs has it for
// itself.
type clusterMemory struct {
	store     backup.Store // nil without one
	lease     *lease.Held  // nil without one
	state     *State
	engines   *engines.Set
	adapters  map[string]reconcilers.Reconciler
	onCluster []string // the adapters whose objects are in the cluster
	now       func() time.Time
	log       *slog.Logger

	memoryState
}

// self is the agent as the cluster's memory knows it.
type self struct {
	stream    bundle.Stream
	uid       string
	anonymous bool // the configuration gives the cluster no uid
}

// memoryState is what a process knows of the cluster's memory.
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

// recall is clusterMemory.recall for this pass.
func (p *pass) recall(ctx context.Context) error {
	named, err := p.memory.recall(ctx, p.self(), p.running)
	if named != nil {
		p.state.who.Renamed(named)
		if !p.started {
			p.cluster.UID = named.UID
		}
	}
	return err
}

// recall takes the Lease, reads the memory unless that was done in this term, and takes over its newer parts:
// the higher of both orders, later trust documents and, once a release runs that is as new, the inventory.
// The memory is not signed. Anybody who can write it can stop updates, but cannot make an agent accept a release that
// it would refuse without the memory.
//
// It returns the name that a new machine takes over, if it does, also with an error.
func (m *clusterMemory) recall(ctx context.Context, self self, running *state.Release) (named *enroll.Identity, err error) {
	if m.lease.Due() {
		_ = m.lease.Attend(ctx) // the freezes report the result
	}
	if err := m.noteLease(); err != nil {
		return nil, err
	}
	switch {
	case m.store == nil:
		return nil, nil
	case !m.lease.Holds():
		m.known = false
		return nil, nil
	case m.known && m.term == m.lease.Term() && (m.deniedAt.IsZero() || m.now().Sub(m.deniedAt).Abs() < deniedTime):
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	data, err := m.store.Load(ctx)
	m.memoryState = memoryState{err: err, term: m.lease.Term(), unforeseen: map[string]bool{}}
	switch {
	case errors.Is(err, lease.ErrDenied):
		m.known, m.deniedAt = true, m.now()
		return nil, m.note(ReasonMemoryDenied, err.Error())
	case err != nil:
		return nil, nil
	}
	return m.learnFrom(data, self, running)
}

// learnFrom takes over the memory that was read.
func (m *clusterMemory) learnFrom(data []byte, self self, running *state.Release) (named *enroll.Identity, err error) {
	m.known = true
	note, err := backup.ReadNote(m.state.db)
	if err != nil {
		return nil, err
	}
	if data == nil {
		if note == nil || !note.Known { // the first start in this cluster
			err = m.saveNote(func(n *backup.Note) { n.Known = true })
		}
		return nil, err
	}
	doc, err := backup.Unpack(data)
	if err != nil {
		m.bad = &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonMemoryUnreadable, Message: fmt.Sprintf("%s: %v: have a later version of the agent read it, or delete it to do without what it knows", m.store, err)}
		return nil, nil
	}
	m.generation = doc.Generation
	if m.sum, err = doc.Sum(); err != nil {
		return nil, err
	}
	n := cmp.Or(note, &backup.Note{})
	if doc.Generation < n.Generation || doc.Generation == n.Generation && m.sum == n.Sum {
		if doc.Generation == n.Generation {
			m.last = doc
		}
		return nil, nil
	}
	m.last = doc
	return m.inherit(doc, !n.Known && running == nil, self, running)
}

// noteLease keeps that there may be no Lease, and that there may again.
func (m *clusterMemory) noteLease() error {
	note, err := backup.ReadNote(m.state.db)
	if err != nil || m.store == nil {
		return err
	}
	denied, known := m.lease.DeniedBy() != nil, note != nil && note.Reason == ReasonLeaseDenied
	if denied == known || denied && note != nil && note.Reason != "" {
		return nil
	}
	return m.note("", "")
}

// note keeps what people are to know of the memory; an empty reason is that all is well.
func (m *clusterMemory) note(reason, message string) error {
	if denied := m.lease.DeniedBy(); reason == "" && denied != nil {
		reason, message = ReasonLeaseDenied, denied.Error()
	}
	note, err := backup.ReadNote(m.state.db)
	if err != nil || note != nil && note.Reason == reason && note.Message == reconcilers.Clip(message) {
		return err
	}
	if reason != "" {
		m.log.Warn("the cluster's memory is not kept as it should be", "memory", m.store.String(), "reason", reason, "message", message)
	}
	return m.saveNote(func(n *backup.Note) { n.Reason, n.Message = reason, reconcilers.Clip(message) })
}

func (m *clusterMemory) saveNote(change func(*backup.Note)) error {
	return m.state.db.Update(func(tx *bbolt.Tx) error {
		note, err := backup.LoadNote(tx)
		if err != nil {
			return err
		}
		note = cmp.Or(note, &backup.Note{})
		note.Where = m.store.String()
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
