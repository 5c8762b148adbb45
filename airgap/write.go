package airgap

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// blob is content to be written, opened only when its turn comes.
type blob struct {
	desc ocispec.Descriptor
	open func() (io.ReadCloser, error)
}

func blobOf(b bundle.Blob) blob {
	return blob{b.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }}
}

// writeLayout writes an OCI layout whose index lists manifests, and which holds blobs, in that
// order and each digest once.
func writeLayout(w io.Writer, manifests []ocispec.Descriptor, blobs []blob) error {
	lw := NewWriter(w)
	if err := lw.Index(manifests); err != nil {
		return err
	}
	for _, b := range blobs {
		if err := lw.Blob(b.desc, b.open); err != nil {
			return err
		}
	}
	return lw.Close()
}

// writeBlob returns an error if the content differs from the descriptor, so that a finished file is complete.
func writeBlob(tw *tar.Writer, b blob, buffers *buffers) error {
	r, err := b.open()
	if err != nil {
		return fmt.Errorf("blob %s: %w", b.desc.Digest, err)
	}
	defer r.Close()
	verifier := b.desc.Digest.Verifier()
	if err := writeEntry(tw, archive.BlobPath(b.desc.Digest), b.desc.Size, r, verifier, buffers); err != nil {
		return err
	}
	if !verifier.Verified() {
		return bundle.Refuse(bundle.DigestMismatch, "content of blob %s has another digest", b.desc.Digest)
	}
	return nil
}

// header returns the header of an entry.
func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}
}

// writeEntry writes an entry with the content of r, and the same bytes to hash.
func writeEntry(tw *tar.Writer, name string, size int64, r io.Reader, hash io.Writer, buffers *buffers) error {
	if err := tw.WriteHeader(header(name, size)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	// One byte beyond the size makes the tar writer return its own error for content that is too long.
	if err := copyHashed(tw, hash, io.LimitReader(r, size+1), buffers); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// onlyWriter and onlyReader make io.CopyBuffer use the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
