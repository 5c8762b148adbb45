package relay

import (
	"bytes"
	"crypto"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
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
			_, known, err := s.clusters.Get([]byte(a.Cluster))
			if err != nil {
				return false, err
			}
			if known {
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
		done.Kept = s.acks.Entries
		return changed, nil
	})
	return done, err
}

// settle deletes the reports that an acknowledgement names.
func (s *shelf) settle(a bundle.Ack) (deleted int, err error) {
	for _, id := range a.Reports {
		rows, err := s.rowsWith(append(prefix(a.Cluster), rawOf(id)...))
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

// acksOf returns the acknowledgements for a cluster, the oldest first.
func (s *shelf) acksOf(uid string) (all []queue.Entry[struct{}], err error) {
	for e, err := range s.acks.With(prefix(uid)) {
		if err != nil {
			return nil, err
		}
		if e.Body, err = s.acks.Body(e.Key); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// keep stores an acknowledgement, unless it is there already.
func (s *shelf) keep(a Ack) (bool, error) {
	var plain bytes.Buffer
	if err := json.Compact(&plain, a.Envelope); err != nil {
		return false, err
	}
	same, err := s.acksOf(a.Cluster)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(same, func(e queue.Entry[struct{}]) bool { return bytes.Equal(e.Body, plain.Bytes()) }) {
		return false, nil
	}
	for _, old := range same[:max(0, len(same)+1-maxClusterAcks)] {
		if err := s.acks.Delete(old.Key); err != nil {
			return false, err
		}
	}
	for s.acks.Entries >= maxAcks || s.acks.Entries > 0 && s.acks.Bytes+int64(plain.Len()) > maxAckBytes {
		if err := s.removeOldestAck(); err != nil {
			return false, err
		}
	}
	arrival, err := s.acks.NextKey()
	if err != nil {
		return false, err
	}
	return true, s.acks.Put(binary.BigEndian.AppendUint64(prefix(a.Cluster), arrival), struct{}{}, plain.Bytes())
}

// removeOldestAck deletes the acknowledgement that came first.
func (s *shelf) removeOldestAck() error {
	arrival := func(key []byte) []byte { return key[len(key)-8:] }
	var oldest []byte
	for e, err := range s.acks.From(nil) {
		if err != nil {
			return err
		}
		if oldest == nil || bytes.Compare(arrival(e.Key), arrival(oldest)) < 0 {
			oldest = e.Key
		}
	}
	return s.acks.Delete(oldest)
}

// maxAnswerBytes bounds the acknowledgements of one answer, so that it stays below hubapi.MaxReceiptBytes.
const maxAnswerBytes = hubapi.MaxReceiptBytes * 3 / 4

// unacknowledged puts the acknowledgements into the receipt that name any of these reports, and returns the reports that
// none of them names.
func (r *Relay) unacknowledged(uid string, brought []notice, hubKey crypto.PublicKey, receipt *hubapi.Receipt) ([]notice, error) {
	if hubKey == nil || len(brought) == 0 {
		return brought, nil
	}
	rest, size := brought, 0
	err := r.db.View(func(tx *bbolt.Tx) error {
		s, err := open(tx)
		if err != nil {
			return err
		}
		all, err := s.acksOf(uid)
		for _, e := range all {
			ack, err := queue.OpenAck(e.Body, hubKey, uid)
			if err != nil {
				continue // of a hub whose key was pinned before
			}
			named := map[digest.Digest]bool{}
			for _, id := range ack.Reports {
				named[id] = true
			}
			left := slices.DeleteFunc(slices.Clone(rest), func(n notice) bool { return named[n.id] })
			if len(left) == len(rest) || size+len(e.Body) > maxAnswerBytes {
				continue
			}
			size += len(e.Body)
			receipt.Acks = append(receipt.Acks, bytes.Clone(e.Body))
			receipt.Duplicates += len(rest) - len(left)
			rest = left
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return rest, nil
}
