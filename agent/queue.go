package agent

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"
)

// The defaults of QueueLimits.
const (
	DefaultQueueReports = 10_000
	DefaultQueueBytes   = 64 << 20
)

// QueueLimits bounds the reports that wait to be acknowledged. Zero means the defaults.
type QueueLimits struct {
	Reports int
	Bytes   int64
}

func (l QueueLimits) withDefaults() QueueLimits {
	return QueueLimits{Reports: cmp.Or(l.Reports, DefaultQueueReports), Bytes: cmp.Or(l.Bytes, DefaultQueueBytes)}
}

// QueueStatus says what waits.
type QueueStatus struct {
	Length int   `json:"length"`
	Bytes  int64 `json:"bytes"`
	// Oldest is the age of the queue; nil when it is empty.
	Oldest *time.Time `json:"oldest,omitempty"`
	// Dropped counts the reports that a full queue has given up since the state was made.
	Dropped int64 `json:"dropped"`
	// Rejected counts those that the hub will not take, and LastRejection says why it refused one.
	Rejected      int    `json:"rejected,omitempty"`
	LastRejection string `json:"lastRejection,omitempty"`
}

// queued describes a report in the queue. Every report carries the whole present, so a newer one
// supersedes it, except for the failures that it tells of.
type queued struct {
	ID      digest.Digest `json:"id"`
	Size    int           `json:"size"`
	At      time.Time     `json:"at"`
	Failure bool          `json:"failure,omitempty"`
	// Rejected is why the hub will not take it.
	Rejected string `json:"rejected,omitempty"`

	seq      uint64
	envelope []byte
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// enqueue adds a report, and makes room where there is too little. It returns how many it gave up.
func enqueue(tx *bbolt.Tx, seq int64, q queued, envelope []byte, limits QueueLimits) (dropped int, err error) {
	dropped, err = makeRoom(tx, q.Size, limits)
	if err != nil {
		return dropped, err
	}
	data, err := json.Marshal(q)
	if err != nil {
		return dropped, err
	}
	key := seqKey(uint64(seq))
	return dropped, errors.Join(tx.Bucket([]byte(bucketIndex)).Put(key, data), tx.Bucket([]byte(bucketReports)).Put(key, envelope))
}

// makeRoom gives up the oldest superseded reports that tell of no failure, and only then failures,
// oldest first. The newest of all is the one that is being added.
func makeRoom(tx *bbolt.Tx, size int, limits QueueLimits) (dropped int, err error) {
	all, err := index(tx)
	if err != nil {
		return 0, err
	}
	n, bytes := len(all), int64(0)
	for _, q := range all {
		bytes += int64(q.Size)
	}
	full := func() bool { return n+1 > limits.Reports || bytes+int64(size) > limits.Bytes }
	for _, failures := range []bool{false, true} {
		for _, q := range all {
			if !full() {
				return dropped, nil
			}
			if q.Failure != failures {
				continue
			}
			if err := remove(tx, q.seq); err != nil {
				return dropped, err
			}
			n, bytes, dropped = n-1, bytes-int64(q.Size), dropped+1
		}
	}
	return dropped, nil
}

func remove(tx *bbolt.Tx, seq uint64) error {
	return errors.Join(tx.Bucket([]byte(bucketIndex)).Delete(seqKey(seq)), tx.Bucket([]byte(bucketReports)).Delete(seqKey(seq)))
}

// index returns the queue without the envelopes, oldest first.
func index(tx *bbolt.Tx) ([]queued, error) {
	var all []queued
	b := tx.Bucket([]byte(bucketIndex))
	if b == nil {
		return nil, nil
	}
	err := b.ForEach(func(k, v []byte) error {
		q := queued{seq: binary.BigEndian.Uint64(k)}
		all = append(all, q)
		return json.Unmarshal(v, &all[len(all)-1])
	})
	return all, err
}

func queueStatus(tx *bbolt.Tx) (QueueStatus, error) {
	var s QueueStatus
	all, err := index(tx)
	if err != nil {
		return s, err
	}
	s.Length = len(all)
	for _, q := range all {
		s.Bytes += int64(q.Size)
		if q.Rejected != "" {
			s.Rejected, s.LastRejection = s.Rejected+1, q.Rejected
		}
	}
	if len(all) > 0 {
		s.Oldest = &all[0].At
	}
	r, err := load[reporter](tx, bucketMeta, keyReporter)
	s.Dropped = r.Dropped
	return s, err
}

// batch returns reports after seq, oldest first and without those to be skipped, within the bounds of
// one request but at least one.
func (s *State) batch(after uint64, maxReports, maxBytes int, skip func(digest.Digest) bool) (batch []queued, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		all, err := index(tx)
		total := 0
		for _, q := range all {
			if q.seq <= after || skip(q.ID) {
				continue
			}
			if total += q.Size; len(batch) == maxReports || len(batch) > 0 && total > maxBytes {
				break
			}
			q.envelope = bytes.Clone(tx.Bucket([]byte(bucketReports)).Get(seqKey(q.seq)))
			batch = append(batch, q)
		}
		return err
	})
	return batch, err
}

// Reports returns the envelopes of all reports that wait, oldest first.
func (s *State) Reports() (envelopes [][]byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketReports))
		if b == nil {
			return nil
		}
		return b.ForEach(func(_, v []byte) error {
			envelopes = append(envelopes, bytes.Clone(v))
			return nil
		})
	})
	return envelopes, err
}

// settle deletes the reports with the given ids, and marks those that were rejected with the hub's
// reason. It returns how many were deleted. Ids that are not in the queue are passed over.
func (s *State) settle(acknowledged []digest.Digest, rejected map[digest.Digest]string) (deleted int, err error) {
	acked := map[digest.Digest]bool{}
	for _, id := range acknowledged {
		acked[id] = true
	}
	err = s.update(func(tx *bbolt.Tx) error {
		all, err := index(tx)
		if err != nil {
			return err
		}
		for _, q := range all {
			why, refused := rejected[q.ID]
			switch {
			case acked[q.ID]:
				deleted++
				err = errors.Join(err, remove(tx, q.seq))
			case refused && q.Rejected == "":
				q.Rejected = cmp.Or(why, "rejected")
				data, bad := json.Marshal(q)
				err = errors.Join(err, bad, tx.Bucket([]byte(bucketIndex)).Put(seqKey(q.seq), data))
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
