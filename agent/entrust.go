package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/lease"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// foretellTime bounds the requests that engines make to the cluster for their predictions.
const foretellTime = time.Minute

// entrust saves the state to the cluster's memory, with the objects that engines are about to apply. It makes
// one request if anything is new. Its error is of this machine; if the cluster refuses the memory, the cluster's
// engines are frozen.
func (m *clusterMemory) entrust(ctx context.Context, g *freeze.Guard, self self) error {
	if !m.mayEntrust() {
		if m.store != nil && m.deniedAt.IsZero() {
			g.FreezeCluster(errLapsed)
		}
		return nil
	}
	var doc backup.Backup
	var id int
	err := m.state.db.View(func(tx *bbolt.Tx) (err error) {
		if id = tx.ID(); id != m.seen {
			doc, err = memorable(tx, self)
		}
		return err
	})
	if err != nil {
		return state.Local("read state: %w", err)
	}
	if id == m.seen {
		return nil
	}
	if err := m.addInventory(ctx, &doc); err != nil {
		return err
	}
	sum, err := doc.Sum()
	if err != nil {
		return err
	}
	if m.last != nil && sum == m.sum {
		m.seen = id
		return nil
	}
	return m.save(ctx, g, doc, sum)
}

// mayEntrust reports whether this agent has read the cluster's memory and may write it.
func (m *clusterMemory) mayEntrust() bool {
	return m.store != nil && m.known && m.bad == nil && m.inherited == nil && m.deniedAt.IsZero() && m.lease.Holds() && m.term == m.lease.Term()
}

// save writes doc, after the state has recorded that it will.
func (m *clusterMemory) save(ctx context.Context, g *freeze.Guard, doc backup.Backup, sum string) error {
	doc.Generation = m.generation + 1 // also where this is not the first attempt, so that another agent's is newer
	data, partial, err := doc.Pack()
	if err == nil {
		err = m.saveNote(func(n *backup.Note) {
			n.Known, n.Generation, n.Sum, n.SavedAt = true, doc.Generation, sum, state.Stamp(m.now())
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, memoryTime)
		defer cancel()
		err = m.store.Save(ctx, data)
	}
	switch {
	case err == nil:
		m.last, m.sum, m.generation = &doc, sum, doc.Generation
	case errors.Is(err, lease.ErrDenied):
		m.deniedAt = m.now()
		return m.note(ReasonMemoryDenied, err.Error())
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		m.known, m.err = !errors.Is(err, lease.ErrChanged), err
		g.FreezeCluster(err)
		return nil
	}
	if partial {
		return m.note(ReasonMemoryTooLarge, "the cluster's memory has no room for the inventory: a machine that is set up anew will keep the order of releases, and not find what it has to take away")
	}
	return m.note("", "")
}

// errLapsed is why nothing is changed after others may have had the Lease in the middle of a pass.
var errLapsed = errors.New("the Lease was not renewed in time")

// memorable is the memory of what the state holds, but for the inventory.
func memorable(tx *bbolt.Tx, self self) (backup.Backup, error) {
	doc := backup.Backup{Schema: backup.Schema, UID: self.uid, Stream: self.stream, Orders: map[string]backup.Position{}, Floors: map[string]time.Time{}}
	err := tx.Bucket([]byte(state.Orders)).ForEach(func(k, v []byte) error {
		var o bundle.Order
		err := json.Unmarshal(v, &o)
		doc.Orders[string(k)] = backup.Position{Epoch: o.Epoch, Sequence: o.Sequence, IssuedAt: o.IssuedAt}
		return err
	})
	meta := tx.Bucket([]byte(state.Meta))
	err2 := meta.ForEach(func(k, v []byte) error {
		if !trust.IsFloor(string(k)) {
			return nil
		}
		var t time.Time
		err := json.Unmarshal(v, &t)
		doc.Floors[string(k)] = t
		return err
	})
	if paused := meta.Get([]byte(freeze.KeyPause)); paused != nil {
		doc.Paused = bytes.Clone(paused)
	}
	doc.Held = meta.Get([]byte(keyHeld)) != nil
	return doc, errors.Join(err, err2, copyBucket(tx, trust.Bucket, func(_ string, v []byte) { doc.Trust = append(doc.Trust, v) }),
		copyBucket(tx, probation.Bucket, func(k string, v []byte) {
			if doc.Quarantine == nil {
				doc.Quarantine = map[string]json.RawMessage{}
			}
			if entry := jsonOnly(v); entry != nil {
				doc.Quarantine[k] = entry
			}
		}))
}

func copyBucket(tx *bbolt.Tx, bucket string, each func(key string, value []byte)) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if v != nil {
			each(string(k), bytes.Clone(v))
		}
		return nil
	})
}

// addInventory adds the assignments of the cluster's engines, those that they have and those that they are about to get.
// After an apply, an engine's ledger has at most the predicted objects, so it costs no further request.
func (m *clusterMemory) addInventory(ctx context.Context, doc *backup.Backup) error {
	all, err := m.state.allRecords()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, foretellTime)
	defer cancel()
	last, inventory := m.last.Items(), map[string]backup.Item{}
	for _, r := range all {
		wanted := m.engines.For(r.Spec)
		h := backup.Item{
			Name: r.Spec.Name, Adapter: r.Adapter, Namespace: r.Spec.Namespace, Workspace: r.Spec.Workspace, Workload: r.Spec.Workload, Target: r.Spec.Target,
			Wave: r.Spec.Wave, DependsOn: r.Spec.DependsOn, OnRemove: r.Spec.OnRemove, Ledgers: map[string]json.RawMessage{},
		}
		if h.Adapter == "" {
			h.Adapter = wanted
		}
		if !slices.Contains(m.onCluster, h.Adapter) && (r.Removing || !slices.Contains(m.onCluster, wanted)) {
			continue
		}
		if err := m.ledgers(r.Spec.Name, h.Ledgers); err != nil {
			return err
		}
		due := !r.Removing && r.Stale(wanted)
		switch before, known := last[r.Spec.Name]; {
		case due:
			m.foretell(ctx, r, wanted, h.Ledgers)
		case known && !m.unforeseen[r.Spec.Name]:
			h.Ledgers = before.Ledgers
		}
		if len(h.Ledgers) == 0 {
			h.Ledgers = nil
		}
		inventory[h.Name] = h
	}
	doc.Inventory = backup.SortedItems(inventory)
	return nil
}

// ledgers reads what the engines of the cluster know of an assignment.
func (m *clusterMemory) ledgers(assignment string, into map[string]json.RawMessage) error {
	for _, adapter := range m.onCluster {
		entry, err := m.state.Ledger(adapter).Load(assignment)
		if err != nil {
			return state.Local("read state: %w", err)
		}
		if entry := jsonOnly(entry); entry != nil {
			into[adapter] = entry
		}
	}
	return nil
}

// foretell asks the engine to predict the objects of an assignment. If the engine cannot, the apply itself will return
// the error, and the memory gets the result afterwards.
func (m *clusterMemory) foretell(ctx context.Context, r assignments.Record, adapter string, into map[string]json.RawMessage) {
	delete(m.unforeseen, r.Spec.Name)
	f, ok := m.adapters[adapter].(reconcilers.Foreteller)
	if !ok {
		return
	}
	var entry []byte
	handed, err := m.engines.Handed(ctx, r, adapter)
	if err == nil {
		entry, err = f.Foretell(ctx, handed)
	}
	if err != nil || !json.Valid(entry) {
		m.unforeseen[r.Spec.Name] = true
		return
	}
	into[adapter] = entry
}
