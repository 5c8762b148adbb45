package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
)

// File is one regular file of a tree or of an assignment's folder.
type File struct {
	// Path is relative, clean and separated by slashes; see fs.ValidPath.
	Path string
	// Executable gives mode 0755 instead of 0644.
	Executable bool
	Data       []byte
}

// Packed is a tree, ready to be pushed.
type Packed struct {
	// Gzip is the layer. Its bytes depend on the compressor and so on the Go release; Content does not.
	Gzip    []byte
	Content Content
}

// smallTree is the size of a tar up to which it is compressed as well as possible, in bytes: that takes some 50 ms. A larger one
// is compressed in a quarter of the time, since that was more than half of publishing large platforms, to 3 % more bytes.
const smallTree = 1 << 20

func compressionOf(files []File) int {
	const block = 512
	size := 0
	for _, f := range files {
		size += block + (len(f.Data)+block-1)/block*block
	}
	if size <= smallTree {
		return gzip.BestCompression
	}
	return 7
}

// trailer is the end of a tar, in bytes.
const trailer = 1024

// Compress writes the tar of a tree, which has this size in bytes, to w as Pack compresses it. The result is the layer that
// was published only if this program has the publisher's compressor: the caller compares the digest.
func Compress(w io.Writer, tree io.Reader, size int64) error {
	level := 7
	if size <= smallTree+trailer {
		level = gzip.BestCompression
	}
	zip, err := gzip.NewWriterLevel(w, level)
	if err != nil {
		return err
	}
	_, err = io.Copy(zip, tree)
	return errors.Join(err, zip.Close())
}

// Pack returns files as a tree whose tar depends on the files alone: sorted, with fixed modes, and without
// times and owners. It refuses paths that Unpack would refuse.
func Pack(files []File) (*Packed, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	names := NewNames(len(files))
	var out bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&out, compressionOf(files)) // fails for unknown levels only
	count := &counter{hash: digest.SHA256.Hash()}
	w := tar.NewWriter(io.MultiWriter(zip, count))
	for _, f := range files {
		if err := names.Add(f.Path, false); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.mode()), Size: int64(len(f.Data)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Path, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Path, err)
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nil, err
	}
	if count.n > MaxTreeBytes {
		return nil, fmt.Errorf("tree has %d bytes: %w (at most %d)", count.n, ErrTooLarge, int64(MaxTreeBytes))
	}
	return &Packed{Gzip: out.Bytes(), Content: Content{DiffID: count.digest(), Size: count.n, Files: len(files)}}, nil
}

// executableMode is the mode of an executable file.
const executableMode fs.FileMode = 0o755

func (f File) mode() fs.FileMode {
	if f.Executable {
		return executableMode
	}
	return 0o644
}

// Unpack writes the layer read from r, a gzip of a tar, below root; see Unpacker.Gzip.
func Unpack(r io.Reader, root *os.Root, want Content) error {
	return (&Unpacker{Root: root}).Gzip(r, want)
}

// Unpacker unpacks one tree.
type Unpacker struct {
	// Root is the folder for the files. It should be empty, and the caller closes it.
	Root *os.Root
	// Take, if set, is called with each file in place of writing it to Root. The files are not checked as a whole before
	// the unpacker has returned nil.
	Take func(File) error
	// Have, if set, is called once for each top-level folder, before its first entry. If it returns true, the files
	// below that folder are digested and not written; see Passed.
	Have func(folder string) bool

	passed map[string][]digested // nil for a folder that is written
	copies copyBuffer
}

// copyBuffer is used by one copy after the other: trees have many small files, and io.Copy would allocate 32 KB for each.
type copyBuffer []byte

func (b *copyBuffer) copy(to io.Writer, from io.Reader) error {
	if *b == nil {
		*b = make([]byte, 32<<10)
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *b) // without the ways around the buffer
	return err
}

func (b *copyBuffer) digest(from io.Reader) (digest.Digest, error) {
	d := digest.Canonical.Digester()
	err := b.copy(d.Hash(), from)
	return d.Digest(), err
}

// Passed returns ContentDigest of the files of the folders that were not written.
func (u *Unpacker) Passed() map[string]digest.Digest {
	sums := map[string]digest.Digest{}
	for folder, files := range u.passed {
		if files != nil {
			sums[folder] = digestAll(files)
		}
	}
	return sums
}

// Gzip unpacks the layer read from r, a gzip of a tar. It stops at the first byte, file or path that want, the
// signed content, does not allow, and returns a *Refusal; Root then holds part of the tree and must not be used.
// Nothing is synced to disk.
func (u *Unpacker) Gzip(r io.Reader, want Content) error {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return unreadable(err, "layer is not gzip")
	}
	return u.Tar(zip, want)
}

// Tar is Gzip for the tar itself, as a delta makes it.
func (u *Unpacker) Tar(r io.Reader, want Content) error {
	u.passed = map[string][]digested{}
	count := &counter{hash: digest.SHA256.Hash()}
	tree := io.TeeReader(io.LimitReader(r, want.Size+1), count)
	names := NewNames(want.Files)
	err := u.entries(tree, names, want.Size)
	if err == nil {
		// Bytes after the end of the archive count for size and digest too.
		if _, err = io.Copy(io.Discard, tree); err != nil {
			err = unreadable(err, "layer")
		}
	}
	switch {
	case count.n > want.Size:
		return Refuse(TooLarge, "tree is larger than the signed %d bytes", want.Size)
	case err != nil:
		return err
	case count.digest() != want.DiffID:
		return Refuse(DigestMismatch, "tree has digest %s, signed is %s", count.digest(), want.DiffID)
	case names.files != want.Files:
		return Refuse(BadContent, "tree has %d files, signed are %d", names.files, want.Files)
	}
	return nil
}

// entries writes files of at most limit bytes in all. A sparse entry is longer than its part of
// the tar, so the size of the tar does not bound the written bytes.
func (u *Unpacker) entries(tree io.Reader, names *Names, limit int64) error {
	entries, left := tar.NewReader(tree), limit
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadable(err, "layer is not a tar")
		}
		if left -= h.Size; left < 0 {
			return Refuse(TooLarge, "files of the tree are larger than the signed %d bytes", limit)
		}
		if err := u.entry(h, entries, names); err != nil {
			return err
		}
	}
}

func (u *Unpacker) entry(h *tar.Header, data io.Reader, names *Names) error {
	name, isDir := strings.TrimSuffix(h.Name, "/"), h.Typeflag == tar.TypeDir
	if !isDir && h.Typeflag != tar.TypeReg {
		return Refuse(BadContent, "tree entry %q is neither a file nor a folder", h.Name)
	}
	if err := names.Add(name, isDir); err != nil {
		return err
	}
	mode := File{Executable: h.FileInfo().Mode()&0o100 != 0}.mode()
	if folder, rest, _ := strings.Cut(name, "/"); u.passes(folder, isDir || rest != "") {
		if isDir {
			return nil
		}
		content, err := u.copies.digest(data)
		u.passed[folder] = append(u.passed[folder], digested{rest, mode, content})
		if err != nil {
			return unreadable(err, "read "+name)
		}
		return nil
	}
	if u.Take != nil {
		if isDir {
			return nil
		}
		content := bytes.NewBuffer(make([]byte, 0, h.Size)) // entries has compared that with the signed size
		if _, err := io.Copy(content, data); err != nil {
			return unreadable(err, "read "+name)
		}
		return u.Take(File{Path: name, Executable: mode == executableMode, Data: content.Bytes()})
	}
	if isDir {
		return u.Root.MkdirAll(name, 0o755)
	}
	if err := u.Root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	f, err := u.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	err = u.copies.copy(f, data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return unreadable(err, "unpack "+name)
	}
	return nil
}

// passes reports whether the content of a folder is skipped.
func (u *Unpacker) passes(folder string, isFolder bool) bool {
	files, asked := u.passed[folder]
	if !asked && isFolder && u.Have != nil {
		if u.Have(folder) {
			files = []digested{}
		}
		u.passed[folder] = files
	}
	return files != nil
}

// unreadable returns a *Refusal for broken content, and another error if content or disk could not be read or written.
func unreadable(err error, what string) error {
	var onDisk *fs.PathError
	switch {
	case errors.As(err, &onDisk), errors.Is(err, fs.ErrClosed):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, tar.ErrHeader),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), isCorrupt(err):
		return Refuse(BadContent, "%s: %v", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isCorrupt recognises a broken deflate stream.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}

// Names checks the names of untrusted files that are to be in one folder.
type Names struct {
	maxFiles int
	files    int
	folders  int
	folded   map[string]string // case-folded name: name as written
	isFile   map[string]bool
}

// NewNames returns a Names that allows maxFiles files, and never more than MaxFiles. It allows MaxFiles folders, since
// each costs a name and no bytes.
func NewNames(maxFiles int) *Names {
	return &Names{maxFiles: min(maxFiles, MaxFiles), folded: map[string]string{}, isFile: map[string]bool{}}
}

// Add refuses a name that leads out of the folder, that was added before, or that another file system would take
// for one that was. Its errors are of type *Refusal.
func (c *Names) Add(name string, isDir bool) error {
	switch {
	case len(name) > MaxPathBytes:
		return Refuse(TooLarge, "tree entry has a path of %d bytes, at most %d are allowed", len(name), MaxPathBytes)
	case !fs.ValidPath(name), name == ".", strings.ContainsAny(name, "\\\x00"):
		return Refuse(BadContent, "tree entry %q is not a relative, clean path", name)
	}
	if isDir && c.isFile[name] {
		return Refuse(BadContent, "tree entry %q is there twice", name)
	}
	if !isDir {
		c.files++
		if c.files > c.maxFiles {
			return Refuse(TooLarge, "tree has more than %d files", c.maxFiles)
		}
		if c.isFile[name] || c.folded[fold(name)] != "" {
			return Refuse(BadContent, "tree entry %q is there twice", name)
		}
		c.isFile[name] = true
	}
	for p := name; p != "."; p = path.Dir(p) {
		if p != name && c.isFile[p] {
			return Refuse(BadContent, "tree entry %q lies below the file %q", name, p)
		}
		low := fold(p)
		seen, known := c.folded[low]
		switch {
		case known && seen != p:
			return Refuse(BadContent, "tree entries %q and %q differ in case only", seen, p)
		case !known && (isDir || p != name):
			if c.folders++; c.folders > MaxFiles {
				return Refuse(TooLarge, "tree has more than %d folders", MaxFiles)
			}
		}
		c.folded[low] = p
	}
	return nil
}

// fold returns the same text for names that differ in case only, also for letters that share a capital, such as s and the
// long s: file systems that fold case use either form.
func fold(name string) string {
	if strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		name = strings.ToUpper(name)
	}
	return strings.ToLower(name)
}

// counter counts and digests the bytes that are written to it.
type counter struct {
	hash hash.Hash
	n    int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.hash.Write(p)
}

func (c *counter) digest() digest.Digest { return digest.NewDigest(digest.SHA256, c.hash) }
