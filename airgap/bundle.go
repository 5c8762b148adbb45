package airgap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Export writes the newest bundle of one environment and cluster type to w, with its signature and, for a
// release of an epoch above 0, all versions of the trust document, as an OCI layout in a tar. It verifies no signature:
// the importing agent does. Only a bundle without any signature is refused, because every site would refuse it. After an
// error, discard the output in w.
//
// The layout's ref names are those of a folder's layout: bundles/<environment>/<cluster type>/latest, trust/v1.
func Export(ctx context.Context, from oci.Location, environment, clusterType string, w io.Writer) error {
	stream := bundle.Stream{Environment: environment, ClusterType: clusterType}
	repo, err := from.Repository(stream.Repository(), oci.Options{})
	if err != nil {
		return err
	}
	trust, err := from.Repository(bundle.TrustRepository, oci.Options{})
	if err != nil {
		return err
	}
	_, err = ExportFrom(ctx, repo, trust, stream, w, Options{})
	return err
}

// Options are the optional parts of an export. The zero value exports the newest release, expired or not.
type Options struct {
	// Now is the time for judging expiry: an expired release is refused. The zero time refuses none.
	Now time.Time
	// AllowExpired is a person's reason to export an expired release nevertheless. It becomes an annotation of the
	// file's index, which is not signed. Empty means that an expired release is refused.
	AllowExpired string
}

// AnnotationAllowExpired is the annotation of a file's index with the reason to carry an expired release.
const AnnotationAllowExpired = "dev.wherry.allow-expired"

// Exported is the release that a file carries.
type Exported struct {
	Release bundle.Release
	Digest  digest.Digest // of the manifest
}

// Name is the release's short name, such as "12 (68846e7d)".
func (e Exported) Name() string { return bundle.ReleaseName(e.Release.Number, e.Digest) }

// ExportFrom is Export from the stream's repository and that of trust documents. The error is a *bundle.Refusal with
// the reason bundle.Expired if the release has expired and opts do not allow that.
func ExportFrom(ctx context.Context, repo, trust bundle.Source, stream bundle.Stream, w io.Writer, opts Options) (Exported, error) {
	manifest, err := repo.Resolve(ctx, bundle.LatestTag)
	if err != nil {
		return Exported{}, err
	}
	e := export{ctx: ctx, src: repo}
	release, err := e.addBundle(manifest)
	done := Exported{release, manifest.Digest}
	if err != nil {
		return done, err
	}
	var annotations map[string]string
	if x := release.Expiry(opts.Now); x.Expired && !opts.Now.IsZero() {
		if opts.AllowExpired == "" {
			return done, &bundle.Refusal{Reason: bundle.Expired, Message: fmt.Sprintf("release %s %s", done.Name(), x.Text)}
		}
		annotations = map[string]string{AnnotationAllowExpired: oneLine(opts.AllowExpired)}
	}
	return done, e.write(trust, stream, manifest, release, annotations, w)
}

// write writes the file for a bundle that was added, with its signature and the trust documents.
func (e *export) write(trust bundle.Source, stream bundle.Stream, manifest ocispec.Descriptor, release bundle.Release, annotations map[string]string, w io.Writer) error {
	signature, err := e.addSignature(manifest)
	if err != nil {
		return err
	}
	repository := stream.Repository()
	refs := []ocispec.Descriptor{
		named(manifest, repository, bundle.LatestTag),
		named(manifest, repository, release.Tag()),
		named(signature, repository, bundle.SignatureTag(manifest.Digest)),
	}
	if release.Epoch > 0 { // releases of epoch 0 have no trust document
		chain := export{ctx: e.ctx, src: trust}
		versions, err := chain.addTrust()
		if err != nil {
			return err
		}
		refs, e.blobs = append(refs, versions...), append(e.blobs, chain.blobs...)
	}
	return writeLayout(w, refs, annotations, e.blobs)
}

// named returns d with its ref name in the layout.
func named(d ocispec.Descriptor, repository, tag string) ocispec.Descriptor {
	d.Annotations = map[string]string{ocispec.AnnotationRefName: repository + "/" + tag}
	return d
}

// export collects the content of a file. Only manifests are read ahead; the rest is streamed.
type export struct {
	ctx   context.Context
	src   bundle.Source
	blobs []blob
}

func (e *export) addBundle(d ocispec.Descriptor) (bundle.Release, error) {
	m, err := e.addManifest(d)
	if err != nil {
		return bundle.Release{}, err
	}
	if m.ArtifactType != bundle.MediaTypeBundle {
		return bundle.Release{}, fmt.Errorf("manifest %s has artifactType %q and is not a bundle", d.Digest, m.ArtifactType)
	}
	data, err := bundle.ReadBlob(e.ctx, e.src, m.Config, bundle.MaxReleaseBytes)
	if err != nil {
		return bundle.Release{}, fmt.Errorf("release document of %s: %w", d.Digest, err)
	}
	return bundle.ParseRelease(data)
}

func (e *export) addSignature(manifest ocispec.Descriptor) (ocispec.Descriptor, error) {
	d, err := e.src.Resolve(e.ctx, bundle.SignatureTag(manifest.Digest))
	if errors.Is(err, errdef.ErrNotFound) {
		return d, &bundle.Refusal{Reason: bundle.Unsigned, Message: fmt.Sprintf("manifest %s has no signature", manifest.Digest)}
	}
	if err != nil {
		return d, fmt.Errorf("signature of %s: %w", manifest.Digest, err)
	}
	if _, err := e.addManifest(d); err != nil {
		return d, fmt.Errorf("signature of %s: %w", manifest.Digest, err)
	}
	return d, nil
}

// addTrust adds all versions of the trust document.
func (e *export) addTrust() (refs []ocispec.Descriptor, err error) {
	for version := int64(1); version <= bundle.MaxTrustVersions; version++ {
		tag := bundle.TrustTag(version)
		d, err := e.src.Resolve(e.ctx, tag)
		if errors.Is(err, errdef.ErrNotFound) {
			return refs, nil
		}
		if err == nil {
			_, err = e.addManifest(d)
		}
		if err != nil {
			return nil, fmt.Errorf("trust document %s: %w", tag, err)
		}
		refs = append(refs, named(d, bundle.TrustRepository, tag))
	}
	return nil, fmt.Errorf("trust document: more than %d versions", bundle.MaxTrustVersions)
}

// addManifest adds the manifest d with its config and layers.
func (e *export) addManifest(d ocispec.Descriptor) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	data, err := bundle.ReadBlob(e.ctx, e.src, d, bundle.MaxManifestBytes)
	if err != nil {
		return m, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	e.blobs = append(e.blobs, blobOf(bundle.Blob{Descriptor: d, Data: data}))
	for _, part := range append([]ocispec.Descriptor{m.Config}, m.Layers...) {
		if err := part.Digest.Validate(); err != nil {
			return m, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		e.blobs = append(e.blobs, blob{part, func() (io.ReadCloser, error) {
			r, err := e.src.Fetch(e.ctx, part)
			return r, delta.Missing(part, err)
		}})
	}
	return m, nil
}
