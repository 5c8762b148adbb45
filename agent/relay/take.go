package relay

import (
	"bytes"
	"crypto"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// notice is the envelope of a report as far as a relay looks into it.
type notice struct {
	index    int // in the request
	id       digest.Digest
	name     string // of the cluster, as claimed
	envelope []byte
}

// peek checks the form of an envelope that was sent as the cluster uid.
func peek(index int, envelope []byte, uid string) (notice, *hubapi.Rejection) {
	n := notice{index: index}
	reject := func(code hubapi.Code, format string, args ...any) (notice, *hubapi.Rejection) {
		return n, &hubapi.Rejection{
			Index: index, ID: n.id, Cluster: uid, Reason: code, Permanent: true, Message: bundle.Clip(fmt.Sprintf(format, args...)),
		}
	}
	if len(envelope) > bundle.MaxReportBytes {
		return reject(hubapi.CodeTooLarge, "it has %d bytes, at most %d", len(envelope), bundle.MaxReportBytes)
	}
	claim, err := bundle.PeekReport(envelope)
	n.id, n.name = claim.ID, nameOf(claim.Cluster.Name)
	switch {
	case err != nil:
		return reject(hubapi.CodeBadReport, "%v", err)
	case claim.Signatures < 1 || claim.Signatures > hubapi.MaxSignatures:
		return reject(hubapi.CodeBadReport, "it has %d signatures, 1 to %d are allowed", claim.Signatures, hubapi.MaxSignatures)
	case claim.Cluster.UID != uid:
		return reject(hubapi.CodeWrongCluster, "it speaks for cluster %q and was sent as %q", claim.Cluster.UID, uid)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, envelope); err != nil {
		return reject(hubapi.CodeBadReport, "%v", err)
	}
	n.envelope = plain.Bytes()
	return n, nil
}

// Take stores the reports of the cluster uid that fit, the newest first, and returns the answer to the agent. What the
// receipt calls accepted or a duplicate is on the disk, or the hub has acknowledged it; what did not fit is among the
// rejected, which are not permanent. hubKey verifies stored acknowledgements; nil uses none.
func (r *Relay) Take(uid string, envelopes []json.RawMessage, hubKey crypto.PublicKey, now time.Time) (hubapi.Receipt, error) {
	receipt := hubapi.Receipt{Relayed: true, Rejected: []hubapi.Rejection{}}
	var brought []notice
	for i, e := range envelopes {
		n, refused := peek(i, e, uid)
		if refused != nil {
			receipt.Rejected = append(receipt.Rejected, *refused)
			continue
		}
		brought = append(brought, n)
	}
	open, err := r.unacknowledged(uid, brought, hubKey, &receipt)
	if err != nil || len(open) == 0 {
		return receipt, err
	}
	var left []notice
	var stored int
	err = r.db.UpdateIf(func(tx *bbolt.Tx) (changed bool, err error) {
		stored, left, changed, err = r.store(tx, uid, open, state.Stamp(now))
		return changed, err
	})
	if err != nil {
		return hubapi.Receipt{}, err
	}
	receipt.Accepted = stored
	receipt.Duplicates += len(open) - stored - len(left)
	for _, n := range left {
		receipt.Rejected = append(receipt.Rejected, hubapi.Rejection{
			Index: n.index, ID: n.id, Cluster: uid, Reason: hubapi.CodeUnavailable, Message: fullMessage,
		})
	}
	return receipt, nil
}

// fullMessage tells an agent why it has to keep its reports for now.
const fullMessage = "the relay has no room for more reports until somebody carries them away"

// store stores what fits of the reports that are not there yet, and returns how many these are and what is left.
func (r *Relay) store(tx *bbolt.Tx, uid string, all []notice, now time.Time) (stored int, left []notice, changed bool, err error) {
	s, err := open(tx)
	if err != nil {
		return 0, nil, false, err
	}
	cluster, _, err := s.clusters.Get([]byte(uid))
	if err != nil {
		return 0, nil, false, err
	}
	rows, err := s.rowsOf(uid)
	if err != nil {
		return 0, nil, false, err
	}
	known := map[string]row{}
	for _, row := range rows {
		known[string(row.key())] = row
	}
	var fresh []notice
	crowded := 2*cluster.Reports > r.limits.ClusterReports || 2*cluster.Bytes > r.limits.ClusterBytes
	for _, n := range all {
		key := string(reportKey(uid, n.id, digest.FromBytes(n.envelope)))
		row, there := known[key]
		if !there {
			fresh = append(fresh, n)
			known[key] = row // the request may have it twice
			continue
		}
		// Half empty, nothing will have to make room soon, and the disk is spared.
		if row.Arrival > 0 && crowded && now.Sub(row.Offered).Abs() >= refreshAfter {
			row.Offered = now
			known[key] = row
			if err := s.reports.Note(row.key(), row.stored); err != nil {
				return 0, nil, false, err
			}
			changed = true
		}
	}
	if len(fresh) == 0 {
		return 0, nil, changed, nil
	}
	var lapsed []row
	for _, row := range rows {
		if row := known[string(row.key())]; now.Sub(row.Offered) >= lapsedAfter {
			lapsed = append(lapsed, row)
		}
	}
	fits, gone := r.choose(s.status(), cluster, fresh, lapsed)
	for _, row := range lapsed[:gone] {
		if err := s.remove(row); err != nil {
			return 0, nil, false, err
		}
	}
	for i, n := range fresh {
		if !fits[i] {
			left = append(left, n)
			continue
		}
		if err := s.insert(n, uid, now); err != nil {
			return 0, nil, false, err
		}
		stored++
	}
	return stored, left, changed || stored+gone > 0, nil
}

// choose returns which of the fresh reports of a cluster fit, the last ones first, since they have the present; and how
// many of its lapsed reports have to go for that. Reports of other clusters never do.
func (r *Relay) choose(all Status, cluster Cluster, fresh []notice, lapsed []row) (fits []bool, gone int) {
	fits = make([]bool, len(fresh))
	if cluster.Reports == 0 && all.Clusters >= r.limits.Clusters {
		return fits, 0
	}
	room := struct {
		reports int
		bytes   int64
	}{
		min(r.limits.ClusterReports-cluster.Reports, r.limits.Reports-all.Reports),
		min(r.limits.ClusterBytes-cluster.Bytes, r.limits.Bytes-all.Bytes),
	}
	for i := len(fresh) - 1; i >= 0; i-- {
		size := int64(len(fresh[i].envelope))
		enough := func() bool { return room.reports >= 1 && room.bytes >= size }
		next, reports, bytes := gone, room.reports, room.bytes
		for ; !enough() && next < len(lapsed); next++ {
			room.reports, room.bytes = room.reports+1, room.bytes+int64(lapsed[next].Size)
		}
		if !enough() {
			room.reports, room.bytes = reports, bytes
			continue
		}
		fits[i], gone = true, next
		room.reports, room.bytes = room.reports-1, room.bytes-size
	}
	return fits, gone
}
