package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/hub/store"
)

// Candidate is what an environment would get from another one: what is in the newest record of that; or a ring from the ring before it.
type Candidate struct {
	Platform    string
	Environment string
	From        string
	Ring        string // empty for the environment
	// Record is that of From, with the commit and its time of issue. Message is that of who published a release of it.
	Record     digest.Digest
	BaseCommit string
	IssuedAt   time.Time
	Message    string
	Incomplete []string
	// Contents are as a decision names them.
	Contents map[string]digest.Digest
	// Changes are the workloads whose versions would change, by cluster type, workspace and workload. Unknown counts those without a
	// version: content differs between environments, so nobody can tell here whether they would change.
	Changes []CandidateChange
	Unknown int
}

// CandidateChange is a workload on a cluster type, with the versions that its assignments have and would get. A workload that comes has none
// before, one that goes none after.
type CandidateChange struct {
	Type, Workspace, Workload string
	Before, After             []string
}

// Candidate returns what an environment of a platform would get from another one, or if ring is not empty what that would get from the ring before
// it; from is the environment itself then. The error wraps store.ErrOutOfScope if the view does not see all of both, store.ErrUnknownRelease if
// the hub lacks the record or a release, and store.ErrInvalid if there is nothing to get.
func (v *View) Candidate(ctx context.Context, platform, from, environment, ring string) (Candidate, error) {
	c := Candidate{Platform: platform, Environment: environment, From: from, Ring: ring}
	if !v.seesAll() || !v.seesEnvironment(from) || !v.seesEnvironment(environment) {
		return c, fmt.Errorf("what %s would get from %s: %w", environment, from, store.ErrOutOfScope)
	}
	m, done, err := v.moment(ctx, Query{}, false)
	if err != nil {
		return c, err
	}
	defer done()
	source := m.published.index.environments[bundle.Stream{Platform: platform, Environment: from}]
	if source == nil {
		return c, fmt.Errorf("environment %q: %w", store.Plain(store.Clip(from)), store.ErrUnknownRelease)
	}
	record := source.newest()
	c.Record, c.BaseCommit, c.IssuedAt, c.Incomplete = record.Digest, record.BaseCommit, record.IssuedAt, record.Incomplete
	had := map[string]digest.Digest{} // releases, by cluster type
	var gets map[string]digest.Digest
	if ring == "" {
		gets = source.releases()
		if target := m.published.index.environments[bundle.Stream{Platform: platform, Environment: environment}]; target != nil {
			had = target.releases()
		}
	} else {
		step, err := m.published.step(record, ring)
		if err != nil {
			return c, err
		}
		gets, c.BaseCommit, c.IssuedAt, c.Incomplete = step.Releases, step.BaseCommit, step.IssuedAt, step.Incomplete
		for typ := range gets {
			had[typ] = record.Rings[typ][ring]
		}
	}
	trees := map[string]digest.Digest{}
	for _, typ := range slices.Sorted(maps.Keys(gets)) {
		r := m.published.releases[gets[typ]]
		if r == nil {
			return c, fmt.Errorf("release of %s in %s: %w", typ, from, store.ErrUnknownRelease)
		}
		trees[typ], c.Message = r.Content.DiffID, cmp.Or(c.Message, r.Message)
	}
	c.Contents = bundle.DecisionContents(trees)
	return c, v.compareVersions(ctx, m, &c, had, gets)
}

// releases returns the newest release of each cluster type; empty for one that the hub lacks.
func (e *environmentIndex) releases() map[string]digest.Digest {
	record, all := e.newest(), map[string]digest.Digest{}
	for _, typ := range record.Types() {
		all[typ] = e.NewestOf(&record.EnvironmentRecord, typ)
	}
	return all
}

// step returns what a ring is to get by a record.
func (p *published) step(record *store.PublishedRecord, ring string) (*lineage.RingStep, error) {
	at := slices.Index(record.RingOrder, ring)
	if at < 1 {
		return nil, fmt.Errorf("%w: no ring is before ring %q", store.ErrInvalid, store.Plain(store.Clip(ring)))
	}
	step, err := lineage.StepOf(record.EnvironmentRecord, record.RingOrder[at-1], ring, "", func(_ string, d digest.Digest) (*bundle.Release, error) { return p.release(d), nil })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnknownRelease, err)
	}
	if step == nil {
		return nil, fmt.Errorf("%w: ring %s has what ring %s has", store.ErrInvalid, ring, record.RingOrder[at-1])
	}
	return step, nil
}

// compareVersions fills in what would change between two sets of releases.
func (v *View) compareVersions(ctx context.Context, m *moment, c *Candidate, had, gets map[string]digest.Digest) error {
	before, err := v.versions(ctx, m, had)
	if err != nil {
		return err
	}
	after, err := v.versions(ctx, m, gets)
	if err != nil {
		return err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for of := range all {
		switch {
		case !slices.Equal(before[of], after[of]):
			c.Changes = append(c.Changes, CandidateChange{of.typ, of.workspace, of.workload, before[of], after[of]})
		case slices.Contains(after[of], ""):
			c.Unknown++
		}
	}
	slices.SortFunc(c.Changes, func(a, b CandidateChange) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Workload, b.Workload))
	})
	return nil
}

// workloadOn is a workload on a cluster type.
type workloadOn struct{ typ, workspace, workload string }

// versions returns what releases have, sorted, each once.
func (v *View) versions(ctx context.Context, m *moment, releases map[string]digest.Digest) (map[workloadOn][]string, error) {
	all := map[workloadOn][]string{}
	for typ, d := range releases {
		r, err := v.fleet.contentsOf(ctx, m.published, d)
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue
		}
		for _, a := range r.Assignments {
			of := workloadOn{typ, a.Workspace, a.Workload}
			if at, known := slices.BinarySearch(all[of], a.Version); !known {
				all[of] = slices.Insert(all[of], at, a.Version)
			}
		}
	}
	return all, nil
}
