package outgit

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler"
)

// ErrForeign is returned for a folder of the branch with files that neither wherry nor Kalypso wrote.
var ErrForeign = errors.New("not written by wherry or Kalypso")

// entry is a file, link or submodule of a tree.
type entry struct{ mode, hash string }

const (
	fileMode   = "100644"
	folderMode = "040000"
)

// existing is what a branch has, as far as it is looked at. Paths are below the folder that is written to.
type existing struct {
	top   map[string]entry // its files and folders
	files map[string]entry // all that lies in the folders of files
	// read returns the content of a file.
	read func(e entry) ([]byte, error)
}

// changes are the differences between a branch and the rendered files.
type changes struct {
	written   map[string][]byte // by path
	modes     map[string]string // of those that are not fileMode
	removed   []string          // sorted
	unchanged int
	promoted  bool // the base commit changes
}

func (c changes) none() bool { return len(c.written)+len(c.removed) == 0 }

// rules are the choices that a caller has.
type rules struct {
	force bool // take over folders of others
	keep  bool // remove no assignment's folder
	empty bool // leave cluster types without assignments
	hash  func(data []byte) string
}

// ownedFolders lists the folders that belong to the tree: those of cluster types, and those whose README.md says that they
// were one's. The rules are those of package outdir, but for files at the top: a repository begins with some.
func ownedFolders(e existing, types []string, force bool, hash func([]byte) string) ([]string, error) {
	known := e.files[scheduler.TrackingFile] != entry{}
	var owned, others []string
	for _, name := range sortedNames(e.top) {
		isFolder, current := e.top[name].mode == folderMode, slices.Contains(types, name)
		marked, err := isMarked(e, name, hash)
		switch {
		case err != nil:
			return nil, err
		case current && !isFolder:
			return nil, fmt.Errorf("%s is in the way: not a folder", name)
		case current && !marked && !force:
			return nil, fmt.Errorf("folder %s: %w", name, ErrForeign)
		case current || marked:
			owned, known = append(owned, name), known || marked
		case isFolder && !strings.HasPrefix(name, "."):
			others = append(others, name)
		}
	}
	if !known && !force && len(others) > 0 {
		return nil, fmt.Errorf("it holds %s: %w", others[0], ErrForeign)
	}
	return owned, nil
}

// isMarked reports whether a folder has the README.md that each folder of a cluster type has.
func isMarked(e existing, folder string, hash func([]byte) string) (bool, error) {
	readme, found := e.files[path.Join(folder, scheduler.ReadmeFile)]
	if !found || strings.HasPrefix(folder, ".") || !isRegular(readme.mode) {
		return false, nil
	}
	if readme.hash == hash([]byte(scheduler.ReadmeText)) {
		return true, nil // without a request for its content
	}
	data, err := e.read(readme)
	return err == nil && slices.Contains(strings.Split(string(data), "\n"), scheduler.ReadmeText), err
}

func isRegular(mode string) bool { return mode == fileMode || mode == "100755" }

// compare returns the differences between what a branch has and a result.
func compare(e existing, result *scheduler.Result, r rules) (changes, error) {
	wanted := map[string][]byte{}
	for _, f := range scheduler.Tree(result) {
		if !fs.ValidPath(f.Path) || f.Path != scheduler.TrackingFile && strings.HasPrefix(f.Path, ".") || !strings.Contains(f.Path, "/") {
			return changes{}, fmt.Errorf("%q cannot be a path of the tree", f.Path)
		}
		wanted[f.Path] = f.Data
	}
	types := typesOf(result)
	owned, err := ownedFolders(e, types, r.force, r.hash)
	if err != nil {
		return changes{}, err
	}
	kept := keptFolders(e, result, wanted, r.keep)
	c := changes{written: map[string][]byte{}}
	for _, name := range sortedNames(e.files) {
		top, _, _ := strings.Cut(name, "/")
		data, isWanted := wanted[name]
		switch {
		case isWanted && e.files[name] == entry{fileMode, r.hash(data)}:
			delete(wanted, name)
			c.unchanged++
		case isWanted || !slices.Contains(owned, top) || kept[folderOf(name)]:
		default:
			c.removed = append(c.removed, name)
		}
	}
	if lost := emptied(e, c, wanted); len(lost) > 0 && !r.empty {
		return changes{}, &EmptyError{lost}
	}
	c.written = wanted
	_, c.promoted = wanted[scheduler.TrackingFile]
	return c, nil
}

// EmptyError means that cluster types would lose all their assignments.
type EmptyError struct{ Types []string }

func (e *EmptyError) Error() string {
	return fmt.Sprintf("%s would lose all assignments", strings.Join(e.Types, ", "))
}

// emptied lists the cluster types that have assignments before the changes and none after them.
func emptied(e existing, c changes, wanted map[string][]byte) []string {
	count := func(types map[string]int, name string, n int) {
		if folder := folderOf(name); folder != "" && !strings.HasPrefix(folder, ".") {
			types[strings.SplitN(folder, "/", 2)[0]] += n
		}
	}
	losing, left := map[string]int{}, map[string]int{}
	for _, name := range c.removed {
		count(losing, name, 1)
	}
	for name := range e.files {
		count(left, name, 1)
	}
	for _, name := range c.removed {
		count(left, name, -1)
	}
	for name := range wanted {
		count(left, name, 1)
	}
	var lost []string
	for _, name := range sortedNames(losing) {
		if left[name] <= 0 {
			lost = append(lost, name)
		}
	}
	return lost
}

// folderOf returns TYPE/TARGET of a file TYPE/TARGET/FILE, and nothing for a file that lies higher.
func folderOf(name string) string {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// keptFolders are the folders whose files stay as they are: those of failed assignments and, with all, of each assignment
// that is not rendered.
func keptFolders(e existing, result *scheduler.Result, wanted map[string][]byte, all bool) map[string]bool {
	kept, rendered := map[string]bool{}, map[string]bool{}
	for name := range wanted {
		rendered[folderOf(name)] = true
		rendered[name] = true // a folder in place of a wanted file gives way
	}
	types := typesOf(result)
	for name := range e.files {
		if top, _, _ := strings.Cut(name, "/"); all && slices.Contains(types, top) && !rendered[folderOf(name)] {
			kept[folderOf(name)] = true
		}
	}
	for _, ct := range result.ClusterTypes {
		for _, failure := range ct.Failures {
			if !failure.Taken {
				kept[ct.Name+"/"+failure.Name] = true
			}
		}
	}
	delete(kept, "")
	return kept
}

func typesOf(result *scheduler.Result) []string {
	var types []string
	for _, ct := range result.ClusterTypes {
		types = append(types, ct.Name)
	}
	return types
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
