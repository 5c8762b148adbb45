// Package meter counts what is fetched and rendered for each registration, and ends it at a budget.
//
// A [Set] has a Meter for each registration. Begin with [Meter.Start] around everything that is fetched for one, and send the
// requests by a [Transport], which finds the Meter in their context. [Meter.CPU] counts processor time. What exceeds the budget ends with an error that wraps
// [ErrExceeded]; the Meters of other registrations know nothing of it.
package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ErrExceeded is returned for what would exceed a budget.
var ErrExceeded = errors.New("budget exceeded")

// Budget bounds what one registration may use in one publication. Zero fields have defaults.
type Budget struct {
	// Time is that in which anything is fetched for it.
	Time time.Duration
	// Sources counts the branches, tags, charts and images that are looked up, and Requests those over HTTP.
	Sources, Requests int
	// Bytes are those of answers, and Disk those of files that are written.
	Bytes, Disk int64
	// CPU is the time of processors. Its bound is an argument of [Meter.CPU], and not one of the budget.
	CPU time.Duration
}

// defaults are the bounds of a Budget that sets none.
var defaults = Budget{Time: 10 * time.Minute, Sources: 5_000, Requests: 50_000, Bytes: 4 << 30, Disk: 4 << 30}

// Used is what a registration has used.
type Used struct {
	Registration string
	Budget
}

// Set has the Meters of all registrations.
type Set struct {
	budget Budget
	mu     sync.Mutex
	byName map[string]*Meter
}

// NewSet returns a Set whose Meters have the same budget.
func NewSet(b Budget) *Set {
	b.Time, b.Sources, b.Requests = cmp.Or(b.Time, defaults.Time), cmp.Or(b.Sources, defaults.Sources), cmp.Or(b.Requests, defaults.Requests)
	b.Bytes, b.Disk = cmp.Or(b.Bytes, defaults.Bytes), cmp.Or(b.Disk, defaults.Disk)
	return &Set{budget: b, byName: map[string]*Meter{}}
}

// Of returns the Meter of a registration. What is the platform's own, with an empty name, is counted and has no budget. A nil
// Set has nil Meters.
func (s *Set) Of(registration string) *Meter {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byName[registration]
	if m == nil {
		m = &Meter{registration: registration, budget: s.budget}
		if registration == "" {
			m.budget = Budget{Time: math.MaxInt64, Sources: math.MaxInt, Requests: math.MaxInt, Bytes: math.MaxInt64, Disk: math.MaxInt64}
		}
		s.byName[registration] = m
	}
	return m
}

// Used returns what the registrations have used, sorted by their names.
func (s *Set) Used() (all []Used) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		all = append(all, Used{name, s.byName[name].Used()})
	}
	return all
}

// Meter counts for one registration. It may be used by several goroutines. A nil Meter counts nothing.
type Meter struct {
	registration string
	budget       Budget
	mu           sync.Mutex
	used         Budget
	running      int
	since        time.Time // of running
}

// exceeded returns the error of a budget.
func (m *Meter) exceeded(what string, used, allowed any) error {
	return fmt.Errorf("%w: registration %q uses %v %s, and at most %v are allowed in one publication", ErrExceeded, m.registration, used, what, allowed)
}

// Start returns a context with the Meter that ends with the budget's time. The time counts from now until end is called;
// what runs at the same time counts once.
func (m *Meter) Start(ctx context.Context) (_ context.Context, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	left := m.budget.Time - m.used.Time
	if m.running > 0 {
		left -= now.Sub(m.since)
	} else {
		m.since = now
	}
	m.running++
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, key{}, m), left,
		fmt.Errorf("%w: the sources of registration %q take more than %s in one publication", ErrExceeded, m.registration, m.budget.Time))
	return ctx, func() {
		cancel()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.running--; m.running == 0 {
			m.used.Time += time.Since(m.since)
		}
	}
}

// Used returns what has been used; the time of what still runs is not in it.
func (m *Meter) Used() Budget {
	if m == nil {
		return Budget{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// CPU counts processor time, of which a registration may use allowed. Zero asks whether there is any left.
func (m *Meter) CPU(used, allowed time.Duration) error {
	return m.count("of processor time", func(u *Budget) (any, any, bool) {
		u.CPU += used
		return u.CPU.Round(time.Millisecond), allowed, u.CPU > allowed && m.registration != ""
	})
}

type key struct{}

// From returns the Meter of a context that Start returned, or nil.
func From(ctx context.Context) *Meter {
	m, _ := ctx.Value(key{}).(*Meter)
	return m
}

// Source counts a source.
func (m *Meter) Source() error {
	return m.count("sources", func(u *Budget) (any, any, bool) {
		u.Sources++
		return u.Sources, m.budget.Sources, u.Sources > m.budget.Sources
	})
}

// Disk counts bytes that are about to be written.
func (m *Meter) Disk(n int64) error {
	return m.count("bytes on disk", func(u *Budget) (any, any, bool) {
		u.Disk += n
		return u.Disk, m.budget.Disk, u.Disk > m.budget.Disk
	})
}

func (m *Meter) request() error {
	return m.count("requests", func(u *Budget) (any, any, bool) {
		u.Requests++
		return u.Requests, m.budget.Requests, u.Requests > m.budget.Requests
	})
}

func (m *Meter) bytes(n int) error {
	return m.count("bytes", func(u *Budget) (any, any, bool) {
		u.Bytes += int64(n)
		return u.Bytes, m.budget.Bytes, u.Bytes > m.budget.Bytes
	})
}

func (m *Meter) count(what string, add func(*Budget) (used, allowed any, over bool)) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if used, allowed, over := add(&m.used); over {
		return m.exceeded(what, used, allowed)
	}
	return nil
}

// Transport returns a transport that counts requests and the bytes of answers by the Meters of their contexts.
func Transport(base http.RoundTripper) http.RoundTripper { return transport{base} }

type transport struct{ http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m := From(r.Context())
	if err := m.request(); err != nil {
		return nil, err
	}
	response, err := t.RoundTripper.RoundTrip(r)
	if m != nil && err == nil {
		response.Body = body{response.Body, m}
	}
	return response, err
}

type body struct {
	io.ReadCloser
	meter *Meter
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if over := b.meter.bytes(n); over != nil {
		return n, over
	}
	return n, err
}

// Writer returns a writer to w that counts bytes on disk by the Meter of a context.
func Writer(ctx context.Context, w io.Writer) io.Writer { return writer{w, From(ctx)} }

type writer struct {
	io.Writer
	meter *Meter
}

func (w writer) Write(p []byte) (int, error) {
	if err := w.meter.Disk(int64(len(p))); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}
