package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
)

const (
	// maxArtifacts bounds what one import takes of one cluster's reports: whoever writes to the registry may have put
	// any number there. The newest are taken first, and the next import goes on.
	maxArtifacts = 1000
	// collectors is how many clusters' repositories are read at once.
	collectors = 8
)

// Collect stores the reports of all registered clusters that lie in a registry, and puts a signed acknowledgement
// beside those of each cluster of which there were new ones. The rules are those of Import. What has been
// collected before is not fetched again. Several may collect at once. With an error, what the result counts
// is stored, and the clusters that it does not name could not be read.
func (h *Hub) Collect(ctx context.Context, store oci.Store) (ImportResult, error) {
	result := ImportResult{Rejected: []hubapi.Rejection{}, Clusters: []ImportedCluster{}}
	all, err := h.Registrations(ctx)
	if err != nil {
		return result, err
	}
	var mu sync.Mutex
	var failed []error
	next := make(chan Registration)
	var workers sync.WaitGroup
	for range min(collectors, len(all)) {
		workers.Go(func() {
			for r := range next {
				one, rejected, err := h.collect(ctx, store, r)
				mu.Lock()
				if err != nil {
					failed = append(failed, fmt.Errorf("reports of cluster %s: %w", r.Name, err))
				}
				result.add(one, rejected)
				mu.Unlock()
			}
		})
	}
	for _, r := range all {
		if ctx.Err() != nil {
			break
		}
		next <- r
	}
	close(next)
	workers.Wait()
	slices.SortFunc(result.Clusters, func(a, b ImportedCluster) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(result.Rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return result, cmp.Or(ctx.Err(), joinFirst(failed))
}

// joinFirst keeps an error short where a registry is away and each of thousands of clusters says so.
func joinFirst(all []error) error {
	if len(all) <= 1 {
		return errors.Join(all...)
	}
	return fmt.Errorf("%w; and of %d more", all[0], len(all)-1)
}

// add counts a cluster of which something was there.
func (r *ImportResult) add(c ImportedCluster, rejected []hubapi.Rejection) {
	if c.Accepted+c.Duplicates+c.Rejected+c.Left == 0 {
		return
	}
	r.Accepted += c.Accepted
	r.Duplicates += c.Duplicates
	r.Clusters = append(r.Clusters, c)
	r.Rejected = append(r.Rejected, rejected...)
}

// artifact is a tag of the registry that claims to hold reports.
type artifact struct {
	tag   string
	order order
	plain bool // the tag is nothing but that order
}

func (h *Hub) collect(ctx context.Context, store oci.Store, r Registration) (counts ImportedCluster, rejected []hubapi.Rejection, err error) {
	counts = ImportedCluster{UID: r.UID, Name: r.Name}
	repo, err := store.Repository(bundle.ReportRepository(r.UID))
	if err != nil {
		return counts, nil, err
	}
	fresh, err := h.freshArtifacts(ctx, repo, r.UID)
	if err != nil || len(fresh) == 0 {
		return counts, nil, err
	}
	counts.Left = max(0, len(fresh)-maxArtifacts)
	keys, err := h.keyring(ctx, r.UID)
	if err != nil {
		return counts, nil, err
	}
	var newest bundle.ReportAgent
	for _, a := range fresh[:min(len(fresh), maxArtifacts)] {
		all, refused, err := fetchArtifact(ctx, repo, a.tag, r.UID)
		if err != nil {
			return counts, rejected, err
		}
		verified, bad := keys.openAll(all)
		s, err := h.keep(ctx, r.UID, verified, bad, ViaRegistry)
		if err != nil {
			return counts, rejected, err
		}
		counts.Accepted, counts.Duplicates = counts.Accepted+s.accepted, counts.Duplicates+s.duplicates
		rejected = append(append(rejected, refused...), s.rejected...)
		counts.Rejected = len(rejected)
		if at := (order{s.newest.Incarnation, s.newest.Seq}); at.compare(order{newest.Incarnation, newest.Seq}) > 0 {
			newest = s.newest
		}
	}
	if newest.Seq == 0 {
		return counts, rejected, nil
	}
	return counts, rejected, h.pushAck(ctx, repo, r.UID, newest)
}

// freshArtifacts lists those whose newest report is not stored, the newest first. Those of a tag that is more than an
// order are always looked at: another one has taken their order.
func (h *Hub) freshArtifacts(ctx context.Context, repo oci.Target, uid string) (fresh []artifact, err error) {
	tags, err := repo.Tags(ctx)
	if err != nil {
		return nil, err
	}
	for _, tag := range tags {
		incarnation, seq, plain, ok := bundle.ParseReportTag(tag)
		if !ok {
			continue
		}
		a := artifact{tag, order{incarnation, seq}, plain}
		known := false
		if plain {
			err = h.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM report r JOIN cluster c ON c.id = r.cluster_id
				WHERE c.uid = ? AND r.incarnation = ? AND r.seq = ?)`, uid, incarnation, seq).Scan(&known)
		}
		if err != nil {
			return nil, classify(err)
		}
		if !known {
			fresh = append(fresh, a)
		}
	}
	slices.SortFunc(fresh, func(a, b artifact) int { return b.order.compare(a.order) })
	return fresh, nil
}

// fetchArtifact reads the envelopes that a tag names. One that is gone, because its agent has deleted it, has none;
// one that is no such artifact is refused as a whole.
func fetchArtifact(ctx context.Context, repo oci.Target, tag, uid string) (all []unopened, rejected []hubapi.Rejection, err error) {
	manifest, err := repo.Resolve(ctx, tag)
	var envelopes [][]byte
	if err == nil {
		envelopes, err = bundle.FetchReports(ctx, repo, manifest)
	}
	var refusal *bundle.Refusal
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return nil, nil, nil
	case errors.As(err, &refusal):
		u := unopened{cluster: uid, id: manifest.Digest}
		return nil, []hubapi.Rejection{*u.reject(hubapi.CodeBadReport, "tag %s: %v", tag, refusal)}, nil
	case err != nil:
		return nil, nil, err
	}
	for i, e := range envelopes {
		u, refused := peek(i, e, uid)
		if refused != nil {
			rejected = append(rejected, *refused)
			continue
		}
		all = append(all, u)
	}
	return all, rejected, nil
}

// pushAck acknowledges what is stored of the cluster from the oldest report on that its agent keeps, as its newest
// one says, and moves the tag there. Who reads it later than the next one misses nothing: that names what the
// agent still keeps then.
func (h *Hub) pushAck(ctx context.Context, repo oci.Target, uid string, newest bundle.ReportAgent) error {
	incarnation, seq, _, ok := bundle.ParseReportTag(newest.Oldest)
	if !ok { // an agent that does not say keeps at most what it says now
		incarnation, seq = newest.Incarnation, newest.Seq
	}
	ids, err := h.storedFrom(ctx, uid, order{incarnation, seq})
	if err != nil || len(ids) == 0 {
		return err
	}
	envelope, err := h.sealAck(uid, ids)
	if err != nil {
		return err
	}
	blobs, err := bundle.StoredAcks([][]byte{envelope})
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if _, err := oci.CopyBlob(ctx, nil, repo, b.WithData()); err != nil {
			return err
		}
	}
	return h.replaceAck(ctx, repo, blobs[len(blobs)-1].Descriptor)
}

// replaceAck moves the tag, and deletes what it named before, where the registry lets it: an acknowledgement for each
// heartbeat would fill it.
func (h *Hub) replaceAck(ctx context.Context, repo oci.Target, to ocispec.Descriptor) error {
	before, err := repo.Resolve(ctx, bundle.AckTag)
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		return err
	}
	if err := repo.Tag(ctx, to, bundle.AckTag); err != nil {
		return err
	}
	if before.Digest == "" || before.Digest == to.Digest {
		return nil
	}
	if err := repo.Delete(ctx, before); err != nil {
		h.log.Debug("former acknowledgement stays in the registry", "digest", before.Digest, "err", err)
	}
	return nil
}

// storedFrom returns the ids of the oldest reports of a cluster from that order on, as many as fit in one
// acknowledgement. The next one goes on from there, once the agent has deleted these.
func (h *Hub) storedFrom(ctx context.Context, uid string, from order) (ids []digest.Digest, err error) {
	rows, err := h.read.QueryContext(ctx, `SELECT r.id FROM report r JOIN cluster c ON c.id = r.cluster_id
		WHERE c.uid = ? AND (r.incarnation, r.seq) >= (?, ?) ORDER BY r.incarnation, r.seq LIMIT ?`,
		uid, from.incarnation, from.seq, maxAckReports)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, digest.Digest(id))
	}
	return ids, classify(rows.Err())
}
