package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/agent/state"
)

// Window is the part of each day in which layers may be fetched from a registry, as times of the day in UTC. One
// that closes before it opens lasts over midnight. The zero Window is always open.
type Window struct {
	Opens, Closes time.Duration
}

const day = 24 * time.Hour

// String returns such as 01:00-05:00.
func (w Window) String() string {
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute) }
	return clock(w.Opens) + "-" + clock(w.Closes)
}

// left is how long the window stays open, or else, less than zero, how long until it opens.
func (w Window) left(now time.Time) time.Duration {
	now = now.UTC()
	since := (now.Sub(now.Truncate(day)) - w.Opens + day) % day // the window opened
	if since < w.length() {
		return w.length() - since
	}
	return since - day
}

func (w Window) length() time.Duration { return (w.Closes - w.Opens + day) % day }

// closedWindow is the error of what has to wait for the window.
type closedWindow struct {
	window Window
	opens  time.Time
}

func (e *closedWindow) Error() string {
	return fmt.Sprintf("the transfer window %s (UTC) opens at %s", e.window, e.opens.Format(time.RFC3339))
}

// Closed returns nil while the window is open, and else an error that says when it opens.
func (w Window) Closed(now time.Time) error {
	if left := w.left(now); left < 0 && w != (Window{}) {
		return &closedWindow{w, state.Stamp(now.Add(-left))}
	}
	return nil
}

// enter returns a context that ends when the window closes, and what makes of an error that followed from that
// one that says so. Its error is a *closedWindow.
func (w Window) enter(ctx context.Context, now time.Time) (context.Context, func(error) error, error) {
	if w == (Window{}) {
		return ctx, func(err error) error { return err }, nil
	}
	if err := w.Closed(now); err != nil {
		return nil, nil, err
	}
	left := w.left(now)
	closed := &closedWindow{w, state.Stamp(now.Add(left + day - w.length()))}
	ctx, cancel := context.WithTimeoutCause(ctx, left, closed)
	return ctx, func(err error) error {
		defer cancel()
		if err != nil && context.Cause(ctx) == error(closed) {
			return closed
		}
		return err
	}, nil
}
