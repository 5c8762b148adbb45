package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of the database, as of one moment, to a new file that only its owner may read. Reports are stored
// meanwhile. When it returns nil, the copy is on disk and complete; Open opens it. The error wraps fs.ErrExist if there is
// something at path.
func (d *DB) Backup(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return fmt.Errorf("backup %s: %w", path, err)
	}
	// The name says that it is not complete. VACUUM INTO takes an empty file, whose mode is ours.
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".part-*")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	err = errors.Join(part.Close(), copyInto(ctx, d.path, part.Name()))
	if err == nil {
		err = syncFile(part.Name())
	}
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(part.Name()))
	} else {
		err = syncFile(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("backup %s: %w", path, classify(err))
	}
	return nil
}

// copyInto copies a database into an empty file. It has a connection of its own, since those that read must not write.
func copyInto(ctx context.Context, from, to string) error {
	db, err := sql.Open("sqlite", dataSource(from))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?1", to)
	return errors.Join(err, db.Close())
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
