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
			return findInFolder(fsys, names[0])
		}
	}
	if slices.ContainsFunc(names, isPart) {
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

// findInFolder opens an unpacked layout, or the one package that the folder holds.
func findInFolder(fsys FS, dir string) (*Found, error) {
	if _, err := fsys.Stat(filepath.Join(dir, ocispec.ImageLayoutFile)); err == nil {
		return &Found{Name: dir, Dir: dir, Folder: true, fsys: fsys}, nil
	}
	listed, err := List(fsys, dir)
	if err != nil {
		return nil, err
	}
	var packages, others []string
	for _, item := range listed {
		switch item.Kind {
		case KindPackage, KindUnknown:
			packages = append(packages, item.Name)
		default:
			others = append(others, fmt.Sprintf("%s (%s)", filepath.Base(item.Name), item.Kind))
		}
	}
	switch {
	case len(packages) == 1 && isPart(packages[0]):
		return findParts(fsys, packages)
	case len(packages) == 1:
		return openFile(fsys, packages[0])
	case len(packages) > 1:
		return nil, &SeveralError{dir, packages}
	case len(others) > 0:
		return nil, fmt.Errorf("%s holds no package (%w), only %s", dir, fs.ErrNotExist, strings.Join(others, ", "))
	}
	return nil, fmt.Errorf("%s holds no package: %w", dir, fs.ErrNotExist)
}

// SeveralError is the error of a folder that holds several packages.
type SeveralError struct {
	Dir string
	// Names are the paths of the files, or of the manifests of their parts, sorted.
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
