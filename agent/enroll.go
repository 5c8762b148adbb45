package agent

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Errors of enrollment that callers branch on.
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

// EnrollKind is what an agent asks a hub for.
type EnrollKind string

// The kinds of requests.
const (
	// EnrollAsIs registers the agent as who it is.
	EnrollAsIs EnrollKind = "enrol"
	// EnrollRotate replaces its key by a new one.
	EnrollRotate EnrollKind = "rotate"
	// EnrollAnew makes it another cluster, with another key, uid and incarnation, and without the reports of the
	// one that it was copied from.
	EnrollAnew EnrollKind = "new-identity"
)

// EnrollOptions say how to enroll.
type EnrollOptions struct {
	// Kind is EnrollAsIs where it is empty.
	Kind EnrollKind `json:"kind,omitempty"`
	// HubURL is empty for the one that is configured, or that the agent is enrolled at.
	HubURL string `json:"hubURL,omitempty"`
	// Token is a bundle.EnrollToken with its secret. EnrollRotate needs none.
	Token string `json:"token,omitempty"`
	// ReplaceHub lets another hub take the place of the one that has enrolled the agent before.
	ReplaceHub bool `json:"replaceHub,omitempty"`
}

// Enrolled says what a hub has registered.
type Enrolled struct {
	Cluster bundle.ReportCluster `json:"cluster"`
	// KeyID is the id of the key that reports are signed with from now on, HubKeyID that of the hub's.
	KeyID    string `json:"keyID"`
	HubKeyID string `json:"hubKeyID"`
	HubURL   string `json:"hubURL,omitempty"`
}

// enrolling is a request that waits for its answer.
type enrolling struct {
	Kind EnrollKind    `json:"kind"`
	ID   digest.Digest `json:"id"`
	// Request is the envelope.
	Request []byte `json:"request"`
	// Next is who the agent is once the hub has agreed. Until then a rotation's reports are signed by both keys,
	// so that they are taken whether the hub has changed over already or not.
	Next *identity `json:"next,omitempty"`
}

// Enroll asks the hub and keeps its answer: from then on the hub's address and key are known. Asking again after
// an answer was lost asks for the same. The error wraps one of those above, bundle.ErrToken, or
// bundle.ErrUntrusted where the answer is not that of the hub whose key the token names, or is pinned.
func (a *Agent) Enroll(ctx context.Context, o EnrollOptions) (Enrolled, error) {
	url := cmp.Or(o.HubURL, a.hub().URL)
	if url == "" {
		return Enrolled{}, ErrNoHubURL
	}
	hub, token, err := a.askedHub(o)
	if err != nil {
		return Enrolled{}, err
	}
	before, err := a.waiting()
	if err != nil {
		return Enrolled{}, err
	}
	pending, err := a.prepare(o.Kind, hub, token)
	if err != nil {
		return Enrolled{}, err
	}
	done, err := a.submit(ctx, pending, hub, url)
	if errors.Is(err, ErrRefused) && pending.Kind == EnrollAsIs {
		err = errors.Join(err, a.withdraw(pending, before))
	}
	return done, err
}

// waiting is the request that waits for its answer; the zero one is none.
func (a *Agent) waiting() (pending enrolling, err error) {
	err = a.state.db.View(func(tx *bbolt.Tx) (err error) {
		pending, err = state.Load[enrolling](tx, state.Meta, keyEnrolling)
		return err
	})
	return pending, err
}

// withdraw has a request wait no more that was refused and brings nothing but what is asked again at any time, and
// the one before it wait again, which somebody may be carrying.
func (a *Agent) withdraw(refused, before enrolling) error {
	return a.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		now, err := state.Load[enrolling](tx, state.Meta, keyEnrolling)
		switch {
		case err != nil || now.ID != refused.ID:
			return false, err
		case before.Kind == "":
			return true, state.Drop(tx, state.Meta, keyEnrolling)
		}
		return true, state.Save(tx, state.Meta, keyEnrolling, before)
	})
}

// EnrollRequest returns the envelope of a request for somebody to carry, and keeps what Accept needs for the
// answer.
func (a *Agent) EnrollRequest(kind EnrollKind) ([]byte, error) {
	pending, err := a.prepare(kind, "", nil)
	return pending.Request, err
}

// Accept keeps the answer that somebody has carried here, if the hub with the key hubKey has signed it; nil is the
// one that is pinned. The error wraps outbox.ErrNoHubKey, ErrNoRequest or bundle.ErrUntrusted.
func (a *Agent) Accept(answer []byte, hubKey crypto.PublicKey) (Enrolled, error) {
	pinned := a.hub()
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
	return a.accept(answer, id, pinned.URL)
}

// EndRotation goes over to the key that a rotation has made, because a person says that it is listed where reports are
// read without a hub. The error wraps ErrNoRotation where none was begun, or ErrUnfinished where a hub is
// known, whose answer is what ends it.
func (a *Agent) EndRotation() (Enrolled, error) {
	done := Enrolled{Cluster: a.cluster}
	err := a.state.db.Update(func(tx *bbolt.Tx) error {
		pending, err := state.Load[enrolling](tx, state.Meta, keyEnrolling)
		if err != nil {
			return err
		}
		switch {
		case pending.Kind != EnrollRotate:
			return state.Decline(ErrNoRotation)
		case a.hub().Key != nil:
			return state.Decline(fmt.Errorf("%w: it is for the hub, whose answer ends the rotation", ErrUnfinished))
		}
		key, err := pending.Next.signer()
		if err != nil {
			return err
		}
		if done.KeyID, err = bundle.KeyID(key.Public()); err != nil {
			return err
		}
		return errors.Join(a.become(tx, pending), state.Drop(tx, state.Meta, keyEnrolling))
	})
	if err != nil {
		return Enrolled{}, err
	}
	return done, a.state.db.View(a.state.loadIdentity)
}

// askedHub is the beginning of the key id of the hub that is to be asked.
func (a *Agent) askedHub(o EnrollOptions) (string, *bundle.EnrollToken, error) {
	pinned := ""
	if key := a.hub().Key; key != nil {
		var err error
		if pinned, err = bundle.KeyID(key); err != nil {
			return "", nil, err
		}
	}
	if o.Kind == EnrollRotate {
		if pinned == "" {
			return "", nil, outbox.ErrNoHubKey
		}
		return pinned, nil, nil
	}
	token, err := bundle.ParseEnrollToken(o.Token)
	switch {
	case err != nil:
		return "", nil, err
	case pinned == "" || bundle.IsHub(pinned, token.Hub), o.ReplaceHub && a.opts.HubKey == nil:
		return token.Hub, &token, nil
	}
	return "", nil, fmt.Errorf("%w: its key is %s, and the token is of the hub with key %s…", ErrOtherHub, pinned, token.Hub)
}

// prepare writes down what is asked for before anybody is asked. A rotation that was begun goes on as it was:
// the hub may have changed over already.
func (a *Agent) prepare(kind EnrollKind, hub string, token *bundle.EnrollToken) (pending enrolling, err error) {
	kind = cmp.Or(kind, EnrollAsIs)
	err = a.state.db.Update(func(tx *bbolt.Tx) error {
		now, err := state.Load[identity](tx, state.Meta, keyIdentity)
		if err != nil {
			return err
		}
		before, err := state.Load[enrolling](tx, state.Meta, keyEnrolling)
		if err != nil {
			return err
		}
		switch {
		case kind == EnrollRotate && before.Kind == EnrollRotate:
			pending = before
			return nil
		case kind == EnrollAsIs && before.Kind == EnrollRotate: // the hub may know the new key alone
			return state.Decline(fmt.Errorf("%w: it was for a new key", ErrUnfinished))
		}
		pending = enrolling{Kind: kind}
		switch {
		case kind == EnrollAnew && before.Kind == EnrollAnew:
			pending.Next = before.Next
		case kind != EnrollAsIs:
			if pending.Next, err = now.next(kind, a.opts.Now()); err != nil {
				return err
			}
		}
		if err := a.seal(tx, &pending, now, hub, token); err != nil {
			return err
		}
		if kind != EnrollAnew { // an agent that has not run yet is known by its request
			err = state.Save(tx, state.Meta, keyCluster, a.cluster)
		}
		return errors.Join(err, state.Save(tx, state.Meta, keyEnrolling, pending))
	})
	return pending, err
}

// seal makes the request's envelope.
func (a *Agent) seal(tx *bbolt.Tx, pending *enrolling, now identity, hub string, token *bundle.EnrollToken) error {
	last, err := outbox.LoadLast(tx)
	if err != nil {
		return err
	}
	r := bundle.EnrollmentRequest{
		Cluster: a.cluster, Hub: hub, IssuedAt: state.Stamp(a.opts.Now()),
		Agent: bundle.ReportAgent{Version: a.opts.Version, Incarnation: now.Incarnation, Seq: last.Seq},
	}
	who := now
	if pending.Next != nil {
		who = *pending.Next
	}
	if pending.Kind == EnrollAnew {
		r.Cluster.UID = who.UID
	}
	key, err := who.signer()
	if err != nil {
		return err
	}
	keys := []crypto.Signer{key}
	if r.Key, err = publicPEM(key); err != nil {
		return err
	}
	if pending.Kind == EnrollRotate {
		former, err := now.signer()
		if err != nil {
			return err
		}
		if r.Former, err = publicPEM(former); err != nil {
			return err
		}
		keys = append(keys, former)
	}
	if token != nil {
		r.Token = token.ID()
		keys = append(keys, token.Key())
	}
	if pending.Request, err = bundle.SealEnrollmentRequest(r, keys...); err != nil {
		return err
	}
	_, pending.ID, err = bundle.OpenEnrollmentRequest(pending.Request)
	return err
}

// accept keeps an answer. What it changes is on disk, all at once, before anything goes by it.
func (a *Agent) accept(answer []byte, hub, url string) (Enrolled, error) {
	e, hubKey, err := bundle.OpenEnrollment(answer, hub)
	if err != nil {
		return Enrolled{}, err
	}
	hubID, err := bundle.KeyID(hubKey)
	if err != nil {
		return Enrolled{}, err
	}
	kept := enrollment{URL: url, HubKey: e.HubKey, Cluster: e.Cluster, KeyID: e.KeyID, Request: e.Request, At: state.Stamp(a.opts.Now())}
	err = a.state.db.Update(func(tx *bbolt.Tx) error {
		pending, err := state.Load[enrolling](tx, state.Meta, keyEnrolling)
		if err != nil {
			return err
		}
		if err := a.matches(tx, pending, e); err != nil {
			return err
		}
		if pending.Next != nil {
			err = a.become(tx, pending)
		}
		return errors.Join(err, catchUp(tx, e.Incarnation, pending.Next != nil), state.Save(tx, state.Meta, keyEnrollment, kept), state.Save(tx, state.Meta, keyCluster, a.cluster),
			state.Drop(tx, state.Meta, keyEnrolling), state.Drop(tx, state.Meta, keyHint))
	})
	if err != nil {
		return Enrolled{}, err
	}
	if err := a.state.db.View(a.state.loadIdentity); err != nil {
		return Enrolled{}, err
	}
	a.opts.Log.Info("enrolled", "hub", url, "hubKey", hubID, "cluster", e.Cluster.Name, "uid", e.Cluster.UID, "key", e.KeyID)
	a.state.outbox.HubChanged()
	return Enrolled{Cluster: e.Cluster, KeyID: e.KeyID, HubKeyID: hubID, HubURL: url}, nil
}

// matches returns an error unless e answers what was asked last, or is the answer that was kept before.
func (a *Agent) matches(tx *bbolt.Tx, pending enrolling, e bundle.Enrollment) error {
	before, err := state.Load[enrollment](tx, state.Meta, keyEnrollment)
	if err != nil {
		return err
	}
	switch {
	case pending.ID == "" && before.Request == e.Request && e.Request != "":
		return nil
	case pending.ID == "" || pending.ID != e.Request:
		return state.Decline(fmt.Errorf("%w: it answers %s", ErrNoRequest, e.Request))
	}
	who, err := state.Load[identity](tx, state.Meta, keyIdentity)
	if err != nil {
		return err
	}
	uid := a.cluster.UID
	if pending.Next != nil {
		who = *pending.Next
		if pending.Kind == EnrollAnew {
			uid = who.UID
		}
	}
	key, err := who.signer()
	if err != nil {
		return err
	}
	id, err := bundle.KeyID(key.Public())
	if err == nil && (id != e.KeyID || uid != e.Cluster.UID) {
		err = state.Decline(fmt.Errorf("%w: it is for uid %s and key %s", ErrNoRequest, e.Cluster.UID, e.KeyID))
	}
	return err
}

// become makes the agent who it asked to be. Who begins anew leaves behind what another cluster had to say.
func (a *Agent) become(tx *bbolt.Tx, pending enrolling) error {
	if err := state.Save(tx, state.Meta, keyIdentity, pending.Next); err != nil || pending.Kind != EnrollAnew {
		return err
	}
	if err := outbox.Clear(tx); err != nil {
		return err
	}
	a.cluster.UID = pending.Next.UID
	last, err := outbox.LoadLast(tx)
	last.Shown = "" // the new hub, or cluster, has heard nothing
	return errors.Join(err, last.Save(tx))
}

// catchUp makes the agent's incarnation no older than the newest that the hub knows, and with a new key newer: a
// machine that was restored from a backup, or whose clock was behind when its state was made, would report
// into the past.
func catchUp(tx *bbolt.Tx, newest int64, newKey bool) error {
	id, err := state.Load[identity](tx, state.Meta, keyIdentity)
	if err != nil || newest < id.Incarnation || newest == id.Incarnation && !newKey {
		return err
	}
	id.Incarnation = min(newest, math.MaxInt64-1) + 1
	return state.Save(tx, state.Meta, keyIdentity, id)
}

// submit posts a request and keeps the answer.
func (a *Agent) submit(ctx context.Context, pending enrolling, hub, url string) (Enrolled, error) {
	answer, err := a.postEnrollment(ctx, url, pending.Request)
	if err != nil {
		return Enrolled{}, err
	}
	var said hubapi.Enrolled
	if err := json.Unmarshal(answer, &said); err != nil {
		return Enrolled{}, fmt.Errorf("hub %s: answer: %w", url, err)
	}
	return a.accept(said.Enrollment, hub, url)
}
