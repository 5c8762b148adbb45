package admission

import (
	"fmt"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// DefaultReportsPerMinute is the default number of reports that a hub asks for in all: less than a seventh of the rate at
// which two cores store reports with every commit synced.
const DefaultReportsPerMinute = 60_000

// Quota bounds the reports of one cluster that are stored over HTTP: so many at once, and as many again in each hour.
type Quota struct {
	Reports int
	Bytes   int // of envelopes
}

// DefaultQuota takes in an hour the reports of some 60 changes in a cluster of 200 assignments. It takes a full queue of an
// agent, 20 MiB, within five hours, and the reports of a quiet month at once.
var DefaultQuota = Quota{Reports: 2000, Bytes: 4 << 20}

const (
	// maxRequests bounds the requests whose bodies have arrived and wait to be stored.
	maxRequests = 512
	// maxStoring bounds the requests of one cluster that are being stored, so that it does not hold up the others.
	maxStoring = 4
	// minRetry and maxRetry bound when agents that found the hub busy come back.
	minRetry, maxRetry = 5 * time.Second, time.Minute
)

// overQuota is the answer to a cluster that has sent more than it may.
func overQuota(bound string, wait time.Duration) *hubapi.Error {
	return &hubapi.Error{
		Code: hubapi.CodeOverQuota, RetryAfter: wait,
		Message: fmt.Sprintf("the cluster has reached its bound of %s; nothing was stored, send it again later", bound),
	}
}

// OverQuota returns the answer to a cluster that has used up its quota in the store.
func OverQuota(e *store.QuotaError) *hubapi.Error { return overQuota(e.Bound, e.Wait) }

// pacer divides the hub's rate among the agents that are sending, and limits each to its share and to its quota.
type pacer struct {
	perMinute int
	quota     Quota

	mu       sync.Mutex
	requests int // of maxRequests
	begun    time.Time
	now      map[string]bool // uids that have sent since begun
	before   map[string]bool // in the minute before
	accounts map[string]*account
}

// account is the remaining allowance of one cluster: of its share of a minute, and of its quota's reports and bytes. It may
// fall below zero. There is one for each uid that has sent a verified report, until it is full again.
type account struct {
	at                    time.Time
	share, reports, bytes float64
	storing               int
}

func newPacer(perMinute int, q Quota) *pacer {
	return &pacer{perMinute: perMinute, quota: q, accounts: map[string]*account{}}
}

// pace records that a cluster has sent, and returns its share: the hub's reports per minute, divided by the number of
// clusters that have sent in this minute or in the last, whichever is larger.
func (p *pacer) pace(uid string, now time.Time) hubapi.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(uid, now)
	return hubapi.Pace{ReportsPerMinute: int64(p.share())}
}

func (p *pacer) note(uid string, now time.Time) {
	p.turn(now)
	p.now[uid] = true
}

// turn begins another minute when one has passed.
func (p *pacer) turn(now time.Time) {
	if gone := now.Sub(p.begun).Abs(); p.now == nil || gone >= time.Minute {
		p.before = nil
		if gone < 2*time.Minute {
			p.before = p.now
		}
		p.begun, p.now = now, map[string]bool{}
		p.forget(now)
	}
}

func (p *pacer) share() int { return max(1, p.perMinute/max(1, len(p.now), len(p.before))) }

// forget drops the accounts that are as a new one would be.
func (p *pacer) forget(now time.Time) {
	for uid, a := range p.accounts {
		p.refill(a, now)
		if a.storing == 0 && a.reports == float64(p.quota.Reports) && a.bytes == float64(p.quota.Bytes) {
			delete(p.accounts, uid)
		}
	}
}

// refill adds to an account the allowance for the time since the last call: none if the clock was set back.
func (p *pacer) refill(a *account, now time.Time) {
	gone := max(0, now.Sub(a.at).Hours())
	a.at = now
	fill := func(left *float64, full, perHour float64) { *left = min(full, *left+gone*perHour) }
	share := float64(p.share())
	fill(&a.share, share, 60*share)
	fill(&a.reports, float64(p.quota.Reports), float64(p.quota.Reports))
	fill(&a.bytes, float64(p.quota.Bytes), float64(p.quota.Bytes))
}

// bound returns a *hubapi.Error if the account has nothing left of something.
func (p *pacer) bound(a *account) error {
	var worst *hubapi.Error
	empty := func(left, perHour float64, bound string) {
		// The time that brings the debt and something more than nothing.
		wait := time.Duration(-left/perHour*float64(time.Hour)) + time.Second
		if left <= 0 && (worst == nil || wait > worst.RetryAfter) {
			worst = overQuota(bound, wait)
		}
	}
	share := p.share()
	empty(a.share, 60*float64(share), fmt.Sprintf("%d reports a minute", share))
	empty(a.reports, float64(p.quota.Reports), fmt.Sprintf("%d reports an hour", p.quota.Reports))
	empty(a.bytes, float64(p.quota.Bytes), fmt.Sprintf("%d bytes an hour", p.quota.Bytes))
	if worst == nil {
		return nil
	}
	return worst
}

// check returns a *hubapi.Error if the cluster may send nothing now.
func (p *pacer) check(uid string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	a, known := p.accounts[uid]
	if !known {
		return nil
	}
	p.refill(a, now)
	return p.bound(a)
}

// charge takes n reports of size bytes, which a key of the cluster has signed, from its account. Once they are stored, or not, done is
// called. The error is a *hubapi.Error.
func (p *pacer) charge(uid string, n, size int, now time.Time) (done func(stored bool), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(uid, now)
	a, known := p.accounts[uid]
	if !known {
		a = &account{now, float64(p.share()), float64(p.quota.Reports), float64(p.quota.Bytes), 0}
		p.accounts[uid] = a
	}
	p.refill(a, now)
	if err := p.bound(a); err != nil {
		return nil, err
	}
	if a.storing == maxStoring {
		return nil, busy()
	}
	take := func(sign float64) {
		reports, bytes := sign*float64(n), sign*float64(size)
		a.share, a.reports, a.bytes = a.share-reports, a.reports-reports, a.bytes-bytes
	}
	take(1)
	a.storing++
	return func(stored bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		a.storing--
		if !stored {
			take(-1)
		}
	}, nil
}

// enter counts one more request that waits to be stored, until leave is called. The error is a *hubapi.Error.
func (p *pacer) enter() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests == maxRequests {
		return nil, busy()
	}
	p.requests++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests--
	}, nil
}
