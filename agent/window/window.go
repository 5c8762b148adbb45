// Package window has the times in which an agent may do something: Transfer windows, in which it may fetch layers, and
// Maintenance windows, in which it may change its cluster.
//
// Both are values of settings: write a Transfer, and read a Maintenance with ParseMaintenance. Nothing here reads a clock.
package window

import (
	"context"
	"fmt"
	"time"
)

// Transfer is the part of each day in which layers may be fetched from a registry, as times of the day in UTC. One
// that closes before it opens lasts over midnight. The zero Transfer is always open.
type Transfer struct {
	Opens, Closes time.Duration
}

const day = 24 * time.Hour

// String returns such as 01:00-05:00.
func (w Transfer) String() string {
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute) }
	return clock(w.Opens) + "-" + clock(w.Closes)
}

// Left is how long the window stays open, or else, less than zero, how long until it opens.
func (w Transfer) Left(now time.Time) time.Duration {
	now = now.UTC()
	since := (now.Sub(now.Truncate(day)) - w.Opens + day) % day // the window opened
	if since < w.length() {
		return w.length() - since
	}
	return since - day
}

func (w Transfer) length() time.Duration { return (w.Closes - w.Opens + day) % day }

// ClosedError is the error of what has to wait for the window.
type ClosedError struct {
	window Transfer
	opens  time.Time
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("the transfer window %s (UTC) opens at %s", e.window, e.opens.Format(time.RFC3339))
}

// Closed returns nil while the window is open, and else an error that says when it opens.
func (w Transfer) Closed(now time.Time) error {
	if left := w.Left(now); left < 0 && w != (Transfer{}) {
		return &ClosedError{w, stamp(now.Add(-left))}
	}
	return nil
}

// Enter returns a context that ends when the window closes, and what makes of an error that followed from that
// one that says so. Its error is a *ClosedError.
func (w Transfer) Enter(ctx context.Context, now time.Time) (context.Context, func(error) error, error) {
	if w == (Transfer{}) {
		return ctx, func(err error) error { return err }, nil
	}
	if err := w.Closed(now); err != nil {
		return nil, nil, err
	}
	left := w.Left(now)
	closed := &ClosedError{w, stamp(now.Add(left + day - w.length()))}
	ctx, cancel := context.WithTimeoutCause(ctx, left, closed)
	return ctx, func(err error) error {
		defer cancel()
		if err != nil && context.Cause(ctx) == error(closed) {
			return closed
		}
		return err
	}, nil
}

// stamp is a time as people see it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
