package hub

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultReportsPerMinute is what a hub asks its agents for in all, where it is not told: less than a seventh of
// what two cores store with every commit synced.
const DefaultReportsPerMinute = 60_000

const (
	// maxRequests bounds the requests whose bodies are being received or stored, each of which may hold
	// MaxRequestBytes of memory. Agents whose request is one too many come back.
	maxRequests = 512
	// minRetry and maxRetry bound, in seconds, when they come back. Each is told another time.
	minRetry, maxRetry = 5, 60
)

// Pace asks an agent not to send faster. Agents bound it as they see fit.
type Pace struct {
	// ReportsPerMinute is this agent's share of what the hub takes.
	ReportsPerMinute int `json:"reportsPerMinute"`
}

// pacer divides what the hub takes among the agents that are sending.
type pacer struct {
	perMinute int
	requests  atomic.Int64

	mu     sync.Mutex
	begun  time.Time
	now    map[string]bool // uids that have sent since begun
	before map[string]bool // in the minute before
}

// pace notes that a cluster has sent, and returns its share: what the hub takes in a minute, divided by the clusters
// that have sent in this minute or in the last, whichever are more.
func (p *pacer) pace(uid string, now time.Time) Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone := now.Sub(p.begun).Abs(); p.now == nil || gone >= time.Minute {
		p.before = nil
		if gone < 2*time.Minute {
			p.before = p.now
		}
		p.begun, p.now = now, map[string]bool{}
	}
	p.now[uid] = true
	return Pace{max(1, p.perMinute/max(len(p.now), len(p.before)))}
}

// enter says whether one more request fits. If so, leave ends it.
func (p *pacer) enter() (leave func(), ok bool) {
	if p.requests.Add(1) > maxRequests {
		p.requests.Add(-1)
		return nil, false
	}
	return func() { p.requests.Add(-1) }, true
}

// busy sends an agent away until a moment that differs from the next one's.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(minRetry+rand.N(maxRetry-minRetry)))
	writeJSON(w, http.StatusTooManyRequests, apiError{CodeBusy, "too many reports are being taken at once; try again later"})
}
