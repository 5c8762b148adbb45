package agent

import (
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
)

// ErrNoHubKey means that no key is pinned by which an acknowledgement could be verified.
var ErrNoHubKey = errors.New("no hub key is pinned")

// Acknowledged says what an acknowledgement file has done.
type Acknowledged struct {
	Deleted int `json:"deleted"`
	Left    int `json:"left"`
}

// Acknowledge deletes the reports that the hub's acknowledgements name. A file may hold some for other
// clusters as well, which are passed over; but if one of its envelopes is not the hub's, or none is for
// this cluster, nothing is deleted. The error wraps bundle.ErrUntrusted, ErrForeignAck or ErrNoHubKey.
func (a *Agent) Acknowledge(envelopes [][]byte) (Acknowledged, error) {
	if a.opts.HubKey == nil {
		return Acknowledged{}, ErrNoHubKey
	}
	var ids []digest.Digest
	var foreign error
	own := false
	for _, e := range envelopes {
		ack, err := a.openAck(e)
		if errors.Is(err, ErrForeignAck) {
			foreign = err
			continue
		}
		if err != nil {
			return Acknowledged{}, err
		}
		own, ids = true, append(ids, ack.Reports...)
	}
	if !own {
		return Acknowledged{}, errors.Join(foreign, fmt.Errorf("no acknowledgement for cluster %q: %w", a.cluster.UID, ErrForeignAck))
	}
	deleted, err := a.state.settle(ids, nil)
	if err != nil {
		return Acknowledged{}, err
	}
	s, err := a.state.Status(a.opts.Now())
	return Acknowledged{Deleted: deleted, Left: s.Queue.Length}, err
}

// IsUntrusted tells acknowledgements that must not be believed from other errors.
func IsUntrusted(err error) bool {
	return errors.Is(err, bundle.ErrUntrusted) || errors.Is(err, ErrForeignAck)
}
