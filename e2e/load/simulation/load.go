package simulation

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// service is what agents ask.
type service int

const (
	registryService service = iota
	hubService
)

// load counts what agents ask of the services. What the publisher and the simulation itself ask is not counted.
type load struct {
	services [2]struct {
		requests, bytes, peak atomic.Int64
	}
	failed, cut atomic.Int64
	// deferred counts answers 429 that say when to come again, which an agent does: a service that paces its callers.
	deferred atomic.Int64
	// refused counts answers 4xx, but for 404, which an agent expects of what may be missing.
	refused atomic.Int64

	mu       sync.Mutex
	failures []string // the first ones
}

// maxFailures bounds the failures that are described.
const maxFailures = 5

// count counts a request and how it ended.
func (l *load) count(req *http.Request, s service, resp *http.Response, err error) {
	if errors.Is(err, errDown) {
		l.cut.Add(1)
		return
	}
	l.services[s].requests.Add(1)
	switch {
	case err == nil && resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
		l.deferred.Add(1)
	case err == nil && resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
		if resp.StatusCode >= http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
			l.refused.Add(1)
			l.note(req.Method + " " + req.URL.Path + ": " + resp.Status)
		}
	case err == nil:
		l.fail(req.Method + " " + req.URL.Path + ": " + resp.Status)
	case req.Context().Err() != nil && errors.Is(context.Cause(req.Context()), context.Canceled): // the agent is being ended
	default:
		l.fail(req.Method + " " + req.URL.Path + ": " + err.Error())
	}
}

func (l *load) fail(what string) {
	l.failed.Add(1)
	l.note(what)
}

func (l *load) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < maxFailures {
		l.failures = append(l.failures, what)
	}
}

// sample finds the highest number of requests in a second, until ctx ends.
func (l *load) sample(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	var before [2]int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		for i := range l.services {
			now := l.services[i].requests.Load()
			l.services[i].peak.Store(max(l.services[i].peak.Load(), now-before[i]))
			before[i] = now
		}
	}
}

// totals are the counts at one moment, by service.
type totals struct{ requests, bytes [2]int64 }

func (l *load) total() (t totals) {
	for i := range l.services {
		t.requests[i], t.bytes[i] = l.services[i].requests.Load(), l.services[i].bytes.Load()
	}
	return t
}

// since returns the traffic of so many clusters since an earlier moment, in a time.
func (t totals) since(before totals, in time.Duration, clusters int) *Traffic {
	return &Traffic{
		Seconds:  in.Seconds(),
		Registry: Counts{t.requests[registryService] - before.requests[registryService], t.bytes[registryService] - before.bytes[registryService]},
		Hub:      Counts{t.requests[hubService] - before.requests[hubService], t.bytes[hubService] - before.bytes[hubService]},
		Clusters: clusters,
	}
}
