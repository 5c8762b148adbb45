package publisher

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

func (rd *reader) recordRepository() (oci.Target, error) {
	return rd.store.Repository(bundle.EnvironmentRepository(rd.environment))
}

// recordStanding is what an environment's repository of records holds.
type recordStanding struct {
	tags releases.Tags
	// verified is the newest record that is trusted, nil where there is none; current says whether it is signed as the
	// trust in force asks.
	verified *bundle.VerifiedEnvironment
	current  bool
	// taken means that verified's own tag names another record; see standing.taken.
	taken bool
}

// has reports whether the record names releases of a cluster type.
func (s recordStanding) has(clusterType string) bool {
	return s.verified != nil && len(s.verified.Record.ReleasesOf(clusterType)) > 0
}

// published describes the record as one that was there before.
func (s recordStanding) published(result releases.Outcome) PublishedRecord {
	if s.verified == nil {
		return PublishedRecord{Result: result}
	}
	return PublishedRecord{Result: result, Sequence: s.verified.Record.Sequence, Digest: s.verified.Descriptor.Digest}
}

// readRecord finds the newest record that is trusted, as look finds a release.
func (rd *reader) readRecord(ctx context.Context) (s recordStanding, err error) {
	repo, err := rd.recordRepository()
	if err != nil {
		return s, err
	}
	if s.tags, err = releases.ReadTags(ctx, repo); err != nil {
		return s, err
	}
	foreign := "" // the newest says it for all
	for _, tag := range s.tags.Releases() {
		if s.verified, s.current, err = rd.verifyRecord(ctx, repo, tag); err != nil {
			return s, err
		}
		if s.verified != nil {
			break
		}
		foreign = cmp.Or(foreign, tag)
	}
	latest := s.tags.Moving[bundle.LatestTag]
	var v *bundle.VerifiedEnvironment
	var current bool
	if latest != "" && (s.verified == nil || latest != s.verified.Descriptor.Digest) {
		if v, current, err = rd.verifyRecord(ctx, repo, bundle.LatestTag); v == nil {
			foreign = cmp.Or(foreign, bundle.LatestTag)
		}
	}
	if foreign != "" && err == nil {
		rd.warn("%s:%s is not a record %s", rd.to.Name(bundle.EnvironmentRepository(rd.environment)), foreign, rd.trust.SignedText())
	}
	if v != nil && (s.verified == nil || recordOrder(v).Compare(recordOrder(s.verified)) > 0) {
		s.current, s.verified, s.taken = current, v, slices.Contains(s.tags.All, v.Record.Tag())
	}
	return s, err
}

// verifyRecord returns nil for what is not trusted, not there in full, or of another environment.
// For current see trust.Recognise.
func (rd *reader) verifyRecord(ctx context.Context, repo oci.Target, tag string) (v *bundle.VerifiedEnvironment, current bool, err error) {
	desc, err := repo.Resolve(ctx, tag)
	if err == nil {
		v, current, err = trust.Recognise(rd.trust, func(t bundle.Trust) (*bundle.VerifiedEnvironment, error) {
			return bundle.VerifyEnvironment(ctx, repo, desc, t)
		})
	}
	if err := releases.UnlessRefused(err); err != nil {
		return nil, false, err
	}
	if v == nil || v.Record.Tag() != tag && tag != bundle.LatestTag || v.Record.Environment != rd.environment || v.Record.Epoch > rd.trust.Epoch {
		return nil, false, nil
	}
	if v.Record.Platform != rd.platform {
		return nil, false, usage.Errorf("the records there are of the platform %q, this one is %q: publish to another prefix, or name the platform",
			v.Record.Platform, rd.platform)
	}
	return v, current, nil
}

func recordOrder(v *bundle.VerifiedEnvironment) bundle.Order {
	return bundle.Order{Epoch: v.Record.Epoch, Sequence: v.Record.Sequence, IssuedAt: v.Record.IssuedAt, Digest: v.Descriptor.Digest}
}

// recorded maps each cluster type that the environment of result has to its newest release. One that has left
// is in the map only as long as its last assignments stand.
func (d *Published) recorded(result *scheduler.Result) map[string]digest.Digest {
	types := map[string]digest.Digest{}
	for _, ct := range d.ClusterTypes {
		left := !slices.ContainsFunc(result.ClusterTypes, func(r scheduler.ClusterTypeResult) bool { return r.Name == ct.ClusterType })
		newest := ct.Digest
		if len(result.Rings) > 0 {
			newest = ct.releaseOf("").Digest
		}
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
		if ct.Result == releases.OutcomeFailed || len(ct.Failures)+len(ct.Dropped) > 0 || listed && unknown {
			names = append(names, ct.ClusterType)
		}
	}
	slices.Sort(names)
	return names
}

// newRecordOf returns what the environment consists of now, without its place.
func (p *publication) newRecordOf(types map[string]digest.Digest) bundle.EnvironmentRecord {
	r := bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: p.done.Platform, Environment: p.done.Environment, IssuedAt: p.issuedAt,
		BaseCommit: p.done.BaseCommit, EnvironmentCommit: p.done.EnvironmentCommit, ClusterTypes: types,
		Incomplete: p.done.incomplete(types, p.unknown()),
	}
	if len(p.rings) > 0 {
		r.Rings = p.done.ringReleases(types)
	}
	return r
}

// publishRecord signs a record, unless the last one says the same.
func (p *publication) publishRecord(ctx context.Context, record bundle.EnvironmentRecord) error {
	repo, err := p.recordRepository()
	if err != nil {
		return err
	}
	moving := []string{bundle.LatestTag}
	pending, err := p.pendingRecord(ctx, repo, p.record)
	if err != nil {
		return err
	}
	record.Epoch, record.Sequence = p.trust.Epoch, 0
	if last := p.record.verified; last != nil && last.Record.Epoch == record.Epoch {
		if p.record.current && pending == nil && !p.record.taken && sameRecord(last.Record, record) {
			moved, err := releases.Settle(ctx, repo, last.Descriptor, last.Record.Tag(), moving, p.record.tags)
			p.done.Record = p.record.published(releases.OutcomeUnchanged)
			if moved {
				p.done.Record.Result = releases.OutcomePublished
			}
			return err
		}
		record.Sequence = last.Record.Sequence
	}
	if pending != nil && sameRecord(pending.Record, record) {
		have, _, err := p.cosign(ctx, repo, bundle.EnvironmentRepository(record.Environment), pending.Descriptor.Digest)
		if err != nil {
			return err
		}
		return p.releaseRecord(ctx, repo, pending.Descriptor, pending.Record, have)
	}
	if pending != nil {
		record.Sequence = pending.Record.Sequence
	}
	if record.Sequence, err = p.record.tags.Next(record.Epoch, record.Sequence, p.issuedAt); err != nil {
		return err
	}
	a, err := p.newRecord(record)
	if err != nil {
		return err
	}
	if err := push(ctx, repo, a); err != nil {
		return err
	}
	return p.releaseRecord(ctx, repo, a.manifest.Descriptor, record, len(p.keys))
}

// releaseRecord makes a record visible that is there in full: to all if as many keys have signed it as have to,
// and no release that it names waits for signatures; else to those who are to sign it.
func (p *publication) releaseRecord(ctx context.Context, repo oci.Target, desc ocispec.Descriptor, r bundle.EnvironmentRecord, have int) error {
	p.done.Record = PublishedRecord{Result: releases.OutcomePublished, Sequence: r.Sequence, Digest: desc.Digest}
	if need := p.trust.Need(); have < need || p.done.Pending() > 0 {
		p.done.Record.Result, p.done.Record.Signatures = releases.OutcomePending, &SignatureCount{have, need}
		return wait(ctx, repo, desc, releases.PendingTag(r.Epoch, r.Sequence))
	}
	_, err := releases.Settle(ctx, repo, desc, r.Tag(), []string{bundle.LatestTag}, p.record.tags)
	return err
}

// sameRecord reports whether a and b say the same of the environment, whenever they were issued.
func sameRecord(a, b bundle.EnvironmentRecord) bool {
	return a.Platform == b.Platform && a.BaseCommit == b.BaseCommit && a.EnvironmentCommit == b.EnvironmentCommit &&
		maps.Equal(a.ClusterTypes, b.ClusterTypes) && maps.EqualFunc(a.Rings, b.Rings, maps.Equal) && slices.Equal(a.Incomplete, b.Incomplete)
}

func (p *publication) newRecord(record bundle.EnvironmentRecord) (artifact, error) {
	doc, err := record.Marshal()
	if err != nil {
		return artifact{}, err
	}
	config := bundle.NewBlob(bundle.MediaTypeEnvironment, doc)
	// Registries and tools expect a layer; the specification's empty one stands for none.
	empty := bundle.Blob{Descriptor: ocispec.DescriptorEmptyJSON, Data: ocispec.DescriptorEmptyJSON.Data}
	a := artifact{blobs: []bundle.Blob{config, empty}}
	m := ocispec.Manifest{
		ArtifactType: bundle.MediaTypeEnvironment, Config: config.Descriptor, Layers: []ocispec.Descriptor{empty.Descriptor},
		Annotations: p.annotations(record.Environment, record.Tag()),
	}
	err = p.finish(&a, m, bundle.EnvironmentRepository(record.Environment))
	return a, err
}
