package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// ImportResult is what became of imported reports.
type ImportResult struct {
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	// Rejected is in the order of what was imported.
	Rejected []hubapi.Rejection `json:"rejected"`
	// Clusters is by name; clusters that are not registered are only in Rejected.
	Clusters []ImportedCluster `json:"clusters"`
}

// ImportedCluster counts the reports of one cluster.
type ImportedCluster struct {
	UID        string `json:"uid"`
	Name       string `json:"name"`
	Accepted   int    `json:"accepted"`
	Duplicates int    `json:"duplicates"`
	Rejected   int    `json:"rejected"`
	// Left counts the artifacts of a registry that the next import will take.
	Left int `json:"left,omitempty"`
}

// Untrusted says whether a report was rejected because nobody registered vouches for it.
func (r ImportResult) Untrusted() bool {
	return slices.ContainsFunc(r.Rejected, func(r hubapi.Rejection) bool { return r.Reason.Untrusted() })
}

// Import verifies and stores envelopes of reports of any clusters. When it returns nil, all that the
// result counts as accepted or duplicate is on disk; with an error some of it may be, and importing
// again is safe.
func (h *Hub) Import(ctx context.Context, envelopes [][]byte, via Via) (ImportResult, error) {
	result := ImportResult{Rejected: []hubapi.Rejection{}, Clusters: []ImportedCluster{}}
	byCluster := map[string][]unopened{}
	var uids []string
	for i, e := range envelopes {
		u, refused := peek(i, e, "")
		if refused != nil {
			result.Rejected = append(result.Rejected, *refused)
			continue
		}
		if byCluster[u.cluster] == nil {
			uids = append(uids, u.cluster)
		}
		byCluster[u.cluster] = append(byCluster[u.cluster], u)
	}
	for _, uid := range uids {
		if err := h.importCluster(ctx, uid, byCluster[uid], via, &result); err != nil {
			return ImportResult{}, err
		}
	}
	slices.SortFunc(result.Rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(result.Clusters, func(a, b ImportedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return result, nil
}

func (h *Hub) importCluster(ctx context.Context, uid string, all []unopened, via Via, result *ImportResult) error {
	keys, err := h.keyring(ctx, uid)
	if errors.Is(err, ErrUnknownCluster) {
		for _, u := range all {
			result.Rejected = append(result.Rejected, *u.reject(hubapi.CodeUnknownCluster, "cluster %q is not registered", u.cluster))
		}
		return nil
	}
	if errors.Is(err, ErrRetired) {
		for _, u := range all {
			result.Rejected = append(result.Rejected, *u.reject(hubapi.CodeRetired, "%v", err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	known, err := h.Registration(ctx, uid)
	if err != nil {
		return err
	}
	counts := ImportedCluster{UID: uid, Name: known.Name}
	for batch := range slices.Chunk(all, hubapi.MaxReports) {
		verified, rejected := keys.openAll(batch)
		s, err := h.keep(ctx, uid, verified, rejected, via)
		if err != nil {
			return err
		}
		counts.Accepted += s.accepted
		counts.Duplicates += s.duplicates
		counts.Rejected += len(s.rejected)
		result.Rejected = append(result.Rejected, s.rejected...)
	}
	result.Accepted += counts.Accepted
	result.Duplicates += counts.Duplicates
	result.Clusters = append(result.Clusters, counts)
	return nil
}

// keep stores the verified reports of one cluster, and adds those that were rejected to what it returns.
func (h *Hub) keep(ctx context.Context, uid string, verified []received, rejected []hubapi.Rejection, via Via) (stored, error) {
	var s stored
	if len(verified) > 0 {
		var err error
		if s, err = h.store(ctx, uid, verified, via); err != nil {
			return stored{}, err
		}
	}
	if len(verified) > 0 { // which are in order now
		s.newest = verified[len(verified)-1].body.Agent
	}
	s.rejected = append(rejected, s.rejected...)
	slices.SortFunc(s.rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	for _, r := range s.rejected {
		h.log.Warn("report refused", "cluster", uid, "report", r.ID, "reason", r.Reason, "message", r.Message)
	}
	return s, nil
}

// Acks are acknowledgements for the way back by media.
type Acks struct {
	// Envelopes holds one signed bundle.Ack or more for each cluster.
	Envelopes [][]byte
	// Reports is the number of reports that they name.
	Reports int

	ids []string
}

// maxAckReports bounds the reports that one acknowledgement names, so that its envelope stays below
// bundle.MaxReportBytes.
const maxAckReports = 5000

// Acks returns signed acknowledgements of the stored reports that came by media and for which
// MarkExported has not been called since; of the given clusters' uids, or of all.
func (h *Hub) Acks(ctx context.Context, uids ...string) (*Acks, error) {
	owed, order, err := h.owed(ctx, uids)
	if err != nil {
		return nil, err
	}
	a := &Acks{}
	for _, uid := range order {
		for ids := range slices.Chunk(owed[uid], maxAckReports) {
			envelope, err := h.sealAck(uid, ids)
			if err != nil {
				return nil, err
			}
			a.Envelopes = append(a.Envelopes, envelope)
			a.Reports += len(ids)
			for _, id := range ids {
				a.ids = append(a.ids, string(id))
			}
		}
	}
	return a, nil
}

// owed returns the ids of reports whose acknowledgement is owed, in order, by cluster, and the clusters
// by name.
func (h *Hub) owed(ctx context.Context, only []string) (ids map[string][]digest.Digest, clusters []string, err error) {
	rows, err := h.read.QueryContext(ctx, `SELECT c.uid, r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE r.ack_owed = 1 ORDER BY c.name, c.id, r.incarnation, r.seq`)
	if err != nil {
		return nil, nil, classify(err)
	}
	defer rows.Close()
	ids = map[string][]digest.Digest{}
	for rows.Next() {
		var uid, id string
		if err := rows.Scan(&uid, &id); err != nil {
			return nil, nil, err
		}
		if len(only) > 0 && !slices.Contains(only, uid) {
			continue
		}
		if ids[uid] == nil {
			clusters = append(clusters, uid)
		}
		ids[uid] = append(ids[uid], digest.Digest(id))
	}
	return ids, clusters, classify(rows.Err())
}

// MarkExported notes that the acknowledgements have been written to where they will travel from. A
// report that is imported again afterwards is owed one again.
func (h *Hub) MarkExported(ctx context.Context, a *Acks) error {
	for ids := range slices.Chunk(a.ids, maxAckReports) {
		err := h.writer.do(ctx, func(ctx context.Context, db *conn) error {
			for _, id := range ids {
				if _, err := db.exec(ctx, `UPDATE report SET ack_owed = 0 WHERE id = ?`, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("note acknowledgements as exported: %w", err)
		}
	}
	return nil
}

// sealAck signs that the reports of a cluster are stored. It is called only after their commit.
func (h *Hub) sealAck(uid string, ids []digest.Digest) ([]byte, error) {
	body, err := json.Marshal(bundle.Ack{Schema: bundle.ReportSchema, Cluster: uid, IssuedAt: h.now().UTC(), Reports: ids})
	if err != nil {
		return nil, err
	}
	return bundle.SealEnvelope(bundle.PayloadTypeAck, body, h.key)
}
