package outbox

import (
	"crypto"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// ErrNoHubKey means that no key is pinned by which an acknowledgement could be verified.
var ErrNoHubKey = errors.New("no hub key is pinned")

// Acknowledged is the result of importing an acknowledgement file.
type Acknowledged struct {
	Deleted int `json:"deleted"`
	Left    int `json:"left"`
	// DeletedOfOthers counts reports of other agents, and Waiting the acknowledgements that wait for these agents, where
	// the agent is a relay.
	DeletedOfOthers int `json:"deletedOfOthers,omitempty"`
	Waiting         int `json:"waiting,omitempty"`
}

// Acknowledge deletes the reports that the acknowledgements of the hub with the key hubKey name. There may be some for
// other clusters than uid as well, which are passed over; but if one of the envelopes is not the hub's, or none is for
// uid, nothing is deleted. The error wraps bundle.ErrUntrusted, queue.ErrForeignAck or ErrNoHubKey.
func (o *Outbox) Acknowledge(envelopes [][]byte, hubKey crypto.PublicKey, uid string) (Acknowledged, error) {
	if hubKey == nil {
		return Acknowledged{}, ErrNoHubKey
	}
	var ids []digest.Digest
	var foreign error
	own := false
	for _, e := range envelopes {
		ack, err := queue.OpenAck(e, hubKey, uid)
		if errors.Is(err, queue.ErrForeignAck) {
			foreign = err
			continue
		}
		if err != nil {
			return Acknowledged{}, err
		}
		own, ids = true, append(ids, ack.Reports...)
	}
	if !own {
		return Acknowledged{}, errors.Join(foreign, fmt.Errorf("no acknowledgement for cluster %q: %w", uid, queue.ErrForeignAck))
	}
	deleted, err := o.settleAll(ids)
	if err != nil {
		return Acknowledged{}, err
	}
	st, err := o.Status()
	return Acknowledged{Deleted: deleted, Left: st.Length}, err
}

// IsUntrusted tells acknowledgements that must not be believed from other errors.
func IsUntrusted(err error) bool {
	return errors.Is(err, bundle.ErrUntrusted) || errors.Is(err, queue.ErrForeignAck)
}
