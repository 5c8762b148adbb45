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
	"github.com/wherry-dev/wherry/hub/store"
)

// Candidate is what an environment would get from another one: what is in the newest record of that.
type Candidate struct {
	Platform    string
	Environment string
	From        string
	// Record is that of From, with its commit and its time of issue. Message is that of who published a release of it.
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

// Candidate returns what an environment of a platform would get from another one. The error wraps store.ErrOutOfScope if the view does not see
// all of both, and store.ErrUnknownRelease if the hub lacks the record or a release.
func (v *View) Candidate(ctx context.Context, platform, from, environment string) (Candidate, error) {
	c := Candidate{Platform: platform, Environment: environment, From: from}
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
	trees := map[string]digest.Digest{}
	for _, typ := range record.Types() {
		r := m.published.releases[source.NewestOf(&record.EnvironmentRecord, typ)]
		if r == nil {
			return c, fmt.Errorf("release of %s in %s: %w", typ, from, store.ErrUnknownRelease)
		}
		trees[typ], c.Message = r.Content.DiffID, cmp.Or(c.Message, r.Message)
	}
	c.Contents = bundle.DecisionContents(trees)
	after, err := v.versions(ctx, m, source)
	if err != nil {
		return c, err
	}
	before, err := v.versions(ctx, m, m.published.index.environments[bundle.Stream{Platform: platform, Environment: environment}])
	if err != nil {
		return c, err
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for of := range all {
		had, gets := before[of], after[of]
		switch {
		case slices.Equal(had, gets) && slices.Contains(gets, ""):
			c.Unknown++
		case !slices.Equal(had, gets):
			c.Changes = append(c.Changes, CandidateChange{of.typ, of.workspace, of.workload, had, gets})
		}
	}
	slices.SortFunc(c.Changes, func(a, b CandidateChange) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Workload, b.Workload))
	})
	return c, nil
}

// workloadOn is a workload on a cluster type.
type workloadOn struct{ typ, workspace, workload string }

// versions returns what the newest releases of an environment have, sorted, each once; nothing for nil.
func (v *View) versions(ctx context.Context, m *moment, e *environmentIndex) (map[workloadOn][]string, error) {
	all := map[workloadOn][]string{}
	if e == nil {
		return all, nil
	}
	record := e.newest()
	for _, typ := range record.Types() {
		r, err := v.fleet.contentsOf(ctx, m.published, e.NewestOf(&record.EnvironmentRecord, typ))
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
