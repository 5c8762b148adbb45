// Package giveup ends the waiting for calls into libraries that know no deadline.
package giveup

import "context"

// When calls f and returns its result. If ctx ends first, it returns ctx's error at once: f goes on in a goroutine of its
// own until it returns, and nobody gets its result. It calls nothing if ctx has ended already.
func When[T any](ctx context.Context, f func() (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, ctx.Err()
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := f()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}
