// Package relay keeps the reports of other agents of a site for somebody who carries them to the hub, and the hub's
// acknowledgements for these agents.
//
// Begin with New on an agent's state file. Handler takes reports in the hub's protocol; View lists them for a file; and
// Acknowledge takes what the hub has answered, which Handler hands over with its next answers.
//
// Nothing of a report is believed but its form, since a relay knows no keys of other agents: it is an envelope of a report,
// of bounded size, that names the cluster as which it was sent. So whoever reaches the endpoint can fill the share of a
// cluster. That harms nobody else, and loses nothing: an agent keeps its reports until the hub has signed for them, and
// offers them again. What Handler has answered for is on the disk, as package queue guarantees. Acknowledgements are believed
// only with the signature of the pinned hub key, here and by the agents.
package relay

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
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

// The queues of the state file.
const (
	queueReports  = "relay-reports"  // uid, 0, report id, digest of the envelope: stored, and the envelope
	queueClusters = "relay-clusters" // uid: Cluster
	queueAcks     = "relay-acks"     // uid, 0, arrival: nothing more, and the envelope
)

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
func ReadStatus(tx *bbolt.Tx) (Status, error) {
	s, err := open(tx)
	if err != nil {
		return Status{}, err
	}
	return s.status(), nil
}

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
		s, err := open(tx)
		if err != nil {
			return err
		}
		for c, err := range s.clusters.From(nil) {
			if err != nil {
				return err
			}
			all = append(all, c.Note)
		}
		return nil
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
		s, err := open(tx)
		if err != nil {
			return err
		}
		var all []Stored
		for c, err := range s.clusters.From(nil) {
			if err != nil {
				return err
			}
			rows, err := s.rowsOf(c.Note.UID)
			if err != nil {
				return err
			}
			for _, row := range rows {
				all = append(all, Stored{row.uid, row.envelope, int64(row.Size), func() ([]byte, error) { return s.reports.Body(row.key()) }})
			}
		}
		return f(all)
	})
}

// Drop deletes the reports of a cluster, and the acknowledgements for it. It returns the number of reports. The cluster's
// agent, if there is one, offers its reports again.
func (r *Relay) Drop(uid string) (n int, err error) {
	err = r.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		n = 0
		s, err := open(tx)
		if err != nil {
			return false, err
		}
		rows, err := s.rowsOf(uid)
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			if err := s.remove(row); err != nil {
				return false, err
			}
		}
		acks, err := s.acksOf(uid)
		for _, a := range acks {
			if err == nil {
				err = s.acks.Delete(a.Key)
			}
		}
		n = len(rows)
		return n+len(acks) > 0, err
	})
	return n, err
}

// stored is the note of a report.
type stored struct {
	Arrival uint64 `json:"arrival"`
	Size    int    `json:"size"`
	// Offered is when its agent has offered it last, as far as that was noted.
	Offered time.Time `json:"offered"`
}

// row is a report that is stored.
type row struct {
	stored
	uid          string
	id, envelope digest.Digest
}

func (r row) key() []byte { return reportKey(r.uid, r.id, r.envelope) }

// prefix is what the keys of a cluster's reports, and of its acknowledgements, begin with.
func prefix(uid string) []byte { return append([]byte(uid), 0) }

// reportKey begins with the uid, so that the reports of a cluster are together; then comes the id, which acknowledgements
// name. Two envelopes of one report are both kept: a forged signature must not keep the true one out.
func reportKey(uid string, id, envelope digest.Digest) []byte {
	return append(append(prefix(uid), rawOf(id)...), rawOf(envelope)...)
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

func rowOf(e queue.Entry[stored]) (row, error) {
	uid, rest, ok := bytes.Cut(e.Key, []byte{0})
	if !ok || len(rest) != 2*sha256.Size {
		return row{}, fmt.Errorf("%s %x: %w", queueReports, e.Key, state.ErrDamaged)
	}
	return row{e.Note, string(uid), digestOf(rest[:sha256.Size]), digestOf(rest[sha256.Size:])}, nil
}

// shelf is the relay within a transaction.
type shelf struct {
	reports  *queue.Queue[stored]
	clusters *queue.Queue[Cluster]
	acks     *queue.Queue[struct{}]
}

func open(tx *bbolt.Tx) (*shelf, error) {
	reports, err1 := queue.Open[stored](tx, queueReports)
	clusters, err2 := queue.Open[Cluster](tx, queueClusters)
	acks, err3 := queue.Open[struct{}](tx, queueAcks)
	return &shelf{reports, clusters, acks}, errors.Join(err1, err2, err3)
}

func (s *shelf) status() Status {
	return Status{s.clusters.Entries, s.reports.Entries, s.reports.Bytes, s.acks.Entries, s.acks.Bytes}
}

// rowsWith returns the reports whose key begins with prefix, by arrival.
func (s *shelf) rowsWith(prefix []byte) (rows []row, err error) {
	for e, err := range s.reports.With(prefix) {
		if err != nil {
			return nil, err
		}
		r, err := rowOf(e)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return rows, nil
}

func (s *shelf) rowsOf(uid string) ([]row, error) { return s.rowsWith(prefix(uid)) }

// insert stores one report more.
func (s *shelf) insert(n notice, uid string, now time.Time) error {
	arrival, err := s.reports.NextKey()
	if err != nil {
		return err
	}
	c, known, err := s.clusters.Get([]byte(uid))
	if err != nil {
		return err
	}
	if !known {
		c = Cluster{UID: uid, Since: now}
	}
	c.Name, c.Last = n.name, now
	c.Reports, c.Bytes = c.Reports+1, c.Bytes+int64(len(n.envelope))
	if known {
		err = s.clusters.Note([]byte(uid), c)
	} else {
		err = s.clusters.Put([]byte(uid), c, nil)
	}
	r := row{stored{Arrival: arrival, Size: len(n.envelope), Offered: now}, uid, n.id, digest.FromBytes(n.envelope)}
	return errors.Join(err, s.reports.Put(r.key(), r.stored, n.envelope))
}

// remove deletes a report, and the cluster with its last one.
func (s *shelf) remove(r row) error {
	if err := s.reports.Delete(r.key()); err != nil {
		return err
	}
	c, _, err := s.clusters.Get([]byte(r.uid))
	if err != nil {
		return err
	}
	c.Reports, c.Bytes = c.Reports-1, c.Bytes-int64(r.Size)
	if c.Reports > 0 {
		return s.clusters.Note([]byte(r.uid), c)
	}
	return s.clusters.Delete([]byte(r.uid))
}

// nameOf is a cluster's name as its report claims it, if it has the form of one.
func nameOf(claimed string) string {
	if !bundle.IsClusterName(claimed) {
		return ""
	}
	return claimed
}
