// Package sqlite is a store.Store in one SQLite file. It alone knows the tables and SQLite's dialect.
//
// Begin with Open. The database is in WAL mode: reads go on while something is written, also in other processes. One
// connection of a process writes; units of work that wait for it share a transaction, so that one sync to disk serves
// hundreds of them. Each still fails alone.
//
// Every commit is synced before it is reported, because acknowledgements rest on that. The schema is brought up to date
// when a newer version first opens the file; an older version refuses it from then on.
package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"syscall"
	"time"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/wherry-dev/wherry/hub/store"
)

// DB is an open database. It implements store.Store.
type DB struct {
	now    func() time.Time
	read   *sql.DB
	writer *writer
}

var _ store.Store = (*DB)(nil)

// Options are the optional parts of a DB; the zero value works.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Files returns the names of the files that make up the database called name.
func Files(name string) []string { return []string{name, name + "-wal", name + "-shm"} }

// Open opens the database at path, and makes a missing one, for its owner alone. The caller closes it. The error wraps
// store.ErrCorrupt or store.ErrNewer.
func Open(path string, o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	w, err := openWriter(path)
	if err != nil {
		return nil, err
	}
	read, err := openReaders(path)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return &DB{now: o.Now, read: read, writer: w}, nil
}

// makePrivate makes an empty file that only its owner may read, unless the file exists. SQLite gives the files beside its
// database the same mode.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Close implements store.Store.
func (d *DB) Close() error { return errors.Join(d.read.Close(), d.writer.close()) }

// Check implements store.Store. It takes about a second for each few hundred megabytes.
func (d *DB) Check(ctx context.Context) error {
	var verdict string
	if err := d.read.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return fmt.Errorf("hub database: %w", classify(err))
	}
	if verdict != "ok" {
		return fmt.Errorf("hub database: %w: %s", store.ErrCorrupt, verdict)
	}
	return nil
}

// Ready implements store.Store.
func (d *DB) Ready(ctx context.Context) error {
	// Beginning and ending a transaction is the proof; nothing is to be changed.
	return d.writer.do(ctx, func(context.Context, *conn) error { return nil })
}

// The steps of the schema. Step n leads to version n.
var (
	//go:embed schema.sql
	schema1 string
	//go:embed schema2.sql
	schema2 string
	//go:embed schema3.sql
	schema3 string
	//go:embed schema4.sql
	schema4 string
)

// querier is the part of a database that reads need: the pool of readers, or the writer's connection.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// dataSource returns the driver's name of the database at path. Other processes may hold the write lock for
// the length of a transaction; busy_timeout, in milliseconds, waits for them.
func dataSource(path string, pragmas ...string) string {
	v := url.Values{"_error_rc": {"1"}, "_pragma": append([]string{"busy_timeout(10000)", "foreign_keys(1)"}, pragmas...)}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
}

// openReaders opens the pool of connections that only read. A database in WAL mode lets them go on
// while the writer writes.
func openReaders(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dataSource(path, "query_only(1)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	return db, nil
}

// openConn opens the one connection that writes, and migrates the schema to this version's.
// A commit is synced to disk before it returns: acknowledgements rest on that.
func openConn(ctx context.Context, path string) (*sql.DB, *conn, error) {
	db, err := sql.Open("sqlite", dataSource(path, "journal_mode(WAL)", "synchronous(FULL)"))
	if err != nil {
		return nil, nil, err
	}
	sc, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, errors.Join(classify(err), db.Close())
	}
	c := &conn{Conn: sc, statements: map[string]*sql.Stmt{}}
	if err := c.migrate(ctx, []string{schema1, schema2, schema3, schema4}); err != nil {
		return nil, nil, errors.Join(classify(err), c.close(), db.Close())
	}
	return db, c, nil
}

// conn is a connection that prepares each statement once.
type conn struct {
	*sql.Conn
	statements map[string]*sql.Stmt
}

func (c *conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := c.statements[query]; ok {
		return s, nil
	}
	s, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, query)
	}
	c.statements[query] = s
	return s, nil
}

// close closes the statements, which would keep the database open, and gives the connection back.
func (c *conn) close() error {
	var err error
	for _, s := range c.statements {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, c.Conn.Close())
}

// exec returns the number of rows changed.
func (c *conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// migrate applies, in one transaction, the steps that the database has not had. Step n makes the
// database's user_version n.
func (c *conn) migrate(ctx context.Context, steps []string) error {
	if v, err := c.version(ctx); err != nil || v == len(steps) {
		return err
	}
	return c.transaction(ctx, func() error {
		v, err := c.version(ctx) // again, now that no other process can change it
		if err != nil {
			return err
		}
		if v > len(steps) {
			return fmt.Errorf("%w: its schema is %d and this one knows up to %d", store.ErrNewer, v, len(steps))
		}
		for _, step := range steps[v:] {
			if _, err := c.ExecContext(ctx, step); err != nil {
				return err
			}
		}
		_, err = c.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(steps)))
		return err
	})
}

func (c *conn) version(ctx context.Context) (v int, err error) {
	return v, c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
}

// transaction runs do between BEGIN and COMMIT. If it returns nil, all writes of do are on disk; with an
// error none are.
func (c *conn) transaction(ctx context.Context, do func() error) error {
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do()
	if err == nil {
		if _, err = c.exec(ctx, "COMMIT"); err == nil {
			return nil
		}
	}
	// SQLite has rolled back by itself after some errors, and then this one fails.
	_, _ = c.exec(ctx, "ROLLBACK")
	return err
}

// classify wraps an error of the database in the sentinel that callers branch on, if there is one.
func classify(err error) error {
	var e *modernc.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return err
}
