package bundle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
)

// maxSignatures bounds the layers of a signature manifest that are read.
const maxSignatures = 64

// Source is the part of a repository that verification needs. Resolve's error wraps errdef.ErrNotFound
// if the repository lacks the reference.
type Source interface {
	Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error)
	Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error)
}

// ResolveManifest returns the descriptor of a manifest that the caller reads next. A src with a method of this name, such as a
// repository of a registry, gives the descriptor the manifest as its data, so that ReadBlob makes no second request. Nothing is
// verified: ReadBlob does that.
func ResolveManifest(ctx context.Context, src Source, reference string) (ocispec.Descriptor, error) {
	if whole, ok := src.(interface {
		ResolveManifest(ctx context.Context, reference string) (ocispec.Descriptor, error)
	}); ok {
		return whole.ResolveManifest(ctx, reference)
	}
	return src.Resolve(ctx, reference)
}

// Verified is a bundle whose signature and manifest were checked, and whose tree was not requested yet.
type Verified struct {
	Descriptor ocispec.Descriptor
	Manifest   ocispec.Manifest
	Release    Release
	// Tree describes the layer to give to Unpack, together with Release.Content.
	Tree ocispec.Descriptor
	// KeyIDs names the distinct keys that signed, sorted; see KeyID.
	KeyIDs []string
}

// Name returns the release's short name, such as "12 (68846e7d)".
func (v *Verified) Name() string { return ReleaseName(v.Release.Number, v.Descriptor.Digest) }

// Verify reads the signature, manifest and release document of the bundle with the given manifest
// descriptor, and nothing else, and returns them if trust's threshold of keys has signed that
// manifest. An untrusted bundle gives a *Refusal. Verify does not check whether the release is meant for the reader:
// Expect.Check does.
func Verify(ctx context.Context, src Source, manifest ocispec.Descriptor, trust Trust) (*Verified, error) {
	ids, err := VerifySignature(ctx, src, manifest.Digest, trust)
	if err != nil {
		return nil, err
	}
	v, err := Read(ctx, src, manifest)
	if err != nil {
		return nil, err
	}
	v.KeyIDs = ids
	return v, nil
}

// Read is Verify without the signatures, for a caller that has verified them in another way.
func Read(ctx context.Context, src Source, manifest ocispec.Descriptor) (*Verified, error) {
	v := &Verified{Descriptor: manifest}
	data, err := ReadBlob(ctx, src, manifest, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	v.Descriptor.Data = nil
	if err := json.Unmarshal(data, &v.Manifest); err != nil {
		return nil, Refuse(BadContent, "manifest %s: %v", manifest.Digest, err)
	}
	if isNewer(v.Manifest.ArtifactType, MediaTypeBundle) || isNewer(v.Manifest.Config.MediaType, MediaTypeRelease) {
		return nil, Refuse(UnsupportedSchema, "manifest %s has artifactType %q and config %q: %s", manifest.Digest, v.Manifest.ArtifactType, v.Manifest.Config.MediaType, tooNew)
	}
	if v.Manifest.ArtifactType != MediaTypeBundle || v.Manifest.Config.MediaType != MediaTypeRelease {
		return nil, Refuse(BadContent, "manifest %s has artifactType %q and config %q: no bundle",
			manifest.Digest, v.Manifest.ArtifactType, v.Manifest.Config.MediaType)
	}
	if len(v.Manifest.Layers) == 0 || v.Manifest.Layers[0].MediaType != MediaTypeTree {
		return nil, Refuse(BadContent, "manifest %s has no tree in its first layer", manifest.Digest)
	}
	for _, layer := range v.Manifest.Layers {
		if err := layer.Digest.Validate(); err != nil { // it becomes the name of a file
			return nil, Refuse(BadContent, "manifest %s: digest %q of a layer: %v", manifest.Digest, layer.Digest, err)
		}
	}
	v.Tree = v.Manifest.Layers[0]
	if v.Tree.Size < 0 || v.Tree.Size > MaxTreeBytes {
		return nil, Refuse(TooLarge, "layer of %d bytes, at most %d are allowed", v.Tree.Size, int64(MaxTreeBytes))
	}
	doc, err := ReadBlob(ctx, src, v.Manifest.Config, MaxReleaseBytes)
	if err != nil {
		return nil, fmt.Errorf("release document: %w", err)
	}
	if v.Release, err = ParseRelease(doc); err != nil {
		return nil, err
	}
	return v, nil
}

// VerifySignature returns the ids of trust's distinct keys that have signed manifest d in cosign's format,
// sorted, or a *Refusal if they are fewer than trust's threshold.
func VerifySignature(ctx context.Context, src Source, d digest.Digest, trust Trust) ([]string, error) {
	layers, err := SignatureLayers(ctx, src, d)
	if err != nil {
		return nil, err
	}
	return VerifyLayers(ctx, src, layers, d, trust)
}

// SignatureLayers returns the layers that claim to sign manifest d in cosign's format, in their order: at least one layer,
// or a *Refusal. No signature is checked.
func SignatureLayers(ctx context.Context, src Source, d digest.Digest) ([]ocispec.Descriptor, error) {
	if err := d.Validate(); err != nil { // an index in a file may name anything
		return nil, Refuse(BadContent, "manifest %q: %v", d, err)
	}
	desc, err := ResolveManifest(ctx, src, SignatureTag(d))
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, Refuse(Unsigned, "manifest %s has no signature", d)
	}
	if err != nil {
		return nil, fmt.Errorf("signature of %s: %w", d, err)
	}
	data, err := ReadBlob(ctx, src, desc, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("signature of %s: %w", d, err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, Refuse(BadContent, "signature manifest of %s: %v", d, err)
	}
	if len(m.Layers) == 0 {
		return nil, Refuse(Unsigned, "signature manifest of %s holds no signature", d)
	}
	if len(m.Layers) > maxSignatures {
		return nil, Refuse(TooLarge, "signature manifest of %s holds %d signatures, at most %d are allowed", d, len(m.Layers), maxSignatures)
	}
	return m.Layers, nil
}

// VerifyLayers requires valid signatures of as many distinct keys as trust's threshold. Other layers may be of keys that
// trust does not have.
func VerifyLayers(ctx context.Context, src Source, layers []ocispec.Descriptor, d digest.Digest, trust Trust) ([]string, error) {
	var ids []string
	refusal := Refuse(UntrustedKey, "manifest %s is signed, but by no key that is trusted here", d)
	for _, layer := range layers {
		sig, err := base64.StdEncoding.DecodeString(layer.Annotations[annotationSignature])
		if err != nil || len(sig) == 0 || layer.MediaType != MediaTypeSimpleSigning {
			continue
		}
		claim, err := ReadBlob(ctx, src, layer, MaxManifestBytes)
		if err != nil {
			return nil, fmt.Errorf("signature of %s: %w", d, err)
		}
		id, ok := signedBy(claim, sig, trust.Keys)
		if !ok {
			continue
		}
		// A valid signature over another digest was copied from another manifest.
		if claimed := claimedDigest(claim); claimed != d.String() {
			refusal = Refuse(DigestMismatch, "signature is for manifest %q, not for %s", claimed, d)
			continue
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, refusal
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) < trust.Threshold {
		return nil, Refuse(BelowThreshold, "manifest %s is signed by %d of the keys that are trusted here, %d are needed", d, len(ids), trust.Threshold)
	}
	return ids, nil
}

func signedBy(claim, sig []byte, keys Keys) (keyID string, ok bool) {
	for _, key := range keys {
		v, err := verifierOf(key)
		if err != nil || v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(claim)) != nil {
			continue
		}
		id, err := KeyID(key)
		return id, err == nil
	}
	return "", false
}

func claimedDigest(claim []byte) string {
	var c payload.SimpleContainerImage
	if json.Unmarshal(claim, &c) != nil || c.Critical.Type != payload.CosignSignatureType {
		return ""
	}
	return c.Critical.Image.DockerManifestDigest
}

// ReadBlob returns the content of desc, from its data field if that is set, else from src. It returns a *Refusal for
// content that differs from the descriptor's size or digest, and for a size above limit bytes.
func ReadBlob(ctx context.Context, src Source, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if desc.Size < 0 || desc.Size > limit {
		return nil, Refuse(TooLarge, "%s of %d bytes, at most %d are allowed", desc.MediaType, desc.Size, limit)
	}
	if err := desc.Digest.Validate(); err != nil {
		return nil, Refuse(BadContent, "descriptor of %s: %v", desc.MediaType, err)
	}
	if len(desc.Data) > 0 {
		if int64(len(desc.Data)) != desc.Size || digest.FromBytes(desc.Data) != desc.Digest {
			return nil, Refuse(DigestMismatch, "data of descriptor %s is not what it describes", desc.Digest)
		}
		return desc.Data, nil
	}
	r, err := src.Fetch(ctx, desc)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", desc.Digest, err)
	}
	defer r.Close()
	data, err := content.ReadAll(r, desc)
	if errors.Is(err, content.ErrMismatchedDigest) || errors.Is(err, content.ErrTrailingData) {
		return nil, Refuse(DigestMismatch, "content of %s is not what the descriptor says: %v", desc.Digest, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", desc.Digest, err)
	}
	return data, nil
}
