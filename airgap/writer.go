package airgap

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Writer writes an OCI layout as a tar, whose bytes are a function of what it is given and of the order. The caller
// begins with Index, adds each blob once, and calls Close. After an error, discard the output.
type Writer struct {
	tar     *tar.Writer
	seen    map[digest.Digest]bool
	buffers *buffers
}

// NewWriter returns a writer to w, which the caller closes.
func NewWriter(w io.Writer) *Writer {
	return &Writer{tar.NewWriter(w), map[digest.Digest]bool{}, newBuffers()}
}

// Continue is NewWriter for an output that has the index and these blobs already, as Kept reports: the caller begins with
// the next blob.
func Continue(w io.Writer, blobs []ocispec.Descriptor) *Writer {
	cont := NewWriter(w)
	for _, d := range blobs {
		cont.seen[d.Digest] = true
	}
	return cont
}

// Index writes the first two files: oci-layout, and index.json with these manifests.
func (w *Writer) Index(manifests []ocispec.Descriptor) error {
	files, err := indexFiles(manifests)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := writeEntry(w.tar, f.name, int64(len(f.data)), bytes.NewReader(f.data), io.Discard, w.buffers); err != nil {
			return err
		}
	}
	return nil
}

// indexFile is one of the first two files of a layout.
type indexFile struct {
	name string
	data []byte
}

func indexFiles(manifests []ocispec.Descriptor) ([]indexFile, error) {
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: manifests,
	})
	if err == nil && (len(index) > archive.MaxIndexBytes || len(manifests) > archive.MaxManifests) {
		err = fmt.Errorf("index of %d manifests and %d bytes: at most %d and %d are allowed: export fewer cluster types", len(manifests), len(index), archive.MaxManifests, archive.MaxIndexBytes)
	}
	if err != nil {
		return nil, err
	}
	version, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	return []indexFile{{ocispec.ImageLayoutFile, version}, {ocispec.ImageIndexFile, index}}, err
}

// Blob writes the content that open returns, unless the layout has that digest already. It returns an error if the
// content differs from the descriptor, so that a finished file is complete.
func (w *Writer) Blob(desc ocispec.Descriptor, open func() (io.ReadCloser, error)) error {
	if w.seen[desc.Digest] {
		return nil
	}
	w.seen[desc.Digest] = true
	return writeBlob(w.tar, blob{desc, open}, w.buffers)
}

// Close writes the end of the tar.
func (w *Writer) Close() error { return w.tar.Close() }

// trailerBytes is the size of a tar's end.
const trailerBytes = 1024

// Size returns the length of the package with this index and these blobs, of which each digest is once in the list, in bytes.
func Size(manifests, blobs []ocispec.Descriptor) (int64, error) {
	files, err := indexFiles(manifests)
	if err != nil {
		return 0, err
	}
	if n := len(files) + len(blobs); n > archive.MaxEntries {
		return 0, fmt.Errorf("package of %d files: at most %d are allowed: export fewer cluster types", n, archive.MaxEntries)
	}
	total := int64(trailerBytes)
	for _, f := range files {
		total += entryBytes(f.name, int64(len(f.data)))
	}
	for _, d := range blobs {
		total += entryBytes(archive.BlobPath(d.Digest), d.Size)
	}
	return total, nil
}

// entryBytes returns the length of an entry, its header and padding included.
func entryBytes(name string, size int64) int64 {
	return int64(len(headerBytes(name, size))) + padded(size)
}

const tarBlock = 512

func padded(size int64) int64 { return (size + tarBlock - 1) / tarBlock * tarBlock }

// headerBytes returns the header as the tar has it: a sum of blocks, which are more than one for large sizes.
func headerBytes(name string, size int64) []byte {
	var b bytes.Buffer
	_ = tar.NewWriter(&b).WriteHeader(header(name, size)) // fails for no name of a layout
	return b.Bytes()
}

// Kept compares r, the beginning of a package that was not finished, with what a Writer writes for this index and these
// blobs, of which each digest is once in the list. It returns how many of the blobs are whole in r, and where the last of
// them ends, in bytes; zero bytes if r is the beginning of another package, or lacks the end of the index. The error is
// that of reading.
func Kept(r io.Reader, manifests, blobs []ocispec.Descriptor) (whole int, end int64, err error) {
	files, err := indexFiles(manifests)
	if err != nil {
		return 0, 0, err
	}
	k := keptReader{r: r, buffer: make([]byte, copyBytes)}
	for _, f := range files {
		same, err := k.entry(f.name, int64(len(f.data)), digest.FromBytes(f.data))
		if !same {
			return 0, 0, err
		}
	}
	end = k.at
	for _, d := range blobs {
		same, err := k.entry(archive.BlobPath(d.Digest), d.Size, d.Digest)
		if !same {
			return whole, end, err
		}
		whole, end = whole+1, k.at
	}
	return whole, end, nil
}

// keptReader reads the entries that are expected.
type keptReader struct {
	r      io.Reader
	at     int64
	buffer []byte
}

// entry reports whether the next entry is whole and has this content.
func (k *keptReader) entry(name string, size int64, d digest.Digest) (bool, error) {
	want := headerBytes(name, size)
	got := make([]byte, len(want))
	if ok, err := k.full(got); !ok || !bytes.Equal(got, want) {
		return false, err
	}
	verifier := d.Verifier()
	n, err := io.CopyBuffer(onlyWriter{verifier}, onlyReader{io.LimitReader(k.r, size)}, k.buffer)
	if err != nil || n < size || !verifier.Verified() {
		return false, err
	}
	padding := make([]byte, padded(size)-size)
	if ok, err := k.full(padding); !ok || len(bytes.Trim(padding, "\x00")) > 0 {
		return false, err
	}
	k.at += int64(len(want)) + padded(size)
	return true, nil
}

// full reports whether r had bytes for all of p.
func (k *keptReader) full(p []byte) (bool, error) {
	_, err := io.ReadFull(k.r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return err == nil, err
}
