package platform

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Shared is a base or an app team's source that was read from a commit of a repository of which there is a work tree here.
type Shared struct {
	// Part and Name say what was read, and Commit which commit of it.
	Part   Part
	Name   string
	Commit string
	// Files are those that the work tree has otherwise, by their paths below its top.
	Files []string
}

// noteShared adds to Shared the files of src, which was read at a commit, that a work tree here has otherwise.
func (l *loader) noteShared(ctx context.Context, src origin, commit string) {
	if !l.CompareShared || src.place.folder != "" || commit == "" {
		return
	}
	top := l.workTreeOf(src, commit)
	if top == "" {
		return
	}
	ref := src.place.repo
	ref.Commit = commit
	tree, err := l.git.Tree(ctx, ref)
	if err != nil {
		return // it has just been read
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return // nobody can edit it either
	}
	defer func() { _ = root.Close() }()
	dir, err := gitrepo.CleanPath(src.place.path)
	if err != nil {
		return
	}
	hidden := l.hidden(ctx, src)
	names := slices.Concat(readable(root.FS(), dir, hidden), readable(tree.FS, dir, hidden))
	slices.Sort(names)
	files := slices.DeleteFunc(slices.Compact(names), func(name string) bool { return sameContent(root.FS(), tree.FS, name) })
	if len(files) > 0 {
		l.loaded.Shared = append(l.loaded.Shared, Shared{src.part, src.name, commit, files})
	}
}

// workTreeOf returns the top of the work tree in which people edit what src is read from: the one that has its branch checked out, else
// that of the platform's folder, if the commit is in its history. It is empty if there is none.
func (l *loader) workTreeOf(src origin, commit string) string {
	for _, c := range l.clonesOf(src.place.repo.URL) {
		branch := src.place.repo.Branch
		if branch == "" {
			branch = c.DefaultBranch()
		}
		if top := c.WorkTree(branch); top != "" {
			return top
		}
		platform, err := given(PlatformPart, "", l.Platform)
		if err != nil || platform.place.folder == "" {
			continue
		}
		environment, errEnvironment := realPath(platform.place.dir())
		source, errSource := realPath(filepath.Join(c.Top, filepath.FromSlash(src.place.path)))
		if errEnvironment != nil || errSource != nil || within(environment, source) != "" || environment == source {
			continue // a branch with the environment alone
		}
		if c.HeadHas(commit) {
			return c.Top
		}
	}
	return ""
}

// clonesOf returns the repositories with a work tree on this machine that a URL stands for.
func (l *loader) clonesOf(url string) []*gitrepo.Clone {
	var all []*gitrepo.Clone
	if l.Clone != nil && l.Clone.Is(url) {
		all = append(all, l.Clone)
	}
	open := func(dir string, is func(*gitrepo.Clone) bool) {
		abs, err := filepath.Abs(dir)
		if err != nil || gitrepo.IsRemote(dir) {
			return
		}
		top := gitrepo.TopOf(abs)
		if top == "" {
			return
		}
		if c, err := gitrepo.OpenClone(top); err == nil && is(c) {
			all = append(all, c)
		}
	}
	if p, err := given(PlatformPart, "", l.Platform); err == nil && p.place.folder != "" {
		open(p.place.folder, func(c *gitrepo.Clone) bool { return c.Is(url) })
	}
	if mirrored := gitrepo.Mirrors(l.Mirrors).Of(url); mirrored != url {
		open(mirrored, func(*gitrepo.Clone) bool { return true })
	}
	return all
}

func realPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// maxShared bounds a file that is compared, in bytes: a larger one is none of a platform's.
const maxShared = 8 << 20

// sameContent reports whether both have the file with the same content, whatever its line endings are.
func sameContent(a, b fs.FS, name string) bool {
	var texts [2][]byte
	for i, files := range []fs.FS{a, b} {
		info, err := fs.Stat(files, name)
		if err != nil || info.Size() > maxShared {
			return false
		}
		if texts[i], err = fs.ReadFile(files, name); err != nil {
			return false
		}
		texts[i] = bytes.ReplaceAll(texts[i], []byte("\r\n"), []byte("\n"))
	}
	return bytes.Equal(texts[0], texts[1])
}
