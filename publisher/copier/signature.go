package copier

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

// maxCopiedSignatures is how many signatures of one manifest readers look at.
const maxCopiedSignatures = 64

// annotationCosign holds a signature's base64 on a layer of a signature manifest.
const annotationCosign = "dev.cosignproject.cosign/signature"

// signature is a manifest in cosign's format, which may hold several signatures.
type signature struct {
	desc     ocispec.Descriptor // with the manifest's bytes as data
	manifest ocispec.Manifest
}

// readSignatures returns the signatures that a tag or digest names, or nil where there are none.
func readSignatures(ctx context.Context, repo placedRepository, reference string) (*signature, error) {
	s := new(signature)
	var err error
	s.desc, err = repo.ResolveManifest(ctx, reference)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.desc.Data, err = bundle.ReadBlob(ctx, repo, s.desc, bundle.MaxManifestBytes); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(s.desc.Data, &s.manifest); err != nil {
		return nil, refusal(bundle.BadContent, "signature manifest: %v", err)
	}
	if n := len(s.manifest.Layers); n > maxCopiedSignatures {
		return nil, refusal(bundle.TooLarge, "%d signatures, at most %d are allowed", n, maxCopiedSignatures)
	}
	for _, d := range parts(s.manifest) {
		if d.Size > bundle.MaxManifestBytes {
			return nil, refusal(bundle.TooLarge, "signature of %d bytes, at most %d are allowed", d.Size, bundle.MaxManifestBytes)
		}
	}
	return s, nil
}

// of returns repo with the signature that was read from it, so that this signature is judged even if another one has
// taken its place meanwhile.
func (s *signature) of(repo bundle.Source) bundle.Source { return signatureSource{repo, s} }

type signatureSource struct {
	bundle.Source
	read *signature
}

func (s signatureSource) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return s.read.desc, nil
}

// with returns s together with those signatures of theirs, at dst, that s lacks: a site may have added its own. It returns
// s itself if there are none, or if readers would not read so many. Config is the new manifest's config, with its bytes as
// data, the only blob that neither of the two has.
func (s *signature) with(ctx context.Context, theirs *signature, dst placedRepository) (both *signature, config *ocispec.Descriptor, err error) {
	type id struct {
		claim     digest.Digest
		signature string
	}
	idOf := func(d ocispec.Descriptor) id { return id{d.Digest, d.Annotations[annotationCosign]} }
	own := map[id]bool{}
	for _, l := range s.manifest.Layers {
		own[idOf(l)] = true
	}
	m := s.manifest
	m.Layers = slices.Clone(s.manifest.Layers)
	for _, l := range theirs.manifest.Layers {
		if own[idOf(l)] || l.MediaType != bundle.MediaTypeSimpleSigning {
			continue
		}
		there, err := dst.Exists(ctx, l)
		if err != nil {
			return nil, nil, err
		}
		if there {
			m.Layers = append(m.Layers, l)
		}
	}
	if len(m.Layers) == len(s.manifest.Layers) || len(m.Layers) > maxCopiedSignatures {
		return s, nil, nil
	}
	image := ocispec.Image{RootFS: ocispec.RootFS{Type: "layers"}}
	for _, l := range m.Layers {
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, l.Digest)
	}
	described, err := describe(ocispec.MediaTypeImageConfig, image)
	if err != nil {
		return nil, nil, err
	}
	m.Config = described
	m.Config.Data = nil
	manifest, err := describe(ocispec.MediaTypeImageManifest, m)
	if err != nil || manifest.Size > bundle.MaxManifestBytes {
		return s, nil, err
	}
	return &signature{manifest, m}, &described, nil
}

// describe returns the descriptor of v as JSON, with its bytes as data.
func describe(mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	d := bundle.NewBlob(mediaType, data).Descriptor
	d.Data = data
	return d, err
}
