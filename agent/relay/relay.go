// Package relay keeps the reports of other agents of a site for somebody who carries them to the hub, and the hub's
// acknowledgements for these agents.
//
// Begin with New on an agent's state file. Handler takes reports in the hub's protocol; View lists them for a file; and
// Acknowledge takes what the hub has answered, which Handler hands over with its next answers.
//
// Nothing of a report is believed but its form, since a relay knows no keys of other agents: it is an envelope of a report,
// of bounded size, that names the cluster as which it was sent. So whoever reaches the endpoint can fill the share of a
// cluster. That harms nobody else, and loses nothing: an agent keeps its reports until the hub has signed for them, and
// offers them again. What Handler has answered for is on the disk. Acknowledgements are believed only with the signature
// of the pinned hub key, here and by the agents.
package relay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Limits bounds what a relay stores. Zero means the defaults.
type Limits struct {
	// Clusters bounds the clusters of which reports are stored.
	Clusters int
	// ClusterReports and ClusterBytes bound the reports of one cluster.
	ClusterReports int
	ClusterBytes   int64
	// Reports and Bytes bound the reports of all of them.
	Reports int
	Bytes   int64
}

func (l Limits) withDefaults() Limits {
	if l == (Limits{}) {
		return Limits{Clusters: 1000, ClusterReports: 2000, ClusterBytes: 8 << 20, Reports: 40_000, Bytes: 256 << 20}
	}
	return l
}

// Bounds of the acknowledgements that wait for their agents. One of the largest size names 5,000 reports.
const (
	maxClusterAcks = 8
	maxAcks        = 4000
	maxAckBytes    = 64 << 20
)

// The times of makeRoom.
const (
	// refreshAfter is how old the note of the last offer of a report may become.
	refreshAfter = hubapi.OfferAgain
	// lapsedAfter is the time after which a report that its agent has not offered again is superfluous: the agent's own
	// queue has coalesced it, or another than the agent has sent it.
	lapsedAfter = 3 * hubapi.OfferAgain
)

// The buckets, made with the first report or acknowledgement.
const (
	bucketReports  = "relay-reports"  // arrival: envelope
	bucketIndex    = "relay-index"    // uid, 0, report id, digest of the envelope: stored
	bucketClusters = "relay-clusters" // uid: cluster
	bucketAcks     = "relay-acks"     // arrival: ack

	keyTotals = "relay" // in state.Meta: Status
)

var buckets = []string{bucketReports, bucketIndex, bucketClusters, bucketAcks}

// Relay is the reports of other agents in a state file. It may be used by several goroutines.
type Relay struct {
	db     *state.DB
	limits Limits
}

// New returns the relay of a state file. It reads nothing.
func New(db *state.DB, limits Limits) *Relay { return &Relay{db, limits.withDefaults()} }

// Status is what a relay holds. Its JSON is part of the agent's status.
type Status struct {
	// Clusters counts those of which there are reports.
	Clusters int   `json:"clusters"`
	Reports  int   `json:"reports"`
	Bytes    int64 `json:"bytes"`
	// Acks counts acknowledgements that wait for their agents.
	Acks     int   `json:"acks"`
	AckBytes int64 `json:"ackBytes"`
}

// ReadStatus returns what the relay of a state file holds.
func ReadStatus(tx *bbolt.Tx) (Status, error) { return state.Load[Status](tx, state.Meta, keyTotals) }

// Status returns what the relay holds.
func (r *Relay) Status() (s Status, err error) {
	err = r.db.View(func(tx *bbolt.Tx) error { s, err = ReadStatus(tx); return err })
	return s, err
}

// Cluster is a cluster of which a relay holds reports.
type Cluster struct {
	UID string `json:"uid"`
	// Name is what the newest report calls it. Nobody has verified it.
	Name    string `json:"name,omitempty"`
	Reports int    `json:"reports"`
	Bytes   int64  `json:"bytes"`
	// Since is when the first of these reports came, and Last when the newest did.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

// Clusters returns the clusters of which the relay holds reports, by uid.
func (r *Relay) Clusters() (all []Cluster, err error) {
	all = []Cluster{}
	err = r.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketClusters))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			var c Cluster
			if err := json.Unmarshal(v, &c); err != nil {
				return fmt.Errorf("%s %s: %w: %v", bucketClusters, k, state.ErrDamaged, err)
			}
			all = append(all, c)
			return nil
		})
	})
	return all, err
}

// Stored is a report that a relay holds.
type Stored struct {
	UID    string
	Digest digest.Digest // of the envelope
	Size   int64
	// Envelope returns the envelope, which is valid until the function of View returns.
	Envelope func() ([]byte, error)
}

// View calls f with all reports, by cluster and arrival. They stay as they are until f returns, which may take its time.
func (r *Relay) View(f func([]Stored) error) error {
	return r.db.View(func(tx *bbolt.Tx) error {
		var all []Stored
		err := eachCluster(tx, func(uid string) error {
			rows, err := rowsOf(tx, uid)
			for _, row := range rows {
				all = append(all, Stored{uid, row.envelope, int64(row.Size), func() ([]byte, error) { return row.read(tx) }})
			}
			return err
		})
		if err != nil {
			return err
		}
		return f(all)
	})
}

// Drop deletes the reports of a cluster, and the acknowledgements for it. It returns the number of reports. The cluster's
// agent, if there is one, offers its reports again.
func (r *Relay) Drop(uid string) (n int, err error) {
	err = r.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		n = 0
		t, err := open(tx)
		if err != nil {
			return false, err
		}
		rows, err := rowsOf(tx, uid)
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			if err := t.remove(row); err != nil {
				return false, err
			}
		}
		acks, err := acksOf(tx, uid)
		for _, a := range acks {
			if err == nil {
				err = t.removeAck(a)
			}
		}
		n = len(rows)
		return n+len(acks) > 0, errors.Join(err, t.close())
	})
	return n, err
}

// row is a report in the index.
type row struct {
	Arrival uint64 `json:"arrival"`
	Size    int    `json:"size"`
	// Offered is when its agent has offered it last, as far as that was noted.
	Offered time.Time `json:"offered"`

	uid          string
	id, envelope digest.Digest
}

func arrivalKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (r row) key() []byte { return indexKey(r.uid, r.id, r.envelope) }

// indexKey begins with the uid, so that the reports of a cluster are together; then comes the id, which acknowledgements
// name. Two envelopes of one report are both kept: a forged signature must not keep the true one out.
func indexKey(uid string, id, envelope digest.Digest) []byte {
	k := append([]byte(uid), 0)
	k = append(k, rawOf(id)...)
	return append(k, rawOf(envelope)...)
}

// rawOf returns the bytes of a SHA-256 digest; of another digest, those of one that no report has.
func rawOf(d digest.Digest) []byte {
	if d.Validate() == nil && d.Algorithm() == digest.SHA256 {
		if raw, err := hex.DecodeString(d.Encoded()); err == nil {
			return raw
		}
	}
	return make([]byte, sha256.Size)
}

func digestOf(raw []byte) digest.Digest { return digest.NewDigestFromBytes(digest.SHA256, raw) }

func parseRow(k, v []byte) (row, error) {
	uid, rest, ok := bytes.Cut(k, []byte{0})
	var r row
	if err := json.Unmarshal(v, &r); err != nil || !ok || len(rest) != 2*sha256.Size {
		return r, fmt.Errorf("%s %x: %w", bucketIndex, k, state.ErrDamaged)
	}
	r.uid, r.id, r.envelope = string(uid), digestOf(rest[:sha256.Size]), digestOf(rest[sha256.Size:])
	return r, nil
}

func (r row) read(tx *bbolt.Tx) ([]byte, error) {
	envelope := tx.Bucket([]byte(bucketReports)).Get(arrivalKey(r.Arrival))
	if len(envelope) != r.Size {
		return nil, fmt.Errorf("%s %d: %w", bucketReports, r.Arrival, state.ErrDamaged)
	}
	return envelope, nil
}

// rowsWith returns the rows whose key begins with prefix, by arrival.
func rowsWith(tx *bbolt.Tx, prefix []byte) (rows []row, err error) {
	b := tx.Bucket([]byte(bucketIndex))
	if b == nil {
		return nil, nil
	}
	c := b.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		r, err := parseRow(k, v)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return rows, nil
}

func rowsOf(tx *bbolt.Tx, uid string) ([]row, error) { return rowsWith(tx, append([]byte(uid), 0)) }

func eachCluster(tx *bbolt.Tx, f func(uid string) error) error {
	b := tx.Bucket([]byte(bucketClusters))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, _ []byte) error { return f(string(k)) })
}

// shelf is the relay within a transaction that writes.
type shelf struct {
	tx *bbolt.Tx
	Status
	before Status
}

func open(tx *bbolt.Tx) (*shelf, error) {
	for _, b := range buckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return nil, err
		}
	}
	s, err := ReadStatus(tx)
	return &shelf{tx, s, s}, err
}

// close saves the totals.
func (s *shelf) close() error {
	if s.Status == s.before {
		return nil
	}
	return state.Save(s.tx, state.Meta, keyTotals, s.Status)
}

func (s *shelf) cluster(uid string) (Cluster, error) {
	return state.Load[Cluster](s.tx, bucketClusters, uid)
}

// insert stores one report more.
func (s *shelf) insert(n notice, uid string, now time.Time) error {
	reports := s.tx.Bucket([]byte(bucketReports))
	arrival, err := reports.NextSequence()
	if err != nil {
		return err
	}
	if err := reports.Put(arrivalKey(arrival), n.envelope); err != nil {
		return err
	}
	c, err := s.cluster(uid)
	if err != nil {
		return err
	}
	if c.Reports == 0 {
		c = Cluster{UID: uid, Since: now}
		s.Clusters++
	}
	c.Name, c.Last = n.name, now
	c.Reports, c.Bytes = c.Reports+1, c.Bytes+int64(len(n.envelope))
	s.Reports, s.Bytes = s.Reports+1, s.Bytes+int64(len(n.envelope))
	if err := state.Save(s.tx, bucketClusters, uid, c); err != nil {
		return err
	}
	return s.note(row{Arrival: arrival, Size: len(n.envelope), Offered: now, uid: uid, id: n.id, envelope: digest.FromBytes(n.envelope)})
}

func (s *shelf) note(r row) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.tx.Bucket([]byte(bucketIndex)).Put(r.key(), data)
}

// remove deletes a report, and the cluster with its last one.
func (s *shelf) remove(r row) error {
	if err := s.tx.Bucket([]byte(bucketReports)).Delete(arrivalKey(r.Arrival)); err != nil {
		return err
	}
	if err := s.tx.Bucket([]byte(bucketIndex)).Delete(r.key()); err != nil {
		return err
	}
	c, err := s.cluster(r.uid)
	if err != nil {
		return err
	}
	c.Reports, c.Bytes = c.Reports-1, c.Bytes-int64(r.Size)
	s.Reports, s.Bytes = s.Reports-1, s.Bytes-int64(r.Size)
	if c.Reports > 0 {
		return state.Save(s.tx, bucketClusters, r.uid, c)
	}
	s.Clusters--
	return state.Drop(s.tx, bucketClusters, r.uid)
}

// nameOf is a cluster's name as its report claims it, if it has the form of one.
func nameOf(claimed string) string {
	if !bundle.IsClusterName(claimed) {
		return ""
	}
	return claimed
}
