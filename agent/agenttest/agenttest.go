// Package agenttest makes small signed releases and trust documents for tests and benchmarks of the agent,
// without the scheduler and the publisher, and also such as no publisher would make. Begin with New and
// NewTrust.
package agenttest

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Draft is a release before it is published.
type Draft struct {
	Release bundle.Release
	// Files holds contents by path. The first part of a path is the name of an assignment, or bundle.MetaDir.
	Files   map[string]string
	Adapter string
	// Signer is nil for a release without a signature. CoSigners sign beside it.
	Signer    crypto.Signer
	CoSigners []crypto.Signer
	// Tag is the moving tag; empty is bundle.LatestTag.
	Tag string

	// Tar, where it is set, is the tree in place of Files, uncompressed. The release document describes it as
	// one that a publisher has packed.
	Tar []byte
	// Layer, where it is set, is what lies in the registry as the layer, whatever the release document says.
	Layer []byte

	// The following change, where they are set, what would otherwise be right.
	ChangeList     func([]bundle.Assignment)
	ChangeRelease  func(*bundle.Release)
	ChangeManifest func(*ocispec.Manifest)
}

// New returns the draft of release n of stream, which is its sequence and its number, issued at that time and valid for 90 days.
func New(stream bundle.Stream, n int64, issued time.Time, files map[string]string, key crypto.Signer) Draft {
	issued = issued.UTC().Truncate(time.Second)
	return Draft{
		Release: bundle.Release{
			Schema: bundle.ReleaseSchema, Platform: stream.Platform, Environment: stream.Environment, ClusterType: stream.ClusterType,
			Sequence: n, Number: n, IssuedAt: issued, ExpiresAt: issued.Add(90 * 24 * time.Hour), BaseCommit: "c0ffee",
		},
		Files: files, Adapter: "directory", Signer: key,
	}
}

// Publish pushes the release to repo, moves the tag to it and returns its manifest's descriptor.
func (d Draft) Publish(ctx context.Context, repo oci.Target) (ocispec.Descriptor, error) {
	packed, err := d.Pack()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d.Release.Content = packed.Content
	if d.ChangeRelease != nil {
		d.ChangeRelease(&d.Release)
	}
	document, err := d.Release.Marshal()
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	config, layer := bundle.NewBlob(bundle.MediaTypeRelease, document), bundle.NewBlob(bundle.MediaTypeTree, packed.Gzip)
	if d.Layer != nil {
		layer = bundle.NewBlob(bundle.MediaTypeTree, d.Layer)
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	}
	m.Config.Data = document
	if d.ChangeManifest != nil {
		d.ChangeManifest(&m)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest := bundle.NewBlob(m.MediaType, data)
	if err := push(ctx, repo, config, layer, manifest); err != nil {
		return ocispec.Descriptor{}, err
	}
	if d.Signer != nil {
		if err := Sign(ctx, repo, manifest.Descriptor, append([]crypto.Signer{d.Signer}, d.CoSigners...)...); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return manifest.Descriptor, repo.Tag(ctx, manifest.Descriptor, cmp.Or(d.Tag, bundle.LatestTag))
}

// Pack returns the draft's tree as a publisher packs it.
func (d Draft) Pack() (*bundle.Packed, error) {
	if d.Tar == nil {
		tree, err := d.tree()
		if err != nil {
			return nil, err
		}
		return bundle.Pack(tree)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(d.Tar); err != nil {
		return nil, err
	}
	content := bundle.Content{DiffID: digest.FromBytes(d.Tar), Size: int64(len(d.Tar))}
	return &bundle.Packed{Content: content, Gzip: zipped.Bytes()}, w.Close()
}

// tree returns the draft's files and the list of its assignments.
func (d Draft) tree() ([]bundle.File, error) {
	byName := map[string][]bundle.File{}
	var files []bundle.File
	for path, content := range d.Files {
		files = append(files, bundle.File{Path: path, Data: []byte(content)})
		if name, below, _ := strings.Cut(path, "/"); name != bundle.MetaDir {
			byName[name] = append(byName[name], bundle.File{Path: below, Data: []byte(content)})
		}
	}
	var list []bundle.Assignment
	for name, own := range byName {
		slices.SortFunc(own, func(a, b bundle.File) int { return strings.Compare(a.Path, b.Path) })
		workload, target, _ := strings.Cut(name, "-")
		list = append(list, bundle.Assignment{
			Name: name, Workload: workload, Target: target, Adapter: cmp.Or(d.Adapter, "directory"), Content: bundle.ContentDigest(own),
		})
	}
	slices.SortFunc(list, func(a, b bundle.Assignment) int { return strings.Compare(a.Name, b.Name) })
	if d.ChangeList != nil {
		d.ChangeList(list)
	}
	data, err := bundle.MarshalAssignments(list)
	return append(files, bundle.File{Path: bundle.AssignmentsPath, Data: data}), err
}

// Sign makes the manifest's signatures those of keys, a key that is given twice signing twice.
func Sign(ctx context.Context, repo oci.Target, manifest ocispec.Descriptor, keys ...crypto.Signer) error {
	var signers []signature.Signer
	for _, key := range keys {
		signer, err := signature.LoadSigner(key, crypto.SHA256)
		if err != nil {
			return err
		}
		signers = append(signers, signer)
	}
	signed, err := bundle.SignManifest(manifest.Digest, "registry.example/edge", signers...)
	if err != nil {
		return err
	}
	if err := push(ctx, repo, append(signed.Blobs, signed.Manifest)...); err != nil {
		return err
	}
	return repo.Tag(ctx, signed.Manifest.Descriptor, bundle.SignatureTag(manifest.Digest))
}

func push(ctx context.Context, repo oci.Target, blobs ...bundle.Blob) error {
	for _, b := range blobs {
		ok, err := repo.Exists(ctx, b.Descriptor)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		if err := repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)); err != nil {
			return err
		}
	}
	return nil
}
