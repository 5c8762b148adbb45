package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/store"
)

const (
	// maxArtifacts bounds the artifacts of one cluster that one import takes: there may be any number in the registry.
	// The newest are taken first, and the next import goes on.
	maxArtifacts = 1000
	// collectors bounds the clusters whose repositories are read at once.
	collectors = 8
)

// collectAll implements Hub.Collect.
func (in intake) collectAll(ctx context.Context, from oci.Store) (ImportResult, error) {
	result := ImportResult{Rejected: []hubapi.Rejection{}, Clusters: []ImportedCluster{}}
	all, err := in.store.Registrations(ctx)
	if err != nil {
		return result, err
	}
	var mu sync.Mutex
	var failed []error
	next := make(chan store.Registration)
	var workers sync.WaitGroup
	for range min(collectors, len(all)) {
		workers.Go(func() {
			for r := range next {
				one, rejected, err := in.collect(ctx, from, r)
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

// joinFirst keeps an error short if a registry is away and thousands of clusters fail by that.
func joinFirst(all []error) error {
	if len(all) <= 1 {
		return errors.Join(all...)
	}
	return fmt.Errorf("%w; and of %d more", all[0], len(all)-1)
}

// add counts a cluster, unless there were no reports of it.
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
	order store.Order
	plain bool // the tag is that order and nothing more
}

func (in intake) collect(ctx context.Context, from oci.Store, r store.Registration) (counts ImportedCluster, rejected []hubapi.Rejection, err error) {
	counts = ImportedCluster{UID: r.UID, Name: r.Name}
	repo, err := from.Repository(bundle.ReportRepository(r.UID))
	if err != nil {
		return counts, nil, err
	}
	fresh, err := in.freshArtifacts(ctx, repo, r.UID)
	if err != nil || len(fresh) == 0 {
		return counts, nil, err
	}
	counts.Left = max(0, len(fresh)-maxArtifacts)
	keys, err := in.keyring(ctx, r.UID)
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
		t, err := in.keep(ctx, r.UID, verified, bad, store.ViaRegistry)
		if err != nil {
			return counts, rejected, err
		}
		counts.Accepted, counts.Duplicates = counts.Accepted+t.accepted, counts.Duplicates+t.duplicates
		rejected = append(append(rejected, refused...), t.rejected...)
		counts.Rejected = len(rejected)
		if store.OrderOf(t.newest).Compare(store.OrderOf(newest)) > 0 {
			newest = t.newest
		}
	}
	if newest.Seq == 0 {
		return counts, rejected, nil
	}
	return counts, rejected, in.pushAck(ctx, repo, r.UID, newest)
}

// freshArtifacts returns the artifacts whose newest report is not stored, newest first. An artifact whose tag is more than
// its order is always among them: another artifact has that order.
func (in intake) freshArtifacts(ctx context.Context, repo oci.Target, uid string) (fresh []artifact, err error) {
	tags, err := repo.Tags(ctx)
	if err != nil {
		return nil, err
	}
	for _, tag := range tags {
		incarnation, seq, plain, ok := bundle.ParseReportTag(tag)
		if !ok {
			continue
		}
		a := artifact{tag, store.Order{Incarnation: incarnation, Seq: seq}, plain}
		known := false
		if plain {
			known, err = in.store.Has(ctx, uid, a.order)
		}
		if err != nil {
			return nil, err
		}
		if !known {
			fresh = append(fresh, a)
		}
	}
	slices.SortFunc(fresh, func(a, b artifact) int { return b.order.Compare(a.order) })
	return fresh, nil
}

// fetchArtifact returns the envelopes behind a tag: none if the agent has deleted it meanwhile. If the artifact does not hold
// reports, it is rejected as a whole.
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

// pushAck acknowledges the stored reports of the cluster, from the oldest that its agent still keeps, and moves the tag
// there. An agent that misses one acknowledgement loses nothing: the next one names all reports that it still keeps.
func (in intake) pushAck(ctx context.Context, repo oci.Target, uid string, newest bundle.ReportAgent) error {
	incarnation, seq, _, ok := bundle.ParseReportTag(newest.Oldest)
	if !ok { // an older agent: assume that it keeps no earlier report
		incarnation, seq = newest.Incarnation, newest.Seq
	}
	ids, err := in.store.From(ctx, uid, store.Order{Incarnation: incarnation, Seq: seq}, maxAckReports)
	if err != nil || len(ids) == 0 {
		return err
	}
	envelope, err := in.sign.ack(uid, ids)
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
	return in.replaceAck(ctx, repo, blobs[len(blobs)-1].Descriptor)
}

// replaceAck moves the tag, and deletes the former acknowledgement if the registry allows it: one for each heartbeat would
// fill the registry.
func (in intake) replaceAck(ctx context.Context, repo oci.Target, to ocispec.Descriptor) error {
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
		in.log.Debug("former acknowledgement stays in the registry", "digest", before.Digest, "err", err)
	}
	return nil
}
