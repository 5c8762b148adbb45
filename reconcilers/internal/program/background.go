package program

import (
	"context"
	"fmt"
	"sync"
)

// ErrClosed is the error of a Start after Close. It wraps context.Canceled.
var ErrClosed = fmt.Errorf("the adapter was closed: %w", context.Canceled)

// Group holds the tasks of one reconciler, with a T for each. The zero value has none. It may be used by several
// goroutines.
type Group[T comparable] struct {
	mu      sync.Mutex
	tasks   map[string]*task[T]
	closed  bool
	working sync.WaitGroup
}

type task[T comparable] struct {
	about  T
	cancel context.CancelFunc
	done   chan struct{}
}

// Start runs work for an assignment in a goroutine of its own, once the task before it, which is ended, has returned.
// The context of work ends with the next Start, Stop or Close.
func (g *Group[T]) Start(assignment string, about T, work func(context.Context)) error {
	ctx, cancel := context.WithCancel(context.Background())
	t := &task[T]{about: about, cancel: cancel, done: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		cancel()
		return ErrClosed
	}
	before := g.tasks[assignment]
	if before != nil {
		before.cancel()
	}
	if g.tasks == nil {
		g.tasks = map[string]*task[T]{}
	}
	g.tasks[assignment] = t
	g.working.Go(func() {
		defer close(t.done)
		defer cancel()
		if before != nil {
			<-before.done
		}
		work(ctx)
	})
	return nil
}

// Latest returns the T of the newest task of an assignment, and whether it is running. It returns the zero T if there
// is none.
func (g *Group[T]) Latest(assignment string) (about T, running bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.tasks[assignment]; t != nil {
		return t.about, t.running()
	}
	return about, false
}

// Forget forgets the newest task of an assignment, if it is the one of about. A task that is running goes on.
func (g *Group[T]) Forget(assignment string, about T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.tasks[assignment]; t != nil && t.about == about {
		delete(g.tasks, assignment)
	}
}

// Stop ends the newest task of an assignment, waits until it has returned, and forgets it.
func (g *Group[T]) Stop(assignment string) {
	g.mu.Lock()
	t := g.tasks[assignment]
	delete(g.tasks, assignment)
	g.mu.Unlock()
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// Closed reports whether Close was called.
func (g *Group[T]) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Working reports whether any task is running.
func (g *Group[T]) Working() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tasks {
		if t.running() {
			return true
		}
	}
	return false
}

// Close ends all tasks, and returns when they have returned. No other can be started.
func (g *Group[T]) Close() {
	g.mu.Lock()
	g.closed = true
	for _, t := range g.tasks {
		t.cancel()
	}
	g.mu.Unlock()
	g.working.Wait()
}

func (t *task[T]) running() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}
