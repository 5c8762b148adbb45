package agent

import (
	"cmp"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// IdentityStatus says by what hubs know the agent.
type IdentityStatus struct {
	// KeyID is the id of the key that signs reports.
	KeyID string `json:"keyID"`
	// Hub is where the agent is enrolled, HubKeyID the id of that hub's key. Both are empty where it is not, and Hub
	// where reports go by media. What is configured goes before them.
	Hub      string `json:"hub,omitempty"`
	HubKeyID string `json:"hubKeyID,omitempty"`
	// Waiting is the kind of request that has not been answered yet.
	Waiting EnrollKind `json:"waiting,omitempty"`
	// Reason and Message are what the hub says is wrong: SharedIdentity, KeyReplaced or Retired. Nobody has signed
	// them.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// identify fills in who the agent is.
func (s *Status) identify(tx *bbolt.Tx) error {
	id, err1 := state.Load[identity](tx, state.Meta, keyIdentity)
	known, err2 := state.Load[enrollment](tx, state.Meta, keyEnrollment)
	pending, err3 := state.Load[enrolling](tx, state.Meta, keyEnrolling)
	said, err4 := state.Load[hint](tx, state.Meta, keyHint)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	key, err := id.signer()
	if err != nil {
		return err
	}
	s.Identity = IdentityStatus{Hub: known.URL, Waiting: pending.Kind, Reason: said.Reason, Message: said.Message}
	if s.Identity.KeyID, err = bundle.KeyID(key.Public()); err != nil || known.HubKey == "" {
		return err
	}
	p, err := known.hub()
	if err == nil {
		s.Identity.HubKeyID, err = bundle.KeyID(p.Key)
	}
	return err
}

// showIn puts what the hub says of the identity where people look first, if nothing more urgent is there.
func (i IdentityStatus) showIn(s *Status) {
	if s.Reason == "" {
		s.Reason, s.Message = i.Reason, cmp.Or(s.Message, i.Message)
	}
}
