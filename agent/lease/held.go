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

// Held takes a Lease, renews it, and knows whether it holds it. It judges other holders by the changes that it sees, timed
// by this machine's clock, and never by the times that they have written.
type Held struct {
	db    *state.DB
	lease Lease
	now   func() time.Time
	// Single is true in a process that ends after one pass, and has to leave its observations to the next process.
	Single bool

	attending  sync.Mutex // held while the cluster is asked
	introduced bool       // the nonce is in the state

	mu   sync.Mutex // guards the fields below
	self process
	seen sighting
	turn turn
	last attempt
}

// process is this process, with the record of earlier processes with the same state folder.
type process struct {
	name  string // of the agent, for people
	nonce string // tells this process from all others
	note  record
}

// sighting is the newest known claim, with the time at which it was first seen.
type sighting struct {
	claim Claim
	at    time.Time
}

// turn is this process's hold of the Lease.
type turn struct {
	mine    bool
	terms   int       // how often it was taken
	renewed time.Time // when the attempt was begun that was the last to succeed
}

// attempt is the last one: when it ended, and how.
type attempt struct {
	at     time.Time
	err    error // neither that others hold the Lease nor that it is denied
	denied error // why there is no Lease
}

// New returns a Held of the Lease l, which remembers in db what outlives a process. Name is the agent's, for people; nonce
// tells this process from all others. It asks the cluster nothing before Attend or Run. A nil Held is one of an agent
// without a Lease: nobody keeps it from anything.
func New(db *state.DB, l Lease, name, nonce string, now func() time.Time) *Held {
	return &Held{db: db, lease: l, now: now, self: process{name: name, nonce: nonce}}
}

// holder returns the name under which this process holds the Lease.
func (p process) holder() string { return p.name + "_" + p.note.ID + "_" + p.nonce }

// Holds reports whether other agents permit changes to the cluster. It uses the wall clock, since the monotonic clock stops
// while a machine sleeps.
func (k *Held) Holds() bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.denied != nil || k.turn.held(k.now())
}

func (t turn) held(now time.Time) bool {
	const valid = Time - margin
	return t.mine && now.Sub(t.renewed) < valid && now.Round(0).Sub(t.renewed.Round(0)).Abs() < valid
}

// Other returns the name of another agent that is known to hold the Lease; empty if there is none.
func (k *Held) Other() string {
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last.denied != nil || k.turn.mine || k.last.at.IsZero() || k.seen.claim.Holder == "" {
		return ""
	}
	switch k.self.kind(k.seen.claim.Holder) {
	case copied:
		return fmt.Sprintf("%s is held by an agent that works with a copy of this state folder: give one of the two machines a new one", k.lease)
	case another:
		return fmt.Sprintf("%s is held by the agent %s", k.lease, k.seen.claim.Holder)
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
	return k.last.err
}

// Due reports whether a pass should not begin without another attempt.
func (k *Held) Due() bool {
	if k == nil || k.Holds() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.at.IsZero() || k.now().Sub(k.last.at).Abs() >= Retry
}

// Term is another one whenever somebody else may have had the Lease meanwhile.
func (k *Held) Term() int {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.turn.terms
}

// DeniedBy is why there is no Lease; nil where there is.
func (k *Held) DeniedBy() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.denied
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
		err = k.attempt(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = attempt{at: k.now(), err: err}
	if errors.Is(err, ErrDenied) {
		k.last.err, k.last.denied = nil, err
	}
	return k.last.err
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
		next.Next = k.self.nonce
		return state.Save(tx, state.Meta, key, next)
	})
	if err != nil {
		return err
	}
	k.introduced = true
	k.mu.Lock()
	defer k.mu.Unlock()
	k.self.note = kept // what processes before have used, or were about to
	if kept.Seen != nil {
		k.seen = sighting{*kept.Seen, kept.SeenAt}
	}
	return nil
}

func (k *Held) attempt(ctx context.Context) error {
	k.mu.Lock()
	mine, last := k.turn.mine, k.seen.claim
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

// free records a Claim that was read, and reports whether the Lease may be taken.
func (k *Held) free(c Claim) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if last := k.seen; c.Version != last.claim.Version || c.Holder != last.claim.Holder || last.at.IsZero() || now.Before(last.at) {
		k.seen.at = now
	}
	k.seen.claim = c
	switch kind := k.self.kind(c.Holder); {
	case kind == nobody, kind == self:
		return true
	}
	term := Time
	if c.Duration > 0 {
		term = min(c.Duration, longest)
	}
	return now.Sub(k.seen.at) >= term
}

// take writes this process as the holder of a Lease that is c now.
func (k *Held) take(ctx context.Context, c Claim) error {
	begun := k.now()
	next := Claim{Holder: k.self.holder(), Duration: Time, Acquired: c.Acquired, Renewed: begun, Transitions: c.Transitions, Version: c.Version}
	if c.Holder != next.Holder {
		next.Acquired, next.Transitions = begun, c.Transitions+1
	}
	got, err := k.lease.Write(ctx, next)
	if err != nil {
		return err
	}
	k.mu.Lock()
	if !k.turn.mine {
		k.turn.terms++
	}
	k.seen.claim, k.turn.mine, k.turn.renewed = got, true, begun
	news := k.self.note.Held != k.self.nonce
	k.self.note = record{ID: k.self.note.ID, Held: k.self.nonce}
	note := k.self.note
	k.mu.Unlock()
	if !news {
		return nil
	}
	return k.db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, state.Meta, key, note) })
}

func (k *Held) lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn.mine, k.seen.at = false, time.Time{}
	k.self.note = record{ID: k.self.note.ID} // the present holder was not seen before
}

// noteSeen saves the observation of another holder for the process that runs the next pass.
func (k *Held) noteSeen(c Claim) error {
	if !k.Single {
		return nil
	}
	k.mu.Lock()
	seenAt := k.seen.at
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
	mine, c := k.turn.held(k.now()), k.seen.claim
	k.turn.mine = false
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
