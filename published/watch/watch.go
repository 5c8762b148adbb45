// Package watch is the one loop of everything that looks again later: publish, promote and the rollout commands with --watch, and a hub that
// follows what is published. It needs no server and no leader: what it calls has to be safe to repeat, also by several processes at once.
//
// Begin with [Run]. It runs a list of steps, a turn, at once, and is the one place that decides when the next turn is: when a followed
// [Source] has another state, when a [Waker] wakes it, such as a webhook or a hub, at the earliest moment that a step asked for with
// [Turn.At] or [Turn.Within], or, after a turn that failed, after growing pauses. Turns never overlap, and what happens during a turn is
// looked at after it. Many changes at once are one turn. Nothing that a waker says is believed: it only makes Run look.
//
// Time is the machine's; tests run the loop in a bubble of testing/synctest, which moves it.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults and bounds of [Options], and how long steps wait at most.
const (
	// DefaultInterval is the time between two looks at a source.
	DefaultInterval = 30 * time.Second
	// MaxPause bounds the growing pauses after failures.
	MaxPause = 15 * time.Minute
	// DefaultSettle is how long it has to be quiet after a change until the next turn.
	DefaultSettle = time.Second
	// ForReports is how long a step waits at most for something else than time, such as reports, which come without a word.
	ForReports = 5 * time.Minute
	// ForAnything is how long a step waits at most: not all that an environment consists of is in a repository that is followed, such as
	// charts and the trust document.
	ForAnything = time.Hour
	// PollTimeout bounds one look at a source, and how long a turn waits for sources.
	PollTimeout = 30 * time.Second
	// maxSettles bounds the time until the next turn if changes never end, in settle times.
	maxSettles = 10
	// maxAsked is how many sources of one host are asked at once.
	maxAsked = 16
)

// Source is something that changes, such as a repository.
type Source struct {
	// Name tells sources apart, and is printed; it has no credentials.
	Name string
	// Host is the server that answers, empty for this machine. Those of one host wait for one another if they are many.
	Host string
	// State returns a text that is another one after a change. It has to end with ctx.
	State func(ctx context.Context) (string, error)
}

// Waker learns by itself that there may be something to do, such as [Webhook.Wake]. It calls wake, which never waits, for each such thing until
// ctx ends. Its error ends [Run], unless ctx has ended.
type Waker func(ctx context.Context, wake func()) error

// Turn is one run of all steps.
type Turn struct {
	// Now is when the turn began.
	Now time.Time

	loop   *loop
	next   time.Time
	failed []error
}

// At asks for the next turn at a moment, such as the end of a soak, even if nothing changes. Of several moments the earliest counts; the zero
// time asks for none.
func (t *Turn) At(moment time.Time) {
	if !moment.IsZero() && (t.next.IsZero() || moment.Before(t.next)) {
		t.next = moment
	}
}

// Within asks for the next turn after a time at the latest.
func (t *Turn) Within(d time.Duration) { t.At(t.Now.Add(d)) }

// Again asks for the next turn after the interval of the loop, give or take a tenth.
func (t *Turn) Again() { t.Within(jitter(t.loop.Interval)) }

// Fail notes that something failed, so that it is tried again, and lets the step and those after it go on.
func (t *Turn) Fail(err error) {
	if err != nil {
		t.failed = append(t.failed, err)
	}
}

// State returns a text that is another one after a change of what is followed now. What a step reads after it called State is as new, or newer.
func (t *Turn) State(ctx context.Context) string { return t.loop.state(ctx) }

// ErrDone, returned by a step, ends [Run] without an error.
var ErrDone = errors.New("nothing is left to do")

// Step does what there is to do. With an error, the turn ends and is tried again, or [Run] ends if it is [ErrDone] or of [Stop].
type Step func(ctx context.Context, t *Turn) error

// Options are the optional parts of [Run]. With the zero value the steps alone say when the next turn is.
type Options struct {
	// Sources lists what is followed. It is called before the first turn and after each, since a step may read other
	// sources than the one before. Nil follows none.
	Sources func() []Source
	// Wakers run beside the steps.
	Wakers []Waker
	// Interval is the time between two looks at a source, give or take a tenth, and the first pause after a turn that failed. Zero means [DefaultInterval].
	Interval time.Duration
	// Settle is how long it has to be quiet after a change until the next turn. Zero means [DefaultSettle].
	Settle time.Duration
	// Around, if not nil, is called for each turn, and has to call run, which runs the steps. Its error is that of the turn.
	Around func(ctx context.Context, run func(ctx context.Context) error) error
	// Tell gets what happens beside the steps. Nil is silent.
	Tell func(Event)
}

// Kind is what an [Event] is about.
type Kind string

// The kinds of events.
const (
	// TurnBegan and TurnEnded are for those who watch the loop; TurnEnded has the error of the turn.
	TurnBegan Kind = "turn-began"
	TurnEnded Kind = "turn-ended"
	// TurnFailed has the error of a turn; one that is the same as the last one is not told again.
	TurnFailed Kind = "turn-failed"
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

// Stop returns err, if it is not nil, as one that ends [Run] if a step returns it: trying again cannot help.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return stop{err}
}

// Run runs turns until ctx ends, whose error it returns, or until a step returns [ErrDone] or an error of [Stop], or a waker fails. Everything that it has
// started has ended when it returns.
func Run(ctx context.Context, o Options, steps ...Step) error {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &loop{
		Options: o, steps: steps, wake: make(chan struct{}, 1), polled: make(chan polled),
		sources: map[string]*followed{}, hosts: map[string]chan struct{}{},
	}
	l.Interval, l.Settle = cmp.Or(o.Interval, DefaultInterval), cmp.Or(o.Settle, DefaultSettle)
	if l.Tell == nil {
		l.Tell = func(Event) {}
	}
	if l.Around == nil {
		l.Around = func(ctx context.Context, run func(context.Context) error) error { return run(ctx) }
	}
	defer l.tasks.Wait()
	defer cancel(nil)
	for _, w := range o.Wakers {
		l.tasks.Go(func() {
			if err := w(ctx, l.look); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	err := l.run(ctx)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}

// loop is one call of Run. All of it but wake belongs to one goroutine.
type loop struct {
	Options
	steps   []Step
	wake    chan struct{}
	polled  chan polled
	sources map[string]*followed
	hosts   map[string]chan struct{} // has a place for each source of a host that may be asked at once
	tasks   sync.WaitGroup
	began   bool // the first turn has begun
}

// followed is a source and what is known of it.
type followed struct {
	Source
	state    string
	known    bool // state is one that the last turn may have seen
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

// look asks for a turn. It never waits.
func (l *loop) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the loop. It alone decides when the next turn is.
func (l *loop) run(ctx context.Context) error {
	failures, told := 0, ""
	for {
		l.refresh(ctx)
		t := &Turn{Now: time.Now(), loop: l}
		l.Tell(Event{Time: t.Now, Kind: TurnBegan})
		err := l.Around(ctx, t.run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s := (stop{}); errors.As(err, &s) {
			return s.error
		}
		if errors.Is(err, ErrDone) {
			return nil
		}
		now := time.Now()
		l.Tell(Event{Time: now, Kind: TurnEnded, Err: err})
		if !t.next.IsZero() && !t.next.After(now) { // a moment that has passed must not make turns without a pause
			t.next = now.Add(l.Interval)
		}
		if err == nil {
			failures, told = 0, ""
		} else {
			t.At(now.Add(pause(l.Interval, failures)))
			if failures++; err.Error() != told {
				told = err.Error()
				l.Tell(Event{Time: now, Kind: TurnFailed, Err: err, Again: t.next})
			}
		}
		l.list()
		if err := l.wait(ctx, t.next); err != nil {
			return err
		}
	}
}

// run runs the steps, the later ones only if those before them did not end the turn.
func (t *Turn) run(ctx context.Context) error {
	for _, step := range t.loop.steps {
		if err := step(ctx, t); err != nil || ctx.Err() != nil {
			t.Fail(err)
			break
		}
	}
	if len(t.failed) == 1 {
		return t.failed[0]
	}
	return errors.Join(t.failed...)
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

// refresh looks at all sources that answer, so that the next turn sees the states that are remembered, or newer ones.
func (l *loop) refresh(ctx context.Context) {
	l.list()
	l.askAll(ctx, func(f *followed) bool { return f.failures == 0 })
	l.began = true
}

// state looks at the sources that the turn has found, and returns the states of all. One that does not answer has that of its last answer.
func (l *loop) state(ctx context.Context) string {
	l.list()
	if l.askAll(ctx, func(f *followed) bool { return f.failures == 0 && !f.known }) {
		l.look() // the turn may have read it before
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		fmt.Fprintf(&all, "%s\n%s\n", name, l.sources[name].state)
	}
	return all.String()
}

// askAll looks at some sources side by side, and waits for what they answer, but not longer than for one: what answers later is looked at
// after the turn. It reports whether another one has changed meanwhile.
func (l *loop) askAll(ctx context.Context, which func(*followed) bool) (other bool) {
	open := map[*followed]bool{}
	for _, f := range l.sources {
		if which(f) {
			l.ask(ctx, f)
			open[f] = true
		}
	}
	timer := time.NewTimer(PollTimeout)
	defer timer.Stop()
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return other
		case <-timer.C:
			return other
		case p := <-l.polled:
			changed := l.take(p)
			other = other || changed && !open[p.followed]
			delete(open, p.followed)
		}
	}
	return other
}

// ask has a goroutine look at a source.
func (l *loop) ask(ctx context.Context, f *followed) {
	if f.asking {
		return
	}
	f.asking = true
	source, places := f.Source, l.hosts[f.Host]
	if places == nil {
		places = make(chan struct{}, maxAsked)
		l.hosts[f.Host] = places
	}
	l.tasks.Go(func() {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeoutCause(ctx, PollTimeout, fmt.Errorf("no answer within %s", PollTimeout))
		p := polled{followed: f}
		if p.state, p.err = source.State(bounded); p.err != nil && bounded.Err() != nil {
			p.err = context.Cause(bounded)
		}
		cancel()
		<-places
		select {
		case l.polled <- p:
		case <-ctx.Done():
		}
	})
}

// take notes an answer and reports whether it is another one than the last turn saw.
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
	// A source that was not known when the last turn began may have changed since that turn read it.
	changed = !f.known && l.began || f.known && f.state != p.state
	f.state, f.known = p.state, true
	return changed && l.sources[f.Name] == f
}

// wait returns when there is something to do: a change, after which it is quiet, or the moment next.
func (l *loop) wait(ctx context.Context, next time.Time) error {
	var quiet <-chan time.Time // after a change
	var end time.Time
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
