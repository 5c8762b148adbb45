package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Retained is a manifest that stays in a layout.
type Retained struct {
	// Repository and Tag are the manifest's name in the index. Without a tag the name has the digest in its place, and
	// without a repository the index does not name the manifest.
	Repository, Tag string
	Manifest        ocispec.Descriptor
	// Blobs stay beside the manifest and its config. Layers of the manifest that are not listed are removed; blobs
	// that the manifest does not name, such as an uncompressed layer, may be listed.
	Blobs []digest.Digest
	// All keeps everything that the manifest refers to, manifests of an index and their layers included.
	All bool
}

func (r Retained) ref() ocispec.Descriptor {
	d := Plain(r.Manifest)
	name := r.Repository + "/" + r.Tag
	if r.Tag == "" {
		name = r.Repository + "@" + r.Manifest.Digest.String()
	}
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	return d
}

// SetRefs replaces the index: afterwards it names the manifests of keep that the layout has, in that order, and nothing
// else. If two have the same name, the first counts. The index is a function of keep and of the blobs, so a damaged or
// lost index is written anew. An index that is right already is not written. SetRefs of a layout without blobs does
// nothing.
func (l *Layout) SetRefs(keep []Retained, moment Moment) error {
	return l.retain(keep, moment, func(*os.Root) error { return nil })
}

// Retain calls SetRefs, and then removes all blobs that keep does not need, however new they are. Call it only for a
// layout with a single writer. If Retain is killed, some of those blobs may remain, and no ref lacks its content.
func (l *Layout) Retain(keep []Retained, moment Moment) error {
	return l.retain(keep, moment, func(root *os.Root) error {
		needed := map[digest.Digest]bool{}
		for _, r := range keep {
			if err := r.need(root, needed); err != nil {
				return err
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

// need adds the blobs that stay for r to needed.
func (r Retained) need(root *os.Root, needed map[digest.Digest]bool) error {
	for _, d := range r.Blobs {
		needed[d] = true
	}
	if r.All {
		marked := map[digest.Digest]bool{} // what another entry needs may be a manifest without its layers
		err := mark(root, r.Manifest.Digest, marked)
		maps.Copy(needed, marked)
		return err
	}
	named, err := readReferences(root, r.Manifest.Digest)
	if err != nil {
		return err
	}
	needed[r.Manifest.Digest] = true
	if named.Config != nil {
		needed[named.Config.Digest] = true
	}
	return nil
}

// retain writes the index of keep and then calls sweep, all under the index's lock.
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

// indexOf returns the index of those manifests of keep that root has.
func indexOf(root *os.Root, keep []Retained) ocispec.Index {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	for _, r := range keep {
		if r.Repository == "" {
			continue
		}
		ref := r.ref()
		named := func(o ocispec.Descriptor) bool { return nameOf(o) == nameOf(ref) }
		if statBlob(root, r.Manifest) == nil && !slices.ContainsFunc(index.Manifests, named) {
			index.Manifests = append(index.Manifests, ref)
		}
	}
	return index
}

// mendVersion writes a layout's oci-layout file again if it is damaged or lost.
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

// Moment is called with the name of the next step, between any two steps where a crash leaves different states. It is for
// tests that kill the process. Nil does nothing.
type Moment func(name string)

func (m Moment) at(name string) {
	if m != nil {
		m(name)
	}
}
