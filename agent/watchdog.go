package agent

import (
	"context"
	"time"
)

// Watchdog is told every so often that a running agent gets on, as /healthz says it. It ends a process that it hears
// nothing of.
type Watchdog struct {
	Every time.Duration
	Tell  func() error
}

// feedWatchdog tells the watchdog until ctx ends, but not while the agent is stuck.
func (a *Agent) feedWatchdog(ctx context.Context) {
	ticker := time.NewTicker(a.opts.Watchdog.Every)
	defer ticker.Stop()
	said := ""
	for {
		why := a.vitals.stuck(a.step(), a.opts.Traffic.received(), time.Now(), a.patience())
		if why == "" {
			if err := a.opts.Watchdog.Tell(); err != nil {
				why = "it cannot be told: " + err.Error()
			}
		}
		if why != "" && said == "" {
			a.opts.Log.Error("the watchdog hears nothing of this agent, and will end it", "why", why)
		}
		said = why
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
