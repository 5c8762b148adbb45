package fleet

import (
	"context"
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

// Follower is Answers that also say how far a stream of events is.
type Follower interface {
	Answers
	// Follow is Events, which also calls at with positions of which all events have been given: first with the one that it
	// begins after, as soon as the query has proven acceptable, and later where only events passed that q does not choose.
	Follow(ctx context.Context, after store.Position, q Query, each func(Event) error, at func(store.Position) error) error
}
