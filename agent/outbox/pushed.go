package outbox

import (
	"encoding/json"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
)

// keptArtifacts bounds what an agent leaves in a registry where nobody acknowledges.
const keptArtifacts = 1000

// pushed is an artifact that was pushed, or was about to be.
type pushed struct {
	Manifest ocispec.Descriptor `json:"manifest"`
	Seq      uint64             `json:"seq"`  // of its newest report
	Live     int                `json:"live"` // how many of its reports are in the queue
	// Heartbeat is true where it holds nothing else.
	Heartbeat bool `json:"heartbeat,omitempty"`
}

// settledArtifacts returns the artifacts that may be deleted, by tag.
func settledArtifacts(tx *bbolt.Tx, stored bool) (map[string]pushed, error) {
	done := map[string]pushed{}
	b := tx.Bucket([]byte(bucketPushed))
	if b == nil {
		return done, nil
	}
	err := b.ForEach(func(k, v []byte) error {
		var p pushed
		if err := json.Unmarshal(v, &p); err != nil {
			return fmt.Errorf("%s %s: %w: %v", bucketPushed, k, state.ErrDamaged, err)
		}
		if p.Live == 0 {
			done[string(k)] = p
		}
		return nil
	})
	if stored {
		keepStored(done)
	}
	return done, err
}

// keepStored removes from done the artifacts that stay in a registry without acknowledgements: the newest ones, except for
// heartbeats other than the newest of all.
func keepStored(done map[string]pushed) {
	var seqs []uint64
	for _, p := range done {
		seqs = append(seqs, p.Seq)
	}
	if len(seqs) == 0 {
		return
	}
	slices.Sort(seqs)
	newest, oldest := seqs[len(seqs)-1], seqs[max(0, len(seqs)-keptArtifacts)]
	for tag, p := range done {
		if p.Seq == newest || p.Seq >= oldest && !p.Heartbeat {
			delete(done, tag)
		}
	}
}

func putPushed(tx *bbolt.Tx, tag string, p pushed) error {
	if _, err := tx.CreateBucketIfNotExists([]byte(bucketPushed)); err != nil {
		return err
	}
	return state.Save(tx, bucketPushed, tag, p)
}

// notePushed notes which reports lie in the artifact. Some may have become superfluous meanwhile.
func (o *Outbox) notePushed(tag string, p pushed, batch []queued) error {
	return o.db.Update(func(tx *bbolt.Tx) error {
		q, err := boxOf(tx)
		if err != nil {
			return err
		}
		p.Live = 0
		for _, sent := range batch {
			e, ok, err := q.get(sent.seq)
			if err != nil {
				return err
			}
			if !ok || e.ID != sent.ID {
				continue
			}
			p.Live++
			e.Tag = tag
			if err := q.note(e); err != nil {
				return err
			}
		}
		return putPushed(tx, tag, p)
	})
}

// unpushed notes that a report of an artifact is gone from the queue.
func (q *box) unpushed(tag string) error {
	if tag == "" {
		return nil
	}
	p, err := state.Load[pushed](q.tx, bucketPushed, tag)
	if err != nil || p.Live == 0 {
		return err
	}
	p.Live--
	return state.Save(q.tx, bucketPushed, tag, p)
}
