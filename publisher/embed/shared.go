package embed

import (
	"bytes"
	"io"
	"io/fs"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/sources"
)

// sharedFS are the files of a commit that several builds read at the same time. The repository is locked while one file or
// folder of it is read, and not while something is made of it.
type sharedFS struct{ of *sources.Resolution }

// maxSharedBytes bounds one file, which is read as a whole: more than any reader takes.
const maxSharedBytes = 64 << 20

func (s sharedFS) Stat(name string) (info fs.FileInfo, err error) {
	err = s.of.Read(func(files fs.FS) (err error) {
		info, err = fs.Stat(files, name)
		return err
	})
	return info, err
}

func (s sharedFS) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = s.of.Read(func(files fs.FS) (err error) {
		entries, err = fs.ReadDir(files, name)
		return err
	})
	for i, e := range entries {
		entries[i] = sharedEntry{e, s}
	}
	return entries, err
}

// Open opens a file or folder. The file is read when its first byte is.
func (s sharedFS) Open(name string) (fs.File, error) {
	info, err := s.Stat(name)
	if err != nil {
		return nil, err
	}
	return &sharedFile{of: s, name: name, info: info}, nil
}

type sharedEntry struct {
	fs.DirEntry
	of sharedFS
}

func (e sharedEntry) Info() (info fs.FileInfo, err error) {
	err = e.of.of.Read(func(fs.FS) (err error) {
		info, err = e.DirEntry.Info()
		return err
	})
	return info, err
}

// sharedFile is an open file, in memory once it is read.
type sharedFile struct {
	of   sharedFS
	name string
	info fs.FileInfo
	data *bytes.Reader
}

func (f *sharedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *sharedFile) Close() error               { return nil }

func (f *sharedFile) Read(p []byte) (int, error) {
	if f.data == nil {
		if err := f.load(); err != nil {
			return 0, err
		}
	}
	return f.data.Read(p)
}

func (f *sharedFile) load() error {
	if f.info.Size() > maxSharedBytes {
		return &fs.PathError{Op: "read", Path: f.name, Err: gitrepo.ErrTooLarge}
	}
	return f.of.of.Read(func(files fs.FS) error {
		opened, err := files.Open(f.name)
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }()
		data, err := io.ReadAll(opened)
		f.data = bytes.NewReader(data)
		return err
	})
}
