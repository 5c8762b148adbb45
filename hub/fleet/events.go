package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// The form of events over HTTP, as server-sent events.
const (
	// EventStream is the media type.
	EventStream = "text/event-stream"
	// ErrorEvent is the kind of an event that ends a stream; its data is a hubapi.Error.
	ErrorEvent = "error"
	// Heartbeat is the longest time in which a hub sends nothing.
	Heartbeat = 15 * time.Second
)

// The kinds of events.
const (
	EventChange    = "change"
	EventCluster   = "cluster"
	EventPublished = "published"
	EventDecision  = "decision"
	// EventPromotion means that a judge has posted something new about a platform.
	EventPromotion = "promotion"
)

// Follower is Answers that also say how far a stream of events is.
type Follower interface {
	Answers
	// Follow is Events, which also calls at with positions of which all events have been given: first with the one that it
	// begins after, as soon as the query has proven acceptable, and later where only events passed that q does not choose.
	Follow(ctx context.Context, after store.Position, q Query, each func(Event) error, at func(store.Position) error) error
}

var _ Follower = (*View)(nil)

// Events implements Answers. Changes of a batch of reports come oldest first, as one Event each. Conditions are those of
// History; one on workloads and the like chooses changes of assignments alone.
func (v *View) Events(ctx context.Context, after store.Position, q Query, each func(Event) error) error {
	return v.Follow(ctx, after, q, each, func(store.Position) error { return nil })
}

// eventsAtOnce is how many entries of the feed are read at once.
const eventsAtOnce = 500

// Follow implements Follower.
func (v *View) Follow(ctx context.Context, after store.Position, q Query, each func(Event) error, at func(store.Position) error) error {
	toEnd := !q.AsOf.IsZero()
	q.After, q.Limit, q.AsOf = "", 0, time.Time{}
	test, err := v.changeTest(q)
	if err != nil {
		return err
	}
	from := v.fleet.source
	end, err := from.End(ctx)
	if err != nil {
		return err
	}
	switch {
	case after < 0:
		after = end
	case after > end:
		return fmt.Errorf("position %d: %w: the newest one is %d, as of a database that was restored", after, store.ErrForgotten, end)
	}
	for begun := false; ; begun = true {
		entries, err := from.Entries(ctx, after, eventsAtOnce)
		if err != nil {
			return err
		}
		if !begun {
			if err := at(after); err != nil {
				return err
			}
		}
		passed := false
		for _, e := range entries {
			all, err := v.fleet.eventsOf(ctx, e)
			if err != nil {
				return err
			}
			chosen := test.events(all)
			for i := range chosen {
				chosen[i].More = i < len(chosen)-1
				if err := each(chosen[i]); err != nil {
					return err
				}
			}
			after, passed = e.Position, len(chosen) == 0
		}
		if passed {
			if err := at(after); err != nil {
				return err
			}
		}
		if len(entries) == 0 {
			if toEnd {
				return nil
			}
			if err := from.Await(ctx, after); err != nil {
				return err
			}
		}
	}
}

// told is an event with the cluster that it is about.
type told struct {
	Event
	who subject
}

// events returns the events that the view sees and the query chooses.
func (t *changeTest) events(all []told) (chosen []Event) {
	for i := range all {
		if e := &all[i]; t.event(e) {
			chosen = append(chosen, e.Event)
		}
	}
	return chosen
}

func (t *changeTest) event(e *told) bool {
	switch e.Kind {
	case EventChange:
		return t.seen(e.who, e.Change) && t.cluster(e.who, e.Change.Environment, e.Change.Type) && t.change(e.Change)
	case EventCluster:
		// Whether a cluster has deployments of some workspaces is not known of one that has just come or gone.
		return !t.ofChanges() && !t.ofAssignments() && t.scope.has(e.who, e.Environment) && t.cluster(e.who, e.who.Environment, e.who.Type)
	case EventPromotion: // it is about the whole chain of a platform
		return !t.ofChanges() && !t.ofAssignments() && t.scope.whole() && t.Type+t.Ring+t.Cluster+t.Selector == "" && (t.Platform == "" || t.Platform == e.Platform)
	case EventPublished, EventDecision:
		if e.Kind == EventDecision && len(t.scope.workspaces) > 0 { // it is about the environment as a whole
			return false
		}
		if t.ofChanges() || t.ofAssignments() || len(t.scope.selector) > 0 || t.Type+t.Ring+t.Cluster+t.Selector != "" {
			return false
		}
		return (len(t.scope.environments) == 0 || slices.Contains(t.scope.environments, e.Environment)) &&
			t.ofEnvironment(e.Environment) && (t.Platform == "" || t.Platform == e.Platform)
	}
	return false
}

// ofChanges reports whether only changes can be chosen.
func (t *changeTest) ofChanges() bool { return len(t.State) > 0 || len(t.digests) > 0 }

// eventsOf returns the events of an entry of the feed, which all streams share.
func (f *Fleet) eventsOf(ctx context.Context, e store.FeedEntry) ([]told, error) {
	return f.recent.of(ctx, e, f.expand)
}

// expand reads what an entry of the feed is about.
func (f *Fleet) expand(ctx context.Context, e store.FeedEntry) ([]told, error) {
	event := Event{ID: e.Position, At: e.At}
	switch e.Kind {
	case store.FeedPublished:
		event.Kind, event.Platform, event.Environment, event.Digest = EventPublished, e.Platform, e.Environment, e.Digest
		return []told{{Event: event}}, nil
	case store.FeedDecision:
		event.Kind, event.Platform, event.Environment, event.Digest = EventDecision, e.Platform, e.Environment, e.Digest
		var err error
		event.Decision, err = f.decision(ctx, e)
		return []told{{Event: event}}, err
	case store.FeedPromotion:
		event.Kind, event.Platform, event.Digest = EventPromotion, e.Platform, e.Digest
		return []told{{Event: event}}, nil
	case store.FeedCluster:
		who, err := f.subject(ctx, e.UID)
		event.Kind, event.Cluster, event.UID, event.Platform, event.Environment = EventCluster, who.Name, e.UID, who.Platform, who.Environment
		return []told{{event, who}}, err
	case store.FeedReports:
		return f.changes(ctx, event, e)
	}
	return nil, nil
}

// decision returns the decision that an entry of the feed is about; nil if it cannot be read.
func (f *Fleet) decision(ctx context.Context, e store.FeedEntry) (*Decided, error) {
	all, err := f.source.Decisions(ctx, e.Environment)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(d store.StoredDecision) bool { return d.Digest == e.Digest })
	if i < 0 {
		return nil, nil
	}
	d, err := decidedOf(all[i])
	if err != nil { // it was stored by a later version
		return nil, nil
	}
	return &d, nil
}

// changes returns the changes of a batch of reports, oldest first.
func (f *Fleet) changes(ctx context.Context, event Event, e store.FeedEntry) (all []told, err error) {
	filter := store.TransitionFilter{
		Scope: store.Scope{UIDs: []string{e.UID}, WithRetired: true}, Both: true, First: e.First, Last: e.Last, Limit: changesAtOnce,
	}
	names := f.newNames()
	event.Kind = EventChange
	for { // a batch has few reports
		page, err := f.source.Transitions(ctx, filter)
		if err != nil {
			return nil, err
		}
		for i := range page.Transitions {
			row, who, err := names.row(ctx, &page.Transitions[i])
			if err != nil {
				return nil, err
			}
			one := event
			one.Change, one.Cluster, one.UID = &row, row.Cluster, row.UID
			all = append(all, told{one, who})
		}
		if filter.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.Reverse(all)
	return all, nil
}

// recent keeps the events of the entries that were read last, for all who follow.
type recent struct {
	mu   sync.Mutex
	kept map[store.Position]*reading
	// order is the positions in kept, as they came; size is the events in all of them.
	order []store.Position
	size  int
}

// reading is the events of one entry, or who reads them now.
type reading struct {
	done chan struct{}
	all  []told
	err  error
}

// maxRecent bounds the events that are kept, besides those that are being read.
const maxRecent = 10_000

// of returns the events of an entry: as kept, or read by the first who wants them.
func (r *recent) of(ctx context.Context, e store.FeedEntry, read func(context.Context, store.FeedEntry) ([]told, error)) ([]told, error) {
	for {
		r.mu.Lock()
		one, known := r.kept[e.Position]
		if !known {
			one = &reading{done: make(chan struct{})}
			if r.kept == nil {
				r.kept = map[store.Position]*reading{}
			}
			r.kept[e.Position] = one
			r.mu.Unlock()
			one.all, one.err = read(ctx, e)
			r.keep(e.Position, one)
			return one.all, one.err
		}
		r.mu.Unlock()
		select {
		case <-one.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if one.err == nil {
			return one.all, nil
		}
		// Whoever read it may have gone; read it again.
	}
}

// keep ends a reading.
func (r *recent) keep(at store.Position, one *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(one.done)
	if one.err != nil {
		delete(r.kept, at)
		return
	}
	r.order = append(r.order, at)
	for r.size += 1 + len(one.all); r.size > maxRecent && len(r.order) > 0; r.order = r.order[1:] {
		r.size -= 1 + len(r.kept[r.order[0]].all)
		delete(r.kept, r.order[0])
	}
}
