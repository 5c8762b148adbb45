package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// zonesPath is where Go programs find time zones by the variable ZONEINFO; see package time, LoadLocation.
	zonesPath = "usr/share/zoneinfo.zip"
	rootsPath = "etc/ssl/certs/ca-certificates.crt"
)

// user is the user that an image runs as, by number, so that Kubernetes can see that it is not root. Its group is root's, whose
// the folders for state are as well: a platform that chooses another user, such as OpenShift, leaves it that group.
const user = 65532

// definition is one of the images that there are.
type definition struct {
	program string // path in the image
	env     []string
	entries func(meta metadata) []entry
	// zstd has layers packed by zstd, and not by gzip, which every runtime unpacks. Those of 2021 and later do (containerd 1.5), and
	// Docker from 23 on.
	zstd bool
	// debian are the files that are taken from packages of Debian's, by package. The libraries that these need come with them.
	debian map[string][]string
}

//go:embed ssh.sh
var sshScript []byte

var definitions = map[string]definition{
	"wherry-agent": {program: "wherry-agent", env: []string{"PATH=/"}, entries: func(meta metadata) []entry {
		entries := []entry{{name: rootsPath, mode: 0o644, data: roots()}, state("var/lib/wherry-agent/")}
		if meta.zones != nil {
			entries = append(entries, entry{name: zonesPath, mode: 0o644, data: meta.zones})
		}
		return entries
	}},
	"wherry": {
		program: "usr/bin/wherry", zstd: true,
		env: []string{"PATH=/usr/local/bin:/usr/bin", "HOME=/tmp"},
		entries: func(metadata) []entry {
			return []entry{
				state("var/lib/wherry-hub/"),
				{name: "tmp/", mode: 0o1777},
				{name: "bin", link: "usr/bin"},
				{name: "lib", link: "usr/lib"},
				{name: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:0:root:/root:/bin/sh\nwherry:x:%d:0:wherry:/tmp:/bin/sh\n", user)},
				{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\n")},
				// Volumes belong to whom the platform says.
				{name: "etc/gitconfig", mode: 0o644, data: []byte("[safe]\n\tdirectory = *\n")},
				{name: "usr/local/bin/ssh", mode: 0o755, data: sshScript},
			}
		},
		debian: map[string][]string{
			"base-files":      {"usr/lib/os-release", "etc/os-release", "etc/debian_version"},
			"ca-certificates": {"usr/share/ca-certificates/mozilla/*.crt"},
			"dash":            {"usr/bin/dash", "usr/bin/sh"},
			"git": {
				"usr/bin/git", "usr/bin/git-*-pack", "usr/lib/git-core/git-remote-http", "usr/lib/git-core/git-remote-https",
				"usr/share/git-core/templates/description", "usr/share/git-core/templates/info/exclude",
			},
			"libnss-wrapper": {"usr/lib/*/libnss_wrapper.so"},
			"openssh-client": {"usr/bin/ssh", "etc/ssh/ssh_config"},
		},
	},
}

// state is a folder that a volume can be mounted at, and that may be written without one.
func state(name string) entry { return entry{name: name, mode: 0o770, owner: user} }

// metadata is what an image says of itself.
type metadata struct {
	name              string
	created           time.Time
	revision, version string
	// zones are the time zones for maintenance windows, as a zip file of IANA's database; nil is none but UTC.
	zones []byte
}

// platformImage is an image for one platform, and what it was made of.
type platformImage struct {
	platform v1.Platform
	image    v1.Image
	program  []byte
	packages []*debPackage
}

// entry is a file of the image; with a link, a symbolic link; with a name that ends in a slash, a folder. Its group is root's.
type entry struct {
	name  string
	mode  int64
	owner int
	link  string
	data  []byte
}

// newImage puts the program on top of what changes less often.
func newImage(ctx context.Context, p v1.Platform, program []byte, meta metadata, debs downloader) (*platformImage, error) {
	d := definitions[meta.name]
	made := &platformImage{platform: p, program: program}
	layers := [][]entry{d.entries(meta), {{name: d.program, mode: 0o755, data: program}}}
	if d.debian != nil {
		entries, err := made.addDebian(ctx, d.debian, debs)
		if err != nil {
			return nil, err
		}
		layers = append([][]entry{entries}, layers...)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, entries := range layers {
		layer, err := newLayer(entries, d.zstd)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: meta.created}, CreatedBy: "wherry"}}); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Architecture, p.Variant
	config.Created = v1.Time{Time: meta.created}
	env := d.env
	if meta.zones != nil && d.debian == nil {
		env = append(slices.Clip(env), "ZONEINFO=/"+zonesPath)
	}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:0", user),
		Entrypoint: []string{"/" + d.program},
		Cmd:        []string{"--help"},
		Env:        env,
		WorkingDir: "/",
		Labels:     labels(meta),
	}
	made.image, err = mutate.ConfigFile(img, config)
	return made, err
}

// addDebian returns the files of Debian's packages, and notes the packages.
func (i *platformImage) addDebian(ctx context.Context, patterns map[string][]string, debs downloader) ([]entry, error) {
	arch := debianArch[i.platform.Architecture]
	if i.platform.OS != "linux" || arch == "" {
		return nil, fmt.Errorf("no packages of Debian's are known for %s", i.platform)
	}
	files, err := debs.fetch(ctx, arch, slices.Collect(maps.Keys(patterns)))
	if err != nil {
		return nil, err
	}
	var packages []*debPackage
	for _, file := range files {
		p, err := readDeb(ctx, file)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	entries, used, err := pick(packages, patterns, elfMachine[i.platform.Architecture])
	if err != nil {
		return nil, err
	}
	i.packages = used
	return merge(entries), nil
}

// merge puts the certificates of authorities into one file, as Debian's update-ca-certificates does, and adds the link by which programs
// find their loader.
func merge(entries []entry) (merged []entry) {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	authorities := entry{name: rootsPath, mode: 0o644}
	for _, e := range entries {
		switch {
		case path.Ext(e.name) == ".crt":
			authorities.data = append(append(authorities.data, bytes.TrimSpace(e.data)...), '\n')
			continue
		case strings.HasPrefix(e.name, "usr/lib64/"):
			merged = append(merged, entry{name: "lib64", link: "usr/lib64"})
		}
		merged = append(merged, e)
	}
	if len(authorities.data) > 0 {
		merged = append(merged, authorities)
	}
	return merged
}

func labels(meta metadata) map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title":    meta.name,
		"org.opencontainers.image.source":   source,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  meta.created.Format(time.RFC3339),
		"org.opencontainers.image.version":  meta.version,
	}
	if meta.revision != "" {
		l["org.opencontainers.image.revision"] = meta.revision
	}
	return l
}

// newLayer is a layer that depends on nothing but its entries, not even the time: a later image has the
// same roots in the same layer.
func newLayer(entries []entry, zstd bool) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range withFolders(entries) {
		h := &tar.Header{
			Name: e.name, Mode: e.mode, Uid: e.owner, ModTime: time.Unix(0, 0), Size: int64(len(e.data)), Typeflag: tar.TypeReg, Linkname: e.link,
		}
		switch {
		case e.link != "":
			h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	options := []tarball.LayerOption{tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching}
	if zstd {
		options = append(options, tarball.WithMediaType(types.OCILayerZStd), tarball.WithCompression(compression.ZStd), tarball.WithCompressionLevel(11))
	}
	return tarball.LayerFromOpener(open, options...)
}

// withFolders sorts entries, and adds the folders that they lie in.
func withFolders(entries []entry) []entry {
	all := map[string]entry{}
	for _, e := range entries {
		all[e.name] = e
	}
	for _, e := range entries {
		for dir := path.Dir(strings.TrimSuffix(e.name, "/")); dir != "."; dir = path.Dir(dir) {
			if _, found := all[dir+"/"]; !found {
				all[dir+"/"] = entry{name: dir + "/", mode: 0o755}
			}
		}
	}
	var sorted []entry
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[name])
	}
	return sorted
}

// roots are the authorities that Mozilla trusts without a restriction, which a file cannot express.
func roots() []byte {
	var out bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a buffer takes all
		}
	}
	return out.Bytes()
}

// indexOf lists the images by platform.
func indexOf(images []*platformImage, meta metadata) v1.ImageIndex {
	index := emptyIndex()
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i.image, Descriptor: v1.Descriptor{Platform: &i.platform}})
	}
	return mutate.Annotations(index, labels(meta)).(v1.ImageIndex)
}

func emptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }
