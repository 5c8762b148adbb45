package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/wherry-dev/wherry/hub/store"
)

// writer owns the one connection that writes. Jobs that wait while a transaction is being synced share
// the next one: a sync costs the same for one report and for hundreds.
type writer struct {
	db      *sql.DB
	conn    *conn
	jobs    chan job
	cancel  context.CancelFunc
	stopped chan struct{}
}

// job is a unit of work, and the channel for its error.
type job struct {
	run  func(context.Context, *conn) error
	done chan error // holds one, so that the writer does not wait for a caller that has gone
}

// maxGroup bounds the jobs of one transaction.
const maxGroup = 64

func openWriter(path string) (*writer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	db, c, err := openConn(ctx, path)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &writer{db: db, conn: c, jobs: make(chan job), cancel: cancel, stopped: make(chan struct{})}
	go w.loop(ctx)
	return w, nil
}

// close ends the loop after the transaction it is in. Jobs that wait get ErrClosed.
func (w *writer) close() error {
	w.cancel()
	<-w.stopped
	return errors.Join(w.conn.close(), w.db.Close())
}

// do runs a job in a transaction and returns nil once that is on disk. A job that fails changes
// nothing and does not disturb the others. If ctx ends first, whether the job ran is not known.
func (w *writer) do(ctx context.Context, run func(context.Context, *conn) error) error {
	j := job{run, make(chan error, 1)}
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

// commit runs a group in one transaction and answers every job only after its end.
func (w *writer) commit(ctx context.Context, group []job) {
	failed := make([]error, len(group))
	err := w.conn.transaction(ctx, func() error {
		for i, j := range group {
			var fatal error
			if failed[i], fatal = w.isolate(ctx, j); fatal != nil {
				return fatal
			}
		}
		return nil
	})
	for i, j := range group {
		if err != nil {
			failed[i] = err
		}
		j.done <- classify(failed[i])
	}
}

// isolate runs one job so that its failure undoes its own writes alone. A fatal error means that the
// transaction itself is lost, as after a full disk.
func (w *writer) isolate(ctx context.Context, j job) (failed, fatal error) {
	if _, err := w.conn.exec(ctx, "SAVEPOINT job"); err != nil {
		return nil, err
	}
	if failed = j.run(ctx, w.conn); failed != nil {
		if _, err := w.conn.exec(ctx, "ROLLBACK TO job"); err != nil {
			return nil, errors.Join(failed, err)
		}
	}
	_, fatal = w.conn.exec(ctx, "RELEASE job")
	return failed, fatal
}
