package fleet

import (
	"context"
	"errors"
	"sync"
	"time"
	"unique"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/store"
)

// published is what the hub has learned of published releases and environment records. It is never changed: what is learned
// makes a new one.
type published struct {
	// releases have neither assignments nor artifacts; see Fleet.contentsOf.
	releases map[digest.Digest]*store.PublishedRelease
	// ordered has the same by stream and order, oldest first.
	ordered []*store.PublishedRelease
	// records are by platform, environment and order, oldest first.
	records []*store.PublishedRecord
	// judged is what judges have posted, by platform. In the past it is that of now, for the order of the chain alone.
	judged map[string]*store.Promotion
	// index finds what clusters should run.
	index desiredIndex
}

// readPublished reads all that is published.
func readPublished(ctx context.Context, from Source) (*published, error) {
	p := &published{releases: map[digest.Digest]*store.PublishedRelease{}}
	err := from.Releases(ctx, func(r store.PublishedRelease) error {
		r.Assignments, r.Artifacts = nil, nil
		p.releases[r.Digest], p.ordered = &r, append(p.ordered, &r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = from.Records(ctx, func(r store.PublishedRecord) error {
		p.records = append(p.records, &r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.index = newDesiredIndex(p)
	return p.judgedAgain(ctx, from)
}

// judgedAgain returns p with what judges have posted by now.
func (p *published) judgedAgain(ctx context.Context, from Source) (*published, error) {
	all, err := from.Promotions(ctx)
	if err != nil {
		return nil, err
	}
	now := *p
	now.judged = map[string]*store.Promotion{}
	for _, j := range all {
		now.judged[j.Platform] = &j
	}
	return &now, nil
}

// at returns what had been issued at a time.
func (p *published) at(t time.Time) *published {
	then := &published{releases: map[digest.Digest]*store.PublishedRelease{}, judged: p.judged}
	for _, r := range p.ordered {
		if !r.IssuedAt.After(t) {
			then.releases[r.Digest], then.ordered = r, append(then.ordered, r)
		}
	}
	for _, r := range p.records {
		if !r.IssuedAt.After(t) {
			then.records = append(then.records, r)
		}
	}
	then.index = newDesiredIndex(then)
	return then
}

// release returns a release of a digest; nil if it was never published here.
func (p *published) release(d digest.Digest) *bundle.Release {
	if r := p.releases[d]; r != nil {
		return &r.Release
	}
	return nil
}

// kept keeps what was read of published releases, until that has more than a number of entries.
type kept[T any] struct {
	mu   sync.Mutex
	size int
	all  map[digest.Digest]T
}

func (k *kept[T]) get(d digest.Digest) (v T, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, known = k.all[d]
	return v, known
}

// put keeps a value that has a number of entries. All others go first if they have more than most.
func (k *kept[T]) put(d digest.Digest, v T, entries, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.size > most || k.all == nil {
		k.all, k.size = map[digest.Digest]T{}, 0
	}
	if _, known := k.all[d]; !known {
		k.size += entries
	}
	k.all[d] = v
}

const (
	// maxContents bounds the assignments and artifacts that are kept.
	maxContents = 100_000
	// maxLines bounds the lines that are kept: those of a record of 316 cluster types with as many assignments twice.
	maxLines = 200_000
)

// contentsOf returns a release with its assignments and artifacts; nil if it was never published here.
func (f *Fleet) contentsOf(ctx context.Context, p *published, d digest.Digest) (*store.PublishedRelease, error) {
	if p.releases[d] == nil {
		return nil, nil
	}
	if r, known := f.contents.get(d); known {
		return r, nil
	}
	r, err := f.source.Release(ctx, d)
	if errors.Is(err, store.ErrUnknownRelease) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	f.contents.put(d, &r, 1+len(r.Assignments)+len(r.Artifacts), maxContents)
	return &r, nil
}

// contentLine is what counting content needs of an assignment. A question about it asks for all releases of a record, whose whole
// contents would be too much to keep.
type contentLine struct {
	assignment string
	workload   ledger.Key
	content    string // empty if it was removed
	// whole is true if a cluster has to run a release with the tree, too.
	whole bool
}

// linesOf returns the assignments of a release; known is false if it was never published here.
func (f *Fleet) linesOf(ctx context.Context, p *published, d digest.Digest) (lines []contentLine, known bool, err error) {
	if p.releases[d] == nil {
		return nil, false, nil
	}
	if lines, known = f.lines.get(d); known {
		return lines, true, nil
	}
	r, err := f.source.Release(ctx, d)
	if errors.Is(err, store.ErrUnknownRelease) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	once := func(s string) string { return unique.Make(s).Value() } // cluster types have most names in common
	for _, a := range r.Assignments {
		lines = append(lines, contentLine{once(a.Name), ledger.Key{Registration: once(a.Registration), Workload: once(a.Workload)}, a.Content.String(), a.Desired() != a.Content})
	}
	f.lines.put(d, lines, 1+len(lines), maxLines)
	return lines, true, nil
}

// commits returns the commits of the platform and of its environment that a release was made from; empty if unknown.
func (s *snapshot) commits(release uint32) (base, environment string) {
	r := &s.releases[release]
	base, environment = r.BaseCommit, r.EnvironmentCommit
	if p := s.published.releases[r.Digest]; p != nil {
		base, environment = p.BaseCommit, p.EnvironmentCommit
	}
	return base, environment
}

// observed returns a copy of a release, nil for none.
func (s *snapshot) release(h uint32) *bundle.ReportRelease {
	if h == 0 {
		return nil
	}
	r := s.releases[h]
	return &r
}
