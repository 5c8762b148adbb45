package enroll

import (
	"errors"
	"fmt"
	"math"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// accept saves an answer. All of its changes are on disk, in one transaction, before any of them takes effect.
func (e *Enroller) accept(answer []byte, hub, url string) (Enrolled, error) {
	granted, hubKey, err := bundle.OpenEnrollment(answer, hub)
	if err != nil {
		return Enrolled{}, err
	}
	hubID, err := bundle.KeyID(hubKey)
	if err != nil {
		return Enrolled{}, err
	}
	kept := enrollment{URL: url, HubKey: granted.HubKey, Cluster: granted.Cluster, KeyID: granted.KeyID, Request: granted.Request, At: state.Stamp(e.Now())}
	cluster := *e.Cluster
	err = e.Store.db.Update(func(tx *bbolt.Tx) error {
		p, err := loadPending(tx)
		if err != nil {
			return err
		}
		if err := matches(tx, cluster.UID, p, granted); err != nil {
			return err
		}
		if p.Next != nil {
			err = become(tx, p)
			if p.Kind == Anew {
				cluster.UID = p.Next.UID
			}
		}
		return errors.Join(err, catchUp(tx, granted.Incarnation, p.Next != nil), state.Save(tx, state.Meta, keyEnrollment, kept), SaveCluster(tx, cluster),
			state.Drop(tx, state.Meta, keyEnrolling), state.Drop(tx, state.Meta, keyHint))
	})
	if err != nil {
		return Enrolled{}, err
	}
	e.Cluster.UID = cluster.UID
	if err := e.Store.db.View(e.Store.Load); err != nil {
		return Enrolled{}, err
	}
	e.Log.Info("enrolled", "hub", url, "hubKey", hubID, "cluster", granted.Cluster.Name, "uid", granted.Cluster.UID, "key", granted.KeyID)
	e.Outbox.HubChanged()
	return Enrolled{Cluster: granted.Cluster, KeyID: granted.KeyID, HubKeyID: hubID, HubURL: url}, nil
}

// matches returns an error unless e answers p, the last request of the cluster with that uid, or is the answer that was
// saved before.
func matches(tx *bbolt.Tx, uid string, p pending, e bundle.Enrollment) error {
	before, err := state.Load[enrollment](tx, state.Meta, keyEnrollment)
	if err != nil {
		return err
	}
	switch {
	case p.ID == "" && before.Request == e.Request && e.Request != "":
		return nil
	case p.ID == "" || p.ID != e.Request:
		return state.Decline(fmt.Errorf("%w: it answers %s", ErrNoRequest, e.Request))
	}
	who, err := LoadIdentity(tx)
	if err != nil {
		return err
	}
	if p.Next != nil {
		who = *p.Next
		if p.Kind == Anew {
			uid = who.UID
		}
	}
	key, err := who.Signer()
	if err != nil {
		return err
	}
	id, err := bundle.KeyID(key.Public())
	if err == nil && (id != e.KeyID || uid != e.Cluster.UID) {
		err = state.Decline(fmt.Errorf("%w: the answer is for uid %s and key %s", ErrNoRequest, e.Cluster.UID, e.KeyID))
	}
	return err
}

// become gives the agent the identity of its request. A new identity drops the reports of the former cluster.
func become(tx *bbolt.Tx, p pending) error {
	if err := p.Next.Save(tx); err != nil || p.Kind != Anew {
		return err
	}
	if err := outbox.Clear(tx); err != nil {
		return err
	}
	last, err := outbox.LoadLast(tx)
	last.Shown = "" // the new hub, or cluster, has no report yet
	return errors.Join(err, last.Save(tx))
}

// catchUp raises the agent's incarnation to at least the newest that the hub knows, and above it with a new key: otherwise
// the reports of a machine that was restored from a backup, or whose clock was behind when its state was created, would
// count as old ones.
func catchUp(tx *bbolt.Tx, newest int64, newKey bool) error {
	id, err := LoadIdentity(tx)
	if err != nil || newest < id.Incarnation || newest == id.Incarnation && !newKey {
		return err
	}
	id.Incarnation = min(newest, math.MaxInt64-1) + 1
	return id.Save(tx)
}
