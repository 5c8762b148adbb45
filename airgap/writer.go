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
)

// Writer writes an OCI layout as a tar, whose bytes are a function of what it is given and of the order. The caller
// begins with Index, adds each blob once, and calls Close. After an error, discard the output.
type Writer struct {
	tar  *tar.Writer
	seen map[digest.Digest]bool
}

// NewWriter returns a writer to w, which the caller closes.
func NewWriter(w io.Writer) *Writer { return &Writer{tar.NewWriter(w), map[digest.Digest]bool{}} }

// Index writes the first two files: oci-layout, and index.json with these manifests and annotations.
func (w *Writer) Index(manifests []ocispec.Descriptor, annotations map[string]string) error {
	index, err := json.Marshal(ocispec.Index{
		Versioned:   specs.Versioned{SchemaVersion: 2},
		MediaType:   ocispec.MediaTypeImageIndex,
		Manifests:   manifests,
		Annotations: annotations,
	})
	if err == nil && (len(index) > maxIndexBytes || len(manifests) > maxManifests) {
		err = fmt.Errorf("index of %d manifests and %d bytes: at most %d and %d are allowed: export fewer cluster types", len(manifests), len(index), maxManifests, maxIndexBytes)
	}
	if err != nil {
		return err
	}
	version, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	return errors.Join(
		writeEntry(w.tar, ocispec.ImageLayoutFile, int64(len(version)), bytes.NewReader(version)),
		writeEntry(w.tar, ocispec.ImageIndexFile, int64(len(index)), bytes.NewReader(index)),
	)
}

// Blob writes the content that open returns, unless the layout has that digest already. It returns an error if the
// content differs from the descriptor, so that a finished file is complete.
func (w *Writer) Blob(desc ocispec.Descriptor, open func() (io.ReadCloser, error)) error {
	if w.seen[desc.Digest] {
		return nil
	}
	w.seen[desc.Digest] = true
	return writeBlob(w.tar, blob{desc, open})
}

// Close writes the end of the tar.
func (w *Writer) Close() error { return w.tar.Close() }
