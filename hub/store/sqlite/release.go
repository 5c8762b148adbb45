package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/wherry-dev/wherry/hub/store"
)

// ErrBusy means that another process has the database open.
var ErrBusy = errors.New("another process has the database open")

// Release brings all of a database into its one file, so that another file may take its place: what is beside it would be taken
// for a part of that one. A damaged database loses what is beside it. It is no error if there is no database. The error wraps
// ErrBusy.
func Release(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil {
		// Only the last user of a database can take it out of WAL mode. It goes back there when it is opened.
		err := leaveWAL(ctx, path)
		var e *modernc.Error
		if errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED) {
			return fmt.Errorf("database %s: %w", path, ErrBusy)
		}
		if err = classify(err); err != nil && !errors.Is(err, store.ErrCorrupt) {
			return fmt.Errorf("database %s: %w", path, err)
		}
	}
	for _, name := range Files(path)[1:] {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func leaveWAL(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", dataSource(path, "busy_timeout(100)"))
	if err != nil {
		return err
	}
	var mode string
	err = db.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode)
	return errors.Join(err, db.Close())
}
