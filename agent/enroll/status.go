package enroll

import (
	"errors"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Status is the agent's identity at hubs.
type Status struct {
	// KeyID is the id of the key that signs reports.
	KeyID string `json:"keyID"`
	// Hub is the address of the hub that has enrolled the agent, HubKeyID the id of that hub's key. Both are empty
	// without an enrollment, and Hub is empty if reports go by media. Configured values take precedence.
	Hub      string `json:"hub,omitempty"`
	HubKeyID string `json:"hubKeyID,omitempty"`
	// Waiting is the kind of the request without an answer; empty if there is none.
	Waiting Kind `json:"waiting,omitempty"`
	// Reason and Message are the hub's hint at a problem: SharedIdentity, KeyReplaced or Retired. They are not
	// signed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ReadStatus reads the agent's identity and enrollment.
func ReadStatus(tx *bbolt.Tx) (Status, error) {
	id, err1 := LoadIdentity(tx)
	known, err2 := state.Load[enrollment](tx, state.Meta, keyEnrollment)
	waiting, err3 := loadPending(tx)
	hinted, err4 := state.Load[hint](tx, state.Meta, keyHint)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return Status{}, err
	}
	key, err := id.Signer()
	if err != nil {
		return Status{}, err
	}
	s := Status{Hub: known.URL, Waiting: waiting.Kind, Reason: hinted.Reason, Message: hinted.Message}
	if s.KeyID, err = bundle.KeyID(key.Public()); err != nil || known.HubKey == "" {
		return s, err
	}
	h, err := known.hub()
	if err == nil {
		s.HubKeyID, err = bundle.KeyID(h.Key)
	}
	return s, err
}
