package export

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
)

// parts are what a package is made of.
type parts struct {
	trust     []document
	releases  []chosen
	record    *record
	artifacts []artifact
	has       known
}

// annotationImageName is the name under which containerd imports an image.
const annotationImageName = "io.containerd.image.name"

// assemble puts the parts in the order of a package, and completes the plan.
func (p *Plan) assemble(all parts, f *finder) error {
	leftOut := all.leftOut()
	a := assembly{seen: map[digest.Digest]bool{}, names: map[string]bool{}}
	a.addHead(all)
	a.addArtifacts(all.artifacts)
	for _, c := range all.releases {
		a.add(c.bundle.blobs(c.bundle.parts.Layers)...)
	}
	for _, one := range all.artifacts {
		for _, d := range one.Blobs {
			if leftOut[d.Digest] == nil {
				a.add(blob{d, func(ctx context.Context) (io.ReadCloser, error) { return f.open(ctx, one.need, d) }})
			}
		}
		for _, r := range one.referrers {
			for _, d := range r.Blobs {
				a.add(blob{d, func(ctx context.Context) (io.ReadCloser, error) { return f.open(ctx, one.need, d) }})
			}
		}
	}
	for _, b := range leftOut {
		if !a.seen[b.Digest] { // else it is small, and part of a bundle
			p.Contents.LeftOut = append(p.Contents.LeftOut, *b)
		}
	}
	slices.SortFunc(p.Contents.LeftOut, func(x, y airgap.ContentsBlob) int { return strings.Compare(x.Digest.String(), y.Digest.String()) })
	p.list(all, a)
	return p.complete(a)
}

// list fills in what the package holds.
func (p *Plan) list(all parts, a assembly) {
	for _, b := range a.blobs {
		p.Contents.Blobs, p.Contents.Bytes = p.Contents.Blobs+1, p.Contents.Bytes+b.Size
	}
	reduced := all.reduced(p.Contents.LeftOut)
	for _, c := range all.releases {
		r := airgap.ContentsRelease{
			Environment: c.stream.Environment, ClusterType: c.stream.ClusterType, Ring: c.ring, Number: c.Number, Tag: c.Tag(),
			Digest: c.bundle.Digest, ExpiresAt: c.ExpiresAt, Bytes: c.bundle.bytes() + c.signature.bytes(),
		}
		if h := all.has[c.stream.Repository()]; reduced[c.stream.Repository()] {
			r.Base, r.BaseName = h.digest, h.name
		}
		p.Contents.Releases = append(p.Contents.Releases, r)
	}
	slices.SortFunc(p.Contents.Releases, func(x, y airgap.ContentsRelease) int {
		return slices.Compare([]string{x.Environment, x.ClusterType, x.Ring}, []string{y.Environment, y.ClusterType, y.Ring})
	})
	for _, one := range all.artifacts {
		p.Contents.Artifacts = append(p.Contents.Artifacts, one.ContentsArtifact)
	}
}

// complete adds the list of contents.
func (p *Plan) complete(a assembly) error {
	p.Contents.Schema = airgap.ContentsSchema
	data, err := p.Contents.Marshal()
	if err != nil {
		return err
	}
	config, layer := bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}")), bundle.NewBlob(airgap.MediaTypeContents, data)
	data, err = json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: airgap.MediaTypeContents,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	if err != nil {
		return err
	}
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	entry := ref(manifest.Descriptor, airgap.ContentsName)
	entry.ArtifactType = airgap.MediaTypeContents
	p.refs = append([]ocispec.Descriptor{entry}, a.refs...)
	front := assembly{seen: map[digest.Digest]bool{}}
	for _, b := range []bundle.Blob{manifest, config, layer} {
		front.add(inMemory(b.Descriptor, b.Data))
	}
	front.add(a.blobs...)
	p.blobs = front.blobs
	p.Bytes, err = airgap.Size(p.refs, p.descriptors())
	return err
}

// assembly is a package as far as it is put together.
type assembly struct {
	refs  []ocispec.Descriptor
	names map[string]bool
	blobs []blob
	seen  map[digest.Digest]bool
}

func (a *assembly) add(blobs ...blob) {
	for _, b := range blobs {
		if !a.seen[b.Digest] {
			a.seen[b.Digest] = true
			a.blobs = append(a.blobs, b)
		}
	}
}

// name adds an entry to the index, unless the name is in it.
func (a *assembly) name(d ocispec.Descriptor, name string) {
	if !a.names[name] {
		a.names[name] = true
		a.refs = append(a.refs, ref(d, name))
	}
}

// addHead adds trust, manifests and signatures of the bundles, and the record.
func (a *assembly) addHead(all parts) {
	for i, doc := range all.trust {
		a.name(doc.Descriptor, bundle.TrustRepository+"/"+bundle.TrustTag(int64(i)+1))
		a.add(doc.manifest())
		a.add(doc.rest()...)
	}
	for _, c := range all.releases {
		repository := c.stream.Repository() + "/"
		a.name(c.bundle.Descriptor, repository+bundle.MovingTag(c.ring))
		a.name(c.bundle.Descriptor, repository+c.Tag())
		a.name(c.signature.Descriptor, repository+bundle.SignatureTag(c.bundle.Digest))
		a.add(c.bundle.manifest())
		a.add(c.bundle.blobs([]ocispec.Descriptor{c.bundle.parts.Config})...)
		a.add(c.signature.manifest())
		a.add(c.signature.rest()...)
	}
	if r := all.record; r != nil && r.manifest.Digest != "" {
		repository := bundle.EnvironmentRepository(r.Environment) + "/"
		a.name(r.manifest.Descriptor, repository+bundle.LatestTag)
		a.name(r.manifest.Descriptor, repository+r.Tag())
		a.name(r.signature.Descriptor, repository+bundle.SignatureTag(r.manifest.Digest))
		a.add(r.manifest.manifest())
		a.add(r.manifest.rest()...)
		a.add(r.signature.manifest())
		a.add(r.signature.rest()...)
	}
}

// addArtifacts adds the manifests of artifacts. A tag that stands for several digests is no name for either.
func (a *assembly) addArtifacts(artifacts []artifact) {
	digests := map[string]map[digest.Digest]bool{}
	for _, one := range artifacts {
		tagged := one.Repository + ":" + one.Tag
		if digests[tagged] == nil {
			digests[tagged] = map[digest.Digest]bool{}
		}
		digests[tagged][one.Digest] = true
	}
	for _, one := range artifacts {
		image := one.Type == bundle.ArtifactImage
		if tagged := one.Repository + ":" + one.Tag; one.Tag != "" && len(digests[tagged]) == 1 {
			a.artifact(one.Manifests[0], one.Repository+"/"+one.Tag, tagged, image)
		}
		byDigest := one.Repository + "@" + one.Digest.String()
		a.artifact(one.Manifests[0], byDigest, byDigest, image)
		for i, d := range one.Manifests {
			a.add(inMemory(d, one.manifests[i]))
		}
		for _, r := range one.referrers {
			if r.Tag != "" {
				a.name(r.Manifests[0], one.Repository+"/"+r.Tag)
			}
			a.name(r.Manifests[0], one.Repository+"@"+r.Manifests[0].Digest.String())
			for i, d := range r.Manifests {
				a.add(inMemory(d, r.manifests[i]))
			}
		}
	}
}

func (a *assembly) artifact(d ocispec.Descriptor, name, reference string, image bool) {
	if a.names[name] {
		return
	}
	a.name(d, name)
	if image {
		a.refs[len(a.refs)-1].Annotations[annotationImageName] = reference
	}
}

// leftOut returns the blobs of artifacts that each stream that needs them has.
func (all parts) leftOut() map[digest.Digest]*airgap.ContentsBlob {
	out, needed := map[digest.Digest]*airgap.ContentsBlob{}, map[digest.Digest]bool{}
	for _, one := range all.artifacts {
		for _, d := range one.Blobs {
			everywhere := !slices.ContainsFunc(one.streams, func(stream string) bool { return !all.has[stream].blobs[d.Digest] })
			switch {
			case !everywhere:
				needed[d.Digest] = true
			case out[d.Digest] == nil:
				out[d.Digest] = &airgap.ContentsBlob{Digest: d.Digest, Size: d.Size}
			}
		}
	}
	maps.DeleteFunc(out, func(d digest.Digest, _ *airgap.ContentsBlob) bool { return needed[d] })
	return out
}

// reduced returns the streams of whose artifacts something is left out.
func (all parts) reduced(leftOut []airgap.ContentsBlob) map[string]bool {
	out, streams := map[digest.Digest]bool{}, map[string]bool{}
	for _, b := range leftOut {
		out[b.Digest] = true
	}
	for _, one := range all.artifacts {
		if slices.ContainsFunc(one.Blobs, func(d ocispec.Descriptor) bool { return out[d.Digest] }) {
			for _, stream := range one.streams {
				streams[stream] = true
			}
		}
	}
	return streams
}
