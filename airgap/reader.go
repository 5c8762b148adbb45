package airgap

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
)

// ErrOrder means that a package cannot be read from front to back, because its index is not at its beginning: it was not
// written by "wherry airgap export".
var ErrOrder = errors.New("the index is not at the beginning")

// Reader reads a site package once, from front to back, in memory that depends on the index alone. It verifies nothing:
// compare each blob with its digest.
type Reader struct {
	tar      *tar.Reader
	index    ocispec.Index
	contents *Contents
	// ahead are the blobs that were read to find the contents.
	ahead []Entry
	seen  map[string]bool
}

// Entry is a blob of a package.
type Entry struct {
	Digest digest.Digest
	Size   int64
	// Content is valid until the next call of Next. What is not read of it is passed over; if the package is an io.Seeker
	// as well, without reading it.
	Content io.Reader
}

// NewReader reads the index of the package r, and its list of contents if it has one. The error wraps ErrFormat if r is no
// OCI layout in a tar, and ErrOrder as well if it is one that has to be read in another order. The caller closes r.
func NewReader(r io.Reader) (*Reader, error) {
	p := &Reader{tar: tar.NewReader(r), seen: map[string]bool{}}
	if err := p.readHead(); err != nil {
		return nil, err
	}
	return p, nil
}

// Index returns the index. Its digests are valid, and its media types of bounded length.
func (p *Reader) Index() ocispec.Index { return p.index }

// Contents returns the list of contents, or nil for a package without one.
func (p *Reader) Contents() *Contents { return p.contents }

// Next returns the next blob, or io.EOF after the last one. The error wraps ErrFormat if the package is cut short or no tar.
func (p *Reader) Next() (Entry, error) {
	if len(p.ahead) > 0 {
		e := p.ahead[0]
		p.ahead = p.ahead[1:]
		return e, nil
	}
	for {
		name, h, err := p.next()
		if err != nil {
			return Entry{}, err
		}
		d, ok := blobDigest(name)
		if !ok {
			continue
		}
		return Entry{d, h.Size, cutShort{p.tar}}, nil
	}
}

// next returns the next file of the layout.
func (p *Reader) next() (string, *tar.Header, error) {
	for {
		h, err := p.tar.Next()
		if err != nil {
			return "", nil, headerError(err)
		}
		if len(p.seen) == maxEntries {
			return "", nil, fmt.Errorf("%w: more than %d entries", ErrFormat, maxEntries)
		}
		if h.Typeflag != tar.TypeReg || len(h.Name) > maxNameBytes {
			continue
		}
		name, ok := entryName(h)
		if !ok {
			continue
		}
		if p.seen[name] {
			return "", nil, fmt.Errorf("%w: it holds %.100q twice", ErrFormat, name)
		}
		p.seen[name] = true
		return name, h, nil
	}
}

// headerError classifies an error between two entries.
func headerError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file is cut short", ErrFormat)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: %v", ErrFormat, err)
	}
	return err
}

// cutShort reads an entry, and says so if the package ends in it.
type cutShort struct{ io.Reader }

func (c cutShort) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: the file is cut short: %w", ErrFormat, err)
	}
	return n, err
}

// blobDigest returns the digest of a blob's file.
func blobDigest(name string) (digest.Digest, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != ocispec.ImageBlobsDir {
		return "", false
	}
	d := digest.NewDigestFromEncoded(digest.Algorithm(parts[1]), parts[2])
	return d, d.Validate() == nil
}

func (p *Reader) readHead() error {
	var version ocispec.ImageLayout
	for _, file := range []struct {
		name string
		into any
	}{{ocispec.ImageLayoutFile, &version}, {ocispec.ImageIndexFile, &p.index}} {
		name, h, err := p.next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: %s is missing", ErrFormat, file.name)
		case err != nil:
			return err
		case name != file.name:
			return fmt.Errorf("%w: %w", ErrFormat, ErrOrder)
		case h.Size > maxIndexBytes:
			return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrFormat, name, h.Size, maxIndexBytes)
		}
		data, err := io.ReadAll(cutShort{p.tar})
		if err != nil {
			return err
		}
		if err := checkJSON(name, data, file.into); err != nil {
			return err
		}
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%w: layout version %q, known is %q", ErrFormat, version.Version, ocispec.ImageLayoutVersion)
	}
	return p.readContents()
}

// readContents reads the list of contents, which is the first artifact of the file.
func (p *Reader) readContents() error {
	var named ocispec.Descriptor
	for _, d := range p.index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == ContentsName {
			named = d
		}
	}
	if named.Digest == "" {
		return nil
	}
	// The manifest, its config and the list, in this order.
	blobs := readAhead{}
	for range 3 {
		name, h, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		d, ok := blobDigest(name)
		if !ok || h.Size > MaxContentsBytes {
			return fmt.Errorf("%w: %w", ErrFormat, ErrOrder)
		}
		data, err := io.ReadAll(cutShort{p.tar})
		if err != nil {
			return err
		}
		blobs[d] = data
		p.ahead = append(p.ahead, Entry{d, h.Size, strings.NewReader(string(data))})
	}
	ctx := context.Background() // of memory
	var m ocispec.Manifest
	data, err := bundle.ReadBlob(ctx, blobs, named, bundle.MaxManifestBytes)
	if err == nil {
		err = checkJSON("list of contents", data, &m)
	}
	if err != nil {
		return fmt.Errorf("list of contents: %w", err)
	}
	if m.ArtifactType != MediaTypeContents || len(m.Layers) != 1 {
		return fmt.Errorf("%w: %s is no list of contents", ErrFormat, named.Digest)
	}
	if data, err = bundle.ReadBlob(ctx, blobs, m.Layers[0], MaxContentsBytes); err != nil {
		return fmt.Errorf("list of contents: %w", err)
	}
	c, err := ParseContents(data)
	p.contents = &c
	return err
}

// readAhead are blobs in memory.
type readAhead map[digest.Digest][]byte

func (r readAhead) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, fmt.Errorf("%s: %w", reference, errdef.ErrNotFound)
}

func (r readAhead) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := r[d.Digest]
	if !ok {
		return nil, fmt.Errorf("%w: blob %s: %w", ErrFormat, d.Digest, errdef.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
