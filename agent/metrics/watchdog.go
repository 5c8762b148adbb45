package metrics

import (
	"context"
	"log/slog"
	"time"
)

// Watchdog is a service manager, such as systemd, that ends a process without a recent sign of life. A running agent gives
// one at each interval while /healthz reports that it works.
type Watchdog struct {
	Every time.Duration
	Tell  func() error
}

// Feed calls w.Tell at each interval until ctx ends, but not while the agent is stuck.
func (p *Pulse) Feed(ctx context.Context, w *Watchdog, log *slog.Logger) {
	ticker := time.NewTicker(w.Every)
	defer ticker.Stop()
	logged := ""
	for {
		why := p.Stuck()
		if why == "" {
			if err := w.Tell(); err != nil {
				why = "it cannot be told: " + err.Error()
			}
		}
		if why != "" && logged == "" {
			log.Error("the watchdog hears nothing of this agent, and will end it", "why", why)
		}
		logged = why
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
