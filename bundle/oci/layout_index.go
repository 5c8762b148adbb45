package oci

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/lockedfile"
)

const (
	// maxIndexBytes bounds index.json: about MaxTags entries.
	maxIndexBytes = 64 << 20
	// lockName is locked while the index changes. The file is empty and stays.
	lockName = "index.json.lock"
)

// cachedIndex is the content of the index file that info describes. It is never changed.
type cachedIndex struct {
	info  fs.FileInfo
	index *ocispec.Index
}

// readIndex returns index.json as it is now. The result is shared and must not be changed.
func (l *Layout) readIndex() (*ocispec.Index, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.withRoot(func(root *os.Root) error {
		info, err := root.Stat(ocispec.ImageIndexFile)
		if errors.Is(err, fs.ErrNotExist) {
			return l.missing()
		}
		if err != nil {
			return err
		}
		// Each write makes a new file, so an equal one has equal content.
		if c := l.cached; c != nil && os.SameFile(c.info, info) && c.info.ModTime().Equal(info.ModTime()) && c.info.Size() == info.Size() {
			return nil
		}
		data, err := readFile(root, ocispec.ImageIndexFile, maxIndexBytes)
		if err != nil {
			return err
		}
		index := new(ocispec.Index)
		if err := json.Unmarshal(data, index); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(l.dir, ocispec.ImageIndexFile), err)
		}
		l.cached = &cachedIndex{info, index}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l.cached.index, nil
}

// setRef puts desc into the index, in place of the entry with the same ref name.
func (l *Layout) setRef(desc ocispec.Descriptor) error {
	ref := nameOf(desc)
	return l.changeIndex(func(root *os.Root, all []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if l.whole {
			if err := checkWhole(root, desc); err != nil {
				return nil, err
			}
		}
		all = slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool {
			return nameOf(d) == ref
		})
		all = append(all, desc)
		slices.SortStableFunc(all, func(a, b ocispec.Descriptor) int {
			return cmp.Compare(nameOf(a), nameOf(b))
		})
		return all, nil
	})
}

// changeIndex replaces the index's manifests by the result of change. It holds the lock, so that no other process changes
// the index or sweeps blobs meanwhile.
func (l *Layout) changeIndex(change func(root *os.Root, all []ocispec.Descriptor) ([]ocispec.Descriptor, error)) error {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	old, err := l.readIndex()
	if err != nil {
		return err
	}
	return l.withRoot(func(root *os.Root) error {
		index := *old
		if index.Manifests, err = change(root, old.Manifests); err != nil {
			return err
		}
		data, err := json.Marshal(index)
		if err != nil {
			return err
		}
		return writeFile(root, ocispec.ImageIndexFile, bytes.NewReader(data))
	})
}

// createIndex writes an empty index unless another process was faster.
func (l *Layout) createIndex(root *os.Root) error {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := root.Stat(ocispec.ImageIndexFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{},
	})
	if err != nil {
		return err
	}
	return writeFile(root, ocispec.ImageIndexFile, bytes.NewReader(data))
}

// lock keeps other writers of the index out, in this process and in others.
func (l *Layout) lock() (unlock func(), err error) {
	return lockedfile.MutexAt(filepath.Join(l.dir, lockName)).Lock()
}
