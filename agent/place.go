package agent

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// enrollment is the hub that has registered this agent, as the state keeps it.
type enrollment struct {
	// URL is empty where reports go by media.
	URL string `json:"url,omitempty"`
	// HubKey is the hub's public key, in PEM.
	HubKey string `json:"hubKey"`
	// Cluster is what it has registered, and KeyID by which key.
	Cluster bundle.ReportCluster `json:"cluster"`
	KeyID   string               `json:"keyID"`
	Request digest.Digest        `json:"request"` // that was answered
	At      time.Time            `json:"at"`
}

// place is where reports go, and whose word deletes them.
type place struct {
	url string
	key crypto.PublicKey // nil where none is pinned
}

func (e *enrollment) place() (place, error) {
	if e == nil {
		return place{}, nil
	}
	keys, err := bundle.ParsePublicKeys([]byte(e.HubKey))
	if err != nil || len(keys) != 1 {
		return place{}, fmt.Errorf("the enrollment's hub key: %w", state.ErrDamaged)
	}
	return place{e.URL, keys[0]}, nil
}

// hub is where reports go: as configured, and else as the hub that has enrolled this agent said.
func (a *Agent) hub() place {
	p := *a.state.hub.Load()
	p.url = cmp.Or(a.opts.HubURL, p.url)
	if a.opts.HubKey != nil {
		p.key = a.opts.HubKey
	}
	return p
}

// placed waits until there is a hub to send to, which there may not be before a person enrolls the agent. It
// returns false where ctx ends first.
func (s *sender) placed(ctx context.Context) bool {
	for s.hub().url == "" {
		select {
		case <-ctx.Done():
			return false
		case <-s.enrolled:
		}
	}
	return true
}

// sayOtherHub says that the configuration pins another hub's key than the one by which this agent was enrolled.
func (a *Agent) sayOtherHub() {
	enrolled, ok := a.state.hub.Load().key.(interface{ Equal(crypto.PublicKey) bool })
	if ok && a.opts.HubKey != nil && !enrolled.Equal(a.opts.HubKey) {
		a.opts.Log.Warn("the configured hub key is not that of the hub that has enrolled this agent: the configuration counts")
	}
}
