package enroll

import (
	"log/slog"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/reconcilers"
)

// hint is the hub's hint about the identity of this agent. It is not signed, and only shown to people.
type hint struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Hear saves the hub's last hint about the identity of this agent, from a receipt. Nil means that there is no problem.
func (s *Store) Hear(received *hubapi.IdentityHint, log *slog.Logger) error {
	var now hint
	if received != nil {
		now = hint{string(received.Reason), reconcilers.Clip(received.Message)}
	}
	switch hubapi.Code(now.Reason) {
	case "", hubapi.CodeSharedIdentity, hubapi.CodeRetired, hubapi.CodeKeyReplaced:
	default:
		return nil // a newer hub's
	}
	return s.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		before, err := state.Load[hint](tx, state.Meta, keyHint)
		if err != nil || before == now {
			return false, err
		}
		if now.Reason != "" && now.Reason != before.Reason {
			log.Warn("the hub reports a problem with this agent's identity", "reason", now.Reason, "message", now.Message)
		}
		return true, state.Save(tx, state.Meta, keyHint, now)
	})
}
