package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/wherry-dev/wherry/hub/store"
)

// writer owns the one connection that writes. Jobs that wait while a transaction is being synced share
// the next one: a sync costs the same for one report and for hundreds.
type writer struct {
	dialect *Dialect
	conn    *Conn // nil while there is none; only the loop uses it
	jobs    chan job
	cancel  context.CancelFunc
	stopped chan struct{}

	mu   sync.Mutex
	wake chan struct{} // closed with the next commit
}

// job is a unit of work, and the channel for its error.
type job struct {
	run func(context.Context, *Conn) error
	// committed is called, unless it is nil, after the writes of run are on disk, in the order of the jobs.
	committed func()
	done      chan error // holds one, so that the writer does not wait for a caller that has gone
}

// maxGroup bounds the jobs of one transaction.
const maxGroup = 64

func openWriter(ctx context.Context, d *Dialect) (*writer, error) {
	w := &writer{dialect: d, jobs: make(chan job), stopped: make(chan struct{}), wake: make(chan struct{})}
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go w.loop(ctx)
	return w, nil
}

// connect makes a connection unless there is one.
func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	c, err := w.dialect.Connect(ctx)
	if err != nil {
		return err
	}
	w.conn = &Conn{conn: c, rewrite: w.dialect.Rewrite, send: w.dialect.Send, statements: map[string]*sql.Stmt{}, insertions: map[sized]string{}}
	return nil
}

// disconnect gives the connection back. Its error tells nothing new if the connection was lost.
func (w *writer) disconnect() error {
	if w.conn == nil {
		return nil
	}
	err := w.conn.close()
	w.conn = nil
	return err
}

// close ends the loop after the transaction it is in. Jobs that wait get ErrClosed.
func (w *writer) close() error {
	w.cancel()
	<-w.stopped
	return w.disconnect()
}

// woken returns a channel that is closed with the next commit.
func (w *writer) woken() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wake
}

// tell wakes those who wait for a commit.
func (w *writer) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.wake)
	w.wake = make(chan struct{})
}

func (w *writer) do(ctx context.Context, j job) error {
	j.done = make(chan error, 1)
	select {
	case w.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopped:
		return store.ErrClosed
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *writer) loop(ctx context.Context) {
	defer close(w.stopped)
	for {
		select {
		case j := <-w.jobs:
			w.commit(context.WithoutCancel(ctx), w.gather(j))
		case <-ctx.Done():
			return
		}
	}
}

// gather adds to the first job those that wait already.
func (w *writer) gather(first job) []job {
	group := []job{first}
	for len(group) < maxGroup {
		select {
		case j := <-w.jobs:
			group = append(group, j)
		default:
			return group
		}
	}
	return group
}

// errJob means that a job has failed, in a transaction whose jobs cannot fail alone.
var errJob = errors.New("one of several units of work has failed")

// commit runs a group in one transaction and answers every job only after its end. Savepoints, which let a job fail alone, are
// made only if one has failed without them. A connection that was lost before anything was asked to be committed is replaced
// once.
func (w *writer) commit(ctx context.Context, group []job) {
	failed, committing, err := w.attempt(ctx, group, w.together)
	if errors.Is(err, errJob) {
		failed, committing, err = w.attempt(ctx, group, w.isolate)
	}
	if err != nil && !committing && w.dialect.Lost(err) {
		failed, _, err = w.attempt(ctx, group, w.isolate)
	}
	for i, j := range group {
		if err != nil {
			failed[i] = err
		}
		if failed[i] == nil && j.committed != nil {
			j.committed()
		}
		j.done <- failed[i]
	}
	if err == nil {
		w.tell()
	}
}

// attempt runs a group in one transaction. If err is nil, all writes of the jobs that have not failed are on disk; else none
// are, unless committing is true and the connection was lost.
func (w *writer) attempt(ctx context.Context, group []job, run func(context.Context, job) (failed, fatal error)) (failed []error, committing bool, err error) {
	failed = make([]error, len(group))
	if w.dialect.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.dialect.Timeout)
		defer cancel()
	}
	if err := w.connect(ctx); err != nil {
		return failed, false, w.late(ctx, err)
	}
	committing, err = w.transaction(ctx, func() error {
		for i, j := range group {
			var fatal error
			if failed[i], fatal = run(ctx, j); fatal != nil {
				return fatal
			}
		}
		if err := w.conn.flush(ctx); err != nil {
			return fmt.Errorf("%w: %w", errJob, err)
		}
		return nil
	})
	if err != nil && (w.dialect.Lost(err) || ctx.Err() != nil) {
		_ = w.disconnect()
	}
	return failed, committing, w.late(ctx, err)
}

// late tells an error that the writer's own bound has caused from one of a caller's.
func (w *writer) late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: no answer within %s", store.ErrUnavailable, w.dialect.Timeout)
}

// transaction runs do between the statements that begin and end one.
func (w *writer) transaction(ctx context.Context, do func() error) (committing bool, err error) {
	for _, statement := range w.dialect.Begin {
		if _, err = w.conn.Exec(ctx, statement); err != nil {
			break
		}
	}
	if err == nil {
		err = do()
	}
	if err == nil {
		committing = true
		if _, err = w.conn.Exec(ctx, "COMMIT"); err == nil {
			return true, nil
		}
	}
	w.conn.later = nil
	// A database has rolled back by itself after some errors, and then this one fails.
	_, _ = w.conn.Exec(ctx, "ROLLBACK")
	return committing, err
}

// together runs one job so that its failure is that of all. What a job leaves for later is sent with what follows.
func (w *writer) together(ctx context.Context, j job) (failed, fatal error) {
	if err := j.run(ctx, w.conn); err != nil {
		return err, fmt.Errorf("%w: %w", errJob, err)
	}
	return nil, nil
}

// isolate runs one job so that its failure undoes its own writes alone. A fatal error means that the
// transaction itself is lost, as after a full disk.
func (w *writer) isolate(ctx context.Context, j job) (failed, fatal error) {
	if _, err := w.conn.Exec(ctx, "SAVEPOINT job"); err != nil {
		return nil, err
	}
	if failed = j.run(ctx, w.conn); failed == nil {
		failed = w.conn.flush(ctx)
	}
	if failed != nil {
		w.conn.later = nil
		if _, err := w.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT job"); err != nil {
			return nil, errors.Join(failed, err)
		}
	}
	_, fatal = w.conn.Exec(ctx, "RELEASE SAVEPOINT job")
	return failed, fatal
}
