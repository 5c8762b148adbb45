package oci

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/lockedfile"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

const (
	// maxIndexBytes bounds index.json: about MaxTags entries.
	maxIndexBytes = 64 << 20
	// maxManifestBytes bounds what is read to learn a manifest's media type.
	maxManifestBytes = 4 << 20
	// ingestDir takes files while they are written. What a killed writer leaves there is removed by a
	// later one once it is ingestAge old.
	ingestDir = "ingest"
	ingestAge = time.Hour
	// lockName is locked while the index changes. The file is empty and stays.
	lockName = "index.json.lock"
)

// cachedIndex is the index as of the file that info describes. Nobody changes it.
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
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	old, err := l.readIndex()
	if err != nil {
		return err
	}
	ref := desc.Annotations[ocispec.AnnotationRefName]
	index := *old
	index.Manifests = slices.DeleteFunc(slices.Clone(old.Manifests), func(d ocispec.Descriptor) bool {
		return d.Annotations[ocispec.AnnotationRefName] == ref
	})
	index.Manifests = append(index.Manifests, desc)
	slices.SortStableFunc(index.Manifests, func(a, b ocispec.Descriptor) int {
		return cmp.Compare(a.Annotations[ocispec.AnnotationRefName], b.Annotations[ocispec.AnnotationRefName])
	})
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return l.withRoot(func(root *os.Root) error {
		return writeFile(root, ocispec.ImageIndexFile, bytes.NewReader(data))
	})
}

// push writes a blob. It returns errdef.ErrAlreadyExists for one that is there in full.
func (l *Layout) push(expected ocispec.Descriptor, from io.Reader) error {
	if err := expected.Digest.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o777); err != nil {
		return err
	}
	return l.withRoot(func(root *os.Root) error {
		if err := l.create(root); err != nil {
			return err
		}
		switch err := statBlob(root, expected); {
		case err == nil:
			return fmt.Errorf("%s: %w", expected.Digest, errdef.ErrAlreadyExists)
		case !errors.Is(err, errdef.ErrNotFound):
			return err
		}
		checked := content.NewVerifyReader(from, expected)
		return writeFile(root, blobPath(expected.Digest), readVerified{checked})
	})
}

// readVerified yields the end of its content only after the content was found to be what it should be.
type readVerified struct{ *content.VerifyReader }

func (r readVerified) Read(p []byte) (int, error) {
	n, err := r.VerifyReader.Read(p)
	if errors.Is(err, io.EOF) {
		if bad := r.Verify(); bad != nil {
			err = bad
		}
	}
	return n, err
}

// create makes an empty folder a layout. One that holds something else is left alone.
func (l *Layout) create(root *os.Root) error {
	data, err := readFile(root, ocispec.ImageLayoutFile, 1<<10)
	switch {
	case err == nil:
		var v ocispec.ImageLayout
		if err := json.Unmarshal(data, &v); err != nil || v.Version != ocispec.ImageLayoutVersion {
			return fmt.Errorf("%s does not say version %s of the OCI image layout", ocispec.ImageLayoutFile, ocispec.ImageLayoutVersion)
		}
	case !errors.Is(err, errdef.ErrNotFound):
		return err
	default:
		if err := checkEmpty(root); err != nil {
			return err
		}
		if data, err = json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}); err != nil {
			return err
		}
		if err := writeFile(root, ocispec.ImageLayoutFile, bytes.NewReader(data)); err != nil {
			return err
		}
	}
	if _, err := root.Stat(ocispec.ImageIndexFile); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removeStale(root)
	return l.createIndex(root)
}

func checkEmpty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && name != ingestDir && name != "lost+found" {
			return fmt.Errorf("%w, but not empty either: it holds %q", ErrNoLayout, name)
		}
	}
	return nil
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

// removeStale removes what killed writers left behind. It is a courtesy: its errors change nothing.
func removeStale(root *os.Root) {
	entries, _ := fs.ReadDir(root.FS(), ingestDir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > ingestAge {
			_ = root.Remove(path.Join(ingestDir, e.Name()))
		}
	}
}

// writeFile makes name hold what from yields: whole or not at all, and on disk before it returns.
func writeFile(root *os.Root, name string, from io.Reader) (err error) {
	for _, dir := range []string{ingestDir, path.Dir(name)} {
		if err := makeDir(root, dir); err != nil {
			return err
		}
	}
	temp := path.Join(ingestDir, rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(temp)
		}
	}()
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = root.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(root, path.Dir(name))
}

// makeDir makes dir and its parents and has each of them on disk.
func makeDir(root *os.Root, dir string) error {
	if _, err := root.Stat(dir); err == nil {
		return nil
	}
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for dir != "." {
		dir = path.Dir(dir)
		if err := syncDir(root, dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readFile returns a regular file of at most limit bytes.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := regular(root, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", name, info.Size(), limit)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
