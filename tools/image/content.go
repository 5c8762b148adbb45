package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// zonesPath is where Go programs find time zones by the variable ZONEINFO; see package time, LoadLocation.
const zonesPath = "usr/share/zoneinfo.zip"

// user is the user and group that the image runs as, by number, so that Kubernetes can see that it is not
// root. Nobody is called that in the image, which has no /etc/passwd.
const user = 65532

// metadata is what an image says of itself.
type metadata struct {
	created           time.Time
	revision, version string
	// zones are the time zones for maintenance windows, as a zip file of IANA's database; nil is none but UTC.
	zones []byte
}

type platformImage struct {
	platform v1.Platform
	image    v1.Image
}

// entry is a file of the image or, with a name that ends in a slash, a folder.
type entry struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

// newImage puts the program on top of what does not depend on the platform.
func newImage(p v1.Platform, program []byte, meta metadata) (v1.Image, error) {
	common := []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots()},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/wherry-agent/", mode: 0o700, owner: user},
	}
	env := []string{"PATH=/"}
	if meta.zones != nil {
		common = append(common, entry{name: "usr/", mode: 0o755}, entry{name: "usr/share/", mode: 0o755}, entry{name: zonesPath, mode: 0o644, data: meta.zones})
		env = append(env, "ZONEINFO=/"+zonesPath)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, entries := range [][]entry{common, {{name: "wherry-agent", mode: 0o755, data: program}}} {
		layer, err := newLayer(entries)
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
	config.Config = v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/wherry-agent"},
		Cmd:        []string{"--help"},
		Env:        env,
		WorkingDir: "/",
		Labels:     labels(meta),
	}
	return mutate.ConfigFile(img, config)
}

func labels(meta metadata) map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title":   "wherry-agent",
		"org.opencontainers.image.source":  "https://github.com/wherry-dev/wherry",
		"org.opencontainers.image.created": meta.created.Format(time.RFC3339),
		"org.opencontainers.image.version": meta.version,
	}
	if meta.revision != "" {
		l["org.opencontainers.image.revision"] = meta.revision
	}
	return l
}

// newLayer is a layer that depends on nothing but its entries, not even the time: a later image has the
// same roots in the same layer.
func newLayer(entries []entry) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, ModTime: time.Unix(0, 0), Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
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
func indexOf(images []platformImage, meta metadata) v1.ImageIndex {
	index := emptyIndex()
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i.image, Descriptor: v1.Descriptor{Platform: &i.platform}})
	}
	return mutate.Annotations(index, labels(meta)).(v1.ImageIndex)
}

func emptyIndex() v1.ImageIndex { return mutate.IndexMediaType(empty.Index, types.OCIImageIndex) }
