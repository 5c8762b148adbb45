package airgap

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Bounds on the documents of one file. An agent's queue holds at most half of either.
const (
	maxDocuments     = 20_000
	maxDocumentBytes = 128 << 20
)

// WriteReports writes the DSSE envelopes of compliance reports as an OCI layout in a tar, in the order
// given: one artifact, tagged "reports", with one layer per envelope.
func WriteReports(w io.Writer, envelopes [][]byte) error {
	return writeDocuments(w, "reports", bundle.PayloadTypeReport, envelopes)
}

// ReadReports returns the envelopes in a file of WriteReports, without verifying their signatures. The error wraps
// ErrFormat if the file is of another kind.
func ReadReports(path string) ([][]byte, error) {
	return readDocuments(path, "reports", bundle.PayloadTypeReport)
}

// WriteAck writes the DSSE envelopes of acknowledgements, as WriteReports does, tagged "acks".
func WriteAck(w io.Writer, envelopes [][]byte) error {
	return writeDocuments(w, "acks", bundle.PayloadTypeAck, envelopes)
}

// ReadAck returns the envelopes in a file of WriteAck, without verifying their signatures. The error wraps ErrFormat if
// the file is of another kind.
func ReadAck(path string) ([][]byte, error) {
	return readDocuments(path, "acknowledgements", bundle.PayloadTypeAck)
}

func writeDocuments(w io.Writer, tag, mediaType string, envelopes [][]byte) error {
	if len(envelopes) > maxDocuments {
		return fmt.Errorf("%d %s: %w (at most %d in one file)", len(envelopes), tag, bundle.ErrTooLarge, maxDocuments)
	}
	config := bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	m := ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: mediaType,
		Config:       config.Descriptor,
		Layers:       []ocispec.Descriptor{},
	}
	documents := make([]blob, 0, len(envelopes))
	for _, e := range envelopes {
		b := bundle.NewBlob(mediaType, e)
		m.Layers = append(m.Layers, b.Descriptor)
		documents = append(documents, blobOf(b))
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	manifest := bundle.NewBlob(m.MediaType, data)
	entry := manifest.Descriptor
	entry.ArtifactType = mediaType
	entry.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	return writeLayout(w, []ocispec.Descriptor{entry}, nil, append([]blob{blobOf(manifest), blobOf(config)}, documents...))
}

func readDocuments(path, kind, mediaType string) ([][]byte, error) {
	l, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ctx, found, left := context.Background(), false, int64(maxDocumentBytes)
	var envelopes [][]byte
	for _, d := range l.Index().Manifests {
		m, err := readManifest(ctx, l, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if m.ArtifactType != mediaType {
			continue
		}
		found = true
		for _, layer := range m.Layers {
			if left -= layer.Size; left < 0 || len(envelopes) == maxDocuments {
				return nil, fmt.Errorf("%s: %w: more than %d %s or %d bytes", path, bundle.ErrTooLarge, maxDocuments, kind, maxDocumentBytes)
			}
			envelope, err := bundle.ReadBlob(ctx, l, layer, bundle.MaxReportBytes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			envelopes = append(envelopes, envelope)
		}
	}
	if !found {
		return nil, fmt.Errorf("%s: %w: it holds no %s", path, ErrFormat, kind)
	}
	return envelopes, nil
}

func readManifest(ctx context.Context, l *file, d ocispec.Descriptor) (ocispec.Manifest, error) {
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
