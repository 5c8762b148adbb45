package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

const (
	// maxManifestBytes bounds a manifest that is read for its media type or its references.
	maxManifestBytes = 4 << 20
	// ingestDir holds files while they are written. A later writer removes the files of a killed one once they are
	// ingestAge old.
	ingestDir = "ingest"
	ingestAge = time.Hour
)

// push writes a blob. It returns errdef.ErrAlreadyExists if the layout has it in full.
func (l *Layout) push(expected ocispec.Descriptor, from io.Reader) error {
	if err := expected.Digest.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o777); err != nil {
		return onDisk(err)
	}
	return l.withRoot(func(root *os.Root) error {
		if err := l.create(root); err != nil {
			return onDisk(err)
		}
		switch err := statBlob(root, expected); {
		case err == nil:
			return fmt.Errorf("%s: %w", expected.Digest, errdef.ErrAlreadyExists)
		case !errors.Is(err, errdef.ErrNotFound):
			return onDisk(err)
		}
		source := &foreign{Reader: from}
		err := writeFile(root, blobPath(expected.Digest), readVerified{content.NewVerifyReader(source, expected)})
		if source.err != nil || errors.Is(err, content.ErrMismatchedDigest) || errors.Is(err, content.ErrTrailingData) {
			return err
		}
		return onDisk(err)
	})
}

// foreign remembers that an error is not one of the disk that is written to.
type foreign struct {
	io.Reader
	err error
}

func (f *foreign) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// readVerified returns io.EOF only if the content has the expected size and digest.
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

// create makes an empty folder a layout. It returns an error wrapping ErrNoLayout if the folder holds something else.
func (l *Layout) create(root *os.Root) error {
	data, err := readFile(root, ocispec.ImageLayoutFile, 1<<10)
	switch {
	case err == nil:
		var v ocispec.ImageLayout
		if err := json.Unmarshal(data, &v); err != nil || v.Version != ocispec.ImageLayoutVersion {
			return fmt.Errorf("%s does not say version %s of the OCI image layout", ocispec.ImageLayoutFile, ocispec.ImageLayoutVersion)
		}
		removeStale(root)
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
	return l.createIndex(root)
}

func checkEmpty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ocispec.ImageLayoutFile }) {
		return nil // another process was faster
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && name != ingestDir && name != "lost+found" {
			return fmt.Errorf("%w, but not empty either: it holds %q", ErrNoLayout, name)
		}
	}
	return nil
}

// removeStale removes the files of killed writers. Its errors are ignored, since it only saves space.
func removeStale(root *os.Root) {
	entries, _ := fs.ReadDir(root.FS(), ingestDir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > ingestAge {
			_ = root.Remove(path.Join(ingestDir, e.Name()))
		}
	}
}
