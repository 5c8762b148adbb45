package enroll

import (
	"cmp"
	"crypto"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// askedHub returns the beginning of the key id of the hub for a request, and the token, if there is one.
func (e *Enroller) askedHub(o Options) (string, *bundle.EnrollToken, error) {
	pinned := ""
	if key := e.Hub().Key; key != nil {
		var err error
		if pinned, err = bundle.KeyID(key); err != nil {
			return "", nil, err
		}
	}
	if o.Kind == Rotate {
		if pinned == "" {
			return "", nil, outbox.ErrNoHubKey
		}
		return pinned, nil, nil
	}
	token, err := bundle.ParseEnrollToken(o.Token)
	switch {
	case err != nil:
		return "", nil, err
	case pinned == "" || bundle.IsHub(pinned, token.Hub), o.ReplaceHub && e.HubKey == nil:
		return token.Hub, &token, nil
	}
	return "", nil, fmt.Errorf("%w: its key is %s, and the token is of the hub with key %s…", ErrOtherHub, pinned, token.Hub)
}

// prepare saves the request before it is sent. A rotation that was begun continues with the same key: the hub may have
// changed over already.
func (e *Enroller) prepare(kind Kind, hub string, token *bundle.EnrollToken) (p pending, err error) {
	kind = cmp.Or(kind, AsIs)
	err = e.Store.db.Update(func(tx *bbolt.Tx) error {
		now, err := LoadIdentity(tx)
		if err != nil {
			return err
		}
		before, err := loadPending(tx)
		if err != nil {
			return err
		}
		switch {
		case kind == Rotate && before.Kind == Rotate:
			p = before
			return nil
		case kind == AsIs && before.Kind == Rotate: // the hub may know only the new key
			return state.Decline(fmt.Errorf("%w: it was for a new key", ErrUnfinished))
		}
		p = pending{Kind: kind}
		switch {
		case kind == Anew && before.Kind == Anew:
			p.Next = before.Next
		case kind != AsIs:
			if p.Next, err = now.Next(e.Now()); err != nil {
				return err
			}
			if kind == Rotate {
				p.Next.UID = now.UID
			}
		}
		if err := e.seal(tx, &p, now, hub, token); err != nil {
			return err
		}
		if kind != Anew { // an agent that has not run yet is known by its request
			err = SaveCluster(tx, *e.Cluster)
		}
		return errors.Join(err, state.Save(tx, state.Meta, keyEnrolling, p))
	})
	return p, err
}

// seal makes the request's envelope.
func (e *Enroller) seal(tx *bbolt.Tx, p *pending, now Identity, hub string, token *bundle.EnrollToken) error {
	last, err := outbox.LoadLast(tx)
	if err != nil {
		return err
	}
	r := bundle.EnrollmentRequest{
		Cluster: *e.Cluster, Hub: hub, IssuedAt: state.Stamp(e.Now()),
		Agent: bundle.ReportAgent{Version: e.Version, Incarnation: now.Incarnation, Seq: last.Seq},
	}
	who := now
	if p.Next != nil {
		who = *p.Next
	}
	if p.Kind == Anew {
		r.Cluster.UID = who.UID
	}
	key, err := who.Signer()
	if err != nil {
		return err
	}
	keys := []crypto.Signer{key}
	if r.Key, err = publicPEM(key); err != nil {
		return err
	}
	if p.Kind == Rotate {
		previous, err := now.Signer()
		if err != nil {
			return err
		}
		if r.Former, err = publicPEM(previous); err != nil {
			return err
		}
		keys = append(keys, previous)
	}
	if token != nil {
		r.Token = token.ID()
		keys = append(keys, token.Key())
	}
	if p.Request, err = bundle.SealEnrollmentRequest(r, keys...); err != nil {
		return err
	}
	_, p.ID, err = bundle.OpenEnrollmentRequest(p.Request)
	return err
}

// withdraw drops a refused request that can be made again at any time, and restores the waiting request before it, which
// a person may be carrying on a medium.
func (e *Enroller) withdraw(refused, before pending) error {
	return e.Store.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		now, err := loadPending(tx)
		switch {
		case err != nil || now.ID != refused.ID:
			return false, err
		case before.Kind == "":
			return true, state.Drop(tx, state.Meta, keyEnrolling)
		}
		return true, state.Save(tx, state.Meta, keyEnrolling, before)
	})
}
