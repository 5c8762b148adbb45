// Package desired learns what a fleet should run: it follows environment records and releases in registries, verifies
// them as agents do, and stores them.
//
// Begin with New and Follower.Run. What publishers send to a hub that reaches no registry is given to Follower.Receive.
//
// Guarantees: nothing is stored that the trust in force does not cover, which is that of trust documents, or of pinned keys
// for platforms without one. Verified records only ever add: a record that is older than the newest one, or is played
// again, changes nothing but the history. A registry that is gone is a normal state. Several followers of one store may
// run at the same time.
//
// Decisions about promotion are stored as they are, for platforms of which a record is stored: who asks verifies them.
//
// Limits: releases and records of an earlier epoch are not learned. Of releases that were published before the follower
// first saw their cluster type, it learns the newest MaxBackfill.
package desired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/published/watch"
)

const (
	// DefaultInterval is the time between two looks at a location, of one request for each environment.
	DefaultInterval = 15 * time.Second
	// MaxBackfill bounds the earlier releases of a cluster type, and the earlier records of an environment, that are
	// learned with a new record.
	MaxBackfill = 100
	// MaxEnvironments bounds the environments that are followed, the first ones by name.
	MaxEnvironments = 1000

	// againAfter is the time after which a record that was refused, or whose releases were not all there, is judged again:
	// a trust document or a release may have followed.
	againAfter = 5 * time.Minute
	// patience bounds a request for metadata.
	patience = 30 * time.Second
	// decisionsEvery is the time between two looks at the decisions of an environment.
	decisionsEvery = 2 * time.Minute
)

// Options are the optional parts of a Follower. The zero value follows no location, and suits Follower.Receive.
type Options struct {
	// Locations are followed by Run.
	Locations []oci.Location
	// OCI configures the access to them.
	OCI oci.Options
	// Environments returns the names of the environments to follow, beside those of the records that are stored. Nil means
	// none beside those.
	Environments func(context.Context) ([]string, error)
	// Interval is the time between two looks at a location, which grows while it does not answer. Zero means DefaultInterval.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Store is what a follower stores in.
type Store interface {
	store.Published
	store.Decisions
}

// Follower learns what is published. It may be used by several goroutines.
type Follower struct {
	store  Store
	opts   Options
	log    *slog.Logger
	wake   []chan struct{} // by location
	known  *known
	logged logged
}

// New returns a follower that stores in s what trust covers.
func New(s Store, trust Trust, o Options) *Follower {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.OCI.Patience = cmp.Or(o.OCI.Patience, patience)
	f := &Follower{store: s, opts: o, log: o.Log, known: newKnown(trust)}
	for range o.Locations {
		f.wake = append(f.wake, make(chan struct{}, 1))
	}
	return f
}

// Wake has Run look at all locations soon.
func (f *Follower) Wake() {
	for _, w := range f.wake {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Notice has Run look at all locations soon if it does not know the release that a cluster runs: it may have been
// published a moment ago. Each release is asked for once.
func (f *Follower) Notice(release digest.Digest) {
	if len(f.wake) > 0 && f.known.notice(release) {
		f.Wake()
	}
}

// Run follows the locations until ctx ends. It returns an error if one cannot be opened, or the store not be read.
func (f *Follower) Run(ctx context.Context) error {
	var all []*location
	for i, l := range f.opts.Locations {
		at, err := f.open(l)
		if err != nil {
			return err
		}
		at.wake = f.wake[i]
		all = append(all, at)
	}
	if err := f.load(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read what is published: %w", err)
	}
	var running sync.WaitGroup
	for _, at := range all {
		running.Go(func() { f.follow(ctx, at) })
	}
	running.Wait()
	return nil
}

// location is a place that is followed, with what is known of it. One goroutine uses it.
type location struct {
	oci.Location
	store  oci.Store
	poller oci.Poller
	wake   chan struct{}
	// looked has the environments that were asked for.
	looked map[string]*look
}

// place returns the location for one look.
func (l *location) place() *published.Place {
	return published.At(l.Location, l.store, published.AsItLies())
}

// look is the state of following an environment at a location.
type look struct {
	// seen is the manifest that the record's tag named last; empty if there was none, or it is to be judged again.
	seen digest.Digest
	// again is when seen is judged again; zero if it need not be.
	again time.Time
	// missing is true if there was no record at the last look.
	missing bool
	// begun is true once a record was learned; todo has the streams whose earlier releases, and the environment whose
	// earlier records, are to be learned.
	begun bool
	todo  map[bundle.Stream]bool
	// decisions are the manifests of decisions that were read, by tag, and decided is when they were asked for last.
	decisions map[string]digest.Digest
	decided   time.Time
}

// note adds what is to be learned after a record was: at first all that came before it, later what may have come between.
func (l *look) note(done Learned) {
	if l.todo == nil {
		l.todo = map[bundle.Stream]bool{}
	}
	streams := done.changed
	if !l.begun {
		streams = done.streams
	}
	for _, s := range streams {
		l.todo[s] = true
	}
	if !l.begun || done.New {
		l.todo[bundle.Stream{Platform: done.Platform, Environment: done.Environment}] = true
	}
	l.begun = true
}

func (f *Follower) open(l oci.Location) (*location, error) {
	s, err := l.Open(f.opts.OCI)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", l, err)
	}
	return &location{Location: l, store: s, looked: map[string]*look{}}, nil
}

// follow looks at a location until ctx ends.
func (f *Follower) follow(ctx context.Context, at *location) {
	away := false
	tell := func(e watch.Event) {
		switch failed := e.Err != nil; {
		case e.Kind != watch.TurnEnded || failed == away:
			return
		case failed:
			f.log.Warn("what is published cannot be followed for now", "location", at.String(), "err", e.Err)
		default:
			f.log.Info("what is published is followed again", "location", at.String())
		}
		away = !away
	}
	woken := func(ctx context.Context, wake func()) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-at.wake:
				wake()
			}
		}
	}
	_ = watch.Run(ctx, watch.Options{Interval: f.opts.Interval, Wakers: []watch.Waker{woken}, Tell: tell}, func(ctx context.Context, t *watch.Turn) error {
		err := f.look(ctx, at)
		if err == nil {
			t.Again()
		}
		return err
	})
}

// Reach asks each location for a record, and returns how many there are. The error is that of the first that does not answer.
func (f *Follower) Reach(ctx context.Context) (int, error) {
	names, err := f.environments(ctx)
	if err != nil {
		return 0, err
	}
	for _, l := range f.opts.Locations {
		at, err := f.open(l)
		if err != nil {
			return 0, err
		}
		repo, err := at.store.Repository(bundle.EnvironmentRepository(append(names, "any")[0]))
		if err == nil {
			_, err = repo.Resolve(ctx, bundle.LatestTag)
		}
		if err != nil && !errors.Is(err, errdef.ErrNotFound) {
			return 0, err
		}
	}
	return len(f.opts.Locations), nil
}

// look asks for the record of each environment once. The error means that the location does not answer, or that the store
// failed; the environments that were not asked are asked by the next look.
func (f *Follower) look(ctx context.Context, at *location) error {
	names, err := f.environments(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.lookAt(ctx, at, name); err != nil {
			return err
		}
	}
	f.logNothing(at, names)
	return nil
}

// logNothing says once that a location has nothing: its name may be wrong, or no cluster be registered yet.
func (f *Follower) logNothing(at *location, names []string) {
	subject := "content of " + at.String()
	switch {
	case len(names) == 0:
		if f.logged.first(subject, "no environments") {
			f.log.Info("nothing is followed as long as no cluster is registered", "location", at.String())
		}
	case slices.ContainsFunc(names, func(name string) bool { return !at.looked[name].missing }):
		f.logged.forget(subject)
	case f.logged.first(subject, "nothing"):
		f.log.Warn("nothing is published at this location for the environments of the clusters; is it the right one?", "location", at.String(),
			"environments", len(names), "first", at.Name(bundle.EnvironmentRepository(names[0])))
	}
}

// environments returns the names to follow, sorted.
func (f *Follower) environments(ctx context.Context) ([]string, error) {
	names := f.known.environments()
	if f.opts.Environments != nil {
		more, err := f.opts.Environments(ctx)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return oci.CheckName(n) != nil })
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > MaxEnvironments {
		if f.logged.first("environments", "too many") {
			f.log.Warn("there are more environments than are followed", "environments", len(names), "followed", MaxEnvironments)
		}
		names = names[:MaxEnvironments]
	}
	return names, nil
}

func (f *Follower) lookAt(ctx context.Context, at *location, environment string) error {
	l := at.looked[environment]
	if l == nil {
		l = &look{}
		at.looked[environment] = l
	}
	subject := at.Name(bundle.EnvironmentRepository(environment))
	place := at.place()
	e, err := place.Environment(environment)
	if err != nil {
		return err
	}
	if !l.again.IsZero() && !f.opts.Now().Before(l.again) {
		l.seen, l.again = "", time.Time{}
	}
	l.missing = false
	desc, data, err := at.poller.Poll(ctx, e.Repo, bundle.LatestTag, l.seen, bundle.MaxManifestBytes)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		l.seen, l.missing = "", true
		return nil
	case errors.Is(err, oci.ErrUnauthorized): // also for content that is missing, as some registries answer
		if f.logged.first(subject, "unauthorized") {
			f.log.Warn("the registry does not let the hub read a record", "record", subject, "err", err)
		}
		return nil
	case errors.Is(err, errdef.ErrSizeExceedsLimit):
		err = &bundle.Refusal{Reason: bundle.TooLarge, Message: err.Error()}
	case err != nil:
		return err
	case data == nil:
		return errors.Join(f.learnEarlier(ctx, place, l.todo), f.lookAtDecisions(ctx, e, l))
	}
	complete := false
	if err == nil {
		desc.Data = data
		var done Learned
		if done, err = f.learn(ctx, place, environment, desc, nil); err == nil {
			complete = len(done.Refused) == 0
			l.note(done)
		}
	}
	var refusal *bundle.Refusal
	switch {
	case err == nil:
		f.logged.forget(subject)
	case errors.As(err, &refusal):
		if f.logged.first(subject, string(desc.Digest)+err.Error()) {
			f.log.Warn("environment record refused", "record", subject, "digest", desc.Digest, "reason", refusal.Reason, "message", refusal.Message)
		}
	default:
		return err
	}
	if l.seen = desc.Digest; !complete {
		l.again = f.opts.Now().Add(againAfter)
	}
	return errors.Join(f.learnEarlier(ctx, place, l.todo), f.lookAtDecisions(ctx, e, l))
}

// logged remembers the last message about each subject, so that it is logged once.
type logged struct {
	mu   sync.Mutex
	last map[string]string // by subject
}

// first reports whether what is new about a subject, and notes it.
func (s *logged) first(subject, what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[subject] == what {
		return false
	}
	if s.last == nil || len(s.last) > 10*MaxEnvironments {
		s.last = map[string]string{}
	}
	s.last[subject] = what
	return true
}

func (s *logged) forget(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, subject)
}
