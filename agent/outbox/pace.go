package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// Bounds of how fast reports are given to a sink, whatever it asks for.
const (
	firstRetry = 5 * time.Second
	// maxPause bounds the pause between two requests while there is more to send: a full queue of 20 requests then
	// takes some three hours at most.
	maxPause = 10 * time.Minute
)

// courier calls round, which gives what waits to a sink, whenever something does, and backs off while that fails.
type courier struct {
	box   *Outbox
	log   *slog.Logger
	to    string // for the log
	wake  <-chan struct{}
	idle  func() time.Duration // how long to wait for wake after a round that went well
	round func(context.Context) (rest time.Duration, err error)
	sleep func(context.Context, time.Duration) error

	failures int
}

// run ends with ctx.
func (c *courier) run(ctx context.Context) {
	for ctx.Err() == nil {
		rest, err := c.round(ctx)
		c.logReach(ctx, err)
		if err == nil {
			c.failures = 0
			c.await(ctx, rest)
			continue
		}
		// Full jitter: a hub that comes back is not met by the whole fleet at once.
		wait := retry.FullJitter(retry.Backoff(firstRetry, queue.LongestRetry, c.failures))
		c.failures++
		_ = c.sleep(ctx, max(wait, rest, retry.Spread(queue.RetryAfter(err)))) // its error is that ctx has ended
	}
}

// await returns when something is to be sent, after rest at least.
func (c *courier) await(ctx context.Context, rest time.Duration) {
	if c.sleep(ctx, rest) != nil {
		return
	}
	timer := time.NewTimer(c.idle())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.wake:
	}
}

// logReach logs once that a sink is out of reach, and once that it is back. The status shows the error until then.
func (c *courier) logReach(ctx context.Context, err error) {
	if err == nil {
		c.box.unsent.Delete(c.to)
	} else if ctx.Err() == nil {
		c.box.unsent.Store(c.to, bundle.Clip(err.Error()))
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && c.failures == 0:
		c.log.Warn("reports stay in the queue", "to", c.to, "err", err)
	case err == nil && c.failures > 0:
		c.log.Info("reports are taken again", "to", c.to)
	}
}
