// Package graph finds what an artifact in a registry consists of: its manifests on some platforms, and their blobs.
//
// Begin with Walk. The manifests may come from anywhere: their number, depth and sizes are bounded, and nothing but what
// is below the root's digest is read. The caller compares what it fetches with the digests.
package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

// The bounds of one artifact.
const (
	// MaxManifestBytes bounds a manifest; registries refuse larger ones.
	MaxManifestBytes = 4 << 20

	maxManifests = 64 // of the chosen platforms, with the index
	maxBlobs     = 4096
	maxDepth     = 3 // of indexes in indexes
)

// Graph is what an artifact consists of on the chosen platforms. The descriptors have a media type, a digest and a size.
type Graph struct {
	// Manifests begins with the artifact's own, and has each index before its manifests.
	Manifests []ocispec.Descriptor
	// Blobs are the configs and layers, each once, in the order in which the manifests name them.
	Blobs []ocispec.Descriptor
	// Absent counts the manifests of an index that get did not find; see Walk.
	Absent int
}

// All returns the manifests, and then the blobs.
func (g Graph) All() []ocispec.Descriptor { return slices.Concat(g.Manifests, g.Blobs) }

// InvalidError is the error of an artifact that nobody can use, whoever serves it.
type InvalidError struct{ text string }

func (e *InvalidError) Error() string { return e.text }

// Invalid returns an *InvalidError.
func Invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

func invalid(format string, args ...any) error { return Invalid(format, args...) }

// Walk reads the manifests below root by get, in the order of Graph.Manifests, at most MaxManifestBytes of each. Without
// platforms it takes the manifests of an index that get finds, whatever they are for. The error is an *InvalidError, or that of get.
func Walk(root ocispec.Descriptor, platforms Platforms, get func(ocispec.Descriptor) ([]byte, error)) (g Graph, err error) {
	type level struct {
		ocispec.Descriptor
		depth int
	}
	seen := map[digest.Digest]bool{root.Digest: true}
	for queue := []level{{root, 0}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if len(g.Manifests) == maxManifests || at.depth > maxDepth {
			return g, invalid("it has more than %d manifests, or more than %d indexes in one another", maxManifests, maxDepth)
		}
		data, err := get(at.Descriptor)
		if platforms == nil && at.depth > 0 && errors.Is(err, errdef.ErrNotFound) {
			g.Absent++
			continue
		}
		if err != nil {
			return g, err
		}
		m, err := parse(data)
		if err != nil {
			return g, err
		}
		at.MediaType = m.mediaType(at.MediaType)
		g.Manifests = append(g.Manifests, ocispec.Descriptor{MediaType: at.MediaType, Digest: at.Digest, Size: int64(len(data))})
		for _, blob := range m.blobs() {
			if !seen[blob.Digest] {
				seen[blob.Digest] = true
				g.Blobs = append(g.Blobs, blob)
			}
		}
		if len(g.Blobs) > maxBlobs {
			return g, invalid("it has more than %d layers", maxBlobs)
		}
		children, err := m.children(platforms)
		if err != nil {
			return g, err
		}
		for _, child := range children {
			if !seen[child.Digest] {
				seen[child.Digest] = true
				queue = append(queue, level{child, at.depth + 1})
			}
		}
	}
	return g, nil
}

// manifest is a manifest or an index.
type manifest struct {
	MediaType string               `json:"mediaType"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

// parse reads a manifest or an index. Every descriptor in it has a SHA-256 digest and a size.
func parse(data []byte) (m manifest, err error) {
	if err := json.Unmarshal(data, &m); err != nil {
		return m, invalid("its manifest is not JSON")
	}
	if m.Config == nil && m.Manifests == nil {
		return m, invalid("it has neither a config nor manifests: not an OCI artifact")
	}
	all := slices.Concat(m.Layers, m.Manifests)
	if m.Config != nil {
		all = append(all, *m.Config)
	}
	for _, d := range all {
		if d.Digest.Validate() != nil || d.Digest.Algorithm() != digest.SHA256 || d.Size < 0 {
			return m, invalid("its manifest names %.100q, which is no SHA-256 digest, or has a negative size", d.Digest)
		}
	}
	return m, nil
}

// mediaType returns the media type: the one in the manifest, else the one that was served, unless that is wrong.
func (m manifest) mediaType(served string) string {
	switch {
	case m.MediaType != "":
		return m.MediaType
	case m.Manifests != nil && !strings.Contains(served, "list") && !strings.Contains(served, "index"):
		return ocispec.MediaTypeImageIndex
	case served != "":
		return served
	}
	return ocispec.MediaTypeImageManifest
}

// blobs returns the config and the layers, without those that no registry may pass on.
func (m manifest) blobs() (all []ocispec.Descriptor) {
	if m.Config != nil {
		all = append(all, *m.Config)
	}
	for _, layer := range m.Layers {
		if !strings.Contains(layer.MediaType, ".foreign.") && !strings.Contains(layer.MediaType, ".nondistributable.") {
			all = append(all, layer)
		}
	}
	for i := range all {
		all[i] = ocispec.Descriptor{MediaType: all[i].MediaType, Digest: all[i].Digest, Size: all[i].Size}
	}
	return all
}

// children returns the manifests of an index that are for the platforms.
func (m manifest) children(platforms Platforms) (all []ocispec.Descriptor, err error) {
	var others []string
	for _, d := range m.Manifests {
		if platforms != nil && d.Annotations["vnd.docker.reference.type"] != "" { // an attestation
			continue
		}
		if platforms != nil && !platforms.has(d.Platform) {
			if name := nameOf(d.Platform); !slices.Contains(others, name) {
				others = append(others, name)
			}
			continue
		}
		if d.Size > MaxManifestBytes {
			return nil, invalid("its index names a manifest of %d bytes, at most %d are allowed", d.Size, MaxManifestBytes)
		}
		all = append(all, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	}
	if len(all) == 0 && m.Config == nil && platforms != nil {
		return nil, invalid("it is not for %s, but for %s", strings.Join(platforms, " or "), bundle.Clip(strings.Join(others, ", ")))
	}
	return all, nil
}
