// Package admission bounds the work that strangers and agents may cause at a hub.
//
// Begin with New. A Gate protects in three stages. Before anything is verified, ReadBody and ConnState bound memory,
// connections and slow senders; newcomers always get in, and those who hold most make room. Then BeginReports and
// BeginEnrollment bound the work at one time, and BeginVerifying that of the processors, so that Ask is not kept waiting. Once reports are verified, Charge limits each cluster to its share of the
// hub's rate and to its quota, so that one key cannot fill the database; strangers do not use up either.
//
// Errors are *hubapi.Error, ready to be sent, unless a method says otherwise. Limits hold for one process, and a restart fills all
// quotas here. The store keeps them for all processes: see store.Quota and OverQuota.
package admission

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/slots"
)

// Options are the optional parts of a Gate; the zero value works.
type Options struct {
	// ReportsPerMinute is the number of reports that the hub asks for in all, divided among the agents that are
	// sending. Zero means DefaultReportsPerMinute.
	ReportsPerMinute int
	// Quota bounds the reports of one cluster. A field that is zero has its value in DefaultQuota.
	Quota Quota
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For header is trusted. Bounds for each address do not
	// apply to the proxies themselves.
	TrustedProxies []netip.Prefix
}

// Bounds of the work at one time.
const (
	// maxIngests bounds the requests whose reports are being verified and stored; others wait.
	maxIngests = 32
	// maxEnrollments bounds the requests for enrollment that are being judged; others wait. A token's key of 256
	// bits cannot be guessed, so this protects the processor. A bound on failures would let a stranger keep sites out.
	maxEnrollments = 4
)

// Gate bounds the work of one hub. It may be used by several goroutines.
type Gate struct {
	pacer       *pacer
	bodies      *slots.Slots // of requests that are being received
	idle        *idle
	proxies     []netip.Prefix
	ingests     chan struct{} // holds a token for each request that is being worked on
	workers     *workers      // of those, the ones whose reports are being verified
	enrollments chan struct{}
}

// New returns a gate with no work under way.
func New(o Options) *Gate {
	quota := Quota{cmp.Or(o.Quota.Reports, DefaultQuota.Reports), cmp.Or(o.Quota.Bytes, DefaultQuota.Bytes)}
	return &Gate{
		pacer:       newPacer(cmp.Or(o.ReportsPerMinute, DefaultReportsPerMinute), quota),
		bodies:      &slots.Slots{PerAddress: maxUnreadOfAddress, Total: maxUnread, Bytes: maxUnreadBytes},
		idle:        newIdle(),
		proxies:     o.TrustedProxies,
		ingests:     make(chan struct{}, maxIngests),
		workers:     newWorkers(runtime.GOMAXPROCS(0)),
		enrollments: make(chan struct{}, maxEnrollments),
	}
}

// ConnState is for http.Server: it ends the oldest connections without a request if there are too many.
func (g *Gate) ConnState(c net.Conn, state http.ConnState) {
	g.idle.watch(g.addressOf(c.RemoteAddr().String()), c, state)
}

// Quota returns the bounds of one cluster.
func (g *Gate) Quota() Quota { return g.pacer.quota }

// Check returns an error if the cluster may send nothing now.
func (g *Gate) Check(uid string, now time.Time) error { return g.pacer.check(uid, now) }

// Charge takes n reports of size bytes in all, which a key of the cluster has signed, from what the cluster may send. The
// caller calls settle once they are stored, or not, which gives them back.
func (g *Gate) Charge(uid string, n, size int, now time.Time) (settle func(stored bool), err error) {
	return g.pacer.charge(uid, n, size, now)
}

// Pace records that the cluster has sent, and returns its share of the hub's rate.
func (g *Gate) Pace(uid string, now time.Time) hubapi.Pace { return g.pacer.pace(uid, now) }

// BeginReports waits until a request's reports may be verified and stored. The caller calls end afterwards. The error is
// a *hubapi.Error if too many wait already, or that of ctx.
func (g *Gate) BeginReports(ctx context.Context) (end func(), err error) {
	leave, err := g.pacer.enter()
	if err != nil {
		return nil, err
	}
	release, err := hold(ctx, g.ingests)
	if err != nil {
		leave()
		return nil, err
	}
	return func() {
		release()
		leave()
	}, nil
}

// BeginVerifying waits until there is a processor that may verify a request's reports. The caller calls end once they are
// verified, and before they are stored. The error is that of ctx.
func (g *Gate) BeginVerifying(ctx context.Context) (end func(), err error) {
	return g.workers.begin(ctx)
}

// Ask returns next, a handler of questions. While it answers one, a processor less verifies reports, but never fewer than half
// of them, and at least one.
func (g *Gate) Ask(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer g.workers.ask()()
		next.ServeHTTP(w, r)
	})
}

// BeginEnrollment waits until a request for enrollment may be judged. The caller calls end afterwards. The error is that
// of ctx.
func (g *Gate) BeginEnrollment(ctx context.Context) (end func(), err error) {
	return hold(ctx, g.enrollments)
}

func hold(ctx context.Context, places chan struct{}) (release func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
