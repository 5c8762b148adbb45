package airgap

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/regularfile"
)

// Bounds on a file from outside.
const (
	maxEntries    = 200_000
	maxIndexBytes = 4 << 20
	// maxManifests bounds the entries of the index: one of 3 bytes takes 200 in memory. A bundle has 3 entries.
	maxManifests = 20_000
	// maxNameBytes bounds the names of files and media types. It is longer than blobs/sha512/ with a digest; a tar
	// may have names of a megabyte each.
	maxNameBytes = 256
)

// ErrFormat is wrapped by errors about files that hold no OCI layout in a tar, or not the wanted kind.
var ErrFormat = errors.New("no usable OCI layout in a tar")

// layout reads an OCI layout from an uncompressed tar, in place. It reads a manifest only on request: oras' reader for
// such files walks all of them first, and so fails on a changed manifest that has to be named and refused.
type layout struct {
	file    *os.File
	entries map[string]span
	index   ocispec.Index
}

// span is the position of an entry's content in the tar, in bytes.
type span struct{ offset, size int64 }

func openLayout(path string) (*layout, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	l := &layout{file: f, entries: map[string]span{}}
	err = l.readEntries()
	if err == nil {
		err = l.readIndex()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

func (l *layout) Close() error { return l.file.Close() }

func (l *layout) readEntries() error {
	if remedy := l.compressed(); remedy != "" {
		return fmt.Errorf("%w: the file is compressed: unpack it with %s", ErrFormat, remedy)
	}
	tr := tar.NewReader(l.file)
	seen := map[string]bool{} // files and folders
	for {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: the file is cut short", ErrFormat)
		case errors.Is(err, tar.ErrHeader):
			return fmt.Errorf("%w: %v", ErrFormat, err)
		case err != nil:
			return err
		case len(seen) == maxEntries:
			return fmt.Errorf("%w: more than %d entries", ErrFormat, maxEntries)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir || len(h.Name) > maxNameBytes {
			continue
		}
		name, ok := entryName(h)
		if !ok {
			continue
		}
		if seen[name] {
			return fmt.Errorf("%w: it holds %.100q twice", ErrFormat, name)
		}
		if seen[name] = true; h.Typeflag == tar.TypeDir {
			continue
		}
		offset, err := l.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		l.entries[name] = span{offset, h.Size}
	}
}

// entryName returns the name of a file or folder in the layout, such as blobs/sha256. "tar -C layout ." writes
// ./blobs/sha256/. It returns false for names in another form, such as ././index.json or ./../index.json, which belong to
// no layout.
func entryName(h *tar.Header) (string, bool) {
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
		if name == "" {
			name = "."
		}
	}
	return name, fs.ValidPath(name)
}

// compressed returns the name of the command that decompresses the file, if it begins as a gzip or zstd file does.
func (l *layout) compressed() string {
	var begins [4]byte
	_, _ = l.file.ReadAt(begins[:], 0) // the tar reader reports a shorter file
	switch {
	case begins[0] == 0x1f && begins[1] == 0x8b:
		return "gunzip"
	case begins == [4]byte{0x28, 0xb5, 0x2f, 0xfd}:
		return "unzstd"
	}
	return ""
}

func (l *layout) readIndex() error {
	if len(l.entries) == 0 {
		return fmt.Errorf("%w: the file holds nothing", ErrFormat)
	}
	var version ocispec.ImageLayout
	if err := l.readJSON(ocispec.ImageLayoutFile, &version); err != nil {
		return err
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%w: layout version %q, known is %q", ErrFormat, version.Version, ocispec.ImageLayoutVersion)
	}
	return l.readJSON(ocispec.ImageIndexFile, &l.index)
}

func (l *layout) readJSON(name string, into any) error {
	at, ok := l.entries[name]
	switch {
	case !ok:
		return fmt.Errorf("%w: %s is missing", ErrFormat, name)
	case at.size > maxIndexBytes:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrFormat, name, at.size, maxIndexBytes)
	}
	data, err := io.ReadAll(l.section(at))
	if err != nil {
		return err
	}
	return checkJSON(name, data, into)
}

// checkJSON decodes a file of a layout; the index only if it is within its bounds.
func checkJSON(name string, data []byte, into any) error {
	index, isIndex := into.(*ocispec.Index)
	if isIndex {
		var counted struct {
			Manifests []json.RawMessage `json:"manifests"`
		}
		if err := json.Unmarshal(data, &counted); err != nil {
			return fmt.Errorf("%w: %s: %v", ErrFormat, name, err)
		}
		if n := len(counted.Manifests); n > maxManifests {
			return fmt.Errorf("%w: the index lists %d manifests, at most %d are allowed", ErrFormat, n, maxManifests)
		}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrFormat, name, err)
	}
	if !isIndex {
		return nil
	}
	for _, d := range index.Manifests { // both go into reports
		if err := d.Digest.Validate(); err != nil || len(d.MediaType) > maxNameBytes {
			return fmt.Errorf("%w: the index names %.100q of type %.100q, which is not a manifest", ErrFormat, d.Digest, d.MediaType)
		}
	}
	return nil
}

func (l *layout) section(at span) *io.SectionReader {
	return io.NewSectionReader(l.file, at.offset, at.size)
}

// Resolve returns the descriptor whose ref.name annotation is reference, or the one of a digest. The descriptor has only
// the fields that a registry would answer.
func (l *layout) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	for _, d := range l.index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == reference {
			return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, nil
		}
	}
	for _, d := range l.index.Manifests {
		if d.Digest.String() == reference {
			return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s: %w", reference, errdef.ErrNotFound)
}

// Fetch returns a blob's bytes, unverified. A file, unlike a link, is either whole or changed: a blob
// of another length is refused.
func (l *layout) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w", d.Digest, err)
	}
	at, ok := l.entries[blobPath(d.Digest)]
	if !ok {
		return nil, fmt.Errorf("%w: blob %s: %w (is the file cut short?)", ErrFormat, d.Digest, errdef.ErrNotFound)
	}
	if at.size != d.Size {
		return nil, mismatch(d.Digest, "has %d bytes, its descriptor says %d", at.size, d.Size)
	}
	return io.NopCloser(l.section(at)), nil
}

func mismatch(d digest.Digest, format string, args ...any) error {
	return &bundle.Refusal{Reason: bundle.DigestMismatch, Message: fmt.Sprintf("blob %s ", d) + fmt.Sprintf(format, args...)}
}
