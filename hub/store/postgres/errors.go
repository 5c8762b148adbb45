package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wherry-dev/wherry/hub/store"
)

// classify wraps an error of the database in the sentinel that callers branch on, if there is one.
func classify(err error) error {
	sentinel := sentinelOf(err)
	if sentinel == nil || errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, oneLine(err))
}

// lineError is an error that has a line for each address that was tried, several times over, in one line.
type lineError struct{ err error }

func oneLine(err error) error {
	if !errors.As(err, new(*pgconn.ConnectError)) {
		return err
	}
	return lineError{err}
}

func (e lineError) Error() string {
	first, rest, _ := strings.Cut(e.err.Error(), "\n")
	var tried []string
	for line := range strings.SplitSeq(rest, "\n") {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(tried, line) {
			tried = append(tried, line)
		}
	}
	return strings.TrimSpace(first + " " + strings.Join(tried, "; "))
}

func (e lineError) Unwrap() error { return e.err }

func sentinelOf(err error) error {
	var e *pgconn.PgError
	switch {
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &e):
		return sentinelOfCode(e.Code)
	case lost(err):
		return store.ErrUnavailable
	}
	return nil
}

// sentinelOfCode returns the sentinel for an SQLSTATE; see "PostgreSQL Error Codes", an appendix of its documentation.
func sentinelOfCode(code string) error {
	switch code {
	case "53100": // disk_full
		return syscall.ENOSPC
	case "25006", // read_only_sql_transaction: a standby, or a database that an administrator has closed for writing
		"42501",          // insufficient_privilege
		"28000", "28P01": // invalid_authorization_specification, invalid_password
		return fs.ErrPermission
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return store.ErrCorrupt
	case "55P03", // lock_not_available
		"57014",                   // query_canceled: it took too long
		"25P03",                   // idle_in_transaction_session_timeout
		"3D000",                   // invalid_catalog_name: there is no such database
		"0A000",                   // feature_not_supported: here, that another version has changed the tables
		"58030", "58P01", "58P02": // io_error, undefined_file, duplicate_file
		return store.ErrUnavailable
	}
	switch code[:min(2, len(code))] {
	case "08", // connection exception
		"40", // transaction rollback: serialization failure, deadlock
		"53", // insufficient resources: too many connections, out of memory
		"57": // operator intervention: shut down, starting up, recovering from a crash
		return store.ErrUnavailable
	}
	return nil
}

// lost reports whether an error means that a connection is of no use any more.
func lost(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" ||
		// A server that was a primary and is a standby now: another connection may find the new primary.
		e.Code == "25006" ||
		// Another version has changed the tables.
		e.Code == "0A000") {
		return true
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || errors.As(err, &connect) ||
		err != nil && strings.HasSuffix(err.Error(), "conn closed") // pgx has no value for it
}

// stale reports whether an error may be that of a connection that was lost since it was used last, and not of one that
// could not be made.
func stale(err error) bool {
	return lost(err) && !errors.As(err, new(*pgconn.ConnectError))
}
