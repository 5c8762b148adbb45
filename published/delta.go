package published

import (
	"compress/gzip"
	"context"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
)

// CheckLayers returns a *bundle.Refusal where a manifest has layers that no publisher gives it.
func CheckLayers(m ocispec.Manifest) error {
	if n := len(m.Layers) - 1 - len(DeltasOf(m)); n > 0 {
		return bundle.Refuse(bundle.BadContent, "%d of its %d layers are neither its tree nor a delta that agents would take", n, len(m.Layers))
	}
	return nil
}

// DeltasOf returns those of a manifest's layers that are deltas an agent would take.
func DeltasOf(m ocispec.Manifest) (deltas []ocispec.Descriptor) {
	full := m.Layers[0].Size
	for _, layer := range m.Layers[1:min(len(m.Layers), 1+delta.MaxLayers)] {
		from := digest.Digest(layer.Annotations[delta.AnnotationFrom])
		if layer.MediaType == delta.MediaType && layer.Size > 0 && delta.Worth(layer.Size, full) && from.Validate() == nil && layer.Digest.Validate() == nil {
			deltas = append(deltas, layer)
		}
	}
	return deltas
}

// FetchTar writes the tar of a release to to, and fails where it is not want, the signed content.
func FetchTar(ctx context.Context, src bundle.Source, layer ocispec.Descriptor, want bundle.Content, to io.Writer) error {
	body, err := src.Fetch(ctx, layer)
	if err != nil {
		return err
	}
	defer body.Close()
	return Unzip(body, want, to)
}

// Unzip writes the tar that a layer holds. It ends at the first byte that want, the signed content, does not
// allow.
func Unzip(layer io.Reader, want bundle.Content, to io.Writer) error {
	zip, err := gzip.NewReader(layer)
	if err != nil {
		return err
	}
	sum := digest.SHA256.Digester()
	n, err := io.Copy(io.MultiWriter(to, sum.Hash()), io.LimitReader(zip, want.Size+1))
	if err == nil && (n != want.Size || sum.Digest() != want.DiffID) {
		err = &bundle.Refusal{Reason: bundle.DigestMismatch, Message: "its tree is not the signed " + want.DiffID.String()}
	}
	return err
}
