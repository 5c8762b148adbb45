package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// Swept counts the blobs that no tag of a layout needs, and their bytes.
type Swept struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// Sweep removes the blobs that nothing in the index needs, except those written at or after before: a publisher writes
// blobs first and the tag last. Sweep holds the index's lock, so a concurrent Tag either comes first and is seen, or
// fails because its manifest is gone. If Sweep is killed, it has removed some of the blobs.
func (l *Layout) Sweep(ctx context.Context, before time.Time) (Swept, error) {
	unlock, err := l.lock()
	if err != nil {
		return Swept{}, err
	}
	defer unlock()
	return l.sweep(ctx, before, nil, func(root *os.Root, name string) error { return root.Remove(name) })
}

// Sweepable counts the blobs that Sweep would remove if the tags in without, given as ref names, did not exist.
func (l *Layout) Sweepable(ctx context.Context, before time.Time, without map[string]bool) (Swept, error) {
	return l.sweep(ctx, before, without, func(*os.Root, string) error { return nil })
}

func (l *Layout) sweep(ctx context.Context, before time.Time, without map[string]bool, remove func(*os.Root, string) error) (s Swept, err error) {
	index, err := l.readIndex()
	if err != nil {
		return s, err
	}
	err = l.withRoot(func(root *os.Root) error {
		needed := map[digest.Digest]bool{}
		for _, d := range index.Manifests {
			if without[nameOf(d)] {
				continue
			}
			for _, m := range append(subject(d), d.Digest) {
				if err := mark(root, m, needed); err != nil {
					return err
				}
			}
		}
		return eachBlob(root, func(name string, d digest.Digest, info fs.FileInfo) error {
			if needed[d] || !info.ModTime().Before(before) || ctx.Err() != nil {
				return ctx.Err()
			}
			s.Blobs, s.Bytes = s.Blobs+1, s.Bytes+info.Size()
			return remove(root, name)
		})
	})
	if err != nil {
		err = fmt.Errorf("sweep %s: %w", l.dir, err)
	}
	return s, err
}

// subject returns the manifest that d signs, if d is a signature. That manifest is needed as long as the signature is
// tagged: a publisher tags the signature before the release.
func subject(d ocispec.Descriptor) []digest.Digest {
	if of := SubjectOfTag(path.Base(nameOf(d))); of != "" {
		return []digest.Digest{of}
	}
	return nil
}

// references are the descriptors in a manifest or an index.
type references struct {
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

// all returns the config, the layers and the manifests, in this order.
func (r references) all() []ocispec.Descriptor {
	var all []ocispec.Descriptor
	if r.Config != nil {
		all = append(all, *r.Config)
	}
	return append(append(all, r.Layers...), r.Manifests...)
}

// readReferences returns no references for a blob that is missing or that is neither a manifest nor an index.
func readReferences(root *os.Root, d digest.Digest) (r references, err error) {
	if err := d.Validate(); err != nil {
		return r, fmt.Errorf("%q: %w", d, err)
	}
	data, err := readFile(root, blobPath(d), maxManifestBytes)
	if errors.Is(err, errdef.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	_ = json.Unmarshal(data, &r) // other content has no references
	return r, nil
}

// mark adds d, and everything that it refers to, to needed.
func mark(root *os.Root, d digest.Digest, needed map[digest.Digest]bool) error {
	if needed[d] {
		return nil
	}
	needed[d] = true
	r, err := readReferences(root, d)
	if err != nil {
		return err
	}
	for _, m := range r.Manifests {
		if err := mark(root, m.Digest, needed); err != nil {
			return err
		}
	}
	for _, b := range r.all() {
		needed[b.Digest] = true
	}
	return nil
}

// checkWhole returns an error wrapping errdef.ErrNotFound unless the layout has everything that the manifest refers to.
func checkWhole(root *os.Root, manifest ocispec.Descriptor) error {
	if err := statBlob(root, manifest); err != nil {
		return err
	}
	r, err := readReferences(root, manifest.Digest)
	if err != nil {
		return err
	}
	for _, d := range r.all() {
		if err := statBlob(root, d); err != nil {
			return err
		}
	}
	return nil
}

// eachBlob calls f for each file whose name is a digest.
func eachBlob(root *os.Root, f func(name string, d digest.Digest, info fs.FileInfo) error) error {
	algorithms, err := fs.ReadDir(root.FS(), ocispec.ImageBlobsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, algorithm := range algorithms {
		if !algorithm.IsDir() {
			continue
		}
		dir := path.Join(ocispec.ImageBlobsDir, algorithm.Name())
		files, err := fs.ReadDir(root.FS(), dir)
		if err != nil {
			return err
		}
		for _, file := range files {
			d := digest.NewDigestFromEncoded(digest.Algorithm(algorithm.Name()), file.Name())
			info, err := file.Info()
			if err != nil || d.Validate() != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := f(path.Join(dir, file.Name()), d, info); err != nil {
				return err
			}
		}
	}
	return nil
}
