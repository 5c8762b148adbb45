package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation that names a manifest in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// referrer is a document about an image, as an OCI artifact that has the image as its subject.
type referrer struct {
	artifactType  string
	raw           []byte
	config, layer v1.Layer
}

// refer returns the referrer of what has the descriptor subject.
func refer(subject v1.Descriptor, mediaType string, document []byte) (*referrer, error) {
	r := &referrer{
		artifactType: mediaType,
		config:       static.NewLayer([]byte("{}"), "application/vnd.oci.empty.v1+json"),
		layer:        static.NewLayer(document, types.MediaType(mediaType)),
	}
	manifest := struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		ArtifactType  string          `json:"artifactType"`
		Config        v1.Descriptor   `json:"config"`
		Layers        []v1.Descriptor `json:"layers"`
		Subject       v1.Descriptor   `json:"subject"`
	}{2, types.OCIManifestSchema1, mediaType, v1.Descriptor{}, make([]v1.Descriptor, 1), subject}
	for layer, d := range map[v1.Layer]*v1.Descriptor{r.config: &manifest.Config, r.layer: &manifest.Layers[0]} {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		d.Digest = digest
		d.Size, _ = layer.Size()
		d.MediaType, _ = layer.MediaType()
	}
	var err error
	r.raw, err = json.Marshal(manifest)
	return r, err
}

// RawManifest and MediaType make it what a registry takes.
func (r *referrer) RawManifest() ([]byte, error)        { return r.raw, nil }
func (r *referrer) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (r *referrer) digest() v1.Hash {
	h, _, _ := v1.SHA256(bytes.NewReader(r.raw)) // a buffer is read to its end
	return h
}

// write adds it to a layout, without a name.
func (r *referrer) write(to layout.Path) error {
	for _, layer := range []v1.Layer{r.config, r.layer} {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := to.WriteBlob(digest, content); err != nil {
			return err
		}
	}
	if err := to.WriteBlob(r.digest(), io.NopCloser(bytes.NewReader(r.raw))); err != nil {
		return err
	}
	return to.AppendDescriptor(v1.Descriptor{
		MediaType: types.OCIManifestSchema1, ArtifactType: r.artifactType, Digest: r.digest(), Size: int64(len(r.raw)),
	})
}

// product is an image for all platforms, with what is said about it.
type product struct {
	index     v1.ImageIndex
	images    []*platformImage
	referrers []*referrer
	// signatures are cosign's, by tag, and in the registry that stop ends.
	signatures map[string]v1.Image
	stop       func()
}

// newProduct describes the images: an SBOM of each, and the provenance of all.
func newProduct(images []*platformImage, meta metadata) (*product, error) {
	p := &product{index: indexOf(images, meta), images: images, stop: func() {}}
	for _, i := range images {
		document, err := i.sbom(meta)
		if err != nil {
			return nil, err
		}
		if err := p.refer(i.image, spdxType, document); err != nil {
			return nil, err
		}
	}
	document, err := provenance(p.index, images, meta)
	if err != nil {
		return nil, err
	}
	return p, p.refer(p.index, inTotoType, document)
}

// manifest is an image or an index.
type manifest interface {
	Digest() (v1.Hash, error)
	Size() (int64, error)
	MediaType() (types.MediaType, error)
}

func (p *product) refer(to manifest, mediaType string, document []byte) error {
	digest, err := to.Digest()
	if err != nil {
		return err
	}
	subject := v1.Descriptor{Digest: digest}
	subject.Size, _ = to.Size()
	subject.MediaType, _ = to.MediaType()
	r, err := refer(subject, mediaType, document)
	p.referrers = append(p.referrers, r)
	return err
}

// push writes all of it to the repository of ref, and the image by the name that ref has.
func (p *product) push(ref name.Reference, options ...remote.Option) error {
	if err := remote.WriteIndex(ref, p.index, options...); err != nil {
		return err
	}
	repo := ref.Context()
	for _, r := range p.referrers {
		for _, layer := range []v1.Layer{r.config, r.layer} {
			if err := remote.WriteLayer(repo, layer, options...); err != nil {
				return err
			}
		}
		if err := remote.Put(repo.Digest(r.digest().String()), r, options...); err != nil {
			return err
		}
	}
	for tag, signature := range p.signatures {
		if err := remote.Write(repo.Tag(tag), signature, options...); err != nil {
			return err
		}
	}
	return nil
}

// sign has cosign sign the image, that of each platform, and what is said about them. Cosign signs in a registry alone: it gets one
// in this process, until stop is called.
func (p *product) sign(ctx context.Context, program, key, identity string) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	p.stop = server.Close
	repo, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + identity)
	if err != nil {
		return err
	}
	if err := p.push(repo.Tag("signed"), remote.WithContext(ctx)); err != nil {
		return err
	}
	digest, err := p.index.Digest()
	if err != nil {
		return err
	}
	digests := []v1.Hash{digest}
	for _, i := range p.images {
		digest, err := i.image.Digest()
		if err != nil {
			return err
		}
		digests = append(digests, digest)
	}
	for _, r := range p.referrers {
		digests = append(digests, r.digest())
	}
	cmd := exec.CommandContext(ctx, program, "sign", "--yes", "--tlog-upload=false", "--allow-http-registry", "--key", key, "--sign-container-identity", identity)
	for _, digest := range digests {
		cmd.Args = append(cmd.Args, repo.Digest(digest.String()).String())
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s sign: %w: %s", program, err, strings.TrimSpace(out.String()))
	}
	p.signatures = map[string]v1.Image{}
	for _, digest := range digests {
		tag := digest.Algorithm + "-" + digest.Hex + ".sig"
		if p.signatures[tag], err = remote.Image(repo.Tag(tag), remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("the signature that cosign has made: %w", err)
		}
	}
	return nil
}
