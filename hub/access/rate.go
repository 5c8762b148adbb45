package access

import (
	"sync"
	"time"
)

// maxRemembered bounds the keys of a generation, and so the memory: some 100 bytes each.
const maxRemembered = 16 << 10

// generations remembers the values of keys that were used lately. A value is forgotten once it was not used for a whole
// generation, or earlier where there are too many keys: whoever has many addresses gains less by that than others would lose
// if new ones were refused.
type generations[V any] struct {
	length   time.Duration
	began    time.Time
	now, old map[string]V
}

func (g *generations[V]) get(key string, at time.Time) (V, bool) {
	if g.now == nil || at.Sub(g.began) >= g.length || len(g.now) >= maxRemembered {
		g.old, g.now, g.began = g.now, map[string]V{}, at
	}
	if v, ok := g.now[key]; ok {
		return v, true
	}
	v, ok := g.old[key]
	if ok {
		g.now[key] = v
	}
	return v, ok
}

func (g *generations[V]) set(key string, v V, at time.Time) {
	_, _ = g.get(key, at) // which begins a generation when it is due
	g.now[key] = v
}

// rate limits how often each key may do something: burst times at once, and perMinute times a minute.
type rate struct {
	perMinute, burst float64

	mu   sync.Mutex
	keys generations[bucket]
}

// bucket is what a key had left at a time.
type bucket struct {
	left float64
	at   time.Time
}

func newRate(perMinute, burst int) *rate {
	r := &rate{perMinute: float64(perMinute), burst: float64(burst)}
	r.keys.length = r.timeFor(r.burst) // after which a bucket is full, and need not be remembered
	return r
}

func (r *rate) timeFor(n float64) time.Duration {
	return time.Duration(n / r.perMinute * float64(time.Minute))
}

// take takes n from what the key may do. If less than one is left, it takes nothing and returns how long to wait.
func (r *rate) take(key string, n float64, now time.Time) (wait time.Duration, ok bool) {
	if key == "" {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.keys.get(key, now)
	if !known {
		b = bucket{r.burst, now}
	}
	if passed := now.Sub(b.at); passed > 0 { // a clock may be set back
		b.left = min(r.burst, b.left+passed.Minutes()*r.perMinute)
	}
	b.at = now
	if b.left < 1 {
		return r.timeFor(1 - b.left), false
	}
	b.left -= n
	r.keys.set(key, b, now)
	return 0, true
}
