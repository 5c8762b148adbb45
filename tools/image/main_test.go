package main

import (
	"archive/tar"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// program builds a Go program for an architecture, to be put into an image.
func program(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/program\n", "main.go": "package main\n\nfunc main() {}\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", "program", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "program")
}

// read returns the image in the layout of dir, and the descriptors of what is said about it.
func read(t *testing.T, dir string) (index v1.ImageIndex, digest v1.Hash, referrers []v1.Descriptor) {
	t.Helper()
	root, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := root.IndexManifest()
	require.NoError(t, err)
	require.Equal(t, map[string]string{refName: "v1.2.3"}, manifest.Manifests[0].Annotations)
	index, err = root.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index, manifest.Manifests[0].Digest, manifest.Manifests[1:]
}

func TestTheImageHoldsTheProgramRootsAndAFolderForTheState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist", "image")
	zones := filepath.Join(t.TempDir(), "zones")
	require.NoError(t, os.WriteFile(zones, []byte("zones"), 0o644))
	programs := map[string]string{"amd64": program(t, "amd64"), "arm64": program(t, "arm64")}
	require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-created", created, "-revision", "abc", "-zoneinfo", zones, "linux/amd64=" + programs["amd64"], "linux/arm64=" + programs["arm64"]}))
	index, _, _ := read(t, dir)
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
		require.Equal(t, "65532:0", config.Config.User)
		require.Equal(t, []string{"/wherry-agent"}, config.Config.Entrypoint)
		require.Equal(t, "abc", config.Config.Labels["org.opencontainers.image.revision"])
		files := contents(t, img)
		want, err := os.ReadFile(programs[config.Architecture])
		require.NoError(t, err)
		require.Equal(t, string(want), files["wherry-agent"])
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
		require.Zero(t, h.Gid, "another user has root's group")
		name := h.Name
		switch h.Typeflag {
		case tar.TypeDir:
			name = strings.TrimSuffix(name, "/") + "/"
		case tar.TypeSymlink:
			data = []byte("-> " + h.Linkname)
		}
		files[name] = string(data)
	}
}

func TestTheSameInputGivesTheSameImage(t *testing.T) {
	path, dir := program(t, "amd64"), filepath.Join(t.TempDir(), "image")
	var digests []v1.Hash
	var said [][]v1.Descriptor
	for range 2 { // the second replaces the first
		require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-created", created, "linux/amd64=" + path}))
		_, digest, referrers := read(t, dir)
		digests, said = append(digests, digest), append(said, referrers)
	}
	require.Equal(t, digests[0], digests[1])
	require.Equal(t, said[0], said[1])
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// What a registry offers beside an image: its SBOM at each platform, and its provenance.
func TestAnImageIsPushedWithWhatIsSaidAboutIt(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	dir, ref := filepath.Join(t.TempDir(), "image"), strings.TrimPrefix(server.URL, "http://")+"/edge/wherry-agent:v1.2.3"
	require.NoError(t, run(t.Context(), []string{"-o", dir, "-tag", "v1.2.3", "-revision", "abc", "-push", ref, "linux/amd64=" + program(t, "amd64")}))
	_, want, inLayout := read(t, dir)
	parsed, err := name.ParseReference(ref)
	require.NoError(t, err)
	got, err := remote.Index(parsed)
	require.NoError(t, err)
	require.NoError(t, validate.Index(got))
	digest, err := got.Digest()
	require.NoError(t, err)
	require.Equal(t, want, digest)

	manifest, err := got.IndexManifest()
	require.NoError(t, err)
	image := manifest.Manifests[0].Digest
	require.Len(t, inLayout, 2)
	for i, test := range []struct {
		subject      v1.Hash
		artifactType string
		check        func(document []byte)
	}{
		{image, spdxType, func(document []byte) {
			var sbom spdxDocument
			require.NoError(t, json.Unmarshal(document, &sbom))
			require.Equal(t, "SPDX-2.3", sbom.Version)
			ids := map[string]string{}
			for _, p := range sbom.Packages {
				require.NotContains(t, ids, p.ID, "ids are unique")
				ids[p.ID] = p.Name
			}
			require.Contains(t, ids, sbom.Relationships[0].Related)
			require.Equal(t, "wherry-agent", ids[sbom.Relationships[0].Related])
			var names []string
			for _, r := range sbom.Relationships[1:] {
				names = append(names, ids[r.Related])
			}
			require.Subset(t, names, []string{"example.com/program", "stdlib"})
		}},
		{want, inTotoType, func(document []byte) {
			var s statement
			require.NoError(t, json.Unmarshal(document, &s))
			require.Equal(t, []resource{{Name: "wherry-agent", Digest: map[string]string{"sha256": want.Hex}}, {Name: "wherry-agent linux/amd64", Digest: map[string]string{"sha256": image.Hex}}}, s.Subject)
			require.Equal(t, "https://slsa.dev/provenance/v1", s.PredicateType)
			require.Equal(t, map[string]string{"gitCommit": "abc"}, s.Predicate.Definition.Dependencies[0].Digest)
		}},
	} {
		require.Equal(t, test.artifactType, inLayout[i].ArtifactType)
		offered, err := remote.Referrers(parsed.Context().Digest(test.subject.String()))
		require.NoError(t, err)
		list, err := offered.IndexManifest()
		require.NoError(t, err)
		require.Len(t, list.Manifests, 1)
		require.Equal(t, inLayout[i].Digest, list.Manifests[0].Digest)
		referrer, err := remote.Image(parsed.Context().Digest(list.Manifests[0].Digest.String()))
		require.NoError(t, err)
		layers, err := referrer.Layers()
		require.NoError(t, err)
		content, err := layers[0].Compressed()
		require.NoError(t, err)
		document, err := io.ReadAll(content)
		require.NoError(t, err)
		test.check(document)
	}
}

// deb makes a package of Debian's of files of this machine's.
func deb(t *testing.T, name string, files map[string]string) *debPackage {
	t.Helper()
	dir := t.TempDir()
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: 1:2.0-3\nArchitecture: amd64\nMaintainer: nobody <nobody@example.com>\nDescription: a test\n"
	for path, content := range files {
		file := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o755))
	}
	file := filepath.Join(t.TempDir(), name+".deb")
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", dir, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	p, err := readDeb(t.Context(), file)
	require.NoError(t, err)
	require.Equal(t, name, p.name)
	return p
}

// Of packages of Debian's, a program is taken with all libraries that it needs, and nothing else but the licences.
func TestAProgramComesWithItsLibraries(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("this is no Debian, whose packages these are")
	}
	machine, loader := elf.EM_X86_64, "/lib64/ld-linux-x86-64.so.2"
	shell, err := os.ReadFile("/bin/dash")
	require.NoError(t, err)
	if needs, err := needed(shell, machine); err != nil || len(needs) == 0 {
		machine, loader = elf.EM_AARCH64, "/lib/ld-linux-aarch64.so.1"
	}
	libc, err := filepath.Glob("/lib/*-linux-gnu/libc.so.6")
	require.NoError(t, err)
	require.Len(t, libc, 1)
	content := map[string]string{}
	for _, name := range []string{loader, libc[0]} {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		content[name] = string(data)
	}
	dash := deb(t, "dash", map[string]string{
		"bin/dash": string(shell), "usr/bin/other": string(shell), "usr/share/doc/dash/copyright": "free", "usr/share/man/man1/dash.1": "a manual",
	})
	other := deb(t, "libother", map[string]string{"usr/lib/libother.so.1": "not needed"})
	library := deb(t, "libc6", map[string]string{loader: content[loader], libc[0]: content[libc[0]], "usr/share/doc/libc6/copyright": "free, too"})
	patterns := map[string][]string{"dash": {"usr/bin/dash"}}

	entries, used, err := pick([]*debPackage{dash, library, other}, patterns, machine)
	require.NoError(t, err)
	require.Equal(t, []*debPackage{dash, library}, used)
	var names []string
	for _, e := range withFolders(entries) {
		if !strings.HasSuffix(e.name, "/") {
			names = append(names, e.name)
		}
	}
	require.ElementsMatch(t, []string{
		"usr/bin/dash", merged(loader), merged(libc[0]), "usr/share/doc/dash/copyright", "usr/share/doc/libc6/copyright",
		"var/lib/dpkg/status.d/dash", "var/lib/dpkg/status.d/libc6",
	}, names)
	require.Equal(t, "pkg:deb/debian/dash@1%3A2.0-3?arch=amd64&distro=trixie", dash.purl())

	_, _, err = pick([]*debPackage{dash, other}, patterns, machine)
	require.ErrorContains(t, err, "usr/bin/dash needs libc.so.6: ")
	_, _, err = pick([]*debPackage{dash, library}, patterns, elf.EM_RISCV)
	require.ErrorContains(t, err, "and not for EM_RISCV")
	_, _, err = pick([]*debPackage{dash, library}, map[string][]string{"dash": {"usr/bin/bash"}}, machine)
	require.EqualError(t, err, "the package dash has no file usr/bin/bash")
	_, _, err = pick([]*debPackage{library}, patterns, machine)
	require.EqualError(t, err, "the package dash is missing")
}

func TestWrongUseChangesNothing(t *testing.T) {
	path := program(t, "amd64")
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
		{"a program for another machine", []string{"-o", precious, "linux/arm64=" + path}, "is for EM_X86_64 and not for EM_AARCH64"},
		{"a program with libraries", []string{"-o", precious, "linux/" + runtime.GOARCH + "=/bin/sh"}, "build it with CGO_ENABLED=0"},
		{"a time that is none", []string{"-o", precious, "-created", "today", "linux/amd64=" + path}, "-created: "},
		{"an image that is none", []string{"-o", precious, "-name", "hub", "linux/amd64=" + path}, `-name "hub": expected wherry or wherry-agent`},
		{"a folder that is no layout", []string{"-o", precious, "linux/amd64=" + path}, "is there and is no OCI layout"},
		{"a cosign that is missing", []string{"-o", precious, "-key", "cosign.key", "-cosign", "/none/cosign", "linux/amd64=" + path}, "/none/cosign sign: "},
		{"a reference that is none", []string{"-o", filepath.Join(t.TempDir(), "image"), "-push", "A B", "linux/amd64=" + path}, "-push: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.ErrorContains(t, run(t.Context(), test.args), test.want)
			require.FileExists(t, filepath.Join(precious, "precious"))
		})
	}
}
