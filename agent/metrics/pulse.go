package metrics

import (
	"fmt"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
)

// leastPatience is the least time for which a pass may show no sign of life before it counts as stuck: a stalled
// download is cut after a minute, five times in a row, and a slow disk may unpack for minutes.
const leastPatience = 15 * time.Minute

// Pulse has the signs of life of a running agent: that a step or a call of an engine has begun or ended, and that something
// was received. Its methods may be called by several goroutines.
type Pulse struct {
	traffic *Traffic
	// patience is how long a pass may show no sign of life.
	patience time.Duration
	now      func() time.Time // the process's clock, which nobody sets back

	mu       sync.Mutex
	step     string    // the one that runs, empty between passes
	ended    bool      // a pass has ended
	sign     time.Time // the last sign of life of a pass
	received int64     // as much had been received when somebody looked last
	wakes    time.Time // when the loop makes its next pass, while it waits for that; zero before the first has ended
}

// NewPulse returns the pulse of an agent that counts traffic. An engine has deadline to answer; three of them are an
// engine that does not. The clock now is one that nobody sets back, such as time.Now.
func NewPulse(traffic *Traffic, deadline time.Duration, now func() time.Time) *Pulse {
	return &Pulse{traffic: traffic, patience: max(3*deadline, leastPatience), now: now}
}

// Enter notes the step that begins; an empty one ends the pass.
func (p *Pulse) Enter(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sign, p.step = p.now(), step
	p.ended = p.ended || step == ""
}

// Step is the one that runs, empty between passes.
func (p *Pulse) Step() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// Live notes a sign of life.
func (p *Pulse) Live() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sign = p.now()
}

// Rest notes that the loop sleeps for d.
func (p *Pulse) Rest(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakes = p.now().Add(max(0, d))
}

// Stuck returns the reason why the agent makes no progress, or "" if it does. A download that goes on counts as progress.
func (p *Pulse) Stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if received := p.traffic.Received(); received != p.received {
		p.received, p.sign = received, now
	}
	due := p.wakes
	if due.Before(p.sign) { // a pass that has just ended, however late, is a sign of life for the loop as well
		due = p.sign
	}
	switch still, late := now.Sub(p.sign), now.Sub(due); {
	case p.step != "" && still > p.patience:
		return fmt.Sprintf("step %s has shown no sign of life for %s", p.step, duration.Text(still))
	case p.step == "" && !p.wakes.IsZero() && late > p.patience:
		return fmt.Sprintf("the next pass was due %s ago and has not begun", duration.Text(late))
	}
	return ""
}

// judging reports whether the first pass is still in its steps up to verify.
func (p *Pulse) judging() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.step {
	case "", "resolve", "learn", "verify":
		return !p.ended
	}
	return false
}
