package packagetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// Ref is a manifest that a package names.
type Ref struct {
	// Name is that in the index, such as bundles/prod/shop/latest.
	Name string
	// From has the manifest and what it refers to. What it lacks is left out: manifests of other platforms, for example.
	From bundle.Source
	Root ocispec.Descriptor
	// Platform, such as linux/amd64, is that whose manifests of an index are taken. Empty means all.
	Platform string
}

// Make writes a package of refs, in the order of the contract. Unlike the exporter it does as it is told, so that a test
// can have it lie: refs may have any name, and change, which may be nil, alters the list of contents. Releases and
// artifacts of the list are those that refs name; the caller adds a platform.
func Make(ctx context.Context, refs []Ref, change func(*airgap.Contents)) (*Package, error) {
	m := maker{ctx: ctx, seen: map[digest.Digest]bool{}}
	for _, r := range refs {
		named := ocispec.Descriptor{
			MediaType: r.Root.MediaType, Digest: r.Root.Digest, Size: r.Root.Size,
			Annotations: map[string]string{ocispec.AnnotationRefName: r.Name},
		}
		m.index = append(m.index, named)
		if err := m.add(r, r.Root); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return m.write(change)
}

type maker struct {
	ctx      context.Context
	contents airgap.Contents
	index    []ocispec.Descriptor
	seen     map[digest.Digest]bool
	// The three parts of a package after its list of contents.
	head, trees, blobs [][]byte
}

// read returns a blob that is not in the package yet, or nil.
func (m *maker) read(from bundle.Source, d ocispec.Descriptor) ([]byte, error) {
	if m.seen[d.Digest] {
		return nil, nil
	}
	r, err := from.Fetch(m.ctx, d)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	m.seen[d.Digest] = true
	m.contents.Blobs++
	m.contents.Bytes += int64(len(data))
	return data, err
}

// add adds a manifest of r with what it refers to.
func (m *maker) add(r Ref, d ocispec.Descriptor) error {
	data, err := m.read(r.From, d)
	if err != nil || data == nil {
		return err
	}
	m.head = append(m.head, data)
	var manifest struct {
		Config            *ocispec.Descriptor
		Layers, Manifests []ocispec.Descriptor
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return err
	}
	folder, _, _ := strings.Cut(r.Name, "/")
	signature := strings.HasSuffix(r.Name, ".sig")
	if folder == "bundles" && !signature {
		if err := m.release(r, manifest.Config); err != nil {
			return err
		}
	}
	configs, layers := &m.head, &m.head
	switch {
	case folder == "bundles" && !signature:
		layers = &m.trees
	case folder != "bundles" && folder != "environments" && folder != bundle.TrustRepository:
		configs, layers = &m.blobs, &m.blobs
		if d.Digest == r.Root.Digest {
			m.artifact(r)
		}
	}
	add := func(to *[][]byte, part ocispec.Descriptor) error {
		data, err := m.read(r.From, part)
		if data != nil {
			*to = append(*to, data)
		}
		return err
	}
	if manifest.Config != nil {
		if err := add(configs, *manifest.Config); err != nil {
			return err
		}
	}
	for _, l := range manifest.Layers {
		if err := add(layers, l); err != nil {
			return err
		}
	}
	for _, child := range manifest.Manifests {
		if of := child.Platform; of != nil && r.Platform != "" && r.Platform != of.OS+"/"+of.Architecture {
			continue
		}
		if err := m.add(r, child); err != nil {
			return err
		}
	}
	return nil
}

// release adds the release of a bundle to the list of contents.
func (m *maker) release(r Ref, config *ocispec.Descriptor) error {
	document, err := bundle.ReadBlob(m.ctx, r.From, *config, bundle.MaxReleaseBytes)
	if err != nil {
		return err
	}
	release, err := bundle.ParseRelease(document)
	if err != nil {
		return err
	}
	m.contents.Platform = release.Platform
	m.contents.Releases = append(m.contents.Releases, airgap.ContentsRelease{
		Environment: release.Environment, ClusterType: release.ClusterType, Number: release.Number, Tag: release.Tag(), Digest: r.Root.Digest, ExpiresAt: release.ExpiresAt,
	})
	return nil
}

// artifact adds an artifact, named HOST/REPOSITORY/TAG or HOST/REPOSITORY@DIGEST, to the list of contents.
func (m *maker) artifact(r Ref) {
	a := airgap.ContentsArtifact{Type: bundle.ArtifactImage, Repository: r.Name, Digest: r.Root.Digest}
	if i := strings.IndexByte(r.Name, '@'); i >= 0 {
		a.Repository = r.Name[:i]
	} else if i := strings.LastIndexByte(r.Name, '/'); i >= 0 {
		a.Repository, a.Tag = r.Name[:i], r.Name[i+1:]
	}
	m.contents.Artifacts = append(m.contents.Artifacts, a)
}

func (m *maker) write(change func(*airgap.Contents)) (*Package, error) {
	m.contents.Blobs += 3 // of the list itself
	if change != nil {
		change(&m.contents)
	}
	list, err := m.contents.Marshal()
	if err != nil {
		return nil, err
	}
	manifest, blobs, err := ContentsBlobs(list)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := airgap.NewWriter(&out)
	if err := w.Index(append([]ocispec.Descriptor{manifest}, m.index...)); err != nil {
		return nil, err
	}
	for _, part := range [][][]byte{blobs, m.head, m.trees, m.blobs} {
		for _, data := range part {
			open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
			if err := w.Blob(bundle.NewBlob("", data).Descriptor, open); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return Parse(out.Bytes())
}

// ContentsBlobs returns the entry of the index for any bytes as a list of contents, and its blobs in their order.
func ContentsBlobs(list []byte) (manifest ocispec.Descriptor, blobs [][]byte, err error) {
	config, layer := []byte("{}"), bundle.NewBlob(airgap.MediaTypeContents, list).Descriptor
	layer.Data = nil
	data, err := json.Marshal(ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: airgap.MediaTypeContents,
		Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{layer},
	})
	manifest = bundle.NewBlob(ocispec.MediaTypeImageManifest, data).Descriptor
	manifest.Annotations = map[string]string{ocispec.AnnotationRefName: airgap.ContentsName}
	return manifest, [][]byte{data, config, list}, err
}
