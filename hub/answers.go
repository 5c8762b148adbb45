package hub

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// present is the present of all clusters in memory, from the first question on.
type present struct {
	opening sync.Mutex
	kept    atomic.Pointer[fleet.Fleet]
}

// apply takes the state of a cluster that was just stored, so that it need not be read.
func (p *present) apply(s *store.ClusterState) {
	if f := p.kept.Load(); f != nil && s != nil {
		f.Apply(*s)
	}
}

// Answers returns what can be asked about the part of the fleet that a scope allows; the zero scope is all of it. The first
// call reads the present of all clusters into memory, and Serve follows it from there.
func (h *Hub) Answers(ctx context.Context, s store.AccessScope) (*fleet.View, error) {
	f, err := h.readPresent(ctx)
	if err != nil {
		return nil, err
	}
	return f.View(s)
}

func (h *Hub) readPresent(ctx context.Context) (*fleet.Fleet, error) {
	if f := h.present.kept.Load(); f != nil {
		return f, nil
	}
	h.present.opening.Lock()
	defer h.present.opening.Unlock()
	if f := h.present.kept.Load(); f != nil {
		return f, nil
	}
	f, err := fleet.Open(ctx, h.store, fleet.Options{Now: h.enroller.sign.now, Log: h.log})
	if err == nil {
		h.present.kept.Store(f)
	}
	return f, err
}

// answersFor returns what whoever sends a request may ask.
func (h *Hub) answersFor(r *http.Request) (fleet.Answers, error) {
	return h.Answers(r.Context(), access.ScopeOf(r.Context()).AccessScope)
}

// followPresent reads the present into memory and keeps it up to date until ctx ends.
func (h *Hub) followPresent(ctx context.Context) {
	for {
		f, err := h.readPresent(ctx)
		if err == nil {
			_ = f.Run(ctx) // it ends with ctx alone
			return
		}
		if ctx.Err() != nil {
			return
		}
		h.log.Error("the fleet cannot be read", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(unavailableRetry):
		}
	}
}
