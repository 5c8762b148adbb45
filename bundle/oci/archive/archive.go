// Package archive reads OCI image layouts without unpacking them: in an uncompressed tar, in one that is cut into parts,
// and in a folder.
//
// Begin with Find, which opens what a person names. Open reads the layout of a file that is open already. Files come from
// outside: sizes and counts are bounded, and no content is trusted. Nothing is ever written.
package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

// Bounds on a file from outside.
const (
	// MaxEntries bounds the files and folders of a layout.
	MaxEntries = 200_000
	// MaxIndexBytes bounds index.json.
	MaxIndexBytes = 4 << 20
	// MaxManifests bounds the entries of the index: one of 3 bytes takes 200 in memory.
	MaxManifests = 20_000
	// MaxNameBytes bounds the names of files and media types. It is longer than blobs/sha512/ with a digest; a tar
	// may have names of a megabyte each.
	MaxNameBytes = 256
)

// ErrFormat is wrapped by errors about files that hold no OCI layout in a tar, or not the wanted kind.
var ErrFormat = errors.New("unusable file")

// ErrDamaged is wrapped by errors about files that are a tar, but are cut short or have changed bytes between their
// entries. Such errors are ErrFormat as well.
var ErrDamaged error = damaged{}

type damaged struct{}

func (damaged) Error() string        { return "the medium or this copy is damaged" }
func (damaged) Is(target error) bool { return target == ErrFormat }

// Layout is an OCI image layout whose blobs can be read in any order. It reads a manifest only on request: oras' reader
// for such files walks all of them first, and so fails on a changed manifest that has to be named and refused. It may be
// used by several goroutines.
type Layout struct {
	index ocispec.Index
	blobs blobs
}

// blobs are the files of a layout below blobs.
type blobs interface {
	// size returns the size of a blob, and false if the layout does not have it.
	size(d digest.Digest) (int64, bool)
	// open opens a blob that the layout has.
	open(d digest.Digest) (io.ReadCloser, error)
	// all lists the blobs, in no order.
	all() ([]digest.Digest, error)
}

// Open reads the names of the files in the tar, and its index. The caller closes from, after the Layout. The error wraps
// ErrFormat if from holds no OCI layout in a tar.
func Open(from io.ReaderAt, size int64) (*Layout, error) {
	if remedy := Compressed(from); remedy != "" {
		return nil, fmt.Errorf("%w: %s", ErrFormat, remedy)
	}
	t := tarFile{from, map[string]span{}}
	if err := t.readEntries(size); err != nil {
		return nil, err
	}
	if len(t.entries) == 0 {
		return nil, fmt.Errorf("%w: the file holds nothing", ErrFormat)
	}
	l := &Layout{blobs: t}
	for _, name := range []string{ocispec.ImageLayoutFile, ocispec.ImageIndexFile} {
		at, ok := t.entries[name]
		if !ok {
			return nil, Missing(name)
		}
		if err := l.readHead(name, at.size, t.section(at)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// OpenFile is Open for a file, whose name is in the error.
func OpenFile(f *os.File) (*Layout, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l, err := Open(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return l, nil
}

// Missing is the error of a layout without oci-layout or index.json. A file that has the first alone has lost its rest.
func Missing(name string) error {
	if name == ocispec.ImageIndexFile {
		return fmt.Errorf("%w: %s is missing", ErrDamaged, name)
	}
	return fmt.Errorf("%w: %s is missing", ErrFormat, name)
}

// readHead reads oci-layout or index.json.
func (l *Layout) readHead(name string, size int64, r io.Reader) error {
	if size > MaxIndexBytes {
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrFormat, name, size, MaxIndexBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxIndexBytes))
	if err != nil {
		return err
	}
	if name == ocispec.ImageIndexFile {
		l.index, err = ParseIndex(data)
		return err
	}
	return CheckVersion(data)
}

// Index returns the index. Its digests are valid, and its media types of bounded length.
func (l *Layout) Index() ocispec.Index { return l.index }

// Size returns the size of a blob's file, and false if the layout does not have the blob.
func (l *Layout) Size(d digest.Digest) (int64, bool) {
	if d.Validate() != nil {
		return 0, false
	}
	return l.blobs.size(d)
}

// Blob opens a blob, whatever its size. The error wraps errdef.ErrNotFound if the layout does not have it. The caller
// closes it.
func (l *Layout) Blob(d digest.Digest) (io.ReadCloser, error) {
	if _, ok := l.Size(d); !ok {
		return nil, fmt.Errorf("blob %.100s: %w", d, errdef.ErrNotFound)
	}
	return l.blobs.open(d)
}

// Digests lists the blobs, sorted.
func (l *Layout) Digests() ([]digest.Digest, error) {
	all, err := l.blobs.all()
	slices.Sort(all)
	return all, err
}

// Resolve returns the descriptor whose ref.name annotation is reference, or the one of a digest in the index. The
// descriptor has only the fields that a registry would answer.
func (l *Layout) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
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
func (l *Layout) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w", d.Digest, err)
	}
	size, ok := l.blobs.size(d.Digest)
	if !ok {
		return nil, fmt.Errorf("%w: blob %s: %w (is the file cut short?)", ErrFormat, d.Digest, errdef.ErrNotFound)
	}
	if size != d.Size {
		message := fmt.Sprintf("blob %s has %d bytes, its descriptor says %d", d.Digest, size, d.Size)
		return nil, &bundle.Refusal{Reason: bundle.DigestMismatch, Message: message}
	}
	return l.blobs.open(d.Digest)
}

// tarFile is a tar whose entries are read in place.
type tarFile struct {
	from    io.ReaderAt
	entries map[string]span
}

// span is the position of an entry's content in the tar, in bytes.
type span struct{ offset, size int64 }

func (t tarFile) section(at span) *io.SectionReader {
	return io.NewSectionReader(t.from, at.offset, at.size)
}

func (t tarFile) size(d digest.Digest) (int64, bool) {
	at, ok := t.entries[BlobPath(d)]
	return at.size, ok
}

func (t tarFile) open(d digest.Digest) (io.ReadCloser, error) {
	return io.NopCloser(t.section(t.entries[BlobPath(d)])), nil
}

func (t tarFile) all() (all []digest.Digest, err error) {
	for name := range maps.Keys(t.entries) {
		if d, ok := BlobDigest(name); ok {
			all = append(all, d)
		}
	}
	return all, nil
}

func (t tarFile) readEntries(size int64) error {
	file := io.NewSectionReader(t.from, 0, size)
	tr := tar.NewReader(file)
	seen := map[string]bool{} // files and folders
	for {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && len(seen) == 0:
			begins := make([]byte, BeginningBytes)
			n, _ := t.from.ReadAt(begins, 0) // else the error of the tar reader counts
			return FirstHeaderError(begins[:n], err)
		case err != nil:
			return HeaderError(err)
		case len(seen) == MaxEntries:
			return fmt.Errorf("%w: more than %d entries", ErrFormat, MaxEntries)
		}
		name, ok := EntryName(h)
		if !ok {
			continue
		}
		if seen[name] {
			return fmt.Errorf("%w: it holds %.100q twice", ErrFormat, name)
		}
		if seen[name] = true; h.Typeflag == tar.TypeDir {
			continue
		}
		offset, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		t.entries[name] = span{offset, h.Size}
	}
}

// HeaderError classifies an error of reading a tar between two entries.
func HeaderError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file is cut short", ErrDamaged)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: a header in the tar is invalid", ErrDamaged)
	}
	return err
}

// EntryName returns the name of a file or folder in the layout, such as blobs/sha256. "tar -C layout ." writes
// ./blobs/sha256/. It returns false for entries of other kinds, for sparse files, whose few bytes stand for any number of
// zeros, for names that are too long, and for names in another form, such as ././index.json or ./../index.json, which belong
// to no layout.
func EntryName(h *tar.Header) (string, bool) {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir || len(h.Name) > MaxNameBytes || isSparse(h) {
		return "", false
	}
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
		if name == "" {
			name = "."
		}
	}
	return name, fs.ValidPath(name)
}

// isSparse reports whether a regular file is sparse, as GNU's tar writes it in the format pax.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// Compressed returns what to say about a file that begins as a gzip or zstd file does, with the remedy; empty for others.
func Compressed(from io.ReaderAt) string {
	begins := make([]byte, 4)
	n, _ := from.ReadAt(begins, 0) // the tar reader reports a shorter file
	return CompressedText(begins[:n])
}

// CompressedText is Compressed for the first four bytes.
func CompressedText(begins []byte) string {
	command := ""
	switch {
	case bytes.HasPrefix(begins, []byte{0x1f, 0x8b}):
		command = "gunzip"
	case bytes.HasPrefix(begins, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		command = "unzstd"
	default:
		return ""
	}
	return "the file is compressed: unpack it with " + command
}

// BeginningBytes is how much of a file FirstHeaderError looks at.
const BeginningBytes = 512

// FirstHeaderError is HeaderError for a file of which nothing could be read, and which begins with these bytes: one that
// was never a tar is not damaged.
func FirstHeaderError(begins []byte, err error) error {
	const magic = 257
	wasTar := bytes.HasPrefix(begins, []byte(ocispec.ImageLayoutFile)) ||
		len(begins) > magic && bytes.HasPrefix(begins[magic:], []byte("ustar"))
	if err = HeaderError(err); errors.Is(err, ErrDamaged) && !wasTar {
		return fmt.Errorf("%w: not a tar archive", ErrFormat)
	}
	return err
}

// CheckVersion returns an error wrapping ErrFormat unless data is an oci-layout file of the known version.
func CheckVersion(data []byte) error {
	var version ocispec.ImageLayout
	if err := json.Unmarshal(data, &version); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrFormat, ocispec.ImageLayoutFile, err)
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%w: layout version %q, known is %q", ErrFormat, version.Version, ocispec.ImageLayoutVersion)
	}
	return nil
}

// ParseIndex decodes an index within its bounds. Its digests are valid. The error wraps ErrFormat.
func ParseIndex(data []byte) (index ocispec.Index, err error) {
	var counted struct {
		Manifests []json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(data, &counted); err != nil {
		return index, fmt.Errorf("%w: %s: %v", ErrFormat, ocispec.ImageIndexFile, err)
	}
	if n := len(counted.Manifests); n > MaxManifests {
		return index, fmt.Errorf("%w: the index lists %d manifests, at most %d are allowed", ErrFormat, n, MaxManifests)
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return index, fmt.Errorf("%w: %s: %v", ErrFormat, ocispec.ImageIndexFile, err)
	}
	for _, d := range index.Manifests { // both go into reports
		if err := d.Digest.Validate(); err != nil || len(d.MediaType) > MaxNameBytes {
			return index, fmt.Errorf("%w: the index names %.100q of type %.100q, which is not a manifest", ErrFormat, d.Digest, d.MediaType)
		}
	}
	return index, nil
}

// BlobPath returns the name of a blob's file in a layout.
func BlobPath(d digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

// BlobDigest returns the digest of a blob's file, and false for other files.
func BlobDigest(name string) (digest.Digest, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != ocispec.ImageBlobsDir {
		return "", false
	}
	d := digest.NewDigestFromEncoded(digest.Algorithm(parts[1]), parts[2])
	return d, d.Validate() == nil
}
