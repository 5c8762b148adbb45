package agent

import (
	"cmp"
	"crypto"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/outbox"
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

func (e *enrollment) hub() (outbox.Hub, error) {
	if e == nil {
		return outbox.Hub{}, nil
	}
	keys, err := bundle.ParsePublicKeys([]byte(e.HubKey))
	if err != nil || len(keys) != 1 {
		return outbox.Hub{}, fmt.Errorf("the enrollment's hub key: %w", state.ErrDamaged)
	}
	return outbox.Hub{URL: e.URL, Key: keys[0]}, nil
}

// hub is where reports go: as configured, and else as the hub that has enrolled this agent said.
func (a *Agent) hub() outbox.Hub {
	p := *a.state.hub.Load()
	p.URL = cmp.Or(a.opts.HubURL, p.URL)
	if a.opts.HubKey != nil {
		p.Key = a.opts.HubKey
	}
	return p
}

// logOtherHub says that the configuration pins another hub's key than the one by which this agent was enrolled.
func (a *Agent) logOtherHub() {
	enrolled, ok := a.state.hub.Load().Key.(interface{ Equal(crypto.PublicKey) bool })
	if ok && a.opts.HubKey != nil && !enrolled.Equal(a.opts.HubKey) {
		a.opts.Log.Warn("the configured hub key is not that of the hub that has enrolled this agent: the configuration counts")
	}
}
