package hub

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// ImportResult is the result of an import.
type ImportResult struct {
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	// Rejected is in the order of the envelopes.
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

// Untrusted reports whether a report was rejected because no registered key vouches for it.
func (r ImportResult) Untrusted() bool {
	return slices.ContainsFunc(r.Rejected, func(r hubapi.Rejection) bool { return r.Reason.Untrusted() })
}

// Bounds of the envelopes that importEach has in memory.
const (
	maxChunkReports = 5000
	maxChunkBytes   = 32 << 20
)

// importEach implements Hub.ImportEach.
func (in intake) importEach(ctx context.Context, each func(take func(envelope []byte) error) error, via store.Via) (ImportResult, error) {
	result := ImportResult{Rejected: []hubapi.Rejection{}, Clusters: []ImportedCluster{}}
	var chunk [][]byte
	done, size := 0, 0
	flush := func() error {
		one, err := in.importAll(ctx, chunk, via)
		if err == nil {
			result.join(one, done)
		}
		done, size, chunk = done+len(chunk), 0, nil
		return err
	}
	err := each(func(envelope []byte) error {
		if len(chunk) == maxChunkReports || len(chunk) > 0 && size+len(envelope) > maxChunkBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		chunk, size = append(chunk, envelope), size+len(envelope)
		return nil
	})
	if err == nil {
		err = flush()
	}
	slices.SortFunc(result.Clusters, func(a, b ImportedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return result, err
}

// join adds the result for the envelopes that begin at index from.
func (r *ImportResult) join(one ImportResult, from int) {
	r.Accepted, r.Duplicates = r.Accepted+one.Accepted, r.Duplicates+one.Duplicates
	for _, x := range one.Rejected {
		x.Index += from
		r.Rejected = append(r.Rejected, x)
	}
	for _, c := range one.Clusters {
		i := slices.IndexFunc(r.Clusters, func(k ImportedCluster) bool { return k.UID == c.UID })
		if i < 0 {
			r.Clusters = append(r.Clusters, c)
			continue
		}
		k := &r.Clusters[i]
		k.Accepted, k.Duplicates, k.Rejected = k.Accepted+c.Accepted, k.Duplicates+c.Duplicates, k.Rejected+c.Rejected
	}
}

// importAll implements Hub.Import.
func (in intake) importAll(ctx context.Context, envelopes [][]byte, via store.Via) (ImportResult, error) {
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
		if err := in.importCluster(ctx, uid, byCluster[uid], via, &result); err != nil {
			return ImportResult{}, err
		}
	}
	slices.SortFunc(result.Rejected, func(a, b hubapi.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(result.Clusters, func(a, b ImportedCluster) int { return cmp.Compare(a.Name, b.Name) })
	return result, nil
}

func (in intake) importCluster(ctx context.Context, uid string, all []unopened, via store.Via, result *ImportResult) error {
	keys, err := in.keyring(ctx, uid)
	if errors.Is(err, store.ErrUnknownCluster) {
		for _, u := range all {
			result.Rejected = append(result.Rejected, *u.reject(hubapi.CodeUnknownCluster, "cluster %q is not registered", u.cluster))
		}
		return nil
	}
	if errors.Is(err, store.ErrRetired) {
		for _, u := range all {
			result.Rejected = append(result.Rejected, *u.reject(hubapi.CodeRetired, "%v", err))
		}
		return nil
	}
	if err != nil {
		return err
	}
	known, err := in.store.Registered(ctx, uid)
	if err != nil {
		return err
	}
	counts := ImportedCluster{UID: uid, Name: known.Name}
	for batch := range slices.Chunk(all, hubapi.MaxReports) {
		verified, rejected := keys.openAll(batch)
		t, err := in.keep(ctx, uid, verified, rejected, via)
		if err != nil {
			return err
		}
		counts.Accepted += t.accepted
		counts.Duplicates += t.duplicates
		counts.Rejected += len(t.rejected)
		result.Rejected = append(result.Rejected, t.rejected...)
	}
	result.Accepted += counts.Accepted
	result.Duplicates += counts.Duplicates
	result.Clusters = append(result.Clusters, counts)
	return nil
}
