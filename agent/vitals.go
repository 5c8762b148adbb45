package agent

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// leastPatience is the least time for which a pass may show no sign of life before it counts as stuck: a stalled
// download is cut after a minute, five times in a row, and a slow disk may unpack for minutes.
const leastPatience = 15 * time.Minute

// patience is how long a pass may show no sign of life: no step and no call of an engine has begun or ended, and
// nothing was received. An engine has the deadline to answer; three of them are an engine that does not.
func (a *Agent) patience() time.Duration { return max(3*a.opts.Deadline, leastPatience) }

// durations are the upper bounds, in seconds, of the groups in which passes are counted.
var durations = [...]float64{0.1, 0.5, 2.5, 10, 60, 300, 1800}

// vitals are what a running agent knows of its own life. The times are the process's, which nobody sets back.
type vitals struct {
	mu       sync.Mutex
	sign     time.Time // the last sign of life of a pass
	received int64     // as much had been received when somebody looked last
	wakes    time.Time // when the loop makes its next pass, while it waits for that; zero before the first has ended
	passes   map[Verdict]int64
	took     [len(durations)]int64 // passes that took no longer; not those of groups below
	seconds  float64               // all passes together
}

// live notes a sign of life.
func (v *vitals) live() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sign = time.Now()
}

// passed takes account of a pass that has ended.
func (v *vitals) passed(verdict Verdict, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.passes == nil {
		v.passes = map[Verdict]int64{}
	}
	v.passes[verdict]++
	v.seconds += took.Seconds()
	for i, bound := range durations {
		if took.Seconds() <= bound {
			v.took[i]++
			return
		}
	}
}

// rest notes that the loop sleeps for d.
func (v *vitals) rest(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wakes = time.Now().Add(max(0, d))
}

// counted returns the passes by verdict, by how long they took, and how long they took together.
func (v *vitals) counted() (passes map[Verdict]int64, took [len(durations)]int64, seconds float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.passes), v.took, v.seconds
}

// ended reports whether a pass has ended.
func (v *vitals) ended() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.passes) > 0
}

// stuck says at now why the agent does not get on, or nothing. Step is the one that runs, received what has arrived
// so far: a download that goes on is a sign of life.
func (v *vitals) stuck(step string, received int64, now time.Time, patience time.Duration) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if received != v.received {
		v.received, v.sign = received, now
	}
	// A pass that has just ended, however late, is a sign of life for the loop as well.
	switch still, late := now.Sub(v.sign), now.Sub(latest(v.wakes, v.sign)); {
	case step != "" && still > patience:
		return fmt.Sprintf("step %s has shown no sign of life for %s", step, still.Round(time.Second))
	case step == "" && !v.wakes.IsZero() && late > patience:
		return fmt.Sprintf("the next pass was due %s ago and has not begun", late.Round(time.Second))
	}
	return ""
}
