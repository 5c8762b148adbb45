package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lineage"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/gate"
)

const (
	// MaxRecords bounds the records of an environment that are read: the newest ones.
	MaxRecords = 100
	// parallel bounds the requests that are under way.
	parallel = 8
	// maxRejected bounds the artifacts of a cluster that are looked at for a report that its key has signed.
	maxRejected = 3
)

// ErrNoCommit is wrapped by errors about a commit that no record has, or several.
var ErrNoCommit = errors.New("no such commit")

// place is Facts.Location, opened.
type place struct {
	*published.Place
	asItLies *published.Place // for releases that a verified record names
	facts    *Facts
}

// open opens Location. It makes no request.
func (f *Facts) open() (*place, error) {
	at, err := published.Open(f.Location, f.Options, f.Signers)
	if err != nil {
		return nil, err
	}
	return &place{at, at.By(published.AsItLies()), f}, nil
}

// History reads the newest records of an environment at Location. Records that are broken, of another platform, or that the signers
// have not signed are passed over.
func (f *Facts) History(ctx context.Context, environment string) (*History, error) {
	return once(f.seen, func(s *seen) map[seenKey]*History { return s.histories }, seenKey{platform: f.Platform, environment: environment}, func() (*History, error) {
		at, err := f.open()
		if err != nil {
			return nil, err
		}
		return at.history(ctx, environment)
	})
}

// History are the verified records of an environment.
type History struct {
	Environment string
	// Platform is that of the records; empty if there are none.
	Platform string
	// Records are oldest first.
	Records []bundle.VerifiedEnvironment

	place *place
	mu    sync.Mutex
	known map[digest.Digest]*bundle.Verified // nil for one that is not there, or not trusted
}

func (p *place) history(ctx context.Context, environment string) (*History, error) {
	at, err := p.Environment(environment)
	if err != nil {
		return nil, err
	}
	all, err := at.Repo.Tags(ctx)
	if err != nil {
		return nil, err
	}
	found, err := at.ReadAll(ctx, published.Tags{All: all}.Newest(published.Own, MaxRecords))
	if err != nil {
		return nil, err
	}
	h := &History{Environment: environment, place: p, known: map[digest.Digest]*bundle.Verified{}}
	var others []string
	for _, f := range found {
		if v := f.Value; v == nil || cmp.Or(p.facts.Platform, h.Platform, v.Record.Platform) != v.Record.Platform {
			others = append(others, f.Ref)
		} else {
			h.Platform = v.Record.Platform // that of the newest
			h.Records = append(h.Records, *v)
		}
	}
	if len(others) > 0 { // the newest is first
		verb := "do"
		if len(others) == 1 {
			verb = "does"
		}
		p.facts.warn("%s: %s %s not count, such as %s: signed by nobody who may, or of another platform",
			bundle.EnvironmentRepository(environment), show.Count(len(others), "record"), verb, others[0])
	}
	slices.SortFunc(h.Records, func(a, b bundle.VerifiedEnvironment) int {
		return published.OrderOfRecord(&a).Compare(published.OrderOfRecord(&b))
	})
	return h, nil
}

// Newest returns the newest record; nil if there is none.
func (h *History) Newest() *bundle.EnvironmentRecord {
	if len(h.Records) == 0 {
		return nil
	}
	return &h.Records[len(h.Records)-1].Record
}

// Find returns the newest record with a base commit of which at least the first seven digits are given; nil if there is none. An empty commit stands for that of the
// newest record. If none has the commit, it is the newest one with the base of that ID, if that is known. The error wraps ErrNoCommit if
// several commits begin like this.
func (h *History) Find(commit, baseID string) (*bundle.EnvironmentRecord, error) {
	if commit == "" {
		return h.Newest(), nil
	}
	if len(commit) < minCommit {
		return nil, fmt.Errorf("commit %q: %w: give at least %d digits", commit, ErrNoCommit, minCommit)
	}
	var found *bundle.EnvironmentRecord
	for i := range h.Records {
		r := &h.Records[i].Record
		if !strings.HasPrefix(r.BaseCommit, commit) {
			continue
		}
		if found != nil && found.BaseCommit != r.BaseCommit {
			return nil, fmt.Errorf("commit %q: %w: %s and %s begin like this", commit, ErrNoCommit, found.BaseCommit, r.BaseCommit)
		}
		found = r
	}
	for i := 0; found == nil && baseID != "" && i < len(h.Records); i++ {
		if r := &h.Records[len(h.Records)-1-i].Record; r.BaseID == baseID {
			found = r
		}
	}
	return found, nil
}

const minCommit = 7

// Candidate returns what a record has that is to be promoted. With moving, the trees are read for the assignments whose content
// is not pinned.
func (h *History) Candidate(ctx context.Context, record *bundle.EnvironmentRecord, moving bool) (*gate.Candidate, error) {
	c := &gate.Candidate{
		Platform: record.Platform, Environment: record.Environment, BaseCommit: record.BaseCommit, IssuedAt: record.IssuedAt,
		Incomplete: slices.Clone(record.Incomplete), Contents: map[string]digest.Digest{},
	}
	var wanted []typed
	for _, typ := range record.Types() {
		for _, d := range record.ReleasesOf(typ) {
			wanted = append(wanted, typed{typ, d})
		}
	}
	if err := h.load(ctx, wanted); err != nil {
		return nil, err
	}
	of := lineage.New(bundle.Stream{Platform: h.Platform, Environment: h.Environment}, h.release)
	trees := map[string]digest.Digest{}
	for _, typ := range record.Types() {
		if h.lacks(record, typ) {
			return nil, fmt.Errorf("record %s of environment %s: a release of cluster type %s is not there: publish again", record.Tag(), h.Environment, typ)
		}
		newest := of.NewestOf(record, typ)
		c.Contents[typ], trees[typ] = h.release(newest).Content.DiffID, newest
	}
	if !moving {
		return c, nil
	}
	return c, h.addMoving(ctx, c, trees)
}

// RingCandidate returns what a ring is to get from the one before it; nil if it has that already. See advance.Candidate.
func (h *History) RingCandidate(ctx context.Context, record *bundle.EnvironmentRecord, before, ring string) (*gate.Candidate, error) {
	var wanted []typed
	for typ, all := range record.Rings {
		for _, name := range []string{before, ring} {
			if d := all[name]; d != "" {
				wanted = append(wanted, typed{typ, d})
			}
		}
	}
	if err := h.load(ctx, wanted); err != nil {
		return nil, err
	}
	return advance.Candidate(*record, before, ring, "", func(_ string, d digest.Digest) (*bundle.Release, error) { return h.release(d), nil })
}

// AddMoving adds to the candidate of a ring, which has what the ring before it has in the record, the assignments whose content is
// not pinned. It is an error if the record has other content in that ring.
func (h *History) AddMoving(ctx context.Context, record *bundle.EnvironmentRecord, before string, c *gate.Candidate) error {
	var wanted []typed
	trees := map[string]digest.Digest{}
	for typ := range c.Contents {
		trees[typ] = record.Rings[typ][before]
		wanted = append(wanted, typed{typ, trees[typ]})
	}
	if err := h.load(ctx, wanted); err != nil {
		return err
	}
	for typ, content := range c.Contents {
		if has := h.release(trees[typ]); has == nil || has.Content.DiffID != content {
			return fmt.Errorf("record %s of environment %s: ring %s has other content of cluster type %s by now: run it again", record.Tag(), h.Environment, before, typ)
		}
	}
	return h.addMoving(ctx, c, trees)
}

// Stays returns the times that the environment had a commit of the base, oldest first.
func (h *History) Stays(commit, baseID string) []gate.Stay {
	return h.stays(func(r *bundle.EnvironmentRecord) bool { return r.HasBase(commit, baseID) })
}

// RingStays returns the times that a ring had the content of a candidate in all of its cluster types, oldest first.
func (h *History) RingStays(ctx context.Context, ring string, c *gate.Candidate) ([]gate.Stay, error) {
	var wanted []typed
	for i := range h.Records {
		for typ := range c.Contents {
			if d := h.Records[i].Record.Rings[typ][ring]; d != "" {
				wanted = append(wanted, typed{typ, d})
			}
		}
	}
	if err := h.load(ctx, wanted); err != nil {
		return nil, err
	}
	return h.stays(func(r *bundle.EnvironmentRecord) bool {
		for typ, content := range c.Contents {
			has := h.release(r.Rings[typ][ring])
			if has == nil || has.Content.DiffID != content {
				return false
			}
		}
		return true
	}), nil
}

func (h *History) stays(has func(*bundle.EnvironmentRecord) bool) (all []gate.Stay) {
	present := false
	for i := range h.Records {
		r := &h.Records[i].Record
		switch is := has(r); {
		case is && !present:
			all, present = append(all, gate.Stay{From: r.IssuedAt}), true
		case !is && present:
			all[len(all)-1].Until, present = r.IssuedAt, false
		}
	}
	return all
}

// typed is a release of a cluster type.
type typed struct {
	clusterType string
	digest.Digest
}

// release returns a release that was loaded; nil if it is not there.
func (h *History) release(d digest.Digest) *bundle.Release {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.known[d]; found != nil {
		return &found.Release
	}
	return nil
}

// lacks reports whether a release that a record names for a cluster type was not found.
func (h *History) lacks(record *bundle.EnvironmentRecord, typ string) bool {
	return slices.ContainsFunc(record.ReleasesOf(typ), func(d digest.Digest) bool { return h.release(d) == nil })
}

// load reads releases, each once. The signature of a record covers those that it names; others have to be signed themselves.
func (h *History) load(ctx context.Context, wanted []typed) error {
	named := map[typed]bool{}
	for i := range h.Records {
		r := &h.Records[i].Record
		for _, typ := range r.Types() {
			for _, d := range r.ReleasesOf(typ) {
				named[typed{typ, d}] = true
			}
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	begun := map[digest.Digest]bool{}
	for _, w := range wanted {
		h.mu.Lock()
		_, known := h.known[w.Digest]
		h.mu.Unlock()
		if known || begun[w.Digest] || w.Validate() != nil {
			continue
		}
		begun[w.Digest] = true
		g.Go(func() error {
			release, err := h.place.release(ctx, h, w, named[w])
			if err != nil {
				return err
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.known[w.Digest] = release
			return nil
		})
	}
	return g.Wait()
}

// loadFor reads the releases by which clusters are judged at a commit: those of the records with the commit, and those of records that
// name a release which a cluster runs or is getting.
func (h *History) loadFor(ctx context.Context, commit string, reports *reports) error {
	types, has := map[string]bool{}, map[typed]bool{}
	for _, one := range reports.clusters {
		types[one.ClusterType] = true
		newest := reports.newest(one.UID)
		for _, r := range []*bundle.ReportRelease{newest.Observed, newest.Desired} {
			if r != nil {
				has[typed{one.ClusterType, r.Digest}] = true
			}
		}
	}
	wanted := slices.Collect(maps.Keys(has))
	for i := range h.Records {
		r := &h.Records[i].Record
		for _, typ := range r.Types() {
			all := r.ReleasesOf(typ)
			if types[typ] && (r.BaseCommit == commit || slices.ContainsFunc(all, func(d digest.Digest) bool { return has[typed{typ, d}] })) {
				for _, d := range all {
					wanted = append(wanted, typed{typ, d})
				}
			}
		}
	}
	return h.load(ctx, wanted)
}

// loadNewest reads the releases that the newest record names for clusters and their rings.
func (h *History) loadNewest(ctx context.Context, reports *reports) error {
	var wanted []typed
	if record := h.Newest(); record != nil {
		for _, one := range reports.clusters {
			ring := cmp.Or(one.Ring, reports.newest(one.UID).Cluster.Ring)
			wanted = append(wanted, typed{one.ClusterType, record.ReleaseOf(one.ClusterType, ring)}, typed{one.ClusterType, record.ClusterTypes[one.ClusterType]})
		}
	}
	return h.load(ctx, wanted)
}

// releases returns the releases that were read, and are there and trusted.
func (h *History) releases() (all []*bundle.Verified) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.known {
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}

// release returns nil for a release that is not there, or not trusted.
func (p *place) release(ctx context.Context, h *History, w typed, named bool) (*bundle.Verified, error) {
	stream := bundle.Stream{Platform: h.Platform, Environment: h.Environment, ClusterType: w.clusterType}
	from := p.Place
	if named {
		from = p.asItLies
	}
	t, err := from.Type(stream)
	if err != nil {
		return nil, err
	}
	v, _, err := t.Read(ctx, w.String())
	if err != nil || v.Release.Stream() != stream {
		return nil, published.IgnoreRefused(err)
	}
	return v, nil
}

// addMoving reads the trees of releases that were loaded, by cluster type, for the assignments whose content is not pinned.
func (h *History) addMoving(ctx context.Context, c *gate.Candidate, trees map[string]digest.Digest) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for typ, d := range trees {
		g.Go(func() error {
			found, err := h.tree(ctx, typ, d)
			if err != nil {
				return fmt.Errorf("assignments of cluster type %s: %w", typ, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, name := range found.Floating {
				c.Floating = append(c.Floating, typ+"/"+name)
			}
			for _, name := range found.Unpinned {
				c.Unpinned = append(c.Unpinned, typ+"/"+name)
			}
			return nil
		})
	}
	err := g.Wait()
	slices.Sort(c.Floating)
	slices.Sort(c.Unpinned)
	return err
}
