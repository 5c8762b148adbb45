package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// Layout is a folder in the OCI image layout that holds any number of repositories.
//
// It differs from oras's content/oci.Store, whose index is written in place and read once: here the
// index is replaced atomically, every call sees the tags that other processes have set, writers of several
// processes exclude each other, and a blob or tag survives a power cut once the call that wrote it has returned.
// Reading creates no files, so read-only media work. A Layout may be used by several goroutines.
type Layout struct {
	dir string
	// whole refuses a tag on a manifest if any content that it names is missing.
	whole bool
	// parts is the folder of unfinished downloads; empty is partsDir.
	parts string

	mu     sync.Mutex
	cached *cachedIndex
}

// NewLayout returns the layout in dir, which is created by the first write. A dir that holds other
// things is never written to.
func NewLayout(dir string) *Layout { return &Layout{dir: dir} }

// Apart returns the same layout with a folder of its own for unfinished downloads: they take no turns with those of l, and
// DropParts of the one leaves the other's.
func (l *Layout) Apart(folder string) *Layout {
	return &Layout{dir: l.dir, whole: l.whole, parts: folder}
}

// Repository returns the repository with the given name.
func (l *Layout) Repository(name string) (Target, error) {
	if err := checkStoredName(name); err != nil {
		return nil, err
	}
	return &layoutRepository{layout: l, name: name}, nil
}

// Repositories lists the repositories that have a tag, sorted.
func (l *Layout) Repositories(context.Context) ([]string, error) {
	index, err := l.readIndex()
	if err != nil {
		return nil, err
	}
	return repositoriesOf(*index), nil
}

// layoutRepository is one repository of a layout. Blobs are shared by all of them.
type layoutRepository struct {
	layout *Layout
	name   string
}

func (r *layoutRepository) refName(tag string) string { return r.name + "/" + tag }

// Resolve finds a tag in the index, or a manifest by its digest.
func (r *layoutRepository) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	index, err := r.layout.readIndex()
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("resolve %s: %w", r.refName(reference), err)
	}
	if d := digest.Digest(reference); d.Validate() == nil {
		return r.layout.describe(index, d)
	}
	for _, d := range index.Manifests {
		if nameOf(d) == r.refName(reference) {
			if err := d.Digest.Validate(); err != nil {
				return ocispec.Descriptor{}, fmt.Errorf("%s in %s is %.100q: %w", r.refName(reference), r.layout.dir, d.Digest, err)
			}
			return Plain(d), nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s in %s: %w", r.refName(reference), r.layout.dir, errdef.ErrNotFound)
}

// Tags lists the tags that the index has for the repository.
func (r *layoutRepository) Tags(context.Context) ([]string, error) {
	index, err := r.layout.readIndex()
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return tagsOf(*index, r.name), nil
}

// Exists reports whether the layout has the blob, with target's size.
func (r *layoutRepository) Exists(_ context.Context, target ocispec.Descriptor) (bool, error) {
	err := r.layout.withRoot(func(root *os.Root) error { return statBlob(root, target) })
	if errors.Is(err, errdef.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Fetch opens a blob. The caller closes it.
func (r *layoutRepository) Fetch(_ context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	var f *os.File
	err := r.layout.withRoot(func(root *os.Root) (err error) {
		// Only regular files are opened: on foreign media a blob might be a pipe.
		if err := statBlob(root, target); err != nil {
			return err
		}
		f, err = root.Open(blobPath(target.Digest))
		return err
	})
	if err != nil {
		return nil, err
	}
	return bounded(f, target), nil
}

// Push writes a blob or manifest after checking its size and digest. Its error wraps errdef.ErrAlreadyExists if
// the layout has the content already.
func (r *layoutRepository) Push(_ context.Context, expected ocispec.Descriptor, from io.Reader) error {
	err := r.layout.push(expected, from)
	if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return fmt.Errorf("write %s to %s: %w", expected.Digest, r.layout.dir, err)
	}
	return err
}

// Tag makes the tag point at a manifest; see Target.
func (r *layoutRepository) Tag(ctx context.Context, desc ocispec.Descriptor, tag string) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	if len(desc.Data) > 0 {
		if _, err := CopyBlob(ctx, nil, r, desc); err != nil {
			return err
		}
	}
	err := r.layout.withRoot(func(root *os.Root) error { return statBlob(root, desc) })
	if err != nil {
		return fmt.Errorf("tag %s: %w", r.refName(tag), err)
	}
	desc = Plain(desc)
	desc.Annotations = map[string]string{ocispec.AnnotationRefName: r.refName(tag)}
	if err := r.layout.setRef(desc); err != nil {
		return fmt.Errorf("tag %s in %s: %w", r.refName(tag), r.layout.dir, err)
	}
	return nil
}

// Untag takes the tag out of the index.
func (r *layoutRepository) Untag(_ context.Context, tag string) error {
	return r.remove(r.refName(tag), func(d ocispec.Descriptor) bool {
		return nameOf(d) == r.refName(tag)
	})
}

// Delete takes the repository's tags of a manifest out of the index, and does nothing for a manifest without a tag.
// Layout.Sweep removes the blobs that no tag needs.
func (r *layoutRepository) Delete(_ context.Context, manifest ocispec.Descriptor) error {
	err := r.remove(r.name+"@"+manifest.Digest.String(), func(d ocispec.Descriptor) bool {
		return d.Digest == manifest.Digest && path.Dir(nameOf(d)) == r.name
	})
	if errors.Is(err, errdef.ErrNotFound) {
		return nil
	}
	return err
}

func (r *layoutRepository) remove(what string, is func(ocispec.Descriptor) bool) error {
	err := r.layout.changeIndex(func(_ *os.Root, all []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if !slices.ContainsFunc(all, is) {
			return nil, errdef.ErrNotFound
		}
		return slices.DeleteFunc(slices.Clone(all), is), nil
	})
	if err != nil {
		return fmt.Errorf("delete %s from %s: %w", what, r.layout.dir, err)
	}
	return nil
}

// describe returns the descriptor of a manifest, tagged or not.
func (l *Layout) describe(index *ocispec.Index, d digest.Digest) (ocispec.Descriptor, error) {
	for _, m := range index.Manifests {
		if m.Digest == d {
			return Plain(m), nil
		}
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d}
	err := l.withRoot(func(root *os.Root) error {
		info, err := regular(root, blobPath(d))
		if err != nil {
			return err
		}
		desc.Size = info.Size()
		data, err := readFile(root, blobPath(d), maxManifestBytes)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &struct {
			MediaType *string `json:"mediaType"`
		}{&desc.MediaType})
	})
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("manifest %s in %s: %w", d, l.dir, err)
	}
	return desc, nil
}

// withRoot calls f with the layout's folder as an os.Root, so that no link in it leads out of it.
func (l *Layout) withRoot(f func(*os.Root) error) error {
	root, err := os.OpenRoot(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.missing()
	}
	if err != nil {
		return fmt.Errorf("open OCI layout %s: %w", l.dir, err)
	}
	defer root.Close()
	return f(root)
}

func (l *Layout) missing() error {
	return fmt.Errorf("%w in %s (%w)", ErrNoLayout, l.dir, errdef.ErrNotFound)
}

// Plain returns d with the three fields that a registry would answer: media type, digest and size.
func Plain(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

func blobPath(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

// statBlob returns an error wrapping errdef.ErrNotFound unless the blob exists with d's size.
func statBlob(root *os.Root, d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("%q: %w", d.Digest, err)
	}
	info, err := regular(root, blobPath(d.Digest))
	if err != nil {
		return err
	}
	if info.Size() != d.Size {
		return fmt.Errorf("blob %s has %d bytes instead of %d: %w", d.Digest, info.Size(), d.Size, errdef.ErrNotFound)
	}
	return nil
}

func regular(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", strings.TrimPrefix(name, ocispec.ImageBlobsDir+"/"), errdef.ErrNotFound)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	return info, err
}

var _ content.Storage = (*layoutRepository)(nil)
