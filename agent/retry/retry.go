// Package retry has the times between attempts: longer after each failure, and never the same for a whole fleet.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is base doubled n times, at most limit.
func Backoff(base, limit time.Duration, n int) time.Duration {
	for ; n > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}

// Jitter spreads d by a tenth to either side, so that a fleet that starts together does not stay so.
func Jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// FullJitter returns a random time from a tenth of d up to d, so that a fleet that lost its connections at one moment
// returns spread over d.
func FullJitter(d time.Duration) time.Duration { return d/10 + rand.N(d-d/10) }

// Spread returns a random time from d up to 2d, so that agents with the same d do not return together.
func Spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + rand.N(d)
}

// Sleep waits for d, or until ctx ends, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
