package config

import (
	"log/slog"
	"sync"
	"time"
)

// clock is the time by which certificates are judged: that of this machine, or a later one that is known to be over. A machine
// without a battery begins in 1970, when no certificate is valid, and learns the time from the network.
type clock struct {
	mu    sync.Mutex
	now   func() time.Time
	floor func() (time.Time, error) // nil is none
	log   *slog.Logger              // nil once it was told that the clock is behind
}

// follow has no time count that is before floor. It logs once if the clock is.
func (c *clock) follow(now func() time.Time, floor func() (time.Time, error), log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now != nil {
		c.now = now
	}
	c.floor, c.log = floor, log
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.floor == nil {
		return now
	}
	floor, err := c.floor()
	if err != nil || !floor.After(now) { // a state that cannot be read is for others to say
		return now
	}
	if c.log != nil {
		c.log.Warn("this machine's clock is earlier than a document that was verified: certificates are judged by the time of that document", "clock", now.UTC(), "document", floor)
		c.log = nil
	}
	return floor
}
