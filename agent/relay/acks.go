package relay

import (
	"bytes"
	"crypto"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Ack is an acknowledgement whose signature was verified.
type Ack struct {
	bundle.Ack
	Envelope []byte
}

// Acknowledged is the outcome of acknowledgements for other clusters.
type Acknowledged struct {
	Deleted int // reports that the relay held
	Kept    int // acknowledgements that wait for their agents
}

// Acknowledge deletes the reports that the acknowledgements name, and keeps the acknowledgements for their agents, of each
// cluster the newest few. The caller has verified them. The same again changes nothing.
func (r *Relay) Acknowledge(acks []Ack) (done Acknowledged, err error) {
	if len(acks) == 0 {
		return done, nil
	}
	err = r.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		done = Acknowledged{}
		s, err := open(tx)
		if err != nil {
			return false, err
		}
		// Those of clusters that report here come last, so that they are the last to make room for others.
		var here, elsewhere []Ack
		for _, a := range acks {
			c, err := s.cluster(a.Cluster)
			if err != nil {
				return false, err
			}
			if c.Reports > 0 {
				here = append(here, a)
			} else {
				elsewhere = append(elsewhere, a)
			}
		}
		changed := false
		for _, a := range slices.Concat(elsewhere, here) {
			deleted, err := s.settle(a.Ack)
			if err != nil {
				return false, err
			}
			kept, err := s.keep(a)
			if err != nil {
				return false, err
			}
			done.Deleted += deleted
			changed = changed || deleted > 0 || kept
		}
		done.Kept = s.Acks
		return changed, s.close()
	})
	return done, err
}

// settle deletes the reports that an acknowledgement names.
func (s *shelf) settle(a bundle.Ack) (deleted int, err error) {
	for _, id := range a.Reports {
		prefix := append(append([]byte(a.Cluster), 0), rawOf(id)...)
		rows, err := rowsWith(s.tx, prefix)
		if err != nil {
			return deleted, err
		}
		for _, row := range rows {
			if err := s.remove(row); err != nil {
				return deleted, err
			}
			deleted++
		}
	}
	return deleted, nil
}

// waiting is an acknowledgement in the state file.
type waiting struct {
	Cluster  string          `json:"cluster"`
	Envelope json.RawMessage `json:"envelope"`

	arrival uint64
	size    int // in the file, in bytes
}

// acksOf returns the acknowledgements for a cluster, or for all with an empty uid, the oldest first.
func acksOf(tx *bbolt.Tx, uid string) (all []waiting, err error) {
	b := tx.Bucket([]byte(bucketAcks))
	if b == nil {
		return nil, nil
	}
	want := []byte(`{"cluster":` + quote(uid) + `,`)
	err = b.ForEach(func(k, v []byte) error {
		if uid != "" && !bytes.HasPrefix(v, want) {
			return nil
		}
		w := waiting{arrival: binary.BigEndian.Uint64(k), size: len(v)}
		if err := json.Unmarshal(v, &w); err != nil {
			return fmt.Errorf("%s %d: %w: %v", bucketAcks, w.arrival, state.ErrDamaged, err)
		}
		all = append(all, w)
		return nil
	})
	return all, err
}

func quote(s string) string {
	data, _ := json.Marshal(s) // of a plain string
	return string(data)
}

// keep stores an acknowledgement, unless it is there already.
func (s *shelf) keep(a Ack) (bool, error) {
	var plain bytes.Buffer
	if err := json.Compact(&plain, a.Envelope); err != nil {
		return false, err
	}
	same, err := acksOf(s.tx, a.Cluster)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(same, func(w waiting) bool { return bytes.Equal(w.Envelope, plain.Bytes()) }) {
		return false, nil
	}
	data, err := json.Marshal(waiting{Cluster: a.Cluster, Envelope: plain.Bytes()})
	if err != nil {
		return false, err
	}
	for _, old := range same[:max(0, len(same)+1-maxClusterAcks)] {
		if err := s.removeAck(old); err != nil {
			return false, err
		}
	}
	for s.Acks >= maxAcks || s.Acks > 0 && s.AckBytes+int64(len(data)) > maxAckBytes {
		if err := s.removeOldestAck(); err != nil {
			return false, err
		}
	}
	b := s.tx.Bucket([]byte(bucketAcks))
	arrival, err := b.NextSequence()
	if err != nil {
		return false, err
	}
	s.Acks, s.AckBytes = s.Acks+1, s.AckBytes+int64(len(data))
	return true, b.Put(arrivalKey(arrival), data)
}

func (s *shelf) removeAck(w waiting) error {
	s.Acks, s.AckBytes = s.Acks-1, s.AckBytes-int64(w.size)
	return s.tx.Bucket([]byte(bucketAcks)).Delete(arrivalKey(w.arrival))
}

func (s *shelf) removeOldestAck() error {
	k, v := s.tx.Bucket([]byte(bucketAcks)).Cursor().First()
	if k == nil { // the totals are wrong
		s.Acks, s.AckBytes = 0, 0
		return nil
	}
	return s.removeAck(waiting{arrival: binary.BigEndian.Uint64(k), size: len(v)})
}

// maxAnswerBytes bounds the acknowledgements of one answer, so that it stays below hubapi.MaxReceiptBytes.
const maxAnswerBytes = hubapi.MaxReceiptBytes * 3 / 4

// unacknowledged puts the acknowledgements into the receipt that name any of these reports, and returns the reports that
// none of them names.
func (r *Relay) unacknowledged(uid string, brought []notice, hubKey crypto.PublicKey, receipt *hubapi.Receipt) ([]notice, error) {
	if hubKey == nil || len(brought) == 0 {
		return brought, nil
	}
	var all []waiting
	err := r.db.View(func(tx *bbolt.Tx) (err error) { all, err = acksOf(tx, uid); return err })
	if err != nil {
		return nil, err
	}
	open := brought
	size := 0
	for _, w := range all {
		ack, err := outbox.OpenAck(w.Envelope, hubKey)
		if err != nil || ack.Cluster != uid {
			continue // of a hub whose key was pinned before
		}
		named := map[digest.Digest]bool{}
		for _, id := range ack.Reports {
			named[id] = true
		}
		left := slices.DeleteFunc(slices.Clone(open), func(n notice) bool { return named[n.id] })
		if len(left) == len(open) || size+len(w.Envelope) > maxAnswerBytes {
			continue
		}
		size += len(w.Envelope)
		receipt.Acks = append(receipt.Acks, w.Envelope)
		receipt.Duplicates += len(open) - len(left)
		open = left
	}
	return open, nil
}
