// Package postgres is a store.Store in a PostgreSQL database, for fleets that outgrow one machine. The queries are those of
// package relational.
//
// Begin with Open. Any number of processes may use one database. Their writing transactions follow one another, each for
// many units of work, so that what a unit of work reads stays true until its end, and positions in the feed rise in the order of
// commits in all of them. Reads need no lock, and wait for nothing.
//
// A commit is reported once PostgreSQL has it on disk, as long as its own setting fsync is on. If the connection is lost in
// the middle of a unit of work, it is run again on another; if it is lost while PostgreSQL commits, whether it has is not known,
// and the error is reported. A store of reports makes that harmless: they are sent again, and repeats change nothing.
//
// Check reads nothing: PostgreSQL verifies what it reads, if its cluster was made with checksums, and has tools to read all.
//
// Errors wrap store.ErrUnavailable while the database is away, restarting, locked or too slow. The next call tries again.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/relational"
)

const (
	// connectTime bounds how long a connection may take to be made, unless the URL has connect_timeout.
	connectTime = 10 * time.Second
	// readTime bounds a query. Reading a whole fleet takes some seconds.
	readTime = 2 * time.Minute
	// lockTime bounds the wait for other processes that write.
	lockTime = 30 * time.Second
	// writeTime bounds a statement that writes, and how long a process that has stopped in the middle of a transaction
	// keeps the others from writing.
	writeTime = 30 * time.Second
	// transactionTime bounds a whole transaction from this side: an answer that does not come means that the server is gone.
	transactionTime = 2 * time.Minute
	// readers bounds the connections that read.
	readers = 8
	// idleTime is the time after which a connection that nobody uses is closed.
	idleTime = 5 * time.Minute
)

// The keys of PostgreSQL's advisory locks, which are for one database: "wherry", and a number.
const (
	lockSpace   = 0x77686572727900
	migrateLock = lockSpace + 1
	writeLock   = lockSpace + 2
)

// DB is an open database. It implements store.Store.
type DB struct {
	*relational.DB
	read, write *sql.DB
}

var _ store.Store = (*DB)(nil)

// Options are the optional parts of a DB; the zero value works.
type Options = relational.Options

// Open opens the database that url names, such as "postgres://hub@db.example/hub", and makes its tables, or brings those
// of an earlier version up to date. The caller closes it. What the URL leaves open, such as the password, is taken from
// PostgreSQL's usual variables and files.
//
// The error wraps store.ErrInvalid for a URL that is not acceptable, store.ErrNewer, fs.ErrPermission if the user may not
// log in or write, or store.ErrUnavailable. It never has the password.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	read := stdlib.OpenDB(*forReading(config))
	d := &DB{read: read, write: stdlib.OpenDB(*forWriting(config))}
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	read.SetConnMaxIdleTime(idleTime)
	d.DB, err = relational.New(ctx, read, relational.Dialect{
		Connect: d.connect,
		// What a statement reads after the lock is what was committed before it.
		Begin:    []string{"BEGIN ISOLATION LEVEL READ COMMITTED", fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", writeLock)},
		Classify: classify,
		Lost:     lost,
		Stale:    stale,
		Timeout:  transactionTime,
		Send:     send,
	}, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hub database %s: %w", Name(url), err), read.Close(), d.write.Close())
	}
	return d, nil
}

// Close implements store.Store. A connection that has broken cannot be closed, and nothing is lost with it: what was not committed
// has been refused already. So that is no error.
func (d *DB) Close() error {
	for _, err := range []error{d.DB.Close(), d.write.Close()} {
		if err != nil && !lost(err) {
			return classify(err)
		}
	}
	return nil
}

// Size returns the size of the database on the server's disk, in bytes.
func (d *DB) Size(ctx context.Context) (size int64, err error) {
	err = d.read.QueryRowContext(ctx, "SELECT pg_database_size(current_database())").Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("hub database: %w", classify(err))
	}
	return size, nil
}

// connect opens the connection that writes, to tables that are up to date.
func (d *DB) connect(ctx context.Context) (*sql.Conn, error) {
	c, err := d.write.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, c, schema); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// send runs statements in one journey to the server.
func send(ctx context.Context, c *sql.Conn, all []relational.Statement) error {
	return c.Raw(func(driver any) error {
		var b pgx.Batch
		for _, s := range all {
			b.Queue(s.Query, s.Args...)
		}
		return driver.(*stdlib.Conn).Conn().SendBatch(ctx, &b).Close()
	})
}

// parse reads a database's URL. The driver's own errors quote it, and so may have its password.
func parse(url string) (*pgx.ConnConfig, error) {
	scheme, _, found := strings.Cut(url, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return nil, fmt.Errorf("hub database: %w: its URL looks like postgres://USER@HOST/DATABASE", store.ErrInvalid)
	}
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("hub database: %w: its URL, or the PG… variables and files that complete it, cannot be read; a URL looks like postgres://USER@HOST/DATABASE, and has characters such as / and @ of a password escaped",
			store.ErrInvalid)
	}
	if s := c.RuntimeParams["synchronous_commit"]; s == "off" {
		return nil, fmt.Errorf("hub database: %w: with synchronous_commit=%s, reports would be acknowledged that are not on disk", store.ErrInvalid, s)
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, connectTime)
	return c, nil
}

// Name returns a database's URL as logs and errors show it: server and database, without user, password and settings.
func Name(url string) string {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return "postgres"
	}
	if strings.HasPrefix(c.Host, "/") { // the folder of a socket
		return fmt.Sprintf("postgres:///%s?host=%s", c.Database, c.Host)
	}
	host := c.Host
	if c.Port != 5432 {
		host = net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	}
	return fmt.Sprintf("postgres://%s/%s", host, c.Database)
}

// forWriting returns the settings of the connection that writes. What the URL sets stays.
func forWriting(c *pgx.ConnConfig) *pgx.ConnConfig {
	return with(c, map[string]string{
		"application_name":                    "wherry hub",
		"synchronous_commit":                  "on", // acknowledgements rest on that
		"lock_timeout":                        milliseconds(lockTime),
		"statement_timeout":                   milliseconds(writeTime + lockTime),
		"idle_in_transaction_session_timeout": milliseconds(writeTime),
	})
}

// forReading returns the settings of the connections that read. A transaction of theirs reads one state of the database.
func forReading(c *pgx.ConnConfig) *pgx.ConnConfig {
	return with(c, map[string]string{
		"application_name":                    "wherry hub reader",
		"default_transaction_read_only":       "on",
		"default_transaction_isolation":       "repeatable read",
		"statement_timeout":                   milliseconds(readTime),
		"idle_in_transaction_session_timeout": milliseconds(readTime),
	})
}

func with(c *pgx.ConnConfig, settings map[string]string) *pgx.ConnConfig {
	c = c.Copy()
	for name, value := range settings {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = value
		}
	}
	return c
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// migrate applies, in one transaction, the steps that the database has not had.
func migrate(ctx context.Context, c *sql.Conn, steps []string) error {
	if v, err := version(ctx, c); err != nil || v == len(steps) {
		return err
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := applySteps(ctx, tx, steps); err != nil {
		_ = tx.Rollback() // what it would tell, err does
		return err
	}
	return tx.Commit()
}

func applySteps(ctx context.Context, tx *sql.Tx, steps []string) error {
	// One after the other, and not while another process writes.
	for _, lock := range []int64{migrateLock, writeLock} {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)"); err != nil {
		return err
	}
	v, err := version(ctx, tx) // again, now that no other process can change it
	if err != nil {
		return err
	}
	if v > len(steps) {
		return fmt.Errorf("%w: its schema version is %d, and this program supports up to %d", store.ErrNewer, v, len(steps))
	}
	for i, step := range steps[v:] {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("step %d of the schema: %w", v+i+1, err)
		}
	}
	for _, statement := range []string{"DELETE FROM schema_version", fmt.Sprintf("INSERT INTO schema_version VALUES (%d)", len(steps))} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// version returns the number of the newest step that the database has had.
func version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (v int, err error) {
	var made bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('schema_version') IS NOT NULL").Scan(&made); err != nil || !made {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM schema_version").Scan(&v)
	return v, err
}
