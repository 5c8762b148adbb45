// Package follow looks at repositories again and again, and does what a change asks for. It needs no server and no leader:
// what it calls has to be safe to repeat, also by several processes at once.
//
// Begin with [Run]. It calls a function, the step, at once, and again when a followed source has another state, when a webhook
// comes, when others tell of a change, and at the moment that the last step named. Steps never overlap, and what happens
// during a step is looked at after it. Many changes at once are one step. A step that fails is tried again after growing
// pauses. What a webhook says is never believed: it only makes Run look.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Defaults and bounds of [Options].
const (
	// DefaultInterval is the time between two looks at a source.
	DefaultInterval = 30 * time.Second
	// MaxPause bounds the growing pauses after failures.
	MaxPause = 15 * time.Minute
	// DefaultSettle is how long it has to be quiet after a change until the step is called.
	DefaultSettle = time.Second
	// maxSettles bounds that time where changes never end, in settle times.
	maxSettles = 10
	// pollTimeout bounds one look at a source.
	pollTimeout = 30 * time.Second
)

// Source is something that changes. [Git] and [Folder] make some.
type Source struct {
	// Name tells sources apart, and is printed; it has no credentials.
	Name string
	// State returns a text that is another one after a change. It has to end with ctx.
	State func(ctx context.Context) (string, error)
}

// Step does what there is to do. Next is the moment of the next step even if nothing changes, such as the end of a soak;
// the zero time is none.
type Step func(ctx context.Context) (next time.Time, err error)

// Options are the optional parts of [Run]. With the zero value the step alone says when it is called again.
type Options struct {
	// Sources lists what is followed. It is called before the first step and after each, since a step may read other
	// sources than the one before. Nil follows none.
	Sources func() []Source
	// Interval is the time between two looks at a source, give or take a tenth. Zero means [DefaultInterval].
	Interval time.Duration
	// Settle is how long it has to be quiet after a change until the step is called. Zero means [DefaultSettle].
	Settle time.Duration
	// Changes tells of changes that others see, such as those of a hub. It may be nil. A closed channel tells of nothing.
	Changes <-chan struct{}
	// Webhook, if not nil, is served on Listener, which Run closes.
	Webhook  *Webhook
	Listener net.Listener
	// Tell gets what happens beside the steps. Nil is silent.
	Tell func(Event)
}

// Kind is what an [Event] is about.
type Kind string

// The kinds of events.
const (
	// StepFailed has the error of a step; one that is the same as the last one is not told again.
	StepFailed Kind = "step-failed"
	// Unreachable and Reachable have the name of a source that does not answer, or answers again.
	Unreachable Kind = "unreachable"
	Reachable   Kind = "reachable"
)

// Event is something that happened beside the steps.
type Event struct {
	Time   time.Time
	Kind   Kind
	Source string // the name of a source, if it is about one
	Err    error  // nil for Reachable
	// Again is the moment at which it is tried again.
	Again time.Time
}

// stop is an error that ends [Run].
type stop struct{ error }

func (s stop) Unwrap() error { return s.error }

// Stop returns err as one that ends [Run] if a step returns it: trying again cannot help.
func Stop(err error) error { return stop{err} }

// Run calls step until ctx ends, whose error it returns, or until step returns an error of [Stop], or the webhook cannot be
// served. Everything that it has started has ended when it returns.
func Run(ctx context.Context, o Options, step Step) error {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &loop{
		Options: o, wake: make(chan struct{}, 1), polled: make(chan polled),
		sources: map[string]*followed{},
	}
	l.Interval, l.Settle = cmp.Or(o.Interval, DefaultInterval), cmp.Or(o.Settle, DefaultSettle)
	if l.Tell == nil {
		l.Tell = func(Event) {}
	}
	defer l.tasks.Wait()
	defer cancel(nil)
	if o.Webhook != nil {
		l.tasks.Go(func() {
			if err := o.Webhook.serve(ctx, o.Listener, l.look); err != nil {
				cancel(fmt.Errorf("webhook: %w", err))
			}
		})
	}
	err := l.run(ctx, step)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}

// loop is one call of Run. All of it but wake belongs to one goroutine.
type loop struct {
	Options
	wake    chan struct{}
	polled  chan polled
	sources map[string]*followed
	tasks   sync.WaitGroup
	began   bool // the first step has begun
}

// followed is a source and what is known of it.
type followed struct {
	Source
	state    string
	known    bool // state is one that the last step may have seen
	asking   bool
	failures int
	due      time.Time
}

// polled is the answer of a source.
type polled struct {
	*followed
	state string
	err   error
}

// look asks for a step. It never waits.
func (l *loop) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loop) run(ctx context.Context, step Step) error {
	failures, said := 0, ""
	for {
		l.refresh(ctx)
		if l.Webhook != nil {
			l.Webhook.stepping(time.Now())
		}
		next, err := step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s := (stop{}); errors.As(err, &s) {
			return s.error
		}
		if l.Webhook != nil {
			l.Webhook.stepped(time.Now(), err)
		}
		now := time.Now()
		if !next.IsZero() && !next.After(now) { // a step that names a moment that has passed must not run without a pause
			next = now.Add(l.Interval)
		}
		if err == nil {
			failures, said = 0, ""
		} else {
			if again := now.Add(pause(l.Interval, failures)); next.IsZero() || again.Before(next) {
				next = again
			}
			if failures++; err.Error() != said {
				said = err.Error()
				l.Tell(Event{Time: now, Kind: StepFailed, Err: err, Again: next})
			}
		}
		l.list()
		if err := l.wait(ctx, next); err != nil {
			return err
		}
	}
}

// list takes over the sources of now.
func (l *loop) list() {
	if l.Sources == nil {
		return
	}
	now := map[string]*followed{}
	for _, s := range l.Sources() {
		f := l.sources[s.Name]
		if f == nil {
			f = &followed{due: time.Now()}
		}
		f.Source = s
		now[s.Name] = f
	}
	l.sources = now
}

// refresh looks at all sources that answer, so that the next step sees the states that are remembered, or newer ones.
func (l *loop) refresh(ctx context.Context) {
	if l.list(); len(l.sources) == 0 {
		l.began = true
		return
	}
	for _, f := range l.sources {
		if f.failures == 0 {
			l.ask(ctx, f)
		}
	}
	for l.asking() {
		select {
		case <-ctx.Done():
			return
		case p := <-l.polled:
			l.take(p)
		}
	}
	l.began = true
}

func (l *loop) asking() bool {
	for _, f := range l.sources {
		if f.asking {
			return true
		}
	}
	return false
}

// ask has a goroutine look at a source.
func (l *loop) ask(ctx context.Context, f *followed) {
	if f.asking {
		return
	}
	f.asking = true
	source := f.Source
	l.tasks.Go(func() {
		bounded, cancel := context.WithTimeoutCause(ctx, pollTimeout, fmt.Errorf("no answer within %s", pollTimeout))
		defer cancel()
		p := polled{followed: f}
		if p.state, p.err = source.State(bounded); p.err != nil && bounded.Err() != nil {
			p.err = context.Cause(bounded)
		}
		select {
		case l.polled <- p:
		case <-ctx.Done():
		}
	})
}

// take notes an answer and reports whether it is another one than the last step saw.
func (l *loop) take(p polled) (changed bool) {
	f := p.followed
	f.asking = false
	if p.err != nil {
		f.due = time.Now().Add(pause(l.Interval, f.failures))
		if f.failures++; f.failures == 1 && l.sources[f.Name] == f {
			l.Tell(Event{Time: time.Now(), Kind: Unreachable, Source: f.Name, Err: p.err, Again: f.due})
		}
		return false
	}
	if f.failures > 0 {
		l.Tell(Event{Time: time.Now(), Kind: Reachable, Source: f.Name})
	}
	f.failures, f.due = 0, time.Now().Add(jitter(l.Interval))
	// A source that was not known when the last step began may have changed since that step read it.
	changed = !f.known && l.began || f.known && f.state != p.state
	f.state, f.known = p.state, true
	return changed && l.sources[f.Name] == f
}

// wait returns when there is something to do: a change, after which it is quiet, or the moment next.
func (l *loop) wait(ctx context.Context, next time.Time) error {
	var quiet <-chan time.Time // after a change
	var end time.Time
	changes := l.Changes
	note := func() {
		now := time.Now()
		if end.IsZero() {
			end = now.Add(maxSettles * l.Settle)
		}
		quiet = time.After(min(l.Settle, end.Sub(now)))
	}
	var moment <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		moment = timer.C
	}
	for {
		due, stopTimer := l.nextPoll(ctx)
		select {
		case <-ctx.Done():
		case <-moment:
			stopTimer()
			return nil
		case <-quiet:
			stopTimer()
			return nil
		case <-l.wake:
			note()
		case _, open := <-changes:
			if !open {
				changes = nil
			} else {
				note()
			}
		case p := <-l.polled:
			if l.take(p) {
				note()
			}
		case <-due:
		}
		stopTimer()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// nextPoll looks at the sources that are due, and returns a timer for the next one; nil if there is none.
func (l *loop) nextPoll(ctx context.Context) (due <-chan time.Time, stop func()) {
	var earliest time.Time
	for _, f := range l.sources {
		switch {
		case f.asking:
		case !f.due.After(time.Now()):
			l.ask(ctx, f)
		case earliest.IsZero() || f.due.Before(earliest):
			earliest = f.due
		}
	}
	if earliest.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(earliest))
	return timer.C, func() { timer.Stop() }
}

// pause is the time until the next attempt after so many failures before this one.
func pause(interval time.Duration, failures int) time.Duration {
	d := interval
	for ; failures > 0 && d < MaxPause; failures-- {
		d *= 2
	}
	return jitter(min(d, max(MaxPause, interval)))
}

// jitter spreads d by a tenth to either side, so that processes that start together do not stay so.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}
