package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/agent/state"
)

// Held takes a Lease, renews it, and knows whether it is held. Others are judged by what is seen of them
// by the clock of this machine, and never by the times that they have written.
type Held struct {
	db    *state.DB
	lease Lease
	name  string // of the agent, for people
	nonce string
	now   func() time.Time
	// Single is true in a process that ends after one pass, which has to leave what it saw to the next.
	Single bool

	attending  sync.Mutex // held while the cluster is asked
	introduced bool       // the nonce is in the state

	mu      sync.Mutex // guards what follows
	note    record
	claim   Claim // the newest that is known
	seenAt  time.Time
	mine    bool
	terms   int       // how often it was taken
	renewed time.Time // when the attempt was begun that was the last to succeed
	denied  error
	err     error     // of the last attempt
	tried   time.Time // when the last attempt ended
}

// New returns a Held of the Lease l, which remembers in db what outlives a process. Name is the agent's, for people; nonce
// tells this process from all others. It asks the cluster nothing before Attend or Run. A nil Held is one of an agent
// without a Lease: nobody keeps it from anything.
func New(db *state.DB, l Lease, name, nonce string, now func() time.Time) *Held {
	return &Held{db: db, lease: l, name: name, nonce: nonce, now: now}
}

// holder is how this process signs.
func (k *Held) holder() string { return k.name + "_" + k.note.ID + "_" + k.nonce }

// Holds reports whether the cluster may be changed as far as others are concerned. A machine that slept is
// told by its wall clock, as the other clock stops meanwhile.
func (k *Held) Holds() bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.denied != nil || k.held(k.now())
}

func (k *Held) held(now time.Time) bool {
	const valid = Time - margin
	return k.mine && now.Sub(k.renewed) < valid && now.Round(0).Sub(k.renewed.Round(0)).Abs() < valid
}

// Other says who holds the Lease, where that is known to be another; empty where it is not.
func (k *Held) Other() string {
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.denied != nil || k.mine || k.tried.IsZero() || k.claim.Holder == "" {
		return ""
	}
	switch k.kind(k.claim.Holder) {
	case copied:
		return fmt.Sprintf("%s is held by an agent that works with a copy of this state folder: give one of the two machines a new one", k.lease)
	case another:
		return fmt.Sprintf("%s is held by the agent %s", k.lease, k.claim.Holder)
	}
	return ""
}

// Fault is why the last attempt did not come to an end.
func (k *Held) Fault() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Due reports whether a pass should not begin without another attempt.
func (k *Held) Due() bool {
	if k == nil || k.Holds() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tried.IsZero() || k.now().Sub(k.tried).Abs() >= Retry
}

// Term is another one whenever somebody else may have had the Lease meanwhile.
func (k *Held) Term() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.terms
}

// DeniedBy is why there is no Lease; nil where there is.
func (k *Held) DeniedBy() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.denied
}

// Attend renews the Lease, takes it where it is free, or looks whether it is. The error is that the cluster
// does not answer; that others hold it is none.
func (k *Held) Attend(ctx context.Context) error {
	k.attending.Lock()
	defer k.attending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, request)
	defer cancel()
	err := k.signOn()
	if err == nil {
		err = k.turn(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried = k.now()
	k.err, k.denied = err, nil
	if errors.Is(err, ErrDenied) {
		k.err, k.denied = nil, err
	}
	return k.err
}

// signOn writes the nonce of this process before it is used.
func (k *Held) signOn() error {
	if k.introduced {
		return nil
	}
	var kept record
	err := k.db.Update(func(tx *bbolt.Tx) (err error) {
		if kept, err = state.Load[record](tx, state.Meta, key); err != nil {
			return err
		}
		kept.ID = cmp.Or(kept.ID, strings.ToLower(rand.Text()))
		next := kept
		next.Next = k.nonce
		return state.Save(tx, state.Meta, key, next)
	})
	if err != nil {
		return err
	}
	k.introduced = true
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note = kept // what processes before have used, or were about to
	if kept.Seen != nil {
		k.claim, k.seenAt = *kept.Seen, kept.SeenAt
	}
	return nil
}

func (k *Held) turn(ctx context.Context) error {
	k.mu.Lock()
	mine, last := k.mine, k.claim
	k.mu.Unlock()
	if mine {
		err := k.take(ctx, last)
		if !errors.Is(err, ErrChanged) {
			return err
		}
		k.lose()
	}
	c, err := k.lease.Read(ctx)
	if err != nil {
		return err
	}
	if !k.free(c) {
		return k.noteSeen(c)
	}
	err = k.take(ctx, c)
	if errors.Is(err, ErrChanged) { // somebody was faster
		return nil
	}
	return err
}

// free takes account of what was read, and reports whether the Lease is to be had.
func (k *Held) free(c Claim) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if c.Version != k.claim.Version || c.Holder != k.claim.Holder || k.seenAt.IsZero() || now.Before(k.seenAt) {
		k.seenAt = now
	}
	k.claim = c
	switch kind := k.kind(c.Holder); {
	case kind == nobody, kind == self:
		return true
	}
	term := Time
	if c.Duration > 0 {
		term = min(c.Duration, longest)
	}
	return now.Sub(k.seenAt) >= term
}

// take writes this process as the holder of a Lease that is c now.
func (k *Held) take(ctx context.Context, c Claim) error {
	begun := k.now()
	next := Claim{Holder: k.holder(), Duration: Time, Acquired: c.Acquired, Renewed: begun, Transitions: c.Transitions, Version: c.Version}
	if c.Holder != next.Holder {
		next.Acquired, next.Transitions = begun, c.Transitions+1
	}
	got, err := k.lease.Write(ctx, next)
	if err != nil {
		return err
	}
	k.mu.Lock()
	if !k.mine {
		k.terms++
	}
	k.claim, k.mine, k.renewed = got, true, begun
	news := k.note.Held != k.nonce
	k.note = record{ID: k.note.ID, Held: k.nonce}
	note := k.note
	k.mu.Unlock()
	if !news {
		return nil
	}
	return k.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, key, note) })
}

func (k *Held) lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mine, k.seenAt = false, time.Time{}
	k.note = record{ID: k.note.ID} // who has it now is nobody that was here before
}

// noteSeen leaves what was seen of another to the process that makes the next pass.
func (k *Held) noteSeen(c Claim) error {
	if !k.Single {
		return nil
	}
	k.mu.Lock()
	seenAt := k.seenAt
	k.mu.Unlock()
	return k.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		note, err := state.Load[record](tx, state.Meta, key)
		if err != nil || note.Seen != nil && note.Seen.Version == c.Version && note.SeenAt.Equal(seenAt) {
			return false, err
		}
		note.Seen, note.SeenAt = &c, seenAt
		return true, state.Save(tx, state.Meta, key, note)
	})
}

// Release gives the Lease back, so that the next agent need not wait.
func (k *Held) Release(ctx context.Context) error {
	if k == nil {
		return nil
	}
	k.attending.Lock()
	defer k.attending.Unlock()
	k.mu.Lock()
	mine, c := k.held(k.now()), k.claim
	k.mine = false
	k.mu.Unlock()
	if !mine {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Retry)
	defer cancel()
	c.Holder, c.Renewed = "", k.now()
	_, err := k.lease.Write(ctx, c)
	return err
}

// Run renews until ctx ends, and calls gained whenever the Lease has become this agent's.
func (k *Held) Run(ctx context.Context, gained func()) {
	for {
		wait := retry.Jitter(renewal)
		if k.Fault() != nil {
			wait = retry.FullJitter(2 * Retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		before := k.Holds()
		_ = k.Attend(ctx) // a pass says so where it matters
		if !before && k.Holds() {
			gained()
		}
	}
}
