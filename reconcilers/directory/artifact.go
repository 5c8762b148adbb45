package directory

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

type fetchedArtifact = bundle.FetchedArtifact

const (
	// maxManifestBytes bounds an artifact's manifest; registries refuse larger ones.
	maxManifestBytes = 4 << 20
	// DefaultMaxBytes bounds the files of one assignment's artifacts: large models are some tens of GiB. The
	// sizes in a signed manifest are the publisher's, but an archive may unpack to anything.
	DefaultMaxBytes = 64 << 30
	// unpackAnnotation is oras's mark on the archive of a folder.
	unpackAnnotation = "io.deis.oras.content.unpack"
	dockerTarGzip    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	// whiteout begins the names by which a layer of an image deletes what an earlier one has.
	whiteout = ".wh."
)

// layersOf returns the layers of a manifest: files and archives.
func layersOf(data []byte) ([]layer, error) {
	var m struct {
		ocispec.Manifest
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, invalid("its manifest: %w", err)
	}
	if len(m.Manifests) > 0 {
		return nil, invalid("the digest names an index of several artifacts: expected the digest of one manifest")
	}
	var layers []layer
	for i, d := range m.Layers {
		if d.MediaType == ocispec.MediaTypeEmptyJSON {
			continue // it has no content
		}
		l := layer{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Title: d.Annotations[ocispec.AnnotationTitle]}
		if err := d.Digest.Validate(); err != nil || d.Digest.Algorithm() != digest.Canonical || d.Size < 0 {
			return nil, invalid("its layer %d has no SHA-256 digest, or a negative size", i)
		}
		if d.Annotations[unpackAnnotation] == "true" || l.Title == "" {
			if l.Unpack = archiveType(d.MediaType); l.Unpack == "" && l.Title == "" {
				return nil, invalid("its layer %d of type %s has no title that names a file, and is not a tar or tar+gzip", i, d.MediaType)
			} else if l.Unpack == "" {
				l.Unpack = "tar+gzip" // as oras has it, whatever the type
			}
		}
		layers = append(layers, l)
	}
	if len(layers) == 0 {
		return nil, invalid("it has no layers")
	}
	return layers, nil
}

// archiveType returns how a layer of that type is unpacked; it is empty for one that is no archive.
func archiveType(mediaType string) string {
	switch {
	case mediaType == dockerTarGzip, strings.HasSuffix(mediaType, "tar+gzip"):
		return "tar+gzip"
	case strings.HasSuffix(mediaType, ".tar"):
		return "tar"
	}
	return ""
}

// store writes the content of in to the folder to, as numbered files: readers of the folder find no meaningful names before
// all of the content was verified.
func (l layer) store(ctx context.Context, in io.Reader, to *os.Root, limit int64) ([]part, error) {
	if l.Unpack == "" {
		p, err := writePart(to, 0, false, in)
		p.Path, p.Content = l.Title, l.Digest // which the caller compares
		return []part{p}, err
	}
	var parts []part
	err := l.entries(in, limit, func(name string, h *tar.Header, content io.Reader) error {
		sum := digest.Canonical.Digester()
		p, err := writePart(to, len(parts), h.FileInfo().Mode()&0o100 != 0, io.TeeReader(reader{ctx, content}, sum.Hash()))
		p.Path, p.Content = name, sum.Digest()
		parts = append(parts, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return parts, nil
}

// fileBytes is what a file takes on a disk beside its content, which is rounded up to as much.
const fileBytes = 4096

// measure returns the room that the files of an archive take, and writes nothing. It counts no further than to enough: then the
// result is larger.
func (l layer) measure(ctx context.Context, in io.Reader, limit, enough int64) (need int64, err error) {
	err = l.entries(reader{ctx, in}, limit, func(_ string, h *tar.Header, _ io.Reader) error {
		if need += (h.Size+fileBytes-1)/fileBytes*fileBytes + fileBytes; need > enough {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return need, err
}

var errEnough = errors.New("counted enough")

// entries calls do with each file of an archive.
func (l layer) entries(in io.Reader, limit int64, do func(name string, h *tar.Header, content io.Reader) error) error {
	if l.Unpack == "tar+gzip" {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return notAnArchive(err)
		}
		in = zip
	}
	archive := tar.NewReader(in)
	names := bundle.NewNames(bundle.MaxFiles)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return notAnArchive(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		switch {
		case h.Typeflag == tar.TypeXGlobalHeader, h.Typeflag == tar.TypeDir && (name == "" || name == "."):
			continue
		case h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeReg:
			return invalid("its archive: %q is neither a file nor a folder", h.Name)
		case strings.HasPrefix(path.Base(name), whiteout):
			return invalid("its archive: %q deletes a file of another layer, which is not supported", h.Name)
		}
		if err := names.Add(name, h.Typeflag == tar.TypeDir); err != nil {
			return invalid("its archive: %w", err)
		}
		if l.Title != "" && name != l.Title && !strings.HasPrefix(name, l.Title+"/") {
			return invalid("its archive %s: %q lies outside of it", l.Title, h.Name)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if limit -= h.Size; limit < 0 { // also of a sparse file, which is longer than its part of the archive
			return invalid("its archive unpacks to more bytes than are allowed")
		}
		if err := do(name, h, archive); errors.Is(err, errEnough) {
			return err
		} else if err != nil {
			return notAnArchive(err)
		}
	}
}

// writePart writes the n-th file of a layer to the disk.
func writePart(to *os.Root, n int, executable bool, in io.Reader) (part, error) {
	mode := os.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	out, err := to.OpenFile(fmt.Sprint(n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return part{}, err
	}
	size, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, copyBytes))
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return part{}, err
	}
	info, err := to.Lstat(fmt.Sprint(n))
	if err != nil {
		return part{}, err
	}
	return part{Executable: executable, Size: size, ID: identify(info)}, nil
}

// copyBytes is the size of a copy's buffer, so large that system calls take less time than hashing.
const copyBytes = 256 << 10

// notAnArchive turns an error of unpacking into one about the content, unless it comes from the disk or the link.
func notAnArchive(err error) error {
	var onDisk *os.PathError
	if errors.As(err, &onDisk) || errors.As(err, new(*linkError)) || reconcilers.Known(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return invalid("its archive: %w", err)
}

// invalid returns the error for an artifact that cannot be put into a folder, whatever registry serves it.
func invalid(format string, args ...any) error {
	return reconcilers.ReleaseError(InvalidArtifact, format, args...)
}
