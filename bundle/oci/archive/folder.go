package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// OpenFolder reads the index of an unpacked layout. The error wraps ErrFormat if dir holds none.
func OpenFolder(fsys FS, dir string) (*Layout, error) {
	l := &Layout{blobs: folder{fsys, dir}}
	for _, name := range []string{ocispec.ImageLayoutFile, ocispec.ImageIndexFile} {
		f, err := fsys.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", dir, Missing(name))
		}
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil {
			err = l.readHead(name, info.Size(), f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	return l, nil
}

// folder is an unpacked layout.
type folder struct {
	fsys FS
	dir  string
}

func (f folder) path(d digest.Digest) string {
	return filepath.Join(f.dir, filepath.FromSlash(BlobPath(d)))
}

func (f folder) size(d digest.Digest) (int64, bool) {
	info, err := f.fsys.Stat(f.path(d))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

func (f folder) open(d digest.Digest) (io.ReadCloser, error) {
	r, err := f.fsys.Open(f.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: blob %s: %w", ErrFormat, d, errdef.ErrNotFound)
	}
	return r, err
}

func (f folder) all() (all []digest.Digest, err error) {
	dir := filepath.Join(f.dir, ocispec.ImageBlobsDir, digest.SHA256.String())
	entries, err := f.fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(entries) > MaxEntries {
		return nil, fmt.Errorf("%w: %s holds more than %d files", ErrFormat, dir, MaxEntries)
	}
	for _, e := range entries {
		if d := digest.NewDigestFromEncoded(digest.SHA256, e.Name()); d.Validate() == nil && e.Type().IsRegular() {
			all = append(all, d)
		}
	}
	return all, nil
}
