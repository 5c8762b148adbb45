package airgap

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ErrOrder means that a package cannot be read from front to back, because its index is not at its beginning: it was not
// written by "wherry airgap export".
var ErrOrder = errors.New("the index is not at the beginning")

// Reader reads a site package once, from its head to its end, in memory that depends on the index alone. It verifies
// nothing: compare each blob with its digest.
type Reader struct {
	index    ocispec.Index
	contents *Contents
	// ahead are the blobs that were read to find the contents.
	ahead []Entry
	rest  interface {
		// next returns the next blob, or io.EOF.
		next() (Entry, error)
	}
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
	begins, r, err := beginning(r)
	if err != nil {
		return nil, err
	}
	if remedy := archive.CompressedText(begins); remedy != "" {
		return nil, fmt.Errorf("%w: %s", ErrFormat, remedy)
	}
	s := &stream{tar: tar.NewReader(r), begins: begins, seen: map[string]bool{}}
	p := &Reader{rest: s}
	if err := p.readHead(s); err != nil {
		return nil, err
	}
	return p, nil
}

// beginning returns the first bytes of a file, and the file from there on. Errors of reading are left to the tar reader.
func beginning(r io.Reader) ([]byte, io.Reader, error) {
	seeker, seeks := r.(io.Seeker)
	if !seeks {
		buffered := bufio.NewReaderSize(r, 64<<10)
		begins, _ := buffered.Peek(archive.BeginningBytes)
		return bytes.Clone(begins), buffered, nil
	}
	begins := make([]byte, archive.BeginningBytes)
	n, _ := io.ReadFull(r, begins)
	_, err := seeker.Seek(int64(-n), io.SeekCurrent)
	return begins[:n], r, err
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
	return p.rest.next()
}

// stream is a package that is read from front to back.
type stream struct {
	tar    *tar.Reader
	begins []byte // of the file
	seen   map[string]bool
}

func (s *stream) next() (Entry, error) {
	for {
		name, h, err := s.file()
		if err != nil {
			return Entry{}, err
		}
		if d, ok := archive.BlobDigest(name); ok {
			return Entry{d, h.Size, cutShort{s.tar}}, nil
		}
	}
}

// file returns the next file of the layout.
func (s *stream) file() (string, *tar.Header, error) {
	for {
		h, err := s.tar.Next()
		switch {
		case err != nil && len(s.seen) == 0:
			return "", nil, archive.FirstHeaderError(s.begins, err)
		case err != nil:
			return "", nil, archive.HeaderError(err)
		}
		if len(s.seen) == archive.MaxEntries {
			return "", nil, fmt.Errorf("%w: more than %d entries", ErrFormat, archive.MaxEntries)
		}
		name, ok := archive.EntryName(h)
		if !ok || h.Typeflag == tar.TypeDir {
			continue
		}
		if s.seen[name] {
			return "", nil, fmt.Errorf("%w: it holds %.100q twice", ErrFormat, name)
		}
		s.seen[name] = true
		return name, h, nil
	}
}

// cutShort reads an entry, and says so if the package ends in it.
type cutShort struct{ io.Reader }

func (c cutShort) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: the file is cut short", archive.ErrDamaged)
	}
	return n, err
}

func (p *Reader) readHead(s *stream) error {
	for _, want := range []string{ocispec.ImageLayoutFile, ocispec.ImageIndexFile} {
		name, h, err := s.file()
		switch {
		case errors.Is(err, io.EOF) && len(s.seen) == 0:
			return fmt.Errorf("%w: it holds nothing", ErrFormat)
		case errors.Is(err, io.EOF):
			return archive.Missing(want)
		case err != nil:
			return err
		case name != want:
			return fmt.Errorf("%w: %w", ErrFormat, ErrOrder)
		case h.Size > archive.MaxIndexBytes:
			return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrFormat, name, h.Size, archive.MaxIndexBytes)
		}
		data, err := io.ReadAll(cutShort{s.tar})
		if err != nil {
			return err
		}
		if want == ocispec.ImageLayoutFile {
			err = archive.CheckVersion(data)
		} else {
			p.index, err = archive.ParseIndex(data)
		}
		if err != nil {
			return err
		}
	}
	return p.readContents(s)
}

// namedContents returns the manifest of the list of contents; one without a digest if the index names none.
func namedContents(index ocispec.Index) (named ocispec.Descriptor) {
	for _, d := range index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == ContentsName {
			named = d
		}
	}
	return named
}

// readContents reads the list of contents, which is the first artifact of the file.
func (p *Reader) readContents(s *stream) error {
	named := namedContents(p.index)
	if named.Digest == "" {
		return nil
	}
	// The manifest, its config and the list, in this order.
	blobs := readAhead{}
	for i := range 3 {
		name, h, err := s.file()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		d, ok := archive.BlobDigest(name)
		if !ok || h.Size > MaxContentsBytes || i == 0 && d != named.Digest {
			return fmt.Errorf("%w: %w", ErrFormat, ErrOrder)
		}
		data, err := io.ReadAll(cutShort{s.tar})
		if err != nil {
			return err
		}
		blobs[d] = data
		p.ahead = append(p.ahead, Entry{d, h.Size, bytes.NewReader(data)})
	}
	c, err := fetchContents(blobs, named)
	p.contents = c
	return err
}

// fetchContents reads the list of contents whose manifest is named.
func fetchContents(from bundle.Source, named ocispec.Descriptor) (*Contents, error) {
	ctx := context.Background() // of memory, or of a file
	var m ocispec.Manifest
	data, err := bundle.ReadBlob(ctx, from, named, bundle.MaxManifestBytes)
	if err == nil {
		err = decode("list of contents", data, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("list of contents: %w", err)
	}
	if m.ArtifactType != MediaTypeContents || len(m.Layers) != 1 {
		return nil, fmt.Errorf("%w: %s is no list of contents", ErrFormat, named.Digest)
	}
	if data, err = bundle.ReadBlob(ctx, from, m.Layers[0], MaxContentsBytes); err != nil {
		return nil, fmt.Errorf("list of contents: %w", err)
	}
	c, err := ParseContents(data)
	if err != nil {
		return nil, err
	}
	return &c, nil
}

func decode(what string, data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrFormat, what, err)
	}
	return nil
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
