package hub

import (
	"context"
	"crypto"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/upkeep"
	"github.com/wherry-dev/wherry/hub/upstream"
)

// UpstreamFile is the name of the file in a hub's folder that has what was forwarded to an upper hub.
const UpstreamFile = "upstream.json"

// Verify is upkeep.Verify of all that the hub has stored.
func (h *Hub) Verify(ctx context.Context, each func(upkeep.Finding) error, progress func(bytes int64)) (upkeep.Verified, error) {
	return upkeep.Verify(ctx, h.store, each, progress)
}

// Trim removes envelopes and history that are older than the retention, and never anything of the present.
func (h *Hub) Trim(ctx context.Context, r upkeep.Retention) (store.Trimmed, error) {
	return r.Trim(ctx, h.store, h.enroller.sign.now(), time.Time{})
}

// Retain trims every hour until ctx ends, and returns nil then. What Forwarder has not sent yet stays.
func (h *Hub) Retain(ctx context.Context, r upkeep.Retention) error {
	o := upkeep.Options{Now: h.enroller.sign.now, Log: h.log, Trimmed: h.counters.Trimmed}
	if h.forwarder != nil {
		o.Unsent = func() (time.Time, bool) {
			s := h.forwarder.Status()
			return s.Behind, s.Read
		}
	}
	return r.Run(ctx, h.store, o)
}

// Forwarder returns what forwards to the hub at url, whose acknowledgements that key verifies. It goes on from where it was, as
// UpstreamFile in the hub's folder says, or begins anew. Call it before Serve and Retain. A hub has one.
func (h *Hub) Forwarder(url string, key crypto.PublicKey, client *http.Client, anew bool) (*upstream.Forwarder, error) {
	f, err := upstream.New(url, key, h.store, memoryFile(filepath.Join(h.dir, UpstreamFile)), upstream.Options{
		Client: client, Now: h.enroller.sign.now, Log: h.log, Anew: anew,
	})
	h.forwarder = f
	return f, err
}

// memoryFile is an upstream.Memory.
type memoryFile string

func (m memoryFile) Load() ([]byte, error) {
	data, err := os.ReadFile(string(m))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (m memoryFile) Save(data []byte) error { return diskfile.Replace(string(m), 0o600, data) }

// Envelopes calls each with the stored envelopes that came after a position, in the order of arrival.
func (h *Hub) Envelopes(ctx context.Context, after store.Position, each func(store.StoredEnvelope) error) error {
	return h.store.Envelopes(ctx, after, "", each)
}
