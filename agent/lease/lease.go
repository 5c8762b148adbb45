// Package lease keeps the agents of one cluster from changing it at the same time, by a Lease of coordination.k8s.io in it.
//
// Begin with New, and call Run beside the work. Held.Holds says whether the cluster may be changed. Two agents that can
// both reach the cluster never hold the Lease at once, as far as neither's clock runs faster than the margin allows; an
// agent with a copied state folder on another machine counts as a second agent. An agent whose cluster denies it a Lease
// is not restricted.
package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a Lease, and of what else an agent has in its cluster.
var (
	// ErrChanged means that somebody else has written since.
	ErrChanged = errors.New("changed by somebody else")
	// ErrDenied means that the cluster says no, and will as long as nobody changes its permissions.
	ErrDenied = errors.New("not allowed")
)

// Lease is the one object of a cluster by which agents take turns. Its String names it for people. Errors
// wrap ErrChanged or ErrDenied; all others may pass.
type Lease interface {
	fmt.Stringer
	// Read returns how the Lease stands; the zero Claim where there is none.
	Read(ctx context.Context) (Claim, error)
	// Write replaces the Claim of c's Version, or creates the first one, and returns the resulting Claim.
	Write(ctx context.Context, c Claim) (Claim, error)
}

// Claim is the state of a Lease.
type Claim struct {
	Holder            string // empty after the holder gave it back
	Duration          time.Duration
	Acquired, Renewed time.Time // by the holder's clock, and not to be compared with another
	Transitions       int
	// Version is the object's own; empty where there is none.
	Version string
}

const (
	// Time is how long a Lease keeps others out that nobody renews. The holder stops margin before
	// that, and renews it once a renewal.
	Time    = 3 * time.Minute
	margin  = 15 * time.Second
	renewal = time.Minute
	// Retry is the time between attempts while the cluster does not answer.
	Retry = 15 * time.Second
	// longest bounds what other holders may ask for.
	longest = time.Hour
	// request bounds one attempt.
	request = 20 * time.Second
)

// key is the record of state.Meta.
const key = "lease"

// record is the part of a Lease's state that outlives a process. A nonce identifies each process, so that one with a copied
// state folder differs from the process before.
type record struct {
	// ID is made once for the state folder.
	ID string `json:"id,omitempty"`
	// Held is the nonce that the Lease has had last, Next the one of a process that has yet to get it.
	Held string `json:"held,omitempty"`
	Next string `json:"next,omitempty"`
	// Seen is how another's Lease stood at SeenAt, for processes that live for one pass only.
	Seen   *Claim    `json:"seen,omitempty"`
	SeenAt time.Time `json:"seenAt,omitzero"`
}

// holderKind tells holders apart.
type holderKind int

const (
	nobody  holderKind = iota
	self               // this process, or one before it with the same state folder
	copied             // another process, with a copy of the state folder
	another            // another agent
)

func (p process) kind(holder string) holderKind {
	rest, nonce, ok := cutLast(holder)
	_, id, named := cutLast(rest)
	switch {
	case holder == "":
		return nobody
	case !ok || !named || id != p.note.ID:
		return another
	case nonce == p.nonce, nonce == p.note.Held, nonce == p.note.Next:
		return self
	}
	return copied
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '_')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}
