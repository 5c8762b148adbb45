// Package sqlite is a store.Store in one SQLite file. The queries are those of package relational.
//
// Begin with Open. The database is in WAL mode: reads go on while something is written, also in other processes.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/relational"
)

// DB is an open database. It implements store.Store.
type DB struct {
	*relational.DB
	path  string
	read  *sql.DB
	write *sql.DB
	conn  *sql.Conn // the one that writes
}

var _ store.Store = (*DB)(nil)

// Options are the optional parts of a DB; the zero value works.
type Options = relational.Options

// Files returns the names of the files that make up the database called name.
func Files(name string) []string { return []string{name, name + "-wal", name + "-shm"} }

// Open opens the database at path, and makes a missing one, for its owner alone. The caller closes it. The error wraps
// store.ErrCorrupt or store.ErrNewer.
func Open(path string, o Options) (*DB, error) {
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	// A commit is synced to disk before it returns: acknowledgements rest on that.
	write, err := sql.Open("sqlite", dataSource(path, "journal_mode(WAL)", "synchronous(FULL)", walSize, cacheSize))
	if err != nil {
		return nil, err
	}
	d := &DB{path: path, write: write}
	if d.read, err = openReaders(path); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	d.DB, err = relational.New(context.Background(), d.read, relational.Dialect{
		Connect:  d.connect,
		Begin:    []string{"BEGIN IMMEDIATE"},
		Rewrite:  rewrite,
		Classify: classify,
		Damage:   damage,
	}, o)
	if err != nil {
		return nil, errors.Join(err, d.read.Close(), write.Close())
	}
	return d, nil
}

// connect opens the connection that writes, and migrates the tables to this version's.
func (d *DB) connect(ctx context.Context) (*sql.Conn, error) {
	c, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, c, schema); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	d.conn = c
	return c, nil
}

// open opens the connection that writes. Of several processes that make one database at the same time, only one can switch it to
// WAL; SQLite refuses the others at once, whatever busy_timeout says, since waiting for each other they might never end.
func (d *DB) open(ctx context.Context) (*sql.Conn, error) {
	const pause = 10 * time.Millisecond
	for until := time.Now().Add(busyTime); ; {
		c, err := d.write.Conn(ctx)
		var busy *modernc.Error
		if !errors.As(err, &busy) || busy.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(until) {
			return c, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// rewrite makes $1 ?1: SQLite takes the former for a name, and counts names by their first use. Parameters that come once each, in
// order, become ?: the driver asks for the name of each parameter, and SQLite looks through all of them for those with a number.
func rewrite(query string) string {
	parts := strings.Split(query, "$")
	inOrder := true
	for i, part := range parts[1:] {
		number := strconv.Itoa(i + 1)
		rest, ok := strings.CutPrefix(part, number)
		inOrder = inOrder && ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
	}
	if !inOrder {
		return strings.ReplaceAll(query, "$", "?")
	}
	for i := range parts[1:] {
		parts[i+1] = parts[i+1][len(strconv.Itoa(i+1)):]
	}
	return strings.Join(parts, "?")
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
func (d *DB) Close() error { return errors.Join(d.DB.Close(), d.write.Close()) }

// damage takes about a second for each few hundred megabytes.
func damage(ctx context.Context, db *sql.DB) error {
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", store.ErrCorrupt, verdict)
	}
	return nil
}

// schema has the steps of the schema; step n leads to version n. From the first release on a change is a step of its own, and what
// came before stays.
var schema = []string{tables}

//go:embed schema.sql
var tables string

// Settings of the connection that writes. Pages that change often are copied to the database once for each 32 MiB of the
// journal, and not for each 4; and 32 MiB of pages stay in memory.
const (
	walSize   = "wal_autocheckpoint(8000)"
	cacheSize = "cache_size(-32768)"
)

// busyTime is how long a connection waits for the lock of another process, which holds it for the length of a transaction.
const busyTime = 10 * time.Second

// dataSource returns the driver's name of the database at path.
func dataSource(path string, pragmas ...string) string {
	v := url.Values{"_error_rc": {"1"}, "_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busyTime.Milliseconds()), "foreign_keys(1)"}, pragmas...)}
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

// migrate applies, in one transaction, the steps that the database has not had. Step n makes the
// database's user_version n.
func migrate(ctx context.Context, c *sql.Conn, steps []string) error {
	if v, err := version(ctx, c); err != nil || v == len(steps) {
		return err
	}
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := applySteps(ctx, c, steps)
	if err == nil {
		if _, err = c.ExecContext(ctx, "COMMIT"); err == nil {
			return nil
		}
	}
	// SQLite has rolled back by itself after some errors, and then this one fails.
	_, _ = c.ExecContext(ctx, "ROLLBACK")
	return err
}

func applySteps(ctx context.Context, c *sql.Conn, steps []string) error {
	v, err := version(ctx, c) // again, now that no other process can change it
	if err != nil {
		return err
	}
	if v > len(steps) {
		return fmt.Errorf("%w: its schema version is %d, and this program supports up to %d", store.ErrNewer, v, len(steps))
	}
	for _, step := range steps[v:] {
		if _, err := c.ExecContext(ctx, step); err != nil {
			return err
		}
	}
	_, err = c.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(steps)))
	return err
}

func version(ctx context.Context, c *sql.Conn) (v int, err error) {
	err = c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
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
	case sqlite3.SQLITE_INTERRUPT: // the end of a context does that alone
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return err
}
