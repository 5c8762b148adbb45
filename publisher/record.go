package publisher

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/scheduler"
)

// publishedRecord describes a record as one that was there before.
func publishedRecord(at state.Record, result releases.Outcome) PublishedRecord {
	if at.Verified == nil {
		return PublishedRecord{Result: result}
	}
	return PublishedRecord{Result: result, Sequence: at.Verified.Record.Sequence, Digest: at.Verified.Descriptor.Digest}
}

// recorded maps each cluster type that the environment of result has to its newest release. One that has left
// is in the map only as long as its last assignments stand.
func (d *Published) recorded(result *scheduler.Result) map[string]digest.Digest {
	types := map[string]digest.Digest{}
	for _, ct := range d.ClusterTypes {
		left := !slices.ContainsFunc(result.ClusterTypes, func(r scheduler.ClusterTypeResult) bool { return r.Name == ct.ClusterType })
		newest := ct.releaseOf("").Digest
		if newest != "" && (!left || ct.Result == releases.OutcomeFailed || ct.assigns) {
			types[ct.ClusterType] = newest
		}
	}
	return types
}

// ringReleases maps each of the cluster types of a record to what its rings have; nil where the platform names no
// rings.
func (d *Published) ringReleases(types map[string]digest.Digest) map[string]map[string]digest.Digest {
	var all map[string]map[string]digest.Digest
	for _, ct := range d.ClusterTypes {
		if _, listed := types[ct.ClusterType]; !listed {
			continue
		}
		if all == nil {
			all = map[string]map[string]digest.Digest{}
		}
		all[ct.ClusterType] = ct.byRing()
	}
	return all
}

// incomplete names the cluster types that are not as the commit says. While a registration's source cannot
// be read, or a policy fails, all may lack something of it.
func (d *Published) incomplete(types map[string]digest.Digest, unknown bool) []string {
	var names []string
	for _, ct := range d.ClusterTypes {
		_, listed := types[ct.ClusterType]
		if ct.Result == releases.OutcomeFailed || len(ct.Failures)+len(ct.Dropped)+len(ct.FailedSites) > 0 || listed && unknown {
			names = append(names, ct.ClusterType)
		}
	}
	slices.Sort(names)
	return names
}

// newRecord returns what the environment of result consists of once done was done, without its place.
func (p *publication) newRecord(done Published, result *scheduler.Result, last state.Record) bundle.EnvironmentRecord {
	types := done.recorded(result)
	r := bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: p.Platform, Environment: p.Environment, IssuedAt: p.IssuedAt,
		BaseCommit: p.commits.base, BaseID: p.commits.baseID, EnvironmentCommit: p.commits.environment, ClusterTypes: types,
		Incomplete: done.incomplete(types, p.unknowns.any()), Undone: p.stillUndone(last),
	}
	if len(p.rings) > 0 {
		r.Rings, r.RingOrder = done.ringReleases(types), p.rings
	}
	return r
}

// publishRecord signs next with its ledger, which take the place of the record at with the ledger last, unless those say the same. Waits
// says that a release which next names waits for signatures.
func (p *publication) publishRecord(ctx context.Context, at state.Record, next bundle.EnvironmentRecord, last, workloads *ledger.Ledger, waits bool) (PublishedRecord, error) {
	pending, err := p.PendingRecord(ctx, at)
	if err != nil {
		return PublishedRecord{}, err
	}
	next.Epoch, next.Sequence = p.Trust.Epoch, 0
	if v := at.Verified; v != nil && v.Record.Epoch == next.Epoch {
		if at.Current && pending == nil && !at.Taken && sameRecord(v.Record, next) && !p.sayAgain(ledger.Compare(last, workloads), v.Record.IssuedAt) {
			moved, err := releases.Settle(ctx, at.Repo, v.Descriptor, v.Record.Tag(), []string{bundle.LatestTag}, at.Tags)
			if moved {
				return publishedRecord(at, releases.OutcomePublished), err
			}
			return publishedRecord(at, releases.OutcomeUnchanged), err
		}
		next.Sequence = v.Record.Sequence
	}
	out := outgoing{
		repo: at.Repo, repository: bundle.EnvironmentRepository(next.Environment), seen: at.Tags, epoch: next.Epoch,
		moving: []string{bundle.LatestTag}, withheld: waits,
	}
	switch {
	case pending != nil && sameRecord(pending.Record, next) && p.hasLedger(ctx, at, pending, workloads):
		out.waiting, next.Sequence = &pending.Descriptor, pending.Record.Sequence
	default:
		if pending != nil {
			next.Sequence = pending.Record.Sequence
		}
		if next.Sequence, err = at.Next(next.Epoch, next.Sequence, p.IssuedAt); err != nil {
			return PublishedRecord{}, err
		}
	}
	out.sequence = next.Sequence
	s, err := p.put(ctx, out, func() (releases.Artifact, error) {
		return p.maker().record(next, stamp(workloads, ledger.RecordOf(next), next.IssuedAt))
	})
	return PublishedRecord{Result: s.result, Sequence: next.Sequence, Digest: s.digest, Signatures: s.signatures}, err
}

// ProofsEvery is the least time between a record and the next one that says nothing new but proofs.
const ProofsEvery = 10 * time.Minute

// sayAgain reports whether a record that was issued at a time is followed by one whose ledger alone differs. New proofs come [ProofsEvery] at
// most, new commits of sources if they are asked for, and neither is a reason to ask people for signatures.
func (p *publication) sayAgain(d ledger.Difference, issued time.Time) bool {
	alone := len(p.signer.Keys) >= p.Trust.Need()
	return d.Content || alone && (d.Proofs && p.IssuedAt.Sub(issued) >= ProofsEvery || d.Commits && p.opts.Commits)
}

// hasLedger reports whether a record that waits for signatures has this ledger.
func (p *publication) hasLedger(ctx context.Context, at state.Record, pending *bundle.VerifiedEnvironment, workloads *ledger.Ledger) bool {
	l, err := at.Ledger(ctx, pending)
	d := ledger.Compare(l, stamp(workloads, ledger.RecordOf(pending.Record), pending.Record.IssuedAt))
	return err == nil && !d.Content && !d.Proofs
}

// sameRecord reports whether a and b say the same of the environment, whenever they were issued.
func sameRecord(a, b bundle.EnvironmentRecord) bool {
	return a.Platform == b.Platform && a.BaseCommit == b.BaseCommit && a.BaseID == b.BaseID && a.EnvironmentCommit == b.EnvironmentCommit &&
		maps.Equal(a.ClusterTypes, b.ClusterTypes) && maps.EqualFunc(a.Rings, b.Rings, maps.Equal) && slices.Equal(a.RingOrder, b.RingOrder) && slices.Equal(a.Incomplete, b.Incomplete)
}
