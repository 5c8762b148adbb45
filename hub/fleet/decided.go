package fleet

import (
	"context"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// Decided is a decision about promotion. The hub has verified the signature of its own ones alone; whether a decision counts is
// for a gate to say.
type Decided struct {
	Action     bundle.Action `json:"action"`
	Ring       string        `json:"ring,omitempty"`
	From       string        `json:"from,omitempty"` // the environment that has BaseCommit
	BaseCommit string        `json:"baseCommit,omitempty"`
	// Workload is the revision of a workload that it is about; the zero value for a decision about a commit.
	Workload  bundle.DecisionWorkload `json:"workload,omitzero"`
	Rules     []string                `json:"rules,omitempty"`
	Reason    string                  `json:"reason,omitempty"`
	By        string                  `json:"by,omitempty"`
	KeyID     string                  `json:"keyID"` // of the key that is said to have signed it
	Own       bool                    `json:"own"`   // true if this hub has signed it
	IssuedAt  time.Time               `json:"issuedAt"`
	ExpiresAt time.Time               `json:"expiresAt,omitzero"`
}

// decidedOf reads a stored decision.
func decidedOf(s store.StoredDecision) (Decided, error) {
	d, id, err := bundle.ReadDecision(s.Envelope)
	return Decided{
		Action: d.Action, Ring: d.Ring, From: d.From, BaseCommit: d.BaseCommit, Workload: d.Workload, Rules: d.Rules, Reason: d.Reason, By: d.By, KeyID: id,
		Own: s.Own, IssuedAt: d.IssuedAt, ExpiresAt: d.ExpiresAt,
	}, err
}

// Decided returns the decisions about an environment of a platform, newest first; of all platforms if that is empty. It is empty for
// a view that does not see the whole environment.
func (v *View) Decided(ctx context.Context, platform, environment string) ([]Decided, error) {
	list := []Decided{}
	if !v.seesAll() || !v.seesEnvironment(environment) {
		return list, nil
	}
	all, err := v.fleet.source.Decisions(ctx, environment)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if platform != "" && s.Platform != platform {
			continue
		}
		if d, err := decidedOf(s); err == nil { // else it was stored by a later version
			list = append(list, d)
		}
	}
	return list, nil
}
