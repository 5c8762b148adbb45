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
	Platform    string `json:"platform"`
	Environment string `json:"environment"`
	From        string `json:"from"`
	// Ring is empty for the environment.
	Ring string `json:"ring,omitempty"`
	// Record is that of From, with the commit and its time of issue. Message is that of who published a release of it.
	Record     digest.Digest `json:"record"`
	BaseCommit string        `json:"baseCommit,omitempty"`
	IssuedAt   time.Time     `json:"issuedAt"`
	Message    string        `json:"message,omitempty"`
	Incomplete []string      `json:"incomplete,omitempty"`
	// Contents are as a decision names them.
	Contents map[string]digest.Digest `json:"contents"`
	// Releases are those of each cluster type, by its name.
	Releases []CandidateRelease `json:"releases"`
	// Changes are the workloads whose versions would change, by cluster type, workspace and workload. Unknown counts those without a
	// version: content differs between environments, so nobody can tell here whether they would change.
	Changes []CandidateChange `json:"changes"`
	Unknown int               `json:"unknown"`
	// Artifacts are the images and other artifacts that would change.
	Artifacts []ArtifactDiff `json:"artifacts"`
}

// CandidateRelease is the release of a cluster type that there is, empty for none, and the one whose content would come.
type CandidateRelease struct {
	Type   string        `json:"type"`
	Before digest.Digest `json:"before,omitempty"`
	After  digest.Digest `json:"after"`
}

// CandidateChange is a workload on a cluster type, with the versions that its assignments have and would get. A workload that comes has none
// before, one that goes none after.
type CandidateChange struct {
	Type      string   `json:"type"`
	Workspace string   `json:"workspace,omitempty"`
	Workload  string   `json:"workload"`
	Before    []string `json:"before,omitempty"`
	After     []string `json:"after,omitempty"`
}

// Candidate implements Answers.
func (v *View) Candidate(ctx context.Context, platform, from, environment, ring string) (Candidate, error) {
	if !v.seesAll() {
		return Candidate{}, fmt.Errorf("what %s would get: %w", store.Plain(store.Clip(environment)), store.ErrOutOfScope)
	}
	if ring != "" {
		from = environment
	}
	if platform == "" || from == "" {
		all, err := v.Environments(ctx, Query{Platform: platform})
		if err != nil {
			return Candidate{}, err
		}
		if at := slices.IndexFunc(all.Environments, func(e Environment) bool { return e.Environment == environment }); at >= 0 && platform == "" {
			platform = all.Environments[at].Platform
		}
		if from == "" {
			from = all.Before(platform, environment)
		}
		if from == "" {
			return Candidate{}, fmt.Errorf("nothing tells which environment comes before %s: %w", store.Plain(store.Clip(environment)), store.ErrUnknownRelease)
		}
	}
	c := Candidate{Platform: platform, Environment: environment, From: from, Ring: ring, Changes: []CandidateChange{}}
	m, done, err := v.moment(ctx, Query{}, false)
	if err != nil {
		return c, err
	}
	defer done()
	source := m.published.index.environments[bundle.Stream{Platform: platform, Environment: from}]
	if source == nil || !v.seesEnvironment(from) {
		return c, fmt.Errorf("environment %q: %w", store.Plain(store.Clip(from)), store.ErrUnknownRelease)
	}
	record := source.newest()
	c.Record, c.BaseCommit, c.IssuedAt, c.Incomplete = record.Digest, record.BaseCommit, record.IssuedAt, record.Incomplete
	had := map[string]digest.Digest{} // releases, by cluster type
	var gets map[string]digest.Digest
	if ring == "" {
		gets = source.releases()
		if target := m.published.index.environments[bundle.Stream{Platform: platform, Environment: environment}]; target != nil && v.seesEnvironment(environment) {
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
		c.Releases = append(c.Releases, CandidateRelease{typ, had[typ], gets[typ]})
	}
	c.Contents = bundle.DecisionContents(trees)
	err = v.compareVersions(ctx, m, &c, had, gets)
	return c, err
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
	before, used, err := v.versions(ctx, m, had)
	if err != nil {
		return err
	}
	after, uses, err := v.versions(ctx, m, gets)
	if err != nil {
		return err
	}
	c.Artifacts = diffArtifacts(used, uses)
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

// versions returns what releases have, sorted, each once, and their artifacts.
func (v *View) versions(ctx context.Context, m *moment, releases map[string]digest.Digest) (map[workloadOn][]string, []bundle.Artifact, error) {
	all, artifacts := map[workloadOn][]string{}, []bundle.Artifact(nil)
	for typ, d := range releases {
		r, err := v.fleet.contentsOf(ctx, m.published, d)
		if err != nil {
			return nil, nil, err
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
		artifacts = append(artifacts, r.Artifacts...)
	}
	return all, artifacts, nil
}
