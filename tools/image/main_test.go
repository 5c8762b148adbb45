package main

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

const created = "2026-11-21T12:00:00Z"

// program writes something to be put into an image.
func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wherry-agent")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	return path
}

// read returns the index of the layout in dir, which holds nothing else.
func read(t *testing.T, dir string) (v1.ImageIndex, v1.Hash) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := root.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, map[string]string{"org.opencontainers.image.ref.name": "v1.2.3"}, manifest.Manifests[0].Annotations)
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0].Digest
}

func TestTheImageHoldsTheProgramRootsAndAFolderForTheState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist", "image")
	zones := program(t, "zones")
	require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-created", created, "-revision", "abc", "-zoneinfo", zones, "linux/amd64=" + program(t, "for amd64"), "linux/arm64=" + program(t, "for arm64")}))
	index, _ := read(t, dir)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, d.Platform.Architecture, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, []string{"/wherry-agent"}, config.Config.Entrypoint)
		require.Equal(t, "abc", config.Config.Labels["org.opencontainers.image.revision"])
		files := contents(t, img)
		require.Equal(t, "for "+d.Platform.Architecture, files["wherry-agent"])
		require.Contains(t, files, "var/lib/wherry-agent/")
		require.Equal(t, "zones", files["usr/share/zoneinfo.zip"])
		require.Contains(t, config.Config.Env, "ZONEINFO=/usr/share/zoneinfo.zip")
		require.True(t, x509.NewCertPool().AppendCertsFromPEM([]byte(files["etc/ssl/certs/ca-certificates.crt"])))
	}
}

func contents(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	all := mutate.Extract(img)
	defer all.Close()
	files := map[string]string{}
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		name := h.Name
		if h.Typeflag == tar.TypeDir {
			name = strings.TrimSuffix(name, "/") + "/"
		}
		files[name] = string(data)
	}
}

func TestTheSameInputGivesTheSameImage(t *testing.T) {
	path, dir := program(t, "program"), filepath.Join(t.TempDir(), "image")
	var digests []v1.Hash
	for range 2 { // the second replaces the first
		require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-created", created, "linux/amd64=" + path}))
		_, digest := read(t, dir)
		digests = append(digests, digest)
	}
	require.Equal(t, digests[0], digests[1])
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestAnImageIsPushedAsItIsInTheLayout(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir, ref := filepath.Join(t.TempDir(), "image"), strings.TrimPrefix(server.URL, "http://")+"/edge/wherry-agent:v1.2.3"
	require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-push", ref, "linux/amd64=" + program(t, "program")}))
	_, want := read(t, dir)
	parsed, err := name.ParseReference(ref)
	require.NoError(t, err)
	got, err := remote.Index(parsed)
	require.NoError(t, err)
	require.NoError(t, validate.Index(got))
	digest, err := got.Digest()
	require.NoError(t, err)
	require.Equal(t, want, digest)
}

func TestWrongUseChangesNothing(t *testing.T) {
	path := program(t, "program")
	precious := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(precious, "precious"), nil, 0o644))
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no platform", []string{"-o", precious}, "usage: "},
		{"a program without its platform", []string{"-o", precious, path}, "write PLATFORM=PROGRAM"},
		{"a platform without its architecture", []string{"-o", precious, "linux=" + path}, "is no platform"},
		{"a program that is not there", []string{"-o", precious, "linux/amd64=none"}, "open none"},
		{"a time that is none", []string{"-o", precious, "-created", "today", "linux/amd64=" + path}, "-created: "},
		{"a folder that is no layout", []string{"-o", precious, "linux/amd64=" + path}, "is there and is no OCI layout"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.ErrorContains(t, run(t.Context(), test.args), test.want)
			require.FileExists(t, filepath.Join(precious, "precious"))
		})
	}
}
