package bundle_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// A publisher packs, signs and pushes a release. An agent verifies it, judges whether the release is meant for its
// cluster, and unpacks the tree only then.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bundle-")
	check(err)
	defer os.RemoveAll(dir)
	drone := bundle.Stream{Platform: "edge", Environment: "dev", ClusterType: "drone"}
	repo, err := oci.NewLayout(filepath.Join(dir, "layout")).Repository(drone.Repository())
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)

	// The publisher.
	list, err := bundle.MarshalAssignments(nil)
	check(err)
	tree, err := bundle.Pack([]bundle.File{{Path: bundle.AssignmentsPath, Data: list}})
	check(err)
	issued := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	document, err := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: drone.Platform, Environment: drone.Environment, ClusterType: drone.ClusterType,
		Sequence: 7, IssuedAt: issued, ExpiresAt: issued.AddDate(0, 3, 0), Content: tree.Content,
	}.Marshal()
	check(err)
	config, layer := bundle.NewBlob(bundle.MediaTypeRelease, document), bundle.NewBlob(bundle.MediaTypeTree, tree.Gzip)
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{layer.Descriptor},
	})
	check(err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	check(err)
	signed, err := bundle.SignManifest(manifest.Descriptor.Digest, "registry.plant-7:5000/edge/"+drone.Repository(), signer)
	check(err)
	for _, b := range append([]bundle.Blob{config, layer, manifest, signed.Manifest}, signed.Blobs...) {
		_, err := oci.CopyBlob(ctx, nil, repo, b.WithData())
		check(err)
	}
	check(repo.Tag(ctx, signed.Manifest.Descriptor, bundle.SignatureTag(manifest.Descriptor.Digest)))
	check(repo.Tag(ctx, manifest.Descriptor, bundle.LatestTag))

	// The agent, which has the public half of the key.
	latest, err := repo.Resolve(ctx, bundle.LatestTag)
	check(err)
	verified, err := bundle.Verify(ctx, repo, latest, bundle.Pinned(bundle.Keys{key.Public()}))
	check(err)
	expect := bundle.Expect{Stream: drone, Now: issued.AddDate(0, 0, 1)}
	check(expect.Check(verified.Release, latest.Digest))
	body, err := repo.Fetch(ctx, verified.Tree)
	check(err)
	defer body.Close()
	check(os.Mkdir(filepath.Join(dir, "tree"), 0o700))
	root, err := os.OpenRoot(filepath.Join(dir, "tree"))
	check(err)
	defer root.Close()
	check(bundle.Unpack(body, root, verified.Release.Content))
	fmt.Println("sequence", verified.Release.Sequence, "is for", verified.Release.Stream().Repository())

	// A release that is meant for others, or signed by others, is refused with a reason.
	expect.ClusterType = "large"
	var refusal *bundle.Refusal
	if errors.As(expect.Check(verified.Release, latest.Digest), &refusal) {
		fmt.Println(refusal.Reason)
	}
	// Output:
	// sequence 7 is for bundles/dev/drone
	// WrongClusterType
}

// Reports, acknowledgements and trust documents travel in DSSE envelopes.
func ExampleSealEnvelope() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	envelope, err := bundle.SealEnvelope("text/plain", []byte("all compliant"), key)
	check(err)
	body, _, err := bundle.OpenEnvelope("text/plain", envelope, key.Public())
	check(err)
	fmt.Println(string(body))
	// Output: all compliant
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
