package airgap_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"
	orasoci "oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

var drone = bundle.Stream{Platform: "default", Environment: "dev", ClusterType: "drone"}

func TestABundleTravelsWithItsSignature(t *testing.T) {
	from, key := publish(t, true)
	var a, b bytes.Buffer
	require.NoError(t, export.Bundle(context.Background(), from, "dev", "drone", &a))
	require.NoError(t, export.Bundle(context.Background(), from, "dev", "drone", &b))
	require.Equal(t, a.Bytes(), b.Bytes(), "the same bundle, the same file")

	repo := opened(t, a.Bytes(), drone.Repository())
	desc, err := repo.Resolve(context.Background(), bundle.LatestTag)
	require.NoError(t, err)
	v, err := bundle.Verify(context.Background(), repo, desc, bundle.Pinned(bundle.Keys{key}))
	require.NoError(t, err)
	require.EqualValues(t, 7, v.Release.Sequence)
	layer, err := repo.Fetch(context.Background(), v.Tree)
	require.NoError(t, err)
	defer layer.Close()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, bundle.Unpack(layer, root, v.Release.Content))
	same, err := repo.Resolve(context.Background(), v.Release.Tag())
	require.NoError(t, err)
	require.Equal(t, desc.Digest, same.Digest)

	_, err = opened(t, a.Bytes(), "bundles/dev/large").Resolve(context.Background(), bundle.LatestTag)
	require.ErrorIs(t, err, errdef.ErrNotFound)
}

func TestOrdinaryToolsReadABundleFile(t *testing.T) {
	from, _ := publish(t, true)
	var file bytes.Buffer
	require.NoError(t, export.Bundle(context.Background(), from, "dev", "drone", &file))
	store, err := orasoci.NewFromTar(context.Background(), write(t, file.Bytes()))
	require.NoError(t, err)
	var tags []string
	require.NoError(t, store.Tags(context.Background(), "", func(page []string) error {
		tags = append(tags, page...)
		return nil
	}))
	require.Len(t, tags, 4)
	require.Contains(t, tags, "site")
	require.Contains(t, tags, "bundles/dev/drone/latest")
	require.Contains(t, tags, "bundles/dev/drone/s0-7")
}

func TestAReasonToCarryAnExpiredReleaseIsRead(t *testing.T) {
	from, _ := publish(t, true)
	for reason, want := range map[string]string{"plant-7\n runs\x1b it": "plant-7 runs? it", "": ""} {
		var now time.Time // judges nothing
		if reason != "" {
			now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		plan, err := export.Choose(t.Context(), export.Request{From: from, Environment: "dev", Now: now, AllowExpired: reason})
		require.NoError(t, err)
		var file bytes.Buffer
		require.NoError(t, plan.Write(t.Context(), &file))
		r, err := airgap.NewReader(&file)
		require.NoError(t, err)
		require.Equal(t, want, r.Contents().AllowExpired)
	}
}

// Packages of earlier versions have no list of contents.
func TestAPackageWithoutAListOfContentsIsRead(t *testing.T) {
	from, key := publish(t, true)
	var file bytes.Buffer
	require.NoError(t, export.Bundle(t.Context(), from, "dev", "drone", &file))
	p, err := packagetest.Parse(file.Bytes())
	require.NoError(t, err)
	p.ChangeIndex(func(index *ocispec.Index) { index.Manifests = index.Manifests[1:] })
	repo := opened(t, p.Bytes(), drone.Repository())
	desc, err := repo.Resolve(t.Context(), bundle.LatestTag)
	require.NoError(t, err)
	_, err = bundle.Verify(t.Context(), repo, desc, bundle.Pinned(bundle.Keys{key}))
	require.NoError(t, err)
	r, err := airgap.NewReader(bytes.NewReader(p.Bytes()))
	require.NoError(t, err)
	require.Nil(t, r.Contents())
}

func TestWhatCannotBeExported(t *testing.T) {
	t.Run("an unsigned bundle", func(t *testing.T) {
		from, _ := publish(t, false)
		err := export.Bundle(context.Background(), from, "dev", "drone", &bytes.Buffer{})
		var r *bundle.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, bundle.Unsigned, r.Reason)
	})
	t.Run("a bundle that is not there", func(t *testing.T) {
		from, _ := publish(t, true)
		require.ErrorIs(t, export.Bundle(context.Background(), from, "dev", "large", &bytes.Buffer{}), errdef.ErrNotFound)
	})
	t.Run("a layer that was changed", func(t *testing.T) {
		from, _ := publish(t, true)
		blobs, err := filepath.Glob(filepath.Join(from.Dir, "blobs/sha256/*"))
		require.NoError(t, err)
		for _, path := range blobs {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
				data[len(data)-1] ^= 1
				require.NoError(t, os.WriteFile(path, data, 0o600))
			}
		}
		err = export.Bundle(context.Background(), from, "dev", "drone", &bytes.Buffer{})
		var r *bundle.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, bundle.DigestMismatch, r.Reason)
	})
}

// TestATarOfAFolderIsRead reads what "tar -C layout ." writes, and names that are not of that form.
func TestATarOfAFolderIsRead(t *testing.T) {
	from, key := publish(t, true)
	var file bytes.Buffer
	require.NoError(t, export.Bundle(t.Context(), from, "dev", "drone", &file))
	for name, test := range map[string]struct {
		rename func(string) string
		more   []string
		says   string // empty where it is read
	}{
		"./ before each name":           {func(s string) string { return "./" + s }, []string{"./", "./blobs/", "./blobs/sha256/"}, ""},
		"folders without ./":            {func(s string) string { return s }, []string{"blobs/", "blobs/sha256/"}, ""},
		"././ before each name":         {func(s string) string { return "././" + s }, nil, "the file holds nothing"},
		"./../ before each name":        {func(s string) string { return "./../" + s }, nil, "the file holds nothing"},
		".// before each name":          {func(s string) string { return ".//" + s }, nil, "the file holds nothing"},
		"a second index with ./":        {func(s string) string { return s }, []string{"./index.json"}, `it holds "index.json" twice`},
		"a second index without ./":     {func(s string) string { return "./" + s }, []string{"index.json"}, `it holds "index.json" twice`},
		"a folder in place of a file":   {func(s string) string { return s }, []string{"./index.json/"}, `it holds "index.json" twice`},
		"the folder itself twice":       {func(s string) string { return "./" + s }, []string{"./", "./"}, `it holds "." twice`},
		"a file outside is passed over": {func(s string) string { return "./" + s }, []string{"./../index.json"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			repo := opened(t, renamed(t, file.Bytes(), test.rename, test.more), drone.Repository())
			desc, err := repo.Resolve(t.Context(), bundle.LatestTag)
			if test.says != "" {
				require.ErrorIs(t, err, airgap.ErrFormat)
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			_, err = bundle.Verify(t.Context(), repo, desc, bundle.Pinned(bundle.Keys{key}))
			require.NoError(t, err)
		})
	}
}

// renamed writes a tar anew, with further entries, of which those that end in / are folders.
func renamed(t *testing.T, data []byte, rename func(string) string, more []string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: rename(h.Name), Typeflag: h.Typeflag, Mode: 0o644, Size: h.Size}))
		_, err = io.Copy(w, r)
		require.NoError(t, err)
	}
	for _, name := range more {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: 0o755}))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestABlobOfAnotherLengthIsRefused(t *testing.T) {
	from, _ := publish(t, true)
	var file bytes.Buffer
	require.NoError(t, export.Bundle(context.Background(), from, "dev", "drone", &file))
	repo := opened(t, file.Bytes(), drone.Repository())
	desc, err := repo.Resolve(context.Background(), bundle.LatestTag)
	require.NoError(t, err)
	desc.Size++
	_, err = repo.Fetch(context.Background(), desc)
	require.ErrorAs(t, err, new(*bundle.Refusal))
}

// opened returns a repository of a package.
func opened(t *testing.T, data []byte, name string) oci.Target {
	t.Helper()
	repo, err := oci.Location{Archive: write(t, data)}.Repository(name, oci.Options{})
	require.NoError(t, err)
	return repo
}

// publish puts one bundle into a layout and returns where, and the key that signed it.
func publish(t *testing.T, signed bool) (oci.Location, crypto.PublicKey) {
	t.Helper()
	ctx := context.Background()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	packed, err := bundle.Pack([]bundle.File{{Path: "shop-main/reconciler.yaml", Data: []byte("a: 1")}})
	require.NoError(t, err)
	issued := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	document, err := bundle.Release{
		Schema: bundle.ReleaseSchema, Platform: drone.Platform, Environment: drone.Environment, ClusterType: drone.ClusterType,
		Sequence: 7, IssuedAt: issued, ExpiresAt: issued.AddDate(0, 3, 0), Content: packed.Content,
	}.Marshal()
	require.NoError(t, err)
	config, tree := bundle.NewBlob(bundle.MediaTypeRelease, document), bundle.NewBlob(bundle.MediaTypeTree, packed.Gzip)
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeBundle,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{tree.Descriptor},
	})
	require.NoError(t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)

	loc := oci.Location{Dir: filepath.Join(t.TempDir(), "layout")}
	repo, err := loc.Repository(drone.Repository(), oci.Options{})
	require.NoError(t, err)
	push := func(blobs ...bundle.Blob) {
		for _, b := range blobs {
			require.NoError(t, repo.Push(ctx, b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	push(config, tree, manifest)
	require.NoError(t, repo.Tag(ctx, manifest.Descriptor, bundle.LatestTag))
	if signed {
		signer, err := signature.LoadSigner(key, crypto.SHA256)
		require.NoError(t, err)
		s, err := bundle.SignManifest(manifest.Descriptor.Digest, "registry.example/edge", signer)
		require.NoError(t, err)
		push(append(s.Blobs, s.Manifest)...)
		require.NoError(t, repo.Tag(ctx, s.Manifest.Descriptor, bundle.SignatureTag(manifest.Descriptor.Digest)))
	}
	return loc, key.Public()
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.tar")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}
