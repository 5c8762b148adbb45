package state

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// Schema is the number of the state file's format, which the file has in its meta bucket. From the first release on, additions
// that an older agent may ignore need no new number: a bucket, a key, or a field of a record, whose zero value has to mean the
// state before the addition. An older agent keeps unknown buckets and keys, and loses unknown fields when it writes the record
// again.
//
// The number rises if an agent without the change would do harm: misread newer data under an old name, or ignore data
// that it must not ignore. An agent opens files with every number up to its own, and
// then writes its own number. The agent's testdata/state has a file of each format that was released, and of today's.
const Schema = 1

// The keys of Meta with the versions of the file and of its writer.
const (
	KeySchema = "schema"
	KeyWriter = "writer" // string: the version of the agent that made the last pass
)

// ErrNewer means that a newer agent has written the state file, in a format that this one does not know. The file is
// as it was.
var ErrNewer = errors.New("a newer agent wrote it")

// CheckSchema returns nil for a file whose format is known, and an error that wraps ErrNoState for a file that holds
// nothing yet.
func CheckSchema(tx *bbolt.Tx) error {
	schema, err := Load[int](tx, Meta, KeySchema)
	switch {
	case err != nil:
		return err
	case schema == 0:
		if name, _ := tx.Cursor().First(); name != nil { // it comes with the first bucket
			return fmt.Errorf("%w: it does not say its schema", ErrDamaged)
		}
		return ErrNoState
	case schema < 0:
		return fmt.Errorf("schema %d: %w", schema, ErrDamaged)
	case schema <= Schema:
		return nil
	}
	writer, err := Load[string](tx, Meta, KeyWriter)
	if err != nil || writer == "" { // it may say so in another way
		writer = "of unknown version"
	}
	return fmt.Errorf("%w: %s, schema %d; this one reads up to schema %d", ErrNewer, writer, schema, Schema)
}

// Init makes what a new file lacks, or one of an older agent. Read is called with what the file holds, which may be
// nothing yet; an error that wraps ErrNoState then has first called to write the first records.
func (d *DB) Init(read, first func(*bbolt.Tx) error) error {
	complete := false
	err := d.View(func(tx *bbolt.Tx) error {
		complete = !d.lacks(tx)
		return read(tx)
	})
	fresh := errors.Is(err, ErrNoState)
	if err != nil && !fresh || complete {
		return err
	}
	return d.Update(func(tx *bbolt.Tx) error {
		if err := d.makeBuckets(tx); err != nil || !fresh {
			return err
		}
		// The file's name has to be on the disk as well.
		return errors.Join(diskfile.SyncDir(d.dir), Save(tx, Meta, KeySchema, Schema), first(tx))
	})
}

// lacks reports whether the file was made before one of the buckets was thought of.
func (d *DB) lacks(tx *bbolt.Tx) bool {
	for _, b := range d.buckets {
		if tx.Bucket([]byte(b)) == nil {
			return true
		}
	}
	return false
}

// makeBuckets makes those that the file lacks.
func (d *DB) makeBuckets(tx *bbolt.Tx) error {
	for _, b := range d.buckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return err
		}
	}
	return nil
}
