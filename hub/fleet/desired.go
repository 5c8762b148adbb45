package fleet

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/hub/store"
)

// desiredIndex finds what clusters should run.
type desiredIndex struct {
	// environments are by stream, without a cluster type; named has the same by the name of the environment.
	environments map[bundle.Stream]*environmentIndex
	named        map[string][]*environmentIndex
	// streams are the releases of each stream, oldest first.
	streams map[bundle.Stream][]*store.PublishedRelease
}

// environmentIndex is an environment of a platform of which there is a record.
type environmentIndex struct {
	*lineage.Environment
	// records are oldest first; there is at least one.
	records []*store.PublishedRecord
	place   float64 // in the chain; see desiredIndex.chain
}

func (e *environmentIndex) newest() *store.PublishedRecord { return e.records[len(e.records)-1] }

// newDesiredIndex returns the index of all that p has.
func newDesiredIndex(p *published) desiredIndex {
	x := desiredIndex{
		environments: map[bundle.Stream]*environmentIndex{}, named: map[string][]*environmentIndex{}, streams: map[bundle.Stream][]*store.PublishedRelease{},
	}
	for _, r := range p.ordered {
		x.streams[r.Stream()] = append(x.streams[r.Stream()], r)
	}
	for _, r := range p.records {
		at := bundle.Stream{Platform: r.Platform, Environment: r.Environment}
		e := x.environments[at]
		if e == nil {
			e = &environmentIndex{Environment: lineage.New(at, p.release)}
			x.environments[at], x.named[at.Environment] = e, append(x.named[at.Environment], e)
		}
		e.records = append(e.records, r)
		e.Add(&r.EnvironmentRecord)
	}
	x.chain()
	return x
}

func releaseOrder(r *store.PublishedRelease) bundle.Order { return bundle.OrderOf(r.Release, r.Digest) }

// mayTake reports whether agents of a ring may take a release; an empty ring means agents without one.
func mayTake(r *store.PublishedRelease, ring string) bool {
	return len(r.Rings) == 0 || slices.Contains(r.Rings, ring)
}

// environmentOf returns the environment of a cluster; nil if there are no records of it. A cluster that is registered
// without a platform belongs to the only one that has the environment or, of several, to the only one that has its type.
func (x *desiredIndex) environmentOf(id store.Identity) *environmentIndex {
	if id.Platform != "" {
		return x.environments[bundle.Stream{Platform: id.Platform, Environment: id.Environment}]
	}
	all := x.named[id.Environment]
	if len(all) > 1 {
		all = slices.DeleteFunc(slices.Clone(all), func(e *environmentIndex) bool { return !slices.Contains(e.newest().Types(), id.Type) })
	}
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

// releaseFor returns the release that a record means for agents of a cluster type and ring; empty if there is none. Agents
// of a ring that the record does not name, or may not take its release, should have the newest that they may take: so
// do agents follow them.
func (p *published) releaseFor(e *environmentIndex, record *store.PublishedRecord, typ, ring string) digest.Digest {
	named := record.ReleaseOf(typ, ring)
	if named == "" && len(record.Rings[typ]) == 0 {
		named = record.ClusterTypes[typ]
	}
	r := p.releases[named]
	if named != "" && (r == nil || mayTake(r, ring)) {
		return named
	}
	all := p.index.streams[bundle.Stream{Platform: e.Stream.Platform, Environment: e.Stream.Environment, ClusterType: typ}]
	for _, other := range slices.Backward(all) {
		if mayTake(other, ring) && (r == nil || releaseOrder(other).Compare(releaseOrder(r)) <= 0) {
			return other.Digest
		}
	}
	return ""
}

// desiredOf returns what a cluster that runs observed should run; nil if that is unknown. Only platform, environment, type
// and ring of the identity are set; observed may be nil. The result is shared.
func (p *published) desiredOf(id store.Identity, observed *bundle.ReportRelease) *Desired {
	e := p.index.environmentOf(id)
	if e == nil {
		return nil
	}
	m := &Desired{Relation: Nothing}
	named := p.releaseFor(e, e.newest(), id.Type, id.Ring)
	desired := p.releases[named]
	switch {
	case desired != nil:
		m.Release = reportRelease(desired)
	case named != "":
		m.Release = &bundle.ReportRelease{Digest: named}
	}
	if observed == nil {
		return m
	}
	runs := p.releases[observed.Digest]
	stream := bundle.Stream{Platform: e.Stream.Platform, Environment: e.Stream.Environment, ClusterType: id.Type}
	switch {
	case observed.Digest == named:
		m.Relation = Current
	case runs == nil || runs.Stream() != stream:
		m.Relation = Foreign
	case desired != nil && sameContent(runs, desired):
		m.Relation = Current
	case named == "" || desired != nil && releaseOrder(runs).Compare(releaseOrder(desired)) > 0:
		m.Relation = Ahead
	default:
		m.Relation = Behind
		p.countBehind(m, runs, desired, id.Ring)
		if desired == nil { // the record names it, and the hub has not learned it
			if m.Behind++; m.BehindSince.IsZero() {
				m.BehindSince = e.newest().IssuedAt
			}
		}
	}
	return m
}

// sameContent reports whether two releases of a stream bring the same: one is the other, signed anew.
func sameContent(a, b *store.PublishedRelease) bool {
	return a.Content.DiffID == b.Content.DiffID && a.Content.DiffID != ""
}

// countBehind counts the releases after the one that runs, up to the desired one, or to the newest if that is nil. A release
// with the content of the one before it brings nothing, and does not count.
func (p *published) countBehind(m *Desired, runs, desired *store.PublishedRelease, ring string) {
	last := runs
	for _, r := range p.index.streams[runs.Stream()] {
		if releaseOrder(r).Compare(releaseOrder(runs)) <= 0 || desired != nil && releaseOrder(r).Compare(releaseOrder(desired)) > 0 || !mayTake(r, ring) {
			continue
		}
		if sameContent(last, r) {
			continue
		}
		last = r
		if m.Behind++; m.Behind == 1 {
			m.BehindSince = r.IssuedAt
		}
	}
}

func reportRelease(r *store.PublishedRelease) *bundle.ReportRelease {
	return &bundle.ReportRelease{
		Digest: r.Digest, Epoch: r.Epoch, Sequence: r.Sequence, Number: r.Number,
		BaseCommit: r.BaseCommit, EnvironmentCommit: r.EnvironmentCommit, IssuedAt: r.IssuedAt,
	}
}
