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

func (p *publication) recordRepository() (oci.Target, error) {
	return p.store.Repository(bundle.EnvironmentRepository(p.done.Environment))
}

// readRecord finds the newest record that our key signed, as look finds a release.
func (p *publication) readRecord(ctx context.Context) error {
	repo, err := p.recordRepository()
	if err != nil {
		return err
	}
	p.record, p.recordTaken = nil, false
	if p.recordTags, err = releases.ReadTags(ctx, repo); err != nil {
		return err
	}
	foreign := "" // the newest says it for all
	for _, tag := range p.recordTags.Releases() {
		if p.record, p.recordCurrent, err = p.verifyRecord(ctx, repo, tag); err != nil {
			return err
		}
		if p.record != nil {
			break
		}
		foreign = cmp.Or(foreign, tag)
	}
	latest := p.recordTags.Moving[bundle.LatestTag]
	var v *bundle.VerifiedEnvironment
	var current bool
	if latest != "" && (p.record == nil || latest != p.record.Descriptor.Digest) {
		if v, current, err = p.verifyRecord(ctx, repo, bundle.LatestTag); v == nil {
			foreign = cmp.Or(foreign, bundle.LatestTag)
		}
	}
	if foreign != "" && err == nil {
		p.warn("%s:%s is not a record %s", p.to.Name(bundle.EnvironmentRepository(p.done.Environment)), foreign, p.trust.SignedText())
	}
	if v != nil && (p.record == nil || recordOrder(v).Compare(recordOrder(p.record)) > 0) {
		p.recordCurrent, p.record, p.recordTaken = current, v, slices.Contains(p.recordTags.All, v.Record.Tag())
	}
	return err
}

// verifyRecord returns nil for what is not trusted, not there in full, or of another environment.
// For current see recognise.
func (p *publication) verifyRecord(ctx context.Context, repo oci.Target, tag string) (v *bundle.VerifiedEnvironment, current bool, err error) {
	desc, err := repo.Resolve(ctx, tag)
	if err == nil {
		v, current, err = trust.Recognise(p.trust, func(t bundle.Trust) (*bundle.VerifiedEnvironment, error) {
			return bundle.VerifyEnvironment(ctx, repo, desc, t)
		})
	}
	if err := releases.UnlessRefused(err); err != nil {
		return nil, false, err
	}
	if v == nil || v.Record.Tag() != tag && tag != bundle.LatestTag || v.Record.Environment != p.done.Environment || v.Record.Epoch > p.trust.Epoch {
		return nil, false, nil
	}
	if v.Record.Platform != p.done.Platform {
		return nil, false, usage.Errorf("the records there are of the platform %q, this one is %q: publish to another prefix, or name the platform",
			v.Record.Platform, p.done.Platform)
	}
	return v, current, nil
}

func recordOrder(v *bundle.VerifiedEnvironment) bundle.Order {
	return bundle.Order{Epoch: v.Record.Epoch, Sequence: v.Record.Sequence, IssuedAt: v.Record.IssuedAt, Digest: v.Descriptor.Digest}
}

// standingRecord describes the record that was there before.
func (p *publication) standingRecord(result releases.Outcome) PublishedRecord {
	if p.record == nil {
		return PublishedRecord{Result: result}
	}
	return PublishedRecord{Result: result, Sequence: p.record.Record.Sequence, Digest: p.record.Descriptor.Digest}
}

// clusterTypes maps each cluster type that the environment has to its newest release. One that has left
// is in the map only as long as its last assignments stand.
func (p *publication) clusterTypes(result *scheduler.Result) map[string]digest.Digest {
	types := map[string]digest.Digest{}
	for _, ct := range p.done.ClusterTypes {
		left := !slices.ContainsFunc(result.ClusterTypes, func(r scheduler.ClusterTypeResult) bool { return r.Name == ct.ClusterType })
		d := ct.Digest
		if len(p.rings) > 0 {
			d = ct.releaseOf("").Digest
		}
		if d != "" && (!left || ct.Result == releases.OutcomeFailed || ct.assigns) {
			types[ct.ClusterType] = d
		}
	}
	return types
}

// ringReleases maps each of the cluster types of a record to what its rings have; nil where the platform names no
// rings.
func (p *publication) ringReleases(types map[string]digest.Digest) map[string]map[string]digest.Digest {
	var all map[string]map[string]digest.Digest
	for _, ct := range p.done.ClusterTypes {
		if _, listed := types[ct.ClusterType]; !listed || len(p.rings) == 0 {
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
func (p *publication) incomplete(types map[string]digest.Digest) []string {
	var names []string
	for _, ct := range p.done.ClusterTypes {
		_, listed := types[ct.ClusterType]
		if ct.Result == releases.OutcomeFailed || len(ct.Failures)+len(ct.Dropped) > 0 || listed && p.unknown() {
			names = append(names, ct.ClusterType)
		}
	}
	slices.Sort(names)
	return names
}

// newRecordOf returns what the environment consists of now, without its place.
func (p *publication) newRecordOf(types map[string]digest.Digest) bundle.EnvironmentRecord {
	return bundle.EnvironmentRecord{
		Schema: bundle.EnvironmentSchema, Platform: p.done.Platform, Environment: p.done.Environment, IssuedAt: p.issuedAt,
		BaseCommit: p.done.BaseCommit, EnvironmentCommit: p.done.EnvironmentCommit, ClusterTypes: types, Rings: p.ringReleases(types),
		Incomplete: p.incomplete(types),
	}
}

// publishRecord signs a record, unless the last one says the same.
func (p *publication) publishRecord(ctx context.Context, record bundle.EnvironmentRecord) error {
	repo, err := p.recordRepository()
	if err != nil {
		return err
	}
	moving := []string{bundle.LatestTag}
	pending, err := p.pendingRecord(ctx, repo)
	if err != nil {
		return err
	}
	record.Epoch, record.Sequence = p.trust.Epoch, 0
	if last := p.record; last != nil && last.Record.Epoch == record.Epoch {
		if p.recordCurrent && pending == nil && !p.recordTaken && sameRecord(last.Record, record) {
			moved, err := releases.Settle(ctx, repo, last.Descriptor, last.Record.Tag(), moving, p.recordTags)
			p.done.Record = p.standingRecord(releases.OutcomeUnchanged)
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
	if record.Sequence, err = p.recordTags.Next(record.Epoch, record.Sequence, p.issuedAt); err != nil {
		return err
	}
	a, err := p.newRecord(record)
	if err != nil {
		return err
	}
	if err := p.push(ctx, repo, a); err != nil {
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
	_, err := releases.Settle(ctx, repo, desc, r.Tag(), []string{bundle.LatestTag}, p.recordTags)
	return err
}

// sameRecord says whether a and b say the same of the environment, whenever they were issued.
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
