// Package state is an agent's durable state: one bbolt file in its state folder.
//
// Begin with Open, then View and Update. Records are JSON, under a key of a bucket; Load and Save convert them:
//
//	db, err := state.Open(dir, "items", "orders")
//	err = db.Update(func(tx *bbolt.Tx) error { return state.Save(tx, "items", name, item) })
//
// A change is on the disk once Update has returned nil, and cannot be read before that, so that a power cut undoes
// nothing that code has acted on. One process has the file open at a time. The package owns the file and the number
// of its format; other packages own the content of the buckets.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/wherry-dev/wherry/bundle/queue"
)

// Errors that callers branch on.
var (
	// ErrBusy means that another agent works with the same state folder.
	ErrBusy = errors.New("in use by another agent")
	// ErrDamaged means that the state file holds no state that can be read. It is that of the queues in the file.
	ErrDamaged = queue.ErrDamaged
	// ErrNoState means that no agent has begun in the folder.
	ErrNoState = errors.New("no agent has run here")
)

const (
	// File is the name of the state file in the state folder.
	File = "agent.db"
	// StoreDir is the content store beside it. A folder that has one and an empty state file has lost its state.
	StoreDir = "store"
	// lockTime bounds the wait for another process to release the state file. An agent that is being stopped needs a
	// moment.
	lockTime = time.Second
)

// Meta is the bucket of single records. Packages have keys of their own in it.
const Meta = "meta"

// DB is an open state file. It may be used by several goroutines.
type DB struct {
	dir     string
	db      *bbolt.DB
	buckets []string // that every file has

	// commits is held from a commit's first write to its last sync: bbolt would show it to readers before, and a report
	// that the hub has of a commit which a power cut takes back is given its number twice.
	commits sync.RWMutex

	// Moment, where a test has set it, is called between any two steps that a crash tells apart.
	Moment func(name string)
}

// At names a moment at which a crash leaves something else on the disk than at the ones before and after.
func (d *DB) At(moment string) {
	if d.Moment != nil {
		d.Moment(moment)
	}
}

// Open opens the file in dir, which exists, and makes it where there is none. A new file holds nothing, not even its
// schema, before Init. Every file has the given buckets beside Meta; others are made by who needs them first. The
// error wraps ErrBusy, ErrDamaged or a *fs.PathError. The caller closes the DB.
func Open(dir string, buckets ...string) (*DB, error) {
	return open(dir, &bbolt.Options{Timeout: lockTime}, buckets)
}

// OpenReadOnly is Open for reading. It makes nothing: its error wraps ErrNoState where there is no file.
func OpenReadOnly(dir string, buckets ...string) (*DB, error) {
	info, err := os.Stat(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 && !stored(dir) {
		return nil, fmt.Errorf("state folder %s: %w", dir, ErrNoState)
	}
	return open(dir, &bbolt.Options{Timeout: lockTime, ReadOnly: true}, buckets)
}

// stored reports whether an agent has stored something beside its state file.
func stored(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, StoreDir))
	return err == nil
}

// open reads the whole file once, so that damage shows now and not in the middle of a pass. bbolt
// panics on some damage, and a file that was cut short faults where it is mapped.
func open(dir string, opts *bbolt.Options, buckets []string) (d *DB, err error) {
	path := filepath.Join(dir, File)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("state %s: %w: %v", path, ErrDamaged, r)
		}
	}()
	if info, err := os.Stat(path); err == nil && info.Size() == 0 && stored(dir) { // bbolt would begin anew
		return nil, fmt.Errorf("state %s: %w: the file is empty, and its records of %s are lost", path, ErrDamaged, StoreDir)
	}
	db, err := bbolt.Open(path, 0o600, opts)
	var system syscall.Errno
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state folder %s: %w", dir, ErrBusy)
	case errors.As(err, &system):
		return nil, fmt.Errorf("state: %w", err)
	case err != nil:
		return nil, fmt.Errorf("state %s: %w: %v", path, ErrDamaged, err)
	}
	d = &DB{dir: dir, db: db, buckets: slices.Concat([]string{Meta}, buckets)}
	if err := d.View(readAll); err != nil {
		return nil, errors.Join(fmt.Errorf("state %s: %w: %v", path, ErrDamaged, err), db.Close())
	}
	return d, nil
}

// readAll touches every key and value.
func readAll(tx *bbolt.Tx) error {
	if err := checkPages(tx); err != nil {
		return err
	}
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			_, err := io.Discard.Write(append(bytes.Clone(k), v...))
			return err
		})
	})
}

// Path is the state file's.
func (d *DB) Path() string { return filepath.Join(d.dir, File) }

// Dir is the state folder.
func (d *DB) Dir() string { return d.dir }

// ReadOnly reports whether the file was opened by OpenReadOnly.
func (d *DB) ReadOnly() bool { return d.db.IsReadOnly() }

// Close lets go of the file.
func (d *DB) Close() error { return d.db.Close() }

// WithoutSync has commits no longer wait for the disk. What was committed is then safe from a crash of the process, and not from a
// power cut. It is for many agents that one machine simulates, and is called before the DB is used.
func (d *DB) WithoutSync() { d.db.NoSync = true }

// View runs f in a transaction that reads the committed state, and returns its error.
func (d *DB) View(f func(*bbolt.Tx) error) error {
	d.commits.RLock()
	tx, err := d.db.Begin(false)
	d.commits.RUnlock()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // which ends a transaction that only reads
	return f(tx)
}

// Update runs f in a transaction, and commits it where f returns nil. Its error is a *LocalError, or that of Decline.
func (d *DB) Update(f func(*bbolt.Tx) error) error {
	committing := false
	defer func() {
		if committing {
			d.commits.Unlock()
		}
	}()
	err := d.db.Update(func(tx *bbolt.Tx) error {
		err := f(tx)
		if err == nil {
			d.At("commit: before")
			d.commits.Lock()
			committing = true
		}
		return err
	})
	if no := new(declined); errors.As(err, no) {
		return no.error
	}
	if err != nil {
		return &LocalError{fmt.Errorf("write state: %w", err)}
	}
	d.At("commit: after")
	return nil
}

// UpdateIf is Update for a function that may find nothing to write, and then costs the disk nothing.
func (d *DB) UpdateIf(f func(*bbolt.Tx) (changed bool, err error)) error {
	err := d.Update(func(tx *bbolt.Tx) error {
		changed, err := f(tx)
		if err == nil && !changed {
			return errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// Decline ends a transaction because of what the state says, and not because it could not be written: Update returns
// err as it is.
func Decline(err error) error { return declined{err} }

type declined struct{ error }

// errUnchanged rolls a transaction back that has written nothing.
var errUnchanged = errors.New("unchanged")

// LocalError is an error of this machine, such as a full disk, and not of a registry or a release.
type LocalError struct{ Err error }

func (e *LocalError) Error() string { return e.Err.Error() }
func (e *LocalError) Unwrap() error { return e.Err }

// Local returns a *LocalError of what fmt.Errorf makes of its arguments.
func Local(format string, args ...any) error { return &LocalError{fmt.Errorf(format, args...)} }

// Load returns the record under key, and the zero value where there is none. The error wraps ErrDamaged.
func Load[T any](tx *bbolt.Tx, bucket, key string) (v T, err error) {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return v, nil
	}
	data := b.Get([]byte(key))
	if data == nil {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("%s %s: %w: %v", bucket, key, ErrDamaged, err)
	}
	return v, nil
}

// Save replaces the record under key. The bucket exists.
func Save(tx *bbolt.Tx, bucket, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(key), data)
}

// Drop deletes the record under key, if there is one.
func Drop(tx *bbolt.Tx, bucket, key string) error {
	return tx.Bucket([]byte(bucket)).Delete([]byte(key))
}

// Stamp is a time as it is kept and shown: UTC, in whole seconds.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
