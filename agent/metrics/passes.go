package metrics

import (
	"fmt"
	"sync"
	"time"
)

// bounds are the upper bounds, in seconds, of the groups in which passes are counted.
var bounds = [...]float64{0.1, 0.5, 2.5, 10, 60, 300, 1800}

// Passes counts the passes of a process.
type Passes struct {
	verdicts []string

	mu      sync.Mutex
	ended   map[string]int64   // by verdict
	took    [len(bounds)]int64 // passes that took no longer; not those of groups below
	seconds float64            // all passes together
}

// NewPasses returns a Passes that counts the given verdicts, each of which is shown from the beginning.
func NewPasses(verdicts ...string) *Passes {
	return &Passes{verdicts: verdicts, ended: map[string]int64{}}
}

// Add takes account of a pass that has ended.
func (p *Passes) Add(verdict string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[verdict]++
	p.seconds += took.Seconds()
	for i, bound := range bounds {
		if took.Seconds() <= bound {
			p.took[i]++
			return
		}
	}
}

func (p *Passes) byVerdict() (all []sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, verdict := range p.verdicts {
		all = append(all, sample{value: float64(p.ended[verdict]), labels: []string{"verdict", verdict}})
	}
	return all
}

func (p *Passes) durations() (all []sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum, total int64
	for i, bound := range bounds {
		sum += p.took[i]
		all = append(all, sample{suffix: "_bucket", value: float64(sum), labels: []string{"le", fmt.Sprint(bound)}})
	}
	for _, n := range p.ended {
		total += n
	}
	return append(all,
		sample{suffix: "_bucket", value: float64(total), labels: []string{"le", "+Inf"}},
		sample{suffix: "_sum", value: p.seconds},
		sample{suffix: "_count", value: float64(total)},
	)
}
