package agent

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// stateSchema is the number of the state file's format, which the file has in its meta bucket. What an older agent
// may pass over is added without another number: a bucket, a key, or a field of a record, whose zero value
// has to mean what was so before there was one. An older agent keeps buckets and keys that it does not know, and
// loses such fields where it writes the record again.
//
// The number rises where an agent that knows nothing of the change would do harm: take what is newer for its own
// under an old name, or go on without what must not be passed over. An agent opens every number up to its own, and
// writes its own once it has. testdata/state has a file of each format that ever landed.
const stateSchema = 1

// ErrNewer means that a newer agent has written the state file, in a format that this one does not know. The file is
// as it was.
var ErrNewer = errors.New("a newer agent wrote it")

// checkSchema says whether the file's format is known. It wraps ErrNoState for a file that holds nothing yet.
func checkSchema(tx *bbolt.Tx) error {
	schema, err := load[int](tx, bucketMeta, keySchema)
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
	case schema <= stateSchema:
		return nil
	}
	writer, err := load[string](tx, bucketMeta, keyWriter)
	if err != nil || writer == "" { // it may say so in another way
		writer = "of unknown version"
	}
	return fmt.Errorf("%w: %s, schema %d; this one reads up to schema %d", ErrNewer, writer, schema, stateSchema)
}

// firstBuckets are those that every state file has. Others are made by who needs them first.
var firstBuckets = [...]string{bucketMeta, bucketOrders, bucketTrees, bucketItems, bucketLedger, bucketReports, bucketIndex}

// lacks says whether a file was made before one of the buckets was thought of.
func lacks(tx *bbolt.Tx) bool {
	for _, b := range firstBuckets {
		if tx.Bucket([]byte(b)) == nil {
			return true
		}
	}
	return false
}

// makeBuckets makes those that the file lacks.
func makeBuckets(tx *bbolt.Tx) error {
	for _, b := range firstBuckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return err
		}
	}
	return nil
}
