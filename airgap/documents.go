package airgap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ErrFormat is wrapped by errors about files that hold no OCI layout in a tar, or not the wanted kind.
var ErrFormat = archive.ErrFormat

// Bounds on the documents of one file: the queue of an agent, and all that it may hold of others.
const (
	maxDocuments     = 60_000
	maxDocumentBytes = 384 << 20
	// maxArtifactDocuments bounds the documents of one artifact, so that its manifest stays within its own bound.
	maxArtifactDocuments = 10_000
)

// Document is an envelope that is to be written, and read only when its turn comes.
type Document struct {
	Digest  digest.Digest
	Size    int64
	Content func() ([]byte, error)
}

// DocumentOf is an envelope in memory.
func DocumentOf(envelope []byte) Document {
	return Document{digest.FromBytes(envelope), int64(len(envelope)), func() ([]byte, error) { return envelope, nil }}
}

// WriteReports writes the DSSE envelopes of compliance reports as an OCI layout in a tar, in the order
// given: one artifact, tagged "reports", with one layer per envelope; with very many, further ones tagged "reports-2" and so
// on.
func WriteReports(w io.Writer, envelopes [][]byte) error {
	return WriteReportsFrom(w, documentsOf(envelopes))
}

// WriteReportsFrom is WriteReports for envelopes that are not in memory all at once.
func WriteReportsFrom(w io.Writer, envelopes []Document) error {
	return writeDocuments(w, "reports", bundle.PayloadTypeReport, envelopes)
}

// ReadReports returns the envelopes in a file of WriteReports, without verifying their signatures. The error wraps
// ErrFormat if the file is of another kind.
func ReadReports(path string) ([][]byte, error) {
	return collect(path, EachReport)
}

// EachReport calls f with one envelope of a file of WriteReports after the other, until f returns an error. Otherwise it is
// ReadReports.
func EachReport(path string, f func(envelope []byte) error) error {
	return eachDocument(path, "reports", bundle.PayloadTypeReport, f)
}

// WriteAck writes the DSSE envelopes of acknowledgements, as WriteReports does, tagged "acks".
func WriteAck(w io.Writer, envelopes [][]byte) error {
	return writeDocuments(w, "acks", bundle.PayloadTypeAck, documentsOf(envelopes))
}

// ReadAck returns the envelopes in a file of WriteAck, without verifying their signatures. The error wraps ErrFormat if
// the file is of another kind.
func ReadAck(path string) ([][]byte, error) {
	return collect(path, func(path string, f func([]byte) error) error {
		return eachDocument(path, "acknowledgements", bundle.PayloadTypeAck, f)
	})
}

func collect(path string, each func(string, func([]byte) error) error) (all [][]byte, err error) {
	err = each(path, func(envelope []byte) error { all = append(all, envelope); return nil })
	if err != nil {
		return nil, err
	}
	return all, nil
}

func documentsOf(envelopes [][]byte) []Document {
	all := make([]Document, 0, len(envelopes))
	for _, e := range envelopes {
		all = append(all, DocumentOf(e))
	}
	return all
}

func writeDocuments(w io.Writer, tag, mediaType string, envelopes []Document) error {
	total := int64(0)
	for _, e := range envelopes {
		total += e.Size
	}
	if len(envelopes) > maxDocuments || total > maxDocumentBytes {
		return fmt.Errorf("%d %s of %d bytes: %w (at most %d of %d bytes in one file)", len(envelopes), tag, total, bundle.ErrTooLarge, maxDocuments, maxDocumentBytes)
	}
	config := bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	var index []ocispec.Descriptor
	var manifests, blobs []blob
	for i := 0; i == 0 || i < len(envelopes); i += maxArtifactDocuments {
		name := tag
		if i > 0 {
			name = fmt.Sprintf("%s-%d", tag, i/maxArtifactDocuments+1)
		}
		entry, manifest, of, err := documentArtifact(name, mediaType, config, envelopes[i:min(i+maxArtifactDocuments, len(envelopes))])
		if err != nil {
			return err
		}
		index, manifests, blobs = append(index, entry), append(manifests, manifest), append(blobs, of...)
	}
	return writeLayout(w, index, slices.Concat(manifests, []blob{blobOf(config)}, blobs))
}

// documentArtifact returns the artifact of documents: its entry in the index, its manifest, and its layers.
func documentArtifact(tag, mediaType string, config bundle.Blob, documents []Document) (entry ocispec.Descriptor, manifest blob, layers []blob, err error) {
	m := ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: mediaType,
		Config:       config.Descriptor,
		Layers:       []ocispec.Descriptor{},
	}
	for _, d := range documents {
		desc := ocispec.Descriptor{MediaType: mediaType, Digest: d.Digest, Size: d.Size}
		m.Layers = append(m.Layers, desc)
		layers = append(layers, blob{desc, func() (io.ReadCloser, error) {
			data, err := d.Content()
			return io.NopCloser(bytes.NewReader(data)), err
		}})
	}
	data, err := json.Marshal(m)
	if err != nil {
		return entry, manifest, nil, err
	}
	b := bundle.NewBlob(m.MediaType, data)
	entry = b.Descriptor
	entry.ArtifactType = mediaType
	entry.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	return entry, blobOf(b), layers, nil
}

func eachDocument(path, kind, mediaType string, f func([]byte) error) error {
	file, err := diskfile.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	l, err := archive.OpenFile(file)
	if err != nil {
		return err
	}
	ctx, found, n, left := context.Background(), false, 0, int64(maxDocumentBytes)
	for _, d := range l.Index().Manifests {
		m, err := readManifest(ctx, l, d)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if m.ArtifactType != mediaType {
			continue
		}
		found = true
		for _, layer := range m.Layers {
			if left -= layer.Size; left < 0 || n == maxDocuments {
				return fmt.Errorf("%s: %w: more than %d %s or %d bytes", path, bundle.ErrTooLarge, maxDocuments, kind, maxDocumentBytes)
			}
			envelope, err := bundle.ReadBlob(ctx, l, layer, bundle.MaxReportBytes)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			n++
			if err := f(envelope); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("%s: %w: it holds no %s", path, ErrFormat, kind)
	}
	return nil
}

func readManifest(ctx context.Context, l *archive.Layout, d ocispec.Descriptor) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	data, err := bundle.ReadBlob(ctx, l, d, archive.MaxIndexBytes)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%w: manifest %s: %v", ErrFormat, d.Digest, err)
	}
	return m, nil
}
