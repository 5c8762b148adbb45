package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Found is what a person has named: a file, parts that are one file, or the folder of an unpacked layout.
type Found struct {
	// Name is for messages: the path of the file, of the folder, or what the path of the joined parts would be.
	Name string
	// Dir is the folder in which it lies, or the layout's own.
	Dir string
	// Folder is true for an unpacked layout.
	Folder bool
	// Parts is the manifest of a file in parts, and else nil.
	Parts *Parts

	fsys  FS
	file  *joined // nil for a folder
	parts []string
}

// Find opens what names stand for: a file; a folder that is an unpacked layout, or that holds exactly one package as a
// file or in parts; or parts of one file in any order, with or without their manifest, which must lie beside one of them.
// The error names missing parts, and wraps fs.ErrNotExist if there is nothing of that name. The caller closes what it
// found.
func Find(fsys FS, names ...string) (*Found, error) {
	if len(names) == 0 {
		return nil, errors.New("no file is named")
	}
	if len(names) == 1 {
		info, err := fsys.Stat(names[0])
		switch {
		case err != nil:
			return findPartless(fsys, names[0], err)
		case info.IsDir():
			return findOneInFolder(fsys, names[0])
		}
	}
	if slices.ContainsFunc(names, isPart) {
		// A pattern such as site.tar.* stands for the sums as well.
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasSuffix(strings.ToLower(name), SumsSuffix) })
		return findParts(fsys, names)
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%s: only the parts of one file can be named together: name one package at a time", strings.Join(names, " "))
	}
	return openFile(fsys, names[0])
}

// isPart reports whether the name is that of a part, or of the manifest of parts.
func isPart(name string) bool {
	_, part := cutPart(name)
	return part || isManifest(name)
}

func isManifest(name string) bool {
	at := len(name) - len(PartsSuffix)
	return at > 0 && strings.EqualFold(name[at:], PartsSuffix)
}

// findPartless finds the parts of a file of which only the parts are there.
func findPartless(fsys FS, name string, notFound error) (*Found, error) {
	if _, err := fsys.Stat(name + PartsSuffix); err != nil {
		if failed := (*fs.PathError)(nil); errors.As(notFound, &failed) {
			notFound = &fs.PathError{Op: "open", Path: failed.Path, Err: failed.Err}
		}
		return nil, notFound
	}
	return findParts(fsys, []string{name + PartsSuffix})
}

func openFile(fsys FS, name string) (*Found, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Found{
		Name: name, Dir: filepath.Dir(name), fsys: fsys,
		file: &joined{pieces: []piece{{f, 0, info.Size()}}, size: info.Size()},
	}, nil
}

// FindEach opens each package that names stand for: what Find opens, or of a folder with several packages all of them, by name.
// Skipped are the other files in the folder that look like one: layouts of others, and files that cannot be opened, with the
// reason. Without any package the error is that of Find. The caller closes what it found.
func FindEach(fsys FS, names ...string) (all []*Found, skipped []Listed, err error) {
	if len(names) == 1 {
		if info, err := fsys.Stat(names[0]); err == nil && info.IsDir() {
			all, others, err := findInFolder(fsys, names[0])
			return all, slices.DeleteFunc(others, func(item Listed) bool { return !mayBe(item) && item.Kind != KindOther }), err
		}
	}
	found, err := Find(fsys, names...)
	if err != nil {
		return nil, nil, err
	}
	return []*Found{found}, nil, nil
}

// findOneInFolder opens the one package of a folder.
func findOneInFolder(fsys FS, dir string) (*Found, error) {
	all, _, err := findInFolder(fsys, dir)
	if err != nil || len(all) == 1 {
		return only(all), err
	}
	several := &SeveralError{Dir: dir}
	var errs []error
	for _, f := range all {
		several.Names = append(several.Names, f.Name)
		errs = append(errs, f.Close())
	}
	return nil, errors.Join(append(errs, several)...)
}

func only(all []*Found) *Found {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// findInFolder opens an unpacked layout, or the packages that the folder holds.
func findInFolder(fsys FS, dir string) (all []*Found, skipped []Listed, err error) {
	if _, err := fsys.Stat(filepath.Join(dir, ocispec.ImageLayoutFile)); err == nil {
		return []*Found{{Name: dir, Dir: dir, Folder: true, fsys: fsys}}, nil, nil
	}
	listed, err := List(fsys, dir)
	if err != nil {
		return nil, nil, err
	}
	for _, item := range listed {
		if item.Kind != KindPackage {
			skipped = append(skipped, item)
			continue
		}
		found, err := open(fsys, item.Name)
		if err != nil {
			item.Err = err
			skipped = append(skipped, item)
			continue
		}
		all = append(all, found)
	}
	if len(all) > 0 {
		return all, skipped, nil
	}
	if i := slices.IndexFunc(skipped, mayBe); i >= 0 && !slices.ContainsFunc(skipped[i+1:], mayBe) { // the reader says best what is wrong with it
		found, err := open(fsys, skipped[i].Name)
		return []*Found{found}, slices.Delete(skipped, i, i+1), err
	}
	return nil, nil, noneIn(dir, skipped)
}

// mayBe reports whether a file is, or may be, a package that cannot be read.
func mayBe(item Listed) bool { return item.Err != nil }

// open opens a file, or the parts of one by their manifest.
func open(fsys FS, name string) (*Found, error) {
	if isPart(name) {
		return findParts(fsys, []string{name})
	}
	return openFile(fsys, name)
}

// noneIn is the error of a folder without a package. It wraps fs.ErrNotExist unless something in it may be one.
func noneIn(dir string, others []Listed) error {
	var names []string
	var unknown error
	for _, item := range others {
		name := filepath.Base(item.Name)
		if mayBe(item) {
			if unknown != nil {
				unknown = fmt.Errorf("%w; %s: %w", unknown, name, item.Err)
			} else {
				unknown = fmt.Errorf("%s: %w", name, item.Err)
			}
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, item.Kind))
	}
	switch {
	case unknown != nil:
		return fmt.Errorf("no package in %s: %w", dir, unknown)
	case len(names) > 0:
		return &NoPackageError{dir, true, fmt.Sprintf("no package in %s, only %s", dir, strings.Join(names, ", "))}
	}
	return &NoPackageError{dir, false, fmt.Sprintf("no *.tar or *.tar.001 in %s", dir)}
}

// NoPackageError is the error of a folder that holds no package, nor a file that may be one. It wraps fs.ErrNotExist.
type NoPackageError struct {
	Dir string
	// Others is true if the folder has reports, acknowledgements or other layouts.
	Others bool
	text   string
}

func (e *NoPackageError) Error() string { return e.text }

func (*NoPackageError) Unwrap() error { return fs.ErrNotExist }

// SeveralError is the error of a folder that holds several packages.
type SeveralError struct {
	Dir string
	// Names are the paths of the files, or what those of the joined parts would be, sorted.
	Names []string
}

func (e *SeveralError) Error() string {
	var names []string
	for _, name := range e.Names {
		names = append(names, filepath.Base(name))
	}
	return fmt.Sprintf("%s holds several packages: %s: name one of them", e.Dir, strings.Join(names, ", "))
}

// Layout opens the layout for reading in any order. It has to be closed before f.
func (f *Found) Layout() (*Layout, error) {
	if f.Folder {
		return OpenFolder(f.fsys, f.Dir)
	}
	l, err := Open(f.file, f.file.size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return l, nil
}

// File returns the file from its beginning, or nil for a folder. Each has a place of its own.
func (f *Found) File() *io.SectionReader {
	if f.Folder {
		return nil
	}
	return io.NewSectionReader(f.file, 0, f.file.size)
}

// Files lists the paths of the files: one, or the parts in their order. A folder has none.
func (f *Found) Files() []string {
	if f.Parts != nil {
		return f.parts
	}
	if f.Folder {
		return nil
	}
	return []string{f.Name}
}

// Close closes the files.
func (f *Found) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// piece is a part of a file, and its place in it.
type piece struct {
	File
	offset, size int64
}

// joined reads files as one.
type joined struct {
	pieces []piece
	size   int64
}

func (j *joined) Close() (err error) {
	for _, p := range j.pieces {
		err = errors.Join(err, p.Close())
	}
	return err
}

// ReadAt reads from as many of the files as are needed.
func (j *joined) ReadAt(b []byte, at int64) (n int, err error) {
	if at < 0 {
		return 0, fs.ErrInvalid
	}
	i, found := slices.BinarySearchFunc(j.pieces, at, func(p piece, at int64) int { return int(min(max(p.offset-at, -1), 1)) })
	if !found {
		i--
	}
	for ; len(b) > 0 && i < len(j.pieces); i++ {
		p := j.pieces[i]
		want := b[:max(0, min(int64(len(b)), p.offset+p.size-at))]
		if len(want) == 0 {
			continue
		}
		got, err := p.ReadAt(want, at-p.offset)
		n, at, b = n+got, at+int64(got), b[got:]
		if got < len(want) {
			if errors.Is(err, io.EOF) { // it has become shorter
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}
	if len(b) > 0 {
		return n, io.EOF
	}
	return n, nil
}
