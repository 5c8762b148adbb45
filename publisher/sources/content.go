package sources

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/meter"
)

// Bounds on what an artifact may hold.
const (
	// MaxChartBytes bounds the archive of a chart, in bytes.
	MaxChartBytes = 16 << 20
	// maxLayerBytes bounds the compressed layer of an artifact, and maxUnpackedBytes its files.
	maxLayerBytes    = 64 << 20
	maxUnpackedBytes = 256 << 20
	maxUnpackedFiles = 100_000
)

// The media types of charts in registries, as Helm pushes them.
const (
	helmConfig  = "application/vnd.cncf.helm.config.v1+json"
	helmContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// Content is what an artifact of a registry or a chart repository holds.
type Content struct {
	// Chart is the archive of a chart; nil for an artifact with other files.
	Chart []byte
	// Files are those of an artifact that is no chart. They can be read until the Resolver is closed.
	Files fs.FS
}

// Content fetches what s names: a chart, or an artifact of the registry whose first layer is a gzipped tar, such as those
// of "flux push artifact". It is fetched once, and compared with the digest that s was resolved to.
func (r *Resolver) Content(ctx context.Context, s Source) (Content, error) {
	s = r.settled(ctx, s)
	found := r.Of(ctx, s)
	if found.Err != nil {
		return Content{}, found.Err
	}
	e := r.entry(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fetched {
		return e.content, e.err
	}
	c, err := r.fetch(ctx, s, found)
	if !errors.Is(err, errOwn) {
		e.content, e.err, e.fetched = c, err, true
	}
	return c, err
}

func (r *Resolver) fetch(ctx context.Context, s Source, found *Resolution) (c Content, err error) {
	ctx, end := r.meters.Of(registrationOf(ctx)).Start(ctx)
	defer end()
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("not fetched within %s", r.timeout))
	defer cancel()
	switch {
	case s.Kind == bundle.ArtifactGit:
		return c, errors.New("a git repository is read by its commit")
	case s.Chart != "":
		c.Chart, err = r.archive(ctx, s, found)
	default:
		c, err = r.artifact(ctx, s, found)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && (ctx.Err() != nil || errors.Is(err, meter.ErrExceeded)) {
		err = &ownError{err}
	}
	return c, err
}

// artifact fetches an artifact of a registry.
func (r *Resolver) artifact(ctx context.Context, s Source, found *Resolution) (c Content, err error) {
	repo, err := r.repository(s)
	if err != nil {
		return c, err
	}
	desc, err := repo.Resolve(ctx, found.Revision)
	if err != nil {
		return c, err
	}
	data, err := bundle.ReadBlob(ctx, repo, desc, maxArtifactManifest)
	if err != nil {
		return c, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return c, fmt.Errorf("manifest %s cannot be read", desc.Digest)
	}
	layer, err := layerOf(m)
	if err != nil {
		return c, err
	}
	if layer.MediaType == helmContent {
		c.Chart, err = bundle.ReadBlob(ctx, repo, layer, MaxChartBytes)
		return c, err
	}
	if layer.Size > maxLayerBytes {
		return c, fmt.Errorf("its layer has %d bytes: %w (at most %d)", layer.Size, gitrepo.ErrTooLarge, int64(maxLayerBytes))
	}
	body, err := repo.Fetch(ctx, layer)
	if err != nil {
		return c, err
	}
	defer func() { _ = body.Close() }()
	root, err := r.newFolder()
	if err != nil {
		return c, err
	}
	checked := content.NewVerifyReader(body, layer)
	if err := unpack(ctx, checked, root); err != nil {
		return c, fmt.Errorf("layer %s: %w", layer.Digest, err)
	}
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return c, err
	}
	if err := checked.Verify(); err != nil {
		return c, fmt.Errorf("layer %s: %w", layer.Digest, err)
	}
	return Content{Files: root.FS()}, nil
}

// layerOf returns the layer of an artifact that has its files.
func layerOf(m ocispec.Manifest) (ocispec.Descriptor, error) {
	if m.Config.MediaType == helmConfig {
		if i := slices.IndexFunc(m.Layers, func(d ocispec.Descriptor) bool { return d.MediaType == helmContent }); i >= 0 {
			return m.Layers[i], nil
		}
	}
	if i := slices.IndexFunc(m.Layers, func(d ocispec.Descriptor) bool {
		return strings.HasSuffix(d.MediaType, "tar+gzip") || strings.HasSuffix(d.MediaType, "tar.gzip")
	}); i >= 0 && m.Config.MediaType != ocispec.MediaTypeImageConfig {
		return m.Layers[i], nil
	}
	if m.Config.MediaType == ocispec.MediaTypeImageConfig && len(m.Layers) == 1 && strings.HasSuffix(m.Layers[0].MediaType, "tar+gzip") {
		return m.Layers[0], nil // as several tools push plain files
	}
	return ocispec.Descriptor{}, errors.New(`it is neither a chart nor an artifact with one gzipped tar, such as "flux push artifact" makes`)
}

// newFolder makes an empty folder for files.
func (r *Resolver) newFolder() (*os.Root, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.temp == nil {
		temp, err := diskfile.NewScratch()
		if err != nil {
			return nil, err
		}
		r.temp = temp
	}
	dir, err := os.MkdirTemp(r.temp.Path, "")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err == nil {
		r.roots = append(r.roots, root)
	}
	return root, err
}

// unpack writes the files of a gzipped tar below root. Links are left out, so that nothing leads out of it.
func unpack(ctx context.Context, layer io.Reader, root *os.Root) error {
	zip, err := gzip.NewReader(layer)
	if err != nil {
		return err
	}
	entries, left := tar.NewReader(zip), int64(maxUnpackedBytes)
	names := bundle.NewNames(maxUnpackedFiles)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		isDir := h.Typeflag == tar.TypeDir
		if name == "." || !isDir && h.Typeflag != tar.TypeReg {
			continue
		}
		if err := names.Add(name, isDir); err != nil {
			return err
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("%w: its files hold more than %d bytes", gitrepo.ErrTooLarge, int64(maxUnpackedBytes))
		}
		if isDir {
			err = root.MkdirAll(name, 0o755)
		} else {
			err = writeFile(ctx, root, name, entries)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", name, err)
		}
	}
}

// blockBytes is what a file or folder takes on the disk beside its content.
const blockBytes = 4 << 10

func writeFile(ctx context.Context, root *os.Root, name string, data io.Reader) error {
	if err := meter.From(ctx).Disk(blockBytes); err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(meter.Writer(ctx, f), data)
	return errors.Join(err, f.Close())
}
