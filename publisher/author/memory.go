package author

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// memory is a folder in memory: the platform as it would be.
type memory struct {
	files   map[string][]byte
	folders map[string][]fs.DirEntry
}

func newMemory(content map[string][]byte) *memory {
	m := &memory{files: content, folders: map[string][]fs.DirEntry{".": nil}}
	for name, data := range content {
		m.add(name, entry{path.Base(name), int64(len(data)), false})
	}
	for _, entries := range m.folders {
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return m
}

// add lists an entry in its folder, and the folder in its own.
func (m *memory) add(name string, e entry) {
	dir := path.Dir(name)
	_, known := m.folders[dir]
	m.folders[dir] = append(m.folders[dir], e)
	if !known {
		m.add(dir, entry{path.Base(dir), 0, true})
	}
}

func (m *memory) Open(name string) (fs.File, error) {
	if data, ok := m.files[name]; ok {
		return &memoryFile{entry: entry{path.Base(name), int64(len(data)), false}, Reader: bytes.NewReader(data)}, nil
	}
	if _, ok := m.folders[name]; ok {
		return &memoryFile{entry: entry{path.Base(name), 0, true}, Reader: bytes.NewReader(nil)}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (m *memory) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, ok := m.folders[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(entries), nil
}

// memoryFile is an open file, or a folder without its entries, which ReadDir of memory lists.
type memoryFile struct {
	entry
	*bytes.Reader
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Size() int64                { return f.size }

// entry is a file or a folder.
type entry struct {
	name   string
	size   int64
	folder bool
}

func (e entry) Name() string               { return e.name }
func (e entry) Size() int64                { return e.size }
func (e entry) IsDir() bool                { return e.folder }
func (e entry) ModTime() time.Time         { return time.Time{} }
func (e entry) Sys() any                   { return nil }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }
func (e entry) Type() fs.FileMode          { return e.Mode().Type() }

func (e entry) Mode() fs.FileMode {
	if e.folder {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
