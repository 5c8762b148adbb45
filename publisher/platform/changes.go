package platform

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// recordedFS notes the git hash of each file that is read, those of .sourceignore among them.
type recordedFS struct {
	fs.FS
	read map[string]contentHash
}

// contentHash is what git calls a file's content, as it is and with the line endings that git commits for a checkout
// with core.autocrlf. YAML means the same with either.
type contentHash struct {
	asIs, unixLines plumbing.Hash
	settings        bool // a wherry.yaml without objects, of which nothing is rendered
}

func recording(files fs.FS) *recordedFS {
	return &recordedFS{FS: files, read: map[string]contentHash{}}
}

func (r *recordedFS) Open(name string) (fs.File, error) {
	file, err := r.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return file, nil
	}
	return &recordedFile{File: file, fs: r, name: name}, nil
}

type recordedFile struct {
	fs.File
	fs      *recordedFS
	name    string
	content bytes.Buffer // bounded by the limit on one file
}

func (f *recordedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.content.Write(p[:n])
	return n, err
}

// Close records the hash of the content.
func (f *recordedFile) Close() error {
	content := f.content.Bytes()
	hash := contentHash{asIs: plumbing.ComputeHash(plumbing.BlobObject, content)}
	if hash.unixLines = hash.asIs; bytes.Contains(content, []byte("\r\n")) {
		hash.unixLines = plumbing.ComputeHash(plumbing.BlobObject, bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")))
	}
	hash.settings = path.Base(f.name) == kinds.SettingsFile && !bytes.Contains(content, []byte("kind:"))
	f.fs.read[f.name] = hash
	return f.File.Close()
}

// changed reports whether the folder src, which was read last, is in a git work tree whose commit does not have its
// files as they were read, and adds these to Uncommitted or UncommittedBase. Files that git does not know, or ignores,
// count if they were read.
func (l *loader) changed(ctx context.Context, src origin) bool {
	if l.files == nil {
		return false
	}
	var names []string
	for _, name := range uncommitted(src.place, l.files.read, l.hidden(ctx, src)) {
		names = append(names, path.Join(filepath.ToSlash(src.place.folder), name))
	}
	to := &l.loaded.Uncommitted
	if src.part == BasePart {
		to = &l.loaded.UncommittedBase
	}
	*to = append(*to, names...)
	return len(names) > 0
}

// uncommitted lists the files of place.folder that were read, or are missing, and are not as the checked-out commit has
// them. It passes over the hidden folders of place.
func uncommitted(place location, read map[string]contentHash, hidden []string) []string {
	head, ok := gitrepo.OpenCheckedOut(place.folder)
	if !ok {
		return nil // then there is no commit to name
	}
	var changed []string
	for name, hash := range read {
		if !hash.settings && !head.Has(name, hash.asIs, hash.unixLines) {
			changed = append(changed, name)
		}
	}
	if tree, err := head.FS(); err == nil {
		for _, name := range readable(tree, filepath.ToSlash(filepath.Clean(place.path)), hidden) {
			if _, ok := read[name]; !ok {
				changed = append(changed, name)
			}
		}
	}
	slices.Sort(changed)
	return changed
}

// readable lists the files of tree that a source in its folder dir would be read from: objects, and all .sourceignore.
func readable(tree fs.FS, dir string, hidden []string) []string {
	var names []string
	for parent := dir; parent != "."; {
		parent = path.Dir(parent)
		if name := path.Join(parent, gitrepo.File); isFile(tree, name) {
			names = append(names, name)
		}
	}
	_ = fs.WalkDir(ignoring(tree), dir, func(name string, e fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return fs.SkipDir
		case e.IsDir() && name != dir && base != environmentsFolder && strings.HasPrefix(base, "."):
			return fs.SkipDir
		case slices.ContainsFunc(hidden, func(h string) bool { return path.Join(dir, h) == name }):
			return fs.SkipDir
		case e.Type().IsRegular() && (base == gitrepo.File || slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))):
			names = append(names, name)
		}
		return nil
	})
	return names
}

func isFile(tree fs.FS, name string) bool {
	info, err := fs.Stat(tree, name)
	return err == nil && info.Mode().IsRegular()
}
