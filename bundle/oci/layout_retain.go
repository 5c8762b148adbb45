package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Retained is a manifest that stays in a layout.
type Retained struct {
	Repository, Tag string
	Manifest        ocispec.Descriptor
	// Blobs stay beside the manifest and its config. A manifest's layers that are not listed go; blobs that it
	// does not name, such as a layer's other form, may be listed.
	Blobs []digest.Digest
}

func (r Retained) ref() ocispec.Descriptor {
	d := plain(r.Manifest)
	d.Annotations = map[string]string{ocispec.AnnotationRefName: r.Repository + "/" + r.Tag}
	return d
}

// SetRefs replaces the index: afterwards it names the manifests of keep that are there, in that order, and nothing
// else. Of two with one name the first counts. The index is a function of keep and of the blobs, so one that is damaged or lost is
// written anew. An index that is right already is not written. SetRefs of a layout without blobs does nothing.
func (l *Layout) SetRefs(keep []Retained, moment Moment) error {
	return l.retain(keep, moment, func(*os.Root) error { return nil })
}

// Retain is SetRefs, and then removes all blobs that keep does not need, however new they are: it is for a layout that
// has one writer, who knows what it needs. Killed, it has removed some of them, and no ref lacks its content.
func (l *Layout) Retain(keep []Retained, moment Moment) error {
	return l.retain(keep, moment, func(root *os.Root) error {
		needed := map[digest.Digest]bool{}
		for _, r := range keep {
			named, err := readReferences(root, r.Manifest.Digest)
			if err != nil {
				return err
			}
			needed[r.Manifest.Digest] = true
			if named.Config != nil {
				needed[named.Config.Digest] = true
			}
			for _, d := range r.Blobs {
				needed[d] = true
			}
		}
		return eachBlob(root, func(name string, d digest.Digest, _ fs.FileInfo) error {
			if needed[d] {
				return nil
			}
			err := root.Remove(name)
			moment.at("prune: a blob is gone")
			return err
		})
	})
}

// retain writes the index that keep asks for and then calls sweep, all under the index's lock.
func (l *Layout) retain(keep []Retained, moment Moment, sweep func(*os.Root) error) error {
	if _, err := os.Stat(filepath.Join(l.dir, ocispec.ImageBlobsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return l.withRoot(func(root *os.Root) error {
		if err := mendVersion(root); err != nil {
			return err
		}
		data, err := json.Marshal(indexOf(root, keep))
		if err != nil {
			return err
		}
		if have, err := readFile(root, ocispec.ImageIndexFile, maxIndexBytes); err != nil || !bytes.Equal(have, data) {
			moment.at("index: before")
			if err := writeFile(root, ocispec.ImageIndexFile, bytes.NewReader(data)); err != nil {
				return err
			}
			moment.at("index: after")
		}
		return sweep(root)
	})
}

// indexOf returns the index that names what root has of keep.
func indexOf(root *os.Root, keep []Retained) ocispec.Index {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, r := range keep {
		ref := r.ref()
		named := func(o ocispec.Descriptor) bool { return nameOf(o) == nameOf(ref) }
		if statBlob(root, r.Manifest) == nil && !slices.ContainsFunc(index.Manifests, named) {
			index.Manifests = append(index.Manifests, ref)
		}
	}
	return index
}

// mendVersion writes a layout's oci-layout again where it is damaged or lost.
func mendVersion(root *os.Root) error {
	data, err := readFile(root, ocispec.ImageLayoutFile, 1<<10)
	var v ocispec.ImageLayout
	if err == nil && json.Unmarshal(data, &v) == nil && v.Version == ocispec.ImageLayoutVersion {
		return nil
	}
	if data, err = json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}); err != nil {
		return err
	}
	return writeFile(root, ocispec.ImageLayoutFile, bytes.NewReader(data))
}

func nameOf(d ocispec.Descriptor) string { return d.Annotations[ocispec.AnnotationRefName] }

// Moment is called between any two steps that a crash tells apart, with the name of what comes next: for tests that
// kill. Nil calls nobody.
type Moment func(name string)

func (m Moment) at(name string) {
	if m != nil {
		m(name)
	}
}
