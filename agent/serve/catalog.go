package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/graph"
)

const maxIndexBytes = 64 << 20 // of the layout's index

// catalog is what the index of a layout names. It may be used by several goroutines.
type catalog struct {
	blobs *blobs

	mu    sync.Mutex
	read  fs.FileInfo // the index that was read last
	repos map[string]*repository
}

// repository is one repository of the index, as it was when the index was read.
type repository struct {
	blobs *blobs
	tags  map[string]ocispec.Descriptor
	named []ocispec.Descriptor

	mu       sync.Mutex
	contents *contents // nil before somebody asks for it
}

// contents is everything that the named manifests of a repository refer to.
type contents struct {
	manifests map[digest.Digest]manifest
	blobs     map[digest.Digest]int64 // their sizes
	missing   []digest.Digest         // manifests that were not on the disk, or damaged
}

// manifest is a manifest that was read.
type manifest struct {
	desc ocispec.Descriptor
	refs references
}

// references is what the endpoint needs of a manifest or an index.
type references struct {
	MediaType    string               `json:"mediaType"`
	ArtifactType string               `json:"artifactType"`
	Config       *ocispec.Descriptor  `json:"config"`
	Layers       []ocispec.Descriptor `json:"layers"`
	Manifests    []ocispec.Descriptor `json:"manifests"`
	Subject      *ocispec.Descriptor  `json:"subject"`
	Annotations  map[string]string    `json:"annotations"`
}

// parts are the blobs of a manifest, as far as they have to be here. Deltas may be missing: they save readers the layer
// that is there.
func (r references) parts() (all []ocispec.Descriptor) {
	if r.Config != nil {
		all = append(all, *r.Config)
	}
	for _, layer := range r.Layers {
		if layer.MediaType != delta.MediaType && len(layer.URLs) == 0 {
			all = append(all, layer)
		}
	}
	return all
}

// repository returns the repository with that name in the layout, or nil.
func (c *catalog) repository(name string) (*repository, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := filepath.Join(c.blobs.dir, ocispec.ImageIndexFile)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		c.read, c.repos = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Each write makes a new file.
	if c.read == nil || !os.SameFile(c.read, info) || c.read.Size() != info.Size() || !c.read.ModTime().Equal(info.ModTime()) {
		repos, err := c.readIndex(file)
		if err != nil {
			return nil, err
		}
		c.read, c.repos = info, repos
	}
	return c.repos[name], nil
}

// readIndex reads the index. A repository that has not changed keeps its contents, so that they are not read again.
func (c *catalog) readIndex(file string) (map[string]*repository, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var index ocispec.Index
	if err := json.NewDecoder(io.LimitReader(f, maxIndexBytes)).Decode(&index); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	repos := map[string]*repository{}
	for _, d := range index.Manifests {
		name, tag := splitName(d.Annotations[ocispec.AnnotationRefName])
		if name == "" || d.Digest.Validate() != nil {
			continue
		}
		r := repos[name]
		if r == nil {
			r = &repository{blobs: c.blobs, tags: map[string]ocispec.Descriptor{}}
			repos[name] = r
		}
		desc := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		r.named = append(r.named, desc)
		if tag != "" {
			r.tags[tag] = desc
		}
	}
	for name, r := range repos {
		if old := c.repos[name]; old != nil && sameNamed(old, r) {
			r.contents = old.known()
		}
	}
	return repos, nil
}

func sameNamed(a, b *repository) bool {
	return slices.EqualFunc(a.named, b.named, func(x, y ocispec.Descriptor) bool { return x.Digest == y.Digest && x.Size == y.Size })
}

// splitName returns the repository and the tag of a name in the index. One that is named by its digest has no tag.
func splitName(ref string) (repository, tag string) {
	if at := strings.IndexByte(ref, '@'); at >= 0 {
		return ref[:at], ""
	}
	i := strings.LastIndexByte(ref, '/')
	if i < 0 {
		return "", ""
	}
	return ref[:i], ref[i+1:]
}

func (r *repository) known() *contents {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.contents
}

// all returns the manifests and blobs below the named manifests. It reads them again if a missing one has arrived.
func (r *repository) all() *contents {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.contents; c != nil && !slices.ContainsFunc(c.missing, func(d digest.Digest) bool {
		f, _, err := r.blobs.open(d)
		return err == nil && f.Close() == nil
	}) {
		return c
	}
	c := &contents{manifests: map[digest.Digest]manifest{}, blobs: map[digest.Digest]int64{}}
	for _, d := range r.named {
		c.add(r.blobs, d)
	}
	r.contents = c
	return c
}

// add adds a manifest and everything that it refers to. Of one that is not valid, what comes before the mistake is served.
func (c *contents) add(from *blobs, root ocispec.Descriptor) {
	if _, ok := c.manifests[root.Digest]; ok {
		return
	}
	g, _ := graph.Walk(root, nil, func(d ocispec.Descriptor) ([]byte, error) {
		m := manifest{desc: d}
		data, ok := m.read(from)
		if !ok {
			c.missing = append(c.missing, d.Digest)
			return nil, errdef.ErrNotFound
		}
		c.manifests[d.Digest] = m
		return data, nil
	})
	for _, b := range g.Blobs {
		c.blobs[b.Digest] = b.Size
	}
}

// read reads the manifest, and reports whether it is here and as its descriptor says.
func (m *manifest) read(from *blobs) ([]byte, bool) {
	f, info, err := from.open(m.desc.Digest)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info.Size() != m.desc.Size || info.Size() > graph.MaxManifestBytes {
		return nil, false
	}
	data, err := io.ReadAll(f)
	return data, err == nil && json.Unmarshal(data, &m.refs) == nil
}

// resolve returns the manifest of a tag, or with that digest, if everything is here that has to be.
func (r *repository) resolve(tag string, d digest.Digest) (manifest, bool) {
	if tag != "" {
		desc, ok := r.tags[tag]
		if !ok {
			return manifest{}, false
		}
		d = desc.Digest
	}
	m, ok := r.all().manifests[d]
	return m, ok && r.whole(m)
}

// whole reports whether the blobs of a manifest are here, so that nobody begins with what cannot be had. The manifests
// of an index may be missing: only those for the platforms of the cluster are carried.
func (r *repository) whole(m manifest) bool {
	if !r.blobs.here(m.desc) {
		return false
	}
	for _, part := range m.refs.parts() {
		if part.Digest.Validate() != nil || !r.blobs.here(part) {
			return false
		}
	}
	return true
}

// tagNames returns the tags of manifests that can be had, sorted, at most n after last, and whether there are more.
func (r *repository) tagNames(last string, n int) (names []string, more bool) {
	all := r.all()
	for _, tag := range slices.Sorted(maps.Keys(r.tags)) {
		if tag <= last {
			continue
		}
		if m, ok := all.manifests[r.tags[tag].Digest]; !ok || !r.whole(m) {
			continue
		}
		if len(names) == n {
			return names, true
		}
		names = append(names, tag)
	}
	return names, false
}

// referrers returns the manifests whose subject is d, as the descriptors of the referrers API, sorted by digest and at most
// n of them.
func (r *repository) referrers(d digest.Digest, artifactType string, n int) []ocispec.Descriptor {
	found := []ocispec.Descriptor{}
	for _, m := range r.all().manifests {
		if m.refs.Subject == nil || m.refs.Subject.Digest != d || !r.whole(m) {
			continue
		}
		desc := m.desc
		desc.ArtifactType, desc.Annotations = m.refs.ArtifactType, m.refs.Annotations
		if desc.ArtifactType == "" && m.refs.Config != nil {
			desc.ArtifactType = m.refs.Config.MediaType
		}
		if artifactType == "" || desc.ArtifactType == artifactType {
			found = append(found, desc)
		}
	}
	slices.SortFunc(found, func(a, b ocispec.Descriptor) int { return strings.Compare(a.Digest.String(), b.Digest.String()) })
	return found[:min(len(found), n)]
}
