package fleet

import "time"

// The form of events over HTTP, as server-sent events.
const (
	// EventStream is the media type.
	EventStream = "text/event-stream"
	// ErrorEvent is the kind of an event that ends a stream; its data is a hubapi.Error.
	ErrorEvent = "error"
	// Heartbeat is the longest time in which a hub sends nothing.
	Heartbeat = 15 * time.Second
)
