package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/published"
)

// Base says what the clusters of a site have already, so that it need not travel. A wrong Base costs a trip and no
// safety: the importing agent finds that a blob is missing, and refuses the stream by name before it copies anything.
type Base struct {
	// name names the base for people: a file, or the hub.
	name string
	// releases are those that run at the clusters of a stream, by its repository.
	releases map[string][]digest.Digest
	// packaged has what a package holds, by the repository of the stream.
	packaged map[string]have
}

// have is what is known of one stream.
type have struct {
	digest digest.Digest // of the release that stands for it
	name   string
	blobs  map[digest.Digest]bool
}

// known is what is known of streams, by their repositories.
type known map[string]have

// Releases returns the base of clusters that run the given releases of an environment, by cluster type: with several releases, a
// site has what all of them have in common. A cluster type without a release has nothing. Name names the source for people.
func Releases(name, environment string, releases map[string][]digest.Digest) *Base {
	b := &Base{name: name, releases: map[string][]digest.Digest{}}
	for ct, list := range releases {
		stream := bundle.Stream{Environment: environment, ClusterType: ct}
		b.releases[stream.Repository()] = slices.Compact(slices.Sorted(slices.Values(list)))
	}
	return b
}

// Package returns the base of a site that has taken the package p: what it holds, and what it had left out. It reads the
// package as far as the manifests of its artifacts, and returns the errors of airgap.Reader. Name names the package for people.
func Package(name string, p *airgap.Reader) (*Base, error) {
	b := &Base{name: name, packaged: map[string]have{}}
	c := p.Contents()
	if c == nil {
		return b, nil
	}
	graphs, err := readGraphs(p, *c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range c.Releases {
		stream := c.Stream(r)
		h := have{r.Digest, bundle.ReleaseName(r.Number, r.Digest), map[digest.Digest]bool{}}
		for _, a := range c.Artifacts {
			if slices.Contains(a.UsedBy, r.Environment+"/"+r.ClusterType) {
				for _, d := range graphs[a.Digest].Blobs {
					h.blobs[d.Digest] = true
				}
			}
		}
		b.packaged[stream.Repository()] = h
	}
	return b, nil
}

// readGraphs reads the manifests of the artifacts in a package.
func readGraphs(p *airgap.Reader, c airgap.Contents) (map[digest.Digest]graph.Graph, error) {
	data, err := readManifests(p, c)
	if err != nil {
		return nil, err
	}
	graphs := map[digest.Digest]graph.Graph{}
	for _, a := range c.Artifacts {
		g, err := graph.Walk(ocispec.Descriptor{Digest: a.Digest}, c.ImagePlatforms, func(d ocispec.Descriptor) ([]byte, error) {
			if data[d.Digest] == nil {
				return nil, fmt.Errorf("%w: manifest %s of %s is not in it", airgap.ErrFormat, d.Digest, a.Repository)
			}
			return data[d.Digest], nil
		})
		if err != nil {
			return nil, err
		}
		graphs[a.Digest] = g
	}
	return graphs, nil
}

// someManifest stands for a manifest that is not read yet.
const someManifest = `{"config":{"digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}`

// readManifests reads the manifests of artifacts from the head of a package, where each index comes before its manifests.
func readManifests(p *airgap.Reader, c airgap.Contents) (map[digest.Digest][]byte, error) {
	wanted := map[digest.Digest]bool{}
	for _, a := range c.Artifacts {
		wanted[a.Digest] = true
	}
	found, total := map[digest.Digest][]byte{}, int64(0)
	for len(wanted) > 0 {
		e, err := p.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if !wanted[e.Digest] {
			continue
		}
		if total += e.Size; e.Size > graph.MaxManifestBytes || total > maxHeadBytes {
			return nil, fmt.Errorf("%w: its manifests have more than %d bytes", airgap.ErrFormat, maxHeadBytes)
		}
		data, err := io.ReadAll(e.Content)
		if err != nil {
			return nil, err
		}
		if digest.FromBytes(data) != e.Digest {
			return nil, fmt.Errorf("%w: manifest %s has other content", airgap.ErrFormat, e.Digest)
		}
		delete(wanted, e.Digest)
		found[e.Digest] = data
		// A walk of this one manifest names its children.
		_, _ = graph.Walk(ocispec.Descriptor{Digest: e.Digest}, c.ImagePlatforms, func(d ocispec.Descriptor) ([]byte, error) {
			if d.Digest == e.Digest {
				return data, nil
			}
			if found[d.Digest] == nil {
				wanted[d.Digest] = true
			}
			return []byte(someManifest), nil
		})
	}
	return found, nil
}

// of returns what is known of the streams of the chosen releases, with a warning for each that has no base.
func (b *Base) of(ctx context.Context, r Request, at *published.Place, f *finder, releases []chosen, p *Plan) (known, error) {
	if b == nil {
		return nil, nil
	}
	all := known{}
	for _, c := range releases {
		repository := c.stream.Repository()
		if _, done := all[repository]; done {
			continue
		}
		h, ok := b.packaged[repository]
		if list := b.releases[repository]; !ok && len(list) > 0 {
			var err error
			if h, ok, err = b.read(ctx, r, at, f, c, list, p); err != nil {
				return nil, err
			}
		} else if !ok {
			p.warn("%s has no base in %s: its artifacts travel in full", c.user(), b.name)
		}
		if ok {
			all[repository] = h
		}
	}
	return all, nil
}

// read returns what all of the releases of a stream have in common. It returns false, with a warning, if one of them is gone.
func (b *Base) read(ctx context.Context, r Request, at *published.Place, f *finder, c chosen, list []digest.Digest, p *Plan) (have, bool, error) {
	var all []chosen
	var blobs map[digest.Digest]bool
	for _, d := range list {
		base := chosen{stream: c.stream}
		err := base.readRelease(ctx, at, d)
		var own map[digest.Digest]bool
		if err == nil {
			own, err = base.artifactBlobs(ctx, r, f)
		}
		if isGone(err) {
			p.warn("%s runs release %s, which is not at %s any more, or not with all its artifacts: its artifacts travel in full", c.user(), d, r.From)
			return have{}, false, nil
		}
		if err != nil {
			return have{}, false, fmt.Errorf("release %s, which %s runs: %w", d, c.user(), err)
		}
		if all = append(all, base); blobs == nil {
			blobs = own
		}
		maps.DeleteFunc(blobs, func(d digest.Digest, _ bool) bool { return !own[d] })
	}
	oldest := slices.MinFunc(all, func(x, y chosen) int {
		return bundle.OrderOf(x.Release, x.bundle.Digest).Compare(bundle.OrderOf(y.Release, y.bundle.Digest))
	})
	return have{oldest.bundle.Digest, oldest.name(), blobs}, true, nil
}

// artifactBlobs returns the blobs of the artifacts of a release.
func (c chosen) artifactBlobs(ctx context.Context, r Request, f *finder) (map[digest.Digest]bool, error) {
	l, err := readList(ctx, c.repo, c.bundle.parts.Layers[0], c.Release, cmp.Or(r.Artifacts, All))
	if err != nil {
		return nil, err
	}
	artifacts, err := f.walk(ctx, merge([]chosen{c}, []listed{l}), r.ImagePlatforms)
	blobs := map[digest.Digest]bool{}
	for _, a := range artifacts {
		for _, d := range a.Blobs {
			blobs[d.Digest] = true
		}
	}
	return blobs, err
}
