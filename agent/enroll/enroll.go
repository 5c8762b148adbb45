// Package enroll has a hub register an agent: who the agent is, what it asks of a hub, and the hub's answer.
//
// A Store has what the state file knows of that; an Enroller asks. A request is on disk before anybody is asked, and an answer
// takes effect all at once, so that a crash between the two loses neither the agent's key nor its reports. Reports are
// signed as Signers says.
package enroll

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Errors that callers branch on.
var (
	// ErrRefused means that a hub has understood a request and does not follow it. Its word is not signed.
	ErrRefused = errors.New("the hub refused")
	// ErrOtherHub means that another hub's key is pinned.
	ErrOtherHub = errors.New("another hub is pinned")
	// ErrNoHubURL means that nobody has said where the hub is.
	ErrNoHubURL = errors.New("no hub is known")
	// ErrNoRequest means that an answer does not answer the request that waits for one.
	ErrNoRequest = errors.New("no request waits for this answer")
	// ErrNoRotation means that there is no new key to go over to.
	ErrNoRotation = errors.New("no rotation was begun")
	// ErrUnfinished means that a rotation was begun, which has to end first.
	ErrUnfinished = errors.New("an earlier request is not answered yet")
)

// Kind is what an agent asks a hub for.
type Kind string

// The kinds of requests.
const (
	// AsIs registers the agent as who it is.
	AsIs Kind = "enrol"
	// Rotate replaces its key by a new one.
	Rotate Kind = "rotate"
	// Anew makes it another cluster, with another key, uid and incarnation, and without the reports of the
	// one that it was copied from.
	Anew Kind = "new-identity"
)

// Options say how to enroll.
type Options struct {
	// Kind is AsIs where it is empty.
	Kind Kind `json:"kind,omitempty"`
	// HubURL is empty for the one that is configured, or that the agent is enrolled at.
	HubURL string `json:"hubURL,omitempty"`
	// Token is a bundle.EnrollToken with its secret. Rotate needs none.
	Token string `json:"token,omitempty"`
	// ReplaceHub lets another hub take the place of the one that has enrolled the agent before.
	ReplaceHub bool `json:"replaceHub,omitempty"`
}

// Enrolled is the registration by a hub.
type Enrolled struct {
	Cluster bundle.ReportCluster `json:"cluster"`
	// KeyID is the id of the key that signs reports from now on, HubKeyID the id of the hub's key.
	KeyID    string `json:"keyID"`
	HubKeyID string `json:"hubKeyID"`
	HubURL   string `json:"hubURL,omitempty"`
}

// Enroller asks hubs to register an agent. All fields but HubURL and HubKey are required.
type Enroller struct {
	Store  *Store
	Outbox *outbox.Outbox
	// Cluster is the agent's. Its UID changes where the agent becomes another cluster.
	Cluster *bundle.ReportCluster
	// HubURL and HubKey are configured, and count more than what a hub has answered.
	HubURL  string
	HubKey  crypto.PublicKey
	Version string // of the agent
	Client  *http.Client
	Now     func() time.Time
	Log     *slog.Logger
}

// Hub is where reports go: as configured, and else as the hub that has enrolled this agent said.
func (e *Enroller) Hub() outbox.Hub {
	h := e.Store.Hub()
	h.URL = cmp.Or(e.HubURL, h.URL)
	if e.HubKey != nil {
		h.Key = e.HubKey
	}
	return h
}

// OtherHub reports whether the configuration pins another hub's key than the one by which this agent was enrolled.
func (e *Enroller) OtherHub() bool {
	enrolled, ok := e.Store.Hub().Key.(interface{ Equal(crypto.PublicKey) bool })
	return ok && e.HubKey != nil && !enrolled.Equal(e.HubKey)
}

// Enroll asks the hub and keeps its answer: from then on the hub's address and key are known. Asking again after
// an answer was lost asks for the same. The error wraps one of those above, bundle.ErrToken, or
// bundle.ErrUntrusted where the answer is not that of the hub whose key the token names, or is pinned.
func (e *Enroller) Enroll(ctx context.Context, o Options) (Enrolled, error) {
	url := cmp.Or(o.HubURL, e.Hub().URL)
	if url == "" {
		return Enrolled{}, ErrNoHubURL
	}
	hub, token, err := e.askedHub(o)
	if err != nil {
		return Enrolled{}, err
	}
	before, err := e.Store.pending()
	if err != nil {
		return Enrolled{}, err
	}
	p, err := e.prepare(o.Kind, hub, token)
	if err != nil {
		return Enrolled{}, err
	}
	done, err := e.submit(ctx, p, hub, url)
	if errors.Is(err, ErrRefused) && p.Kind == AsIs {
		err = errors.Join(err, e.withdraw(p, before))
	}
	return done, err
}

// Request returns the envelope of a request for somebody to carry, and keeps what Accept needs for the answer.
func (e *Enroller) Request(kind Kind) ([]byte, error) {
	p, err := e.prepare(kind, "", nil)
	return p.Request, err
}

// Accept keeps the answer that somebody has carried here, if the hub with the key hubKey has signed it; nil is the
// one that is pinned. The error wraps outbox.ErrNoHubKey, ErrNoRequest or bundle.ErrUntrusted.
func (e *Enroller) Accept(answer []byte, hubKey crypto.PublicKey) (Enrolled, error) {
	pinned := e.Hub()
	if hubKey == nil {
		hubKey = pinned.Key
	}
	if hubKey == nil {
		return Enrolled{}, outbox.ErrNoHubKey
	}
	id, err := bundle.KeyID(hubKey)
	if err != nil {
		return Enrolled{}, err
	}
	return e.accept(answer, id, pinned.URL)
}

// EndRotation goes over to the key that a rotation has made, because a person says that it is listed where reports are
// read without a hub. The error wraps ErrNoRotation where none was begun, or ErrUnfinished where a hub is
// known, whose answer is what ends it.
func (e *Enroller) EndRotation() (Enrolled, error) {
	done := Enrolled{Cluster: *e.Cluster}
	err := e.Store.db.Update(func(tx *bbolt.Tx) error {
		p, err := loadPending(tx)
		if err != nil {
			return err
		}
		switch {
		case p.Kind != Rotate:
			return state.Decline(ErrNoRotation)
		case e.Hub().Key != nil:
			return state.Decline(fmt.Errorf("%w: it is for the hub, whose answer ends the rotation", ErrUnfinished))
		}
		key, err := p.Next.Signer()
		if err != nil {
			return err
		}
		if done.KeyID, err = bundle.KeyID(key.Public()); err != nil {
			return err
		}
		return errors.Join(become(tx, p), state.Drop(tx, state.Meta, keyEnrolling))
	})
	if err != nil {
		return Enrolled{}, err
	}
	return done, e.Store.db.View(e.Store.Load)
}
