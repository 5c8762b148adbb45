package publisher

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
)

// changed reports whether the folder src, which was read last, is in a git work tree whose commit does not have its
// files as they were read, and adds these to Uncommitted. Files that git does not know, or ignores, count if they
// were read.
func (l *loader) changed(src source) bool {
	if l.files == nil {
		return false
	}
	var names []string
	for _, name := range l.files.uncommitted(src.place.dir()) {
		names = append(names, src.place.String()+"/"+name)
	}
	l.loaded.Uncommitted = append(l.loaded.Uncommitted, names...)
	return len(names) > 0
}

// uncommitted lists the files of dir that were read, or are missing, and are not as the checked-out commit has them.
func (g *guardedFS) uncommitted(dir string) []string {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return nil
	}
	head, err := repo.Head()
	if err != nil {
		return nil // then there is no commit to name
	}
	prefix := "."
	if top, err := filepath.EvalSymlinks(workTreeOf(dir)); err == nil {
		real, _ := filepath.EvalSymlinks(dir)
		if abs, err := filepath.Abs(real); err == nil {
			prefix, _ = filepath.Rel(top, abs)
		}
	}
	prefix = filepath.ToSlash(prefix)
	commit, err := repo.CommitObject(head.Hash())
	if err != nil {
		return nil
	}
	root, err := commit.Tree()
	if err != nil {
		return nil
	}
	var changed []string
	for name, hash := range g.read {
		if entry, err := root.FindEntry(path.Join(prefix, name)); err != nil || entry.Hash != hash {
			changed = append(changed, name)
		}
	}
	committed, err := fs.Sub(ignoring(&gitFS{root: root, objects: repo.Storer}), prefix)
	if err == nil {
		_ = fs.WalkDir(committed, ".", func(name string, e fs.DirEntry, err error) error {
			base := path.Base(name)
			switch {
			case err != nil || slices.Contains(g.hidden, name) || e.IsDir() && base != "." && base != environmentsFolder && strings.HasPrefix(base, "."):
				return fs.SkipDir
			case e.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)):
				if _, read := g.read[name]; !read {
					changed = append(changed, name)
				}
			}
			return nil
		})
	}
	slices.Sort(changed)
	return changed
}
