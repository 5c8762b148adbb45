package agent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/backup"
	"github.com/wherry-dev/wherry/agent/enroll"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

// inherit takes over a memory that is newer than the state.
func (m *clusterMemory) inherit(doc *backup.Backup, first bool, self self, running *state.Release) (named *enroll.Identity, err error) {
	known, err := m.state.isBound()
	if err != nil {
		return nil, err
	}
	if !known && doc.Stream != self.stream {
		m.known = false // read it again: a person may change the configuration or rebind meanwhile
		m.bad = &freeze.Freeze{State: bundle.Pending, Reason: freeze.ReasonOtherStream, Message: fmt.Sprintf(
			"the agent of this cluster followed %s/%s of platform %s when %s was written: set this one to the same, or have it change over with rebind",
			doc.Stream.Environment, doc.Stream.ClusterType, doc.Stream.Platform, m.store)}
		return nil, nil
	}
	var version int64
	for _, envelope := range doc.Trust {
		version++
		if err := m.state.trust.Extend(self.stream.Platform, envelope); err != nil {
			m.log.Warn("a trust document of the cluster's memory is not believed", "version", version, "err", err)
			break
		}
	}
	err = m.state.db.Update(func(tx *bbolt.Tx) (err error) {
		named = nil
		if first && self.anonymous && doc.UID != "" { // it goes on under the cluster's name, unless somebody has given it another
			if named, err = enroll.Rename(tx, doc.UID); err != nil {
				return err
			}
		}
		return m.inheritOrder(tx, doc, first)
	})
	if err != nil {
		return nil, err
	}
	m.inherited = doc
	m.log.Info("taking over what the cluster's memory knows", "memory", m.store.String(), "generation", doc.Generation, "assignments", len(doc.Inventory))
	return named, m.inheritAtOnce(self.stream, running)
}

// inheritOrder raises what the state must not fall below, and with a new state takes what else a person has
// said.
func (m *clusterMemory) inheritOrder(tx *bbolt.Tx, doc *backup.Backup, first bool) error {
	note, err := backup.LoadNote(tx)
	if err != nil {
		return err
	}
	note = cmp.Or(note, &backup.Note{})
	for stream, at := range doc.Orders {
		own, err := state.Load[bundle.Order](tx, state.Orders, stream)
		if err != nil {
			return err
		}
		if own.Compare(at.Order()) >= 0 {
			continue
		}
		if note.Ahead == nil {
			note.Ahead = map[string]backup.Position{}
		}
		note.Ahead[stream] = at
		if err := state.Save(tx, state.Orders, stream, at.Order()); err != nil {
			return err
		}
	}
	for key, floor := range doc.Floors {
		own, err := state.Load[time.Time](tx, state.Meta, key)
		if err == nil && trust.IsFloor(key) && floor.After(own) {
			err = state.Save(tx, state.Meta, key, floor)
		}
		if err != nil {
			return err
		}
	}
	note.Trust = max(note.Trust, int64(len(doc.Trust)))
	note.Where, note.Known = m.store.String(), true
	if first {
		if err := inheritWishes(tx, doc, m.now()); err != nil {
			return err
		}
	}
	return note.Save(tx)
}

// inheritWishes takes over, on a new machine, a pause and the quarantine.
func inheritWishes(tx *bbolt.Tx, doc *backup.Backup, now time.Time) error {
	if meta := tx.Bucket([]byte(state.Meta)); meta.Get([]byte(freeze.KeyPause)) == nil {
		var err error
		switch {
		case len(doc.Paused) > 0:
			err = meta.Put([]byte(freeze.KeyPause), doc.Paused)
		case doc.Held: // the release is lost with the old machine
			err = state.Save(tx, state.Meta, freeze.KeyPause, freeze.Pause{At: state.Stamp(now), Reason: "somebody had rolled back to an earlier release before the machine was set up anew: resume takes the newest"})
		}
		if err != nil {
			return err
		}
	}
	if len(doc.Quarantine) == 0 {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(probation.Bucket))
	for key, value := range doc.Quarantine {
		if err == nil && b.Get([]byte(key)) == nil {
			err = b.Put([]byte(key), value)
		}
	}
	return err
}

// inheritAtOnce takes the inventory over if the running release is as new as the memory, so that no switch to
// another release will do it.
func (m *clusterMemory) inheritAtOnce(stream bundle.Stream, running *state.Release) error {
	if running == nil || m.behind(stream, running) {
		return nil
	}
	now := m.now()
	err := m.state.db.Update(func(tx *bbolt.Tx) error {
		known, err := m.state.records.ByName(tx)
		if err != nil {
			return err
		}
		left, err := m.inheritInventory(tx, known, now)
		for _, r := range known {
			err = errors.Join(err, assignments.Save(tx, r))
		}
		for _, r := range left {
			err = errors.Join(err, assignments.Save(tx, r.Dropped(now)))
		}
		return err
	})
	if err == nil {
		m.inherited = nil
	}
	return err
}

// inheritInventory writes what engines know of the assignments of the inherited backup, and returns those that known
// lacks.
func (m *clusterMemory) inheritInventory(tx *bbolt.Tx, known map[string]assignments.Record, now time.Time) (more []assignments.Record, err error) {
	doc := m.inherited
	if doc == nil {
		return nil, nil
	}
	for _, h := range doc.Inventory {
		if !slices.Contains(m.onCluster, h.Adapter) {
			continue // the state has the assignments of engines on this machine
		}
		if r, here := known[h.Name]; !here {
			more = append(more, h.Record(now))
		} else { // which somebody else may have given since
			r.Adapter, r.Applied, r.Reached.Desired = cmp.Or(r.Adapter, h.Adapter), "", ""
			known[h.Name] = r
		}
		for adapter, entry := range h.Ledgers {
			if slices.Contains(m.onCluster, adapter) {
				err = errors.Join(err, assignments.SaveLedger(tx, adapter, h.Name, entry))
			}
		}
	}
	note, err2 := backup.LoadNote(tx)
	note = cmp.Or(note, &backup.Note{})
	note.Generation, note.Sum = doc.Generation, m.sum
	return more, errors.Join(err, err2, note.Save(tx))
}

// catchUp ends that the cluster is ahead, once a release begins to run that is as new: later an older one may run
// on purpose.
func catchUp(tx *bbolt.Tx, next *state.Release) error {
	note, err := backup.LoadNote(tx)
	key := state.OrderKey(next.Release.Stream())
	if err != nil || note == nil {
		return err
	}
	at, ahead := note.Ahead[key]
	if !ahead || next.Order().Compare(at.Order()) < 0 {
		return nil
	}
	delete(note.Ahead, key)
	return note.Save(tx)
}
