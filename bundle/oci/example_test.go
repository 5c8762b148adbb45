package oci_test

import (
	"context"
	"fmt"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Content is pushed by its digest and becomes visible by a tag. A folder behaves as a registry does.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "oci-")
	check(err)
	defer os.RemoveAll(dir)

	here, err := oci.Parse("oci-layout:" + dir + "/here") // or oci://registry.plant-7:5000/edge
	check(err)
	repo, err := here.Repository("bundles/dev/drone", oci.Options{})
	check(err)
	layer := bundle.NewBlob("text/plain", []byte("hello"))
	_, err = oci.CopyBlob(ctx, nil, repo, layer.WithData())
	check(err)
	manifest, err := oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, "application/vnd.example",
		oras.PackManifestOptions{
			Layers:              []ocispec.Descriptor{layer.Descriptor},
			ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: "2026-03-01T00:00:00Z"},
		})
	check(err)
	check(repo.Tag(ctx, manifest, "latest"))

	// Copy a manifest with its parts. Content that the destination has is not sent again.
	there, err := oci.Parse("oci-layout:" + dir + "/there")
	check(err)
	to, err := there.Repository("bundles/dev/drone", oci.Options{})
	check(err)
	latest, err := repo.Resolve(ctx, "latest")
	check(err)
	for range 2 {
		sent, err := oci.Copy(ctx, repo, to, latest)
		check(err)
		fmt.Println(sent, "bytes")
	}
	// Output:
	// 493 bytes
	// 0 bytes
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
