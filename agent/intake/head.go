package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// maxHeadBytes bounds the documents and manifests of a package that are in memory at a time.
const maxHeadBytes = 64 << 20

// head is the beginning of a package: its index, and the documents and manifests that were read so far.
type head struct {
	from     *airgap.Reader
	back     *airgap.Entry // the next entry, if it was looked at already
	contents *airgap.Contents

	offers    []offer
	trust     map[string]ocispec.Descriptor          // documents by tag
	artifacts map[digest.Digest][]ocispec.Descriptor // what the index names otherwise, by digest

	// referrers are what the index names about manifests, by HOST/NAME@DIGEST of these.
	referrers map[string][]oci.Referrer

	held  map[digest.Digest][]byte // documents and manifests, unverified
	bytes int
	// layers are those of releases, and parts the configs and layers of artifacts.
	layers, parts map[digest.Digest]bool
}

// offer is the release of one stream that a package names. Nothing of it is verified.
type offer struct {
	repository  string
	environment string
	clusterType string
	manifest    ocispec.Descriptor
	tags        []string           // the moving ones that name the manifest
	signature   ocispec.Descriptor // without a digest if the index names none
}

// source has the documents of the offer.
func (o offer) source(h *head) source {
	refs := map[string]ocispec.Descriptor{}
	for _, tag := range o.tags {
		refs[tag] = o.manifest
	}
	if o.signature.Digest != "" {
		refs[bundle.SignatureTag(o.manifest.Digest)] = o.signature
	}
	return source{h, refs}
}

// newHead sorts what the index names. Of several releases of a stream it takes the one for the ring, then that for all.
func newHead(r *airgap.Reader, ring string) *head {
	h := &head{
		from: r, contents: r.Contents(), trust: map[string]ocispec.Descriptor{}, artifacts: map[digest.Digest][]ocispec.Descriptor{},
		held: map[digest.Digest][]byte{}, layers: map[digest.Digest]bool{}, parts: map[digest.Digest]bool{},
	}
	signatures, moving := map[string]ocispec.Descriptor{}, map[string]map[string]ocispec.Descriptor{}
	for _, d := range r.Index().Manifests {
		name := d.Annotations[ocispec.AnnotationRefName]
		repository, tag := path.Split(name)
		repository = strings.TrimSuffix(repository, "/")
		switch kind, _, _ := strings.Cut(name, "/"); {
		case name == airgap.ContentsName, kind == "environments":
		case repository == bundle.TrustRepository:
			h.trust[tag] = oci.Plain(d)
		case kind == "bundles" && strings.HasSuffix(tag, ".sig"):
			signatures[name] = oci.Plain(d)
		case kind == "bundles" && strings.Count(repository, "/") == 2 && isMoving(tag):
			if moving[repository] == nil {
				moving[repository] = map[string]ocispec.Descriptor{}
			}
			moving[repository][tag] = oci.Plain(d)
		case kind != "bundles":
			h.artifacts[d.Digest] = append(h.artifacts[d.Digest], d)
		}
	}
	for repository, tags := range moving {
		h.offers = append(h.offers, offerOf(repository, tags, signatures, ring))
	}
	slices.SortFunc(h.offers, func(a, b offer) int { return strings.Compare(a.repository, b.repository) })
	return h
}

func offerOf(repository string, tags, signatures map[string]ocispec.Descriptor, ring string) offer {
	parts := strings.Split(repository, "/")
	o := offer{repository: repository, environment: parts[1], clusterType: parts[2]}
	var names []string
	for tag := range tags {
		names = append(names, tag)
	}
	slices.Sort(names) // latest comes before all rings
	chosen := names[0]
	if slices.Contains(names, bundle.MovingTag(ring)) {
		chosen = bundle.MovingTag(ring)
	}
	o.manifest = tags[chosen]
	for _, tag := range names {
		if tags[tag].Digest == o.manifest.Digest {
			o.tags = append(o.tags, tag)
		}
	}
	o.signature = signatures[repository+"/"+bundle.SignatureTag(o.manifest.Digest)]
	return o
}

// isMoving reports whether a tag is one that releases follow each other under.
func isMoving(tag string) bool {
	return tag == bundle.LatestTag || strings.HasPrefix(tag, bundle.MovingTag("x")[:len(bundle.MovingTag("x"))-1])
}

// next returns the next blob of the package, or io.EOF.
func (h *head) next() (airgap.Entry, error) {
	if h.back != nil {
		e := *h.back
		h.back = nil
		return e, nil
	}
	return h.from.Next()
}

// read reads the wanted documents, as long as ends does not say that they cannot come any more. It calls found with each
// that has its digest; others are refused when they are used.
func (h *head) read(ctx context.Context, wanted map[digest.Digest]bool, found func(digest.Digest, []byte), ends func(airgap.Entry) bool) error {
	for len(wanted) > 0 {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		e, err := h.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case !wanted[e.Digest] && (ends(e) || e.Size > graph.MaxManifestBytes):
			h.back = &e
			return nil
		case !wanted[e.Digest]:
			continue
		case e.Size > graph.MaxManifestBytes || h.bytes+int(e.Size) > maxHeadBytes:
			return fmt.Errorf("%w: its documents and manifests have more than %d bytes", airgap.ErrFormat, maxHeadBytes)
		}
		data, err := io.ReadAll(e.Content)
		if err != nil {
			return err
		}
		delete(wanted, e.Digest)
		h.held[e.Digest], h.bytes = data, h.bytes+len(data)
		if digest.FromBytes(data) == e.Digest {
			found(e.Digest, data)
		}
	}
	return nil
}

// references are what a manifest or an index names.
type references struct {
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

func referencesOf(data []byte) (r references) {
	_ = json.Unmarshal(data, &r) // other content names nothing, and is refused when it is used
	return r
}

// readDocuments reads the trust documents after version known, and the documents of offers.
func (h *head) readDocuments(ctx context.Context, known int64, offers []offer) error {
	wanted, whole, releases := map[digest.Digest]bool{}, map[digest.Digest]bool{}, map[digest.Digest]bool{}
	for tag, d := range h.trust {
		var version int64
		if _, err := fmt.Sscanf(tag, "v%d", &version); err == nil && version > known {
			wanted[d.Digest], whole[d.Digest] = true, true
		}
	}
	for _, o := range offers {
		wanted[o.manifest.Digest], releases[o.manifest.Digest] = true, true
		if o.signature.Digest != "" {
			wanted[o.signature.Digest], whole[o.signature.Digest] = true, true
		}
	}
	want := func(d ocispec.Descriptor) {
		if _, had := h.held[d.Digest]; !had && len(d.Data) == 0 && d.Size <= bundle.MaxManifestBytes {
			wanted[d.Digest] = true
		}
	}
	return h.read(ctx, wanted, func(d digest.Digest, data []byte) {
		r := referencesOf(data)
		if r.Config != nil && (whole[d] || releases[d]) {
			want(*r.Config)
		}
		for _, layer := range r.Layers {
			switch {
			case whole[d]:
				want(layer)
			case releases[d]:
				h.layers[layer.Digest] = true
			}
		}
	}, func(e airgap.Entry) bool { return h.layers[e.Digest] || h.artifacts[e.Digest] != nil })
}

// readManifests reads the manifests of artifacts.
func (h *head) readManifests(ctx context.Context) error {
	wanted := map[digest.Digest]bool{}
	for d := range h.artifacts {
		wanted[d] = true
	}
	err := h.read(ctx, wanted, func(_ digest.Digest, data []byte) {
		r := referencesOf(data)
		for _, m := range r.Manifests {
			if _, had := h.held[m.Digest]; !had {
				wanted[m.Digest] = true
			}
		}
		if r.Config != nil {
			h.parts[r.Config.Digest] = true
		}
		for _, layer := range r.Layers {
			h.parts[layer.Digest] = true
		}
	}, func(e airgap.Entry) bool { return h.layers[e.Digest] || h.parts[e.Digest] })
	h.findReferrers()
	return err
}

// findReferrers finds the referrers among what the index names, by cosign's tags and by the subjects in the manifests.
func (h *head) findReferrers() {
	h.referrers = map[string][]oci.Referrer{}
	for d, names := range h.artifacts {
		subject := oci.SubjectOf(h.held[d])
		for _, n := range names {
			repository, _, byDigest := strings.Cut(n.Annotations[ocispec.AnnotationRefName], "@")
			tag := ""
			if !byDigest {
				repository, tag = path.Split(repository)
				repository = strings.TrimSuffix(repository, "/")
			}
			if of := oci.SubjectOfTag(tag); of != "" {
				h.referrers[repository+"@"+of.String()] = append(h.referrers[repository+"@"+of.String()], oci.Referrer{Tag: tag, Descriptor: oci.Plain(n)})
			} else if subject != "" {
				h.referrers[repository+"@"+subject.String()] = append(h.referrers[repository+"@"+subject.String()], oci.Referrer{Descriptor: oci.Plain(n)})
			}
		}
	}
}

// source is a repository of the package, as far as it was read.
type source struct {
	head *head
	refs map[string]ocispec.Descriptor
}

func (s source) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	if d, ok := s.refs[reference]; ok {
		return d, nil
	}
	for _, d := range s.refs {
		if d.Digest.String() == reference {
			return d, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s: %w", reference, errdef.ErrNotFound)
}

// Fetch returns a document, unverified.
func (s source) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := s.head.held[d.Digest]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: blob %s: %w (is the file cut short?)", airgap.ErrFormat, d.Digest, errdef.ErrNotFound)
	case int64(len(data)) != d.Size:
		return nil, bundle.Refuse(bundle.DigestMismatch, "blob %s has %d bytes, its descriptor says %d", d.Digest, len(data), d.Size)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
