package airgap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// NewReaderAt reads the package like NewReader, but accepts every order of its files, such as that of "tar -C layout .":
// the blobs come in the order of a package. The caller closes from.
func NewReaderAt(from io.ReaderAt, size int64) (*Reader, error) {
	if remedy := archive.Compressed(from); remedy != "" {
		return nil, fmt.Errorf("%w: %s", ErrFormat, remedy)
	}
	r, err := NewReader(io.NewSectionReader(from, 0, size))
	if err == nil && r.contents != nil || err != nil && !errors.Is(err, ErrOrder) {
		return r, err
	}
	l, err := archive.Open(from, size)
	if err != nil {
		return nil, err
	}
	return NewLayoutReader(l)
}

// NewLayoutReader reads the package l, in the order of a package. The caller closes what l reads, after the Reader.
func NewLayoutReader(l *archive.Layout) (*Reader, error) {
	p := &Reader{index: l.Index()}
	o := &ordered{layout: l, given: map[digest.Digest]bool{}}
	if named := namedContents(p.index); named.Digest != "" {
		var err error
		if p.contents, err = fetchContents(l, named); err != nil {
			return nil, err
		}
	}
	o.plan(p.index)
	p.rest = o
	return p, nil
}

// ordered is a package whose blobs can be read in any order. They come in that of a package, and then those that are below
// no name of the index. Manifests are read for their order alone, when it is the turn of what follows them: a foreign
// package costs as little as one that is read from front to back.
type ordered struct {
	layout *archive.Layout
	steps  []step
	queue  []digest.Digest
	given  map[digest.Digest]bool
	open   io.Closer // of the last entry
}

// step returns the blobs of the next place in the order.
type step func() ([]digest.Digest, error)

func (o *ordered) next() (Entry, error) {
	if o.open != nil {
		if err := o.open.Close(); err != nil {
			return Entry{}, err
		}
		o.open = nil
	}
	for {
		for len(o.queue) == 0 {
			if len(o.steps) == 0 {
				return Entry{}, io.EOF
			}
			var err error
			if o.queue, err = o.steps[0](); err != nil {
				return Entry{}, err
			}
			o.steps = o.steps[1:]
		}
		d := o.queue[0]
		o.queue = o.queue[1:]
		size, there := o.layout.Size(d)
		if o.given[d] || !there { // what is missing may be left out on purpose
			continue
		}
		o.given[d] = true
		content, err := o.layout.Blob(d)
		if err != nil {
			return Entry{}, err
		}
		o.open = content
		return Entry{d, size, content}, nil
	}
}

// group is the manifests of one repository of the index, in the order in which a package has them.
type group struct {
	repository string
	manifests  []ocispec.Descriptor
}

// plan puts the steps in their order.
func (o *ordered) plan(index ocispec.Index) {
	var contents, trust, artifacts []ocispec.Descriptor
	groups := map[string]*group{}
	var bundles, records []*group
	for _, d := range index.Manifests {
		name := d.Annotations[ocispec.AnnotationRefName]
		repository, _ := path.Split(name)
		kind, _, _ := strings.Cut(name, "/")
		switch {
		case name == ContentsName:
			contents = append(contents, d)
		case kind == bundle.TrustRepository:
			trust = append(trust, d)
		case kind == "bundles" || kind == "environments":
			g := groups[repository]
			if g == nil {
				g = &group{repository: repository}
				groups[repository] = g
				if kind == "bundles" {
					bundles = append(bundles, g)
				} else {
					records = append(records, g)
				}
			}
			g.manifests = append(g.manifests, d)
		default:
			artifacts = append(artifacts, d)
		}
	}
	slices.SortStableFunc(trust, func(a, b ocispec.Descriptor) int { return cmp.Compare(versionOf(a), versionOf(b)) })
	byName := func(a, b *group) int { return strings.Compare(a.repository, b.repository) }
	slices.SortFunc(bundles, byName)
	slices.SortFunc(records, byName)

	o.whole(contents)
	o.whole(trust)
	for _, g := range slices.Concat(bundles, records) {
		o.head(g)
	}
	manifests := o.artifactManifests(artifacts)
	for _, g := range slices.Concat(bundles, records) {
		o.whole(g.manifests)
	}
	o.steps = append(o.steps, func() (all []digest.Digest, err error) {
		for _, d := range *manifests {
			all = append(all, o.parts(d).blobs()...)
		}
		return all, nil
	}, o.layout.Digests)
}

// whole adds a step for each manifest with its config and layers.
func (o *ordered) whole(manifests []ocispec.Descriptor) {
	for _, d := range manifests {
		o.steps = append(o.steps, func() ([]digest.Digest, error) {
			return append([]digest.Digest{d.Digest}, o.parts(d.Digest).blobs()...), nil
		})
	}
}

// head adds a step for the manifests of a repository, with the release documents and signatures.
func (o *ordered) head(g *group) {
	slices.SortStableFunc(g.manifests, func(a, b ocispec.Descriptor) int { return cmp.Compare(rank(a), rank(b)) })
	for _, d := range g.manifests {
		o.steps = append(o.steps, func() ([]digest.Digest, error) {
			m := o.parts(d.Digest)
			all := []digest.Digest{d.Digest}
			if rank(d) > 0 {
				return append(all, m.blobs()...), nil
			}
			return append(all, m.Config.Digest), nil
		})
	}
}

// rank puts signatures behind what they sign.
func rank(d ocispec.Descriptor) int {
	if strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], ".sig") {
		return 1
	}
	return 0
}

func versionOf(d ocispec.Descriptor) int64 {
	_, version, _ := strings.Cut(d.Annotations[ocispec.AnnotationRefName], "/v")
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return bundle.MaxTrustVersions + 1
	}
	return n
}

// artifactManifests adds steps for the manifests of artifacts, each index before its manifests, and returns where they are
// listed once these steps have been taken.
func (o *ordered) artifactManifests(artifacts []ocispec.Descriptor) *[]digest.Digest {
	var found []digest.Digest
	seen := map[digest.Digest]bool{}
	var walk func(d digest.Digest, depth int)
	walk = func(d digest.Digest, depth int) {
		if _, there := o.layout.Size(d); !there || seen[d] || depth > 3 {
			return
		}
		seen[d] = true
		found = append(found, d)
		for _, child := range o.parts(d).Manifests {
			walk(child.Digest, depth+1)
		}
	}
	for _, d := range artifacts {
		o.steps = append(o.steps, func() ([]digest.Digest, error) {
			before := len(found)
			walk(d.Digest, 0)
			return found[before:], nil
		})
	}
	return &found
}

// references are what a manifest or an index names.
type references struct {
	Config    ocispec.Descriptor   `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

func (r references) blobs() []digest.Digest {
	all := []digest.Digest{r.Config.Digest}
	for _, l := range r.Layers {
		all = append(all, l.Digest)
	}
	return all
}

// parts returns what a manifest names. One that is missing, too large or no manifest names nothing: the order decides
// nothing, and whoever needs the manifest will refuse it.
func (o *ordered) parts(d digest.Digest) (r references) {
	size, there := o.layout.Size(d)
	if !there || size > graph.MaxManifestBytes {
		return r
	}
	data, err := bundle.ReadBlob(context.Background(), o.layout, ocispec.Descriptor{Digest: d, Size: size}, graph.MaxManifestBytes)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return references{}
	}
	return r
}
