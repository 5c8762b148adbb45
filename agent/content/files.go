package content

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// Files keeps the files of assignments by the digests of their content.
type Files interface {
	// Folder is the folder of a content, a valid digest.
	Folder(content digest.Digest) string
	// Has reports whether the files are there and have their digest.
	Has(content digest.Digest) bool
	// Place moves the folder from, whose content was checked, to its place.
	Place(content digest.Digest, from string) error
	// Retain deletes all but the contents with these encoded digests.
	Retain(contents map[string]bool) error
	// Parse returns the assignments of an encoded list, whose digest is d. The result is to be read only.
	Parse(list []byte, d digest.Digest) ([]bundle.Assignment, error)
}

// folders is the Files of one agent: ContentsDir in its state folder.
type folders struct {
	db *state.DB
	// checked are the contents that this process has compared.
	checked map[digest.Digest]bool
}

func (f *folders) Folder(content digest.Digest) string {
	return filepath.Join(f.db.Dir(), ContentsDir, content.Encoded())
}

func (f *folders) Has(content digest.Digest) bool {
	if !f.checked[content] && content.Validate() != nil {
		return false
	}
	if info, err := os.Lstat(f.Folder(content)); err != nil || !info.IsDir() {
		return false
	}
	if !f.checked[content] {
		d, err := bundle.ContentDigestOf(os.DirFS(filepath.Join(f.db.Dir(), ContentsDir)), content.Encoded())
		f.checked[content] = err == nil && d == content
	}
	return f.checked[content]
}

func (f *folders) Place(content digest.Digest, from string) error {
	folder := f.Folder(content)
	if err := errors.Join(os.RemoveAll(folder), os.Rename(from, folder)); err != nil {
		return err
	}
	f.checked[content] = true
	return nil
}

func (f *folders) Retain(contents map[string]bool) error {
	maps.DeleteFunc(f.checked, func(content digest.Digest, _ bool) bool { return !contents[content.Encoded()] })
	return retainFolders(f.db, ContentsDir, contents)
}

func (f *folders) Parse(list []byte, _ digest.Digest) ([]bundle.Assignment, error) {
	return bundle.ParseAssignments(list)
}

// retainFolders deletes all entries of a folder in the state folder except those in keep.
func retainFolders(db *state.DB, name string, keep map[string]bool) error {
	dir := filepath.Join(db.Dir(), name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			db.At("prune: a folder is gone")
		}
	}
	return err
}
