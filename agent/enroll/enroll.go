// Package enroll registers an agent at a hub: it keeps the agent's identity, its requests to hubs, and the hub's answer.
//
// A Store reads these from the state file; an Enroller makes requests. A request is on disk before it is sent, and an answer
// takes effect in one transaction, so that a crash between the two loses neither the agent's key nor its reports. Signers
// returns the keys that sign reports.
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
	"github.com/wherry-dev/wherry/bundle/queue"
)

// Errors that callers branch on.
var (
	// ErrRefused means that a hub has understood a request and refuses it. The refusal is not signed.
	ErrRefused = errors.New("the hub refused")
	// ErrOtherHub means that another hub's key is pinned.
	ErrOtherHub = errors.New("another hub is pinned")
	// ErrNoHubURL means that the hub's address is not known.
	ErrNoHubURL = errors.New("no hub is known")
	// ErrNoRequest means that an answer does not answer the request that waits for one.
	ErrNoRequest = errors.New("no request waits for this answer")
	// ErrNoRotation means that no rotation was begun.
	ErrNoRotation = errors.New("no rotation was begun")
	// ErrUnfinished means that a rotation was begun, which has to end first.
	ErrUnfinished = errors.New("an earlier request is not answered yet")
)

// Kind is the kind of an agent's request to a hub.
type Kind string

// The kinds of requests.
const (
	// AsIs registers the agent with its present identity.
	AsIs Kind = "enrol"
	// Rotate replaces its key by a new one.
	Rotate Kind = "rotate"
	// Anew makes it another cluster, with another key, uid and incarnation, and without the reports of the
	// cluster from which it was copied.
	Anew Kind = "new-identity"
)

// Options configures a request. The zero value is AsIs at the known hub.
type Options struct {
	// Kind is the kind of the request. Empty means AsIs.
	Kind Kind `json:"kind,omitempty"`
	// HubURL is the hub's address. Empty means the configured one, or that of the hub that has enrolled the agent.
	HubURL string `json:"hubURL,omitempty"`
	// Token is a bundle.EnrollToken with its secret. Rotate needs none.
	Token string `json:"token,omitempty"`
	// ReplaceHub permits another hub to replace the one that has enrolled the agent before.
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
	// Cluster is the agent's. Its UID changes if the agent becomes another cluster.
	Cluster *bundle.ReportCluster
	// HubURL and HubKey are the configured values, which take precedence over a hub's answer.
	HubURL  string
	HubKey  crypto.PublicKey
	Version string // of the agent
	Client  *http.Client
	Now     func() time.Time
	Log     *slog.Logger
}

// Hub returns the hub for reports: the configured one, or else the one that has enrolled this agent.
func (e *Enroller) Hub() queue.Hub {
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

// Enroll sends a request to the hub and saves its answer: from then on the hub's address and key are known. If an answer
// was lost, it sends the same request again. The error wraps one of those above, bundle.ErrToken, or
// bundle.ErrUntrusted if the answer is not signed with the key that the token names, or that is pinned.
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

// Request returns the envelope of a request to be carried on a medium, and saves the request for Accept.
func (e *Enroller) Request(kind Kind) ([]byte, error) {
	p, err := e.prepare(kind, "", nil)
	return p.Request, err
}

// Accept saves an answer that came on a medium, if it is signed with hubKey; nil means the
// pinned key. The error wraps outbox.ErrNoHubKey, ErrNoRequest or bundle.ErrUntrusted.
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

// EndRotation changes to the new key of a rotation. A person calls for it, once the key is in the roster from which reports
// are read without a hub. The error wraps ErrNoRotation if none was begun, or ErrUnfinished if a hub is
// known, whose answer ends the rotation.
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
