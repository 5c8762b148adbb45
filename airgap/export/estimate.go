package export

import (
	"cmp"
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
)

// Estimate is the size of a package by what its releases say of their artifacts, for a place that does not reach the registries of
// these.
type Estimate struct {
	// Bytes is what the bundles take, and the artifacts that no base has, each of them as a whole and on all platforms.
	Bytes int64
	// Unknown counts the artifacts of which no release says the size.
	Unknown int
}

// EstimateSize reads bundles alone. The errors are those of Choose, but for *UnpinnedError and *ArtifactError.
func EstimateSize(ctx context.Context, r Request) (e Estimate, err error) {
	mode := cmp.Or(r.Artifacts, All)
	bundles := r
	bundles.Artifacts, bundles.Since = None, nil
	p, err := Choose(ctx, bundles)
	if err != nil {
		return e, err
	}
	e.Bytes = p.Bytes
	at, err := published.Open(r.From, r.Registry, published.AsItLies())
	if err != nil {
		return e, err
	}
	sizes := map[digest.Digest]int64{} // of what travels
	for _, listed := range p.Contents.Releases {
		stream := bundle.Stream{Environment: listed.Environment, ClusterType: listed.ClusterType}
		needs := func(d digest.Digest) (map[digest.Digest]int64, error) {
			c := chosen{stream: stream, ring: listed.Ring}
			if err := c.read(ctx, at, d); err != nil {
				return nil, err
			}
			l, err := readList(ctx, c.repo, c.bundle.parts.Layers[0], c.Release, mode)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.user(), err)
			}
			all := map[digest.Digest]int64{}
			for _, a := range l.travel {
				all[digest.Digest(a.Digest)] = a.Size
			}
			return all, nil
		}
		all, err := needs(listed.Digest)
		if err != nil {
			return e, err
		}
		has, err := r.Since.inAll(stream, needs)
		if err != nil {
			return e, err
		}
		for d, size := range all {
			if !has[d] {
				sizes[d] = size
			}
		}
	}
	for _, size := range sizes {
		e.Bytes += size
		if size == 0 {
			e.Unknown++
		}
	}
	return e, nil
}

// inAll returns the artifacts that all releases of the stream's base have; none if one of these is gone.
func (b *Base) inAll(stream bundle.Stream, needs func(digest.Digest) (map[digest.Digest]int64, error)) (map[digest.Digest]bool, error) {
	if b == nil {
		return nil, nil
	}
	count, list := map[digest.Digest]int{}, b.releases[stream.Repository()]
	for _, release := range list {
		all, err := needs(release)
		if isGone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for d := range all {
			count[d]++
		}
	}
	has := map[digest.Digest]bool{}
	for d, n := range count {
		has[d] = n == len(list)
	}
	return has, nil
}
