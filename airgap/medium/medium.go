// Package medium opens site packages on media, and writes them there.
//
// Begin with Open for a package that a person names: a file, a folder, parts, or standard input. Create writes a file, or
// its parts, which appear under their names only once they are whole and on disk. A medium that is read is never written
// to. The file system is behind an interface, because those of media differ: OS is the operating system's. Watch waits for
// media at a mount point.
package medium

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// Stdin is the name that stands for standard input.
const Stdin = "-"

// Source is an opened package. The caller closes it.
type Source struct {
	found *archive.Found
	stdin io.Reader // nil unless it is read
}

// Open opens the package that names stand for: a file; a folder that is an unpacked layout, or that holds exactly one
// package as a file or in parts; parts of one file in any order; or Stdin, which is read from stdin. Nothing of the
// package has been read afterwards, but the manifest of its parts. The error wraps fs.ErrNotExist if nothing is there, is
// an *archive.SeveralError for a folder with several packages, and an *archive.MissingPartsError if parts are missing.
func Open(fsys archive.FS, stdin io.Reader, names ...string) (*Source, error) {
	if slices.Contains(names, Stdin) {
		if len(names) > 1 {
			return nil, errors.New("- (standard input) cannot be combined with other packages")
		}
		return &Source{stdin: stdin}, nil
	}
	found, err := archive.Find(fsys, names...)
	if err != nil {
		return nil, notRegular(err)
	}
	return &Source{found: found}, nil
}

// notRegular says how a pipe or a device can be read.
func notRegular(err error) error {
	if errors.Is(err, diskfile.ErrNotRegular) {
		return fmt.Errorf("%w (to read it once from front to back, name - and pass it as standard input)", err)
	}
	return err
}

// Package is an opened Source with its head: a Reader of which nothing was read but that.
type Package struct {
	*Source
	Head *airgap.Reader
}

// OpenEach opens each package that names stand for, by name: what Open opens, or of a folder with several packages all of
// them. Skipped are the files in a folder that look like a package and cannot be used, with the reason. The error is that of
// Open, or of reading the head of the only package. The caller closes all.
func OpenEach(fsys archive.FS, stdin io.Reader, names ...string) (all []Package, skipped []archive.Listed, err error) {
	if slices.Contains(names, Stdin) {
		src, err := Open(fsys, stdin, names...)
		if err != nil {
			return nil, nil, err
		}
		head, err := src.Reader()
		if err != nil {
			return nil, nil, err
		}
		return []Package{{src, head}}, nil, nil
	}
	found, skipped, err := archive.FindEach(fsys, names...)
	if err != nil {
		return nil, skipped, notRegular(err)
	}
	for _, f := range found {
		src := &Source{found: f}
		head, unread := src.reader()
		if unread == nil {
			all = append(all, Package{src, head})
			continue
		}
		err = cmp.Or(err, src.named(unread))
		skipped = append(skipped, archive.Listed{Name: f.Name, Kind: archive.KindUnknown, Err: errors.Join(unread, f.Close())})
	}
	if len(all) > 0 {
		err = nil
	}
	return all, skipped, err
}

// Reader reads the package from its head to its end, whatever the order of its files. Each call begins anew, but for
// standard input, which can be read once and only in the order of a package. The Source has to stay open.
func (s *Source) Reader() (*airgap.Reader, error) {
	r, err := s.reader()
	return r, s.named(err)
}

// named adds the name to the error of a file.
func (s *Source) named(err error) error {
	if err == nil || s.Folder() {
		return err
	}
	return fmt.Errorf("%s: %w", s.Name(), err)
}

func (s *Source) reader() (*airgap.Reader, error) {
	if s.stdin != nil {
		r, err := airgap.NewReader(s.stdin)
		if errors.Is(err, airgap.ErrOrder) {
			err = fmt.Errorf("%w: such a package can be imported as a file, not from a pipe", err)
		}
		return r, err
	}
	if s.found.Folder {
		l, err := s.found.Layout()
		if err != nil {
			return nil, err
		}
		return airgap.NewLayoutReader(l)
	}
	file := s.found.File()
	return airgap.NewReaderAt(file, file.Size())
}

// Name is the name for messages.
func (s *Source) Name() string {
	if s.stdin != nil {
		return "standard input"
	}
	return s.found.Name
}

// Dir is the folder of the package on its medium: for a file, the folder that it lies in; for an unpacked layout, the
// layout itself. It is empty for standard input.
func (s *Source) Dir() string {
	if s.stdin != nil {
		return ""
	}
	return s.found.Dir
}

// Folder reports whether the package is an unpacked layout.
func (s *Source) Folder() bool { return s.stdin == nil && s.found.Folder }

// Size is the size of the file, or of all its parts, in bytes; -1 for standard input and for an unpacked layout.
func (s *Source) Size() int64 {
	if s.stdin != nil || s.found.Folder {
		return -1
	}
	return s.found.File().Size()
}

// Content is the file, or all its parts joined; nil for standard input and for an unpacked layout.
func (s *Source) Content() *io.SectionReader {
	if s.stdin != nil {
		return nil
	}
	return s.found.File()
}

// Files lists the paths of the file or of the parts, in their order. Standard input and folders have none.
func (s *Source) Files() []string {
	if s.stdin != nil {
		return nil
	}
	return s.found.Files()
}

// Damaged names the parts that are not as they were written. It returns nil if all are, and for what is not in parts. It
// reads all parts: call it once content has turned out to be wrong.
func (s *Source) Damaged(ctx context.Context) error {
	if s.stdin != nil {
		return nil
	}
	return s.found.Damaged(ctx)
}

// Close closes the files. Standard input stays open.
func (s *Source) Close() error {
	if s.stdin != nil {
		return nil
	}
	return s.found.Close()
}
