package probation

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// Bucket has, by the encoded digest of its manifest, each release that was given up. It is there once there was one.
const Bucket = "quarantine"

// MaxQuarantined bounds the releases that are remembered as given up. The oldest is forgotten first: a site
// whose last sixteen contents have all failed has a person's attention already.
const MaxQuarantined = 16

// Quarantined is a release that was given up here. Neither it nor another release of the same content
// is run again before somebody wishes it; see Clear.
type Quarantined struct {
	Digest   digest.Digest `json:"digest"`  // of the manifest
	Content  digest.Digest `json:"content"` // of the tree
	Epoch    int64         `json:"epoch"`
	Sequence int64         `json:"sequence"`
	Number   int64         `json:"number,omitempty"` // see bundle.ReleaseName
	// Reason is AssignmentsFailed or CrashLoop, and Message describes the failure.
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// Quarantine lists the releases that were given up, the newest first.
type Quarantine []Quarantined

// Of returns the entry for a release that was given up, by its digest or its content; nil for other releases.
func (q Quarantine) Of(r *state.Release) *Quarantined {
	if r == nil {
		return nil
	}
	for i := range q {
		if q[i].Digest == r.Digest() || q[i].Content == r.Release.Content.DiffID {
			return &q[i]
		}
	}
	return nil
}

// LoadQuarantine reads the releases that were given up.
func LoadQuarantine(tx *bbolt.Tx) (q Quarantine, err error) {
	b := tx.Bucket([]byte(Bucket))
	if b == nil {
		return nil, nil
	}
	err = b.ForEach(func(k, _ []byte) error {
		g, err := state.Load[Quarantined](tx, Bucket, string(k))
		q = append(q, g)
		return err
	})
	slices.SortFunc(q, func(a, b Quarantined) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Sequence, a.Sequence), cmp.Compare(a.Digest, b.Digest))
	})
	return q, err
}

// Add gives up the release g, and forgets the oldest entries above the bound. It returns the new quarantine.
func Add(tx *bbolt.Tx, g Quarantined) (Quarantine, error) {
	if _, err := tx.CreateBucketIfNotExists([]byte(Bucket)); err != nil {
		return nil, err
	}
	if err := state.Save(tx, Bucket, g.Digest.Encoded(), g); err != nil {
		return nil, err
	}
	all, err := LoadQuarantine(tx)
	if err != nil {
		return nil, err
	}
	for ; len(all) > MaxQuarantined; all = all[:MaxQuarantined] {
		err = errors.Join(err, state.Drop(tx, Bucket, all[len(all)-1].Digest.Encoded()))
	}
	return all, err
}

// Clear empties the quarantine, and returns its entries.
func Clear(tx *bbolt.Tx) (Quarantine, error) {
	given, err := LoadQuarantine(tx)
	for _, g := range given {
		err = errors.Join(err, state.Drop(tx, Bucket, g.Digest.Encoded()))
	}
	return given, err
}
