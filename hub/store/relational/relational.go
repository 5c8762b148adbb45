// Package relational is a store.Store in a relational database. It alone has the queries.
//
// Begin with New. The queries are in SQL that SQLite and PostgreSQL both understand, with the parameters $1, $2 and so on; a
// Dialect has what differs. The tables, and how a database is opened, migrated and copied, are in the packages of the
// databases, such as hub/store/sqlite.
//
// All writes of a process go through one connection. Units of work that wait for it share a transaction, so that one sync to
// disk serves hundreds of them. Each still fails alone. The writing transactions of several processes follow one another.
//
// # SQL that both understand
//
// Truth values are the integers 0 and 1, times are store.Millis, and text is compared by its bytes. Numbers are BIGINT in
// PostgreSQL. Use ON CONFLICT, RETURNING, string_agg and comparisons of rows; avoid min and max of two values, implicit
// conversions, and literals of truth values.
package relational

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/hub/store"
)

// Dialect has what differs between databases. Only Begin and Connect are required.
type Dialect struct {
	// Connect returns a connection that writes, to a database whose tables are up to date. It is called again once Lost has
	// reported an error of the one before.
	Connect func(ctx context.Context) (*sql.Conn, error)
	// Begin are the statements that begin a transaction that writes. From then on until its end no other process writes, so that
	// what is read in it stays true, and positions in the feed rise in the order of commits.
	Begin []string
	// Rewrite returns a query, with $1, $2 … as its parameters, as the driver expects it.
	Rewrite func(query string) string
	// Classify wraps an error in the sentinel that callers of a store branch on, if there is one.
	Classify func(error) error
	// Lost reports whether an error means that a connection is of no use any more. Nil means that none is.
	Lost func(error) bool
	// Stale reports whether an error may mean that a connection was lost since it was used last, so that a read is tried again
	// at once, on another. Nil means that it does not.
	Stale func(error) bool
	// Timeout bounds a transaction that writes; zero means no bound. A connection whose transaction takes longer is lost.
	Timeout time.Duration
	// Send runs statements, whose results nobody reads, one after another in one journey to the database, up to the first that
	// fails. Nil means that each has a journey of its own, such as where there is none.
	Send func(ctx context.Context, c *sql.Conn, all []Statement) error
	// Damage reads the whole database, and returns an error that wraps store.ErrCorrupt if it is damaged.
	Damage func(ctx context.Context, read *sql.DB) error
}

// Statement is an SQL statement with its arguments.
type Statement struct {
	Query string
	Args  []any
}

// Options are the optional parts of a DB; the zero value works.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// DB is an open database. It implements store.Store.
type DB struct {
	now     func() time.Time
	dialect Dialect
	read    *pool
	writer  *writer
	recent  recent
	texts   texts
	full    atomic.Bool // there was no room for a write, and Ready has not found that there is again
}

var (
	_ store.Store     = (*DB)(nil)
	_ store.Access    = (*DB)(nil)
	_ store.Published = (*DB)(nil)
	_ store.Past      = (*DB)(nil)
	_ store.Feed      = (*DB)(nil)
	_ store.Evidence  = (*DB)(nil)
)

// New returns a store of a database with a pool of connections that only read, and a connection of d that writes. The store
// closes both. With an error the caller closes read.
func New(ctx context.Context, read *sql.DB, d Dialect, o Options) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if d.Rewrite == nil {
		d.Rewrite = func(query string) string { return query }
	}
	if d.Classify == nil {
		d.Classify = func(err error) error { return err }
	}
	if d.Lost == nil {
		d.Lost = func(error) bool { return false }
	}
	if d.Stale == nil {
		d.Stale = func(error) bool { return false }
	}
	w, err := openWriter(ctx, &d)
	if err != nil {
		return nil, d.Classify(err)
	}
	return &DB{now: o.Now, dialect: d, read: &pool{db: read, rewrite: d.Rewrite, stale: d.Stale}, writer: w}, nil
}

// Close implements store.Store.
func (d *DB) Close() error {
	return errors.Join(d.read.close(), d.writer.close())
}

// Do runs a unit of work in a transaction that writes, and returns nil once that is on disk. A unit of work that fails
// changes nothing and does not disturb the others. It may be run more than once. If ctx ends first, whether it ran is not
// known.
func (d *DB) Do(ctx context.Context, run func(context.Context, *Conn) error) error {
	return d.run(ctx, job{run: run})
}

func (d *DB) run(ctx context.Context, j job) error {
	err := d.classify(d.writer.do(ctx, j))
	if errors.Is(err, syscall.ENOSPC) {
		d.full.Store(true)
	}
	return err
}

func (d *DB) classify(err error) error {
	if err == nil {
		return nil
	}
	return d.dialect.Classify(err)
}

// Check implements store.Store.
func (d *DB) Check(ctx context.Context) error {
	if d.dialect.Damage == nil {
		return nil
	}
	if err := d.dialect.Damage(ctx, d.read.db); err != nil {
		return fmt.Errorf("hub database: %w", d.classify(err))
	}
	return nil
}

// How much Ready writes: about as much as a report takes; and once there was no room, more than the largest request takes, so that
// a disk with a few pages left is not taken for one with room.
const (
	probeBytes     = 16 << 10
	fullProbeBytes = 4 << 20
)

// Ready implements store.Store. A transaction that writes nothing succeeds on a full disk, and what can be compressed needs no room.
func (d *DB) Ready(ctx context.Context) error {
	size, wasFull := probeBytes, d.full.Load()
	if wasFull {
		size = fullProbeBytes
	}
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // which never fails
	err := d.Do(ctx, func(ctx context.Context, db *Conn) error {
		_, err := db.Exec(ctx, `INSERT INTO probe (id, content) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET content = excluded.content`, content)
		return err
	})
	if err == nil && wasFull {
		d.full.Store(false)
	}
	return err
}

// querier is the part of a database that reads need: the pool of readers, or the writer's connection. Each prepares a query
// once, so that queries are few and constant.
type querier interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	row(ctx context.Context, query string, args ...any) row
}

// row is the result of a query for at most one row.
type row struct {
	*sql.Row
	err error
}

// Scan is sql.Row.Scan.
func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.Row.Scan(dest...)
}

// pool is connections that only read.
type pool struct {
	db         *sql.DB
	rewrite    func(string) string
	stale      func(error) bool
	statements sync.Map // of queries, *sql.Stmt
}

// maxStale bounds the connections that one read finds lost: there may be as many as the pool has.
const maxStale = 10

func (p *pool) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := p.statements.Load(query); ok {
		return s.(*sql.Stmt), nil
	}
	s, err := p.db.PrepareContext(ctx, p.rewrite(query))
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, query)
	}
	if first, loaded := p.statements.LoadOrStore(query, s); loaded {
		return first.(*sql.Stmt), s.Close()
	}
	return s, nil
}

func (p *pool) query(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	for range maxStale {
		var s *sql.Stmt
		if s, err = p.prepare(ctx, query); err == nil {
			rows, err = s.QueryContext(ctx, args...)
		}
		if err == nil || !p.stale(err) {
			break
		}
	}
	return rows, err
}

func (p *pool) row(ctx context.Context, query string, args ...any) (r row) {
	for range maxStale {
		var s *sql.Stmt
		if s, r.err = p.prepare(ctx, query); r.err == nil {
			r.Row = s.QueryRowContext(ctx, args...)
			r.err = r.Err()
		}
		if r.err == nil || !p.stale(r.err) {
			break
		}
	}
	return r
}

func (p *pool) close() error {
	var err error
	p.statements.Range(func(_, s any) bool {
		err = errors.Join(err, s.(*sql.Stmt).Close())
		return true
	})
	return errors.Join(err, p.db.Close())
}

// Conn is a connection that prepares each statement once.
type Conn struct {
	conn       *sql.Conn
	rewrite    func(string) string
	statements map[string]*sql.Stmt
	insertions map[sized]string
	send       func(context.Context, *sql.Conn, []Statement) error
	later      []Statement // that are not sent yet
}

// Later runs a statement whose result nobody reads, at the latest before the next one that is not run by Later, and before the end
// of the unit of work. Its error may be returned there.
func (c *Conn) Later(ctx context.Context, query string, args ...any) error {
	if c.send == nil {
		_, err := c.Exec(ctx, query, args...)
		return err
	}
	c.later = append(c.later, Statement{c.rewrite(query), args})
	return nil
}

// flush runs what Later has left.
func (c *Conn) flush(ctx context.Context) error {
	if len(c.later) == 0 {
		return nil
	}
	all := c.later
	c.later = nil
	return c.send(ctx, c.conn, all)
}

// prepare returns the statement of a query that is run next.
func (c *Conn) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	if s, ok := c.statements[query]; ok {
		return s, nil
	}
	s, err := c.conn.PrepareContext(ctx, c.rewrite(query))
	if err != nil {
		return nil, fmt.Errorf("%w in %s", err, query)
	}
	c.statements[query] = s
	return s, nil
}

// close closes the statements, which would keep the database open, and gives the connection back.
func (c *Conn) close() error {
	var err error
	for _, s := range c.statements {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, c.conn.Close())
}

// Exec returns the number of rows changed.
func (c *Conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
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

func (c *Conn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (c *Conn) row(ctx context.Context, query string, args ...any) row {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return row{err: err}
	}
	return row{Row: s.QueryRowContext(ctx, args...)}
}

// insertion is a statement that inserts rows.
type insertion struct {
	into    string // table and columns
	columns int
	end     string // what follows the values
}

// sized is an insertion of so many rows.
type sized struct {
	insertion
	rows int
}

func (s sized) sql() string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + s.into + " VALUES ")
	n := 0
	for r := range s.rows {
		if r > 0 {
			b.WriteString(", ")
		}
		for c := range s.columns {
			n++
			b.WriteString([]string{", $", "($"}[bit(c == 0)] + strconv.Itoa(n))
		}
		b.WriteString(")")
	}
	return b.String() + " " + s.end
}

// insert inserts rows, whose values follow one another, several with each statement. Scan is called with the rows that the
// insertion returns.
func (c *Conn) insert(ctx context.Context, i insertion, values []any, scan func(*sql.Rows) error) error {
	for len(values) > 0 {
		rows := 1
		for _, n := range []int{32, 8, 3} {
			if len(values) >= n*i.columns {
				rows = n
				break
			}
		}
		s := sized{i, rows}
		query, ok := c.insertions[s]
		if !ok {
			query = s.sql()
			c.insertions[s] = query
		}
		args := values[:rows*i.columns]
		values = values[rows*i.columns:]
		if scan == nil {
			if err := c.Later(ctx, query, args...); err != nil {
				return err
			}
			continue
		}
		if err := each(ctx, c, query, args, scan); err != nil {
			return err
		}
	}
	return nil
}

// bit is a truth value in a database.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
