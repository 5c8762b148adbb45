package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
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
	return p, nil
}

// at returns what had been issued at a time.
func (p *published) at(t time.Time) *published {
	then := &published{releases: map[digest.Digest]*store.PublishedRelease{}}
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

// contents keeps the assignments and artifacts of published releases that were asked for.
type contents struct {
	mu   sync.Mutex
	size int // of all assignments and artifacts
	all  map[digest.Digest]*store.PublishedRelease
}

// maxContents bounds the assignments and artifacts that are kept.
const maxContents = 100_000

// contentsOf returns a release with its assignments and artifacts; nil if it was never published here.
func (f *Fleet) contentsOf(ctx context.Context, p *published, d digest.Digest) (*store.PublishedRelease, error) {
	if p.releases[d] == nil {
		return nil, nil
	}
	c := &f.contents
	c.mu.Lock()
	known := c.all[d]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	r, err := f.source.Release(ctx, d)
	if errors.Is(err, store.ErrUnknownRelease) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size > maxContents || c.all == nil {
		c.all, c.size = map[digest.Digest]*store.PublishedRelease{}, 0
	}
	if c.all[d] == nil {
		c.size += 1 + len(r.Assignments) + len(r.Artifacts)
	}
	c.all[d] = &r
	return &r, nil
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
