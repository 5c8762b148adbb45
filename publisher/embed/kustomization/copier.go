package kustomization

//lint:file-ignore SA1019 kustomizations have the deprecated fields

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// Where the copy in memory has the tree, and the trees of other repositories.
const (
	sourceMount = "/source"
	remoteMount = "/remote-"
)

// maxNesting bounds bases of bases.
const maxNesting = 64

// copier copies what a kustomization names to kustomize's file system in memory. It follows every path itself and writes it
// anew, beginning with a dot: kustomize then takes none for the URL of a repository or of a file, and looks for none on the
// disk. A path that the copier does not know is not in the copy, and fails there.
type copier struct {
	opts   Options
	source *tree
	others map[string]*tree // by URL and commit
	copy   filesys.FileSystem
	read   []string // of source
	schema bool     // a kustomization brings schemas of its own
	sorts  map[place]bool
	// visited has what a folder costs; its value is nil while it is being read.
	visited map[place]*cost
}

// tree is a repository that is read.
type tree struct {
	files   fs.FS
	mount   string
	name    string // for messages; empty for the source
	entries map[string]map[string]fs.FileMode
}

// place is a folder or a file of a tree.
type place struct {
	tree *tree
	name string // as of package fs
}

// path is the place in the copy. The in-memory file system allows few characters in names.
func (p place) path() string {
	if p.name == "." {
		return p.tree.mount
	}
	return p.tree.mount + "/" + legalPath(p.name)
}

// shown names a file of the folder p in a message.
func (p place) shown(file string) string { return p.tree.name + path.Join(p.name, file) }

// cost counts files and bytes once for each time that they are named, so that it grows as kustomize's own work does.
type cost struct{ files, bytes int }

func (c *cost) add(other cost) {
	const most = 1 << 40
	c.files, c.bytes = min(c.files+other.files, most), min(c.bytes+other.bytes, most)
}

func newCopier(source fs.FS, opts Options) *copier {
	return &copier{
		opts: opts, copy: filesys.MakeFsInMemory(), others: map[string]*tree{}, visited: map[place]*cost{}, sorts: map[place]bool{},
		source: &tree{files: source, mount: sourceMount, entries: map[string]map[string]fs.FileMode{}},
	}
}

// root copies the kustomization in folder dir, with the overlay.
func (c *copier) root(dir string) (place, error) {
	at := place{c.source, dir}
	if !fs.ValidPath(dir) {
		return at, finding.Errorf("", finding.Position{File: dir}, "use a path within the repository", "the folder of the kustomization lies outside of the repository")
	}
	file, k, err := c.kustomization(at)
	if err != nil {
		return at, err
	}
	c.opts.Overlay.apply(k)
	_, err = c.rewrite(at, file, k, 0)
	return at, err
}

// kustomization reads the one file of a folder that has a kustomization. The error wraps fs.ErrNotExist where it has none.
func (c *copier) kustomization(at place) (file string, k *types.Kustomization, err error) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		mode, err := at.tree.mode(path.Join(at.name, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if mode.IsDir() {
			continue
		}
		if file != "" {
			return "", nil, finding.Errorf("", finding.Position{File: at.shown(name)}, "keep one of them", "the folder has a second kustomization, %s", file)
		}
		file = name
	}
	if file == "" {
		return "", nil, &finding.Error{
			Position: finding.Position{File: at.shown("")}, Err: fs.ErrNotExist,
			Message: "the folder has no " + konfig.DefaultKustomizationFileName(),
		}
	}
	data, _, err := c.readFile(place{at.tree, path.Join(at.name, file)})
	if err != nil {
		return "", nil, err
	}
	position := finding.Position{File: at.shown(file)}
	k = new(types.Kustomization)
	if err := k.Unmarshal(data); err != nil {
		return "", nil, finding.Errorf("", position, "", "%s", strings.TrimPrefix(err.Error(), "invalid Kustomization: "))
	}
	k.FixKustomization()
	return file, k, nil
}

// folder copies the kustomization in a folder and all below it, once.
func (c *copier) folder(at place, from entry, depth int) (cost, error) {
	if known, seen := c.visited[at]; seen {
		if known == nil {
			return cost{}, from.fails("", "%s names itself, over other folders or not", at.shown(""))
		}
		return *known, nil
	}
	if depth > maxNesting {
		return cost{}, from.fails("", "bases nest deeper than %d", maxNesting)
	}
	c.visited[at] = nil
	file, k, err := c.kustomization(at)
	if errors.Is(err, fs.ErrNotExist) {
		return cost{}, from.fails("name a folder with a kustomization.yaml, or the files themselves", "%s", err)
	}
	if err != nil {
		return cost{}, err
	}
	total, err := c.rewrite(at, file, k, depth)
	c.visited[at] = &total
	return total, err
}

// rewrite copies what k names, and k with the paths that these have in the copy.
func (c *copier) rewrite(at place, file string, k *types.Kustomization, depth int) (cost, error) {
	if err := k.CheckEmpty(); err != nil {
		return cost{}, finding.Errorf("", finding.Position{File: at.shown(file)}, "", "the kustomization is empty")
	}
	r := &rewriter{copier: c, at: at, file: file, depth: depth, cost: cost{files: 2}}
	if err := r.all(k); err != nil {
		return cost{}, err
	}
	if r.cost.files > c.opts.MaxFiles || r.cost.bytes > c.opts.MaxReadBytes {
		return cost{}, tooLarge(at.shown(file), "kustomize would read more than %d files or %d bytes", c.opts.MaxFiles, c.opts.MaxReadBytes)
	}
	c.sorts[at] = k.SortOptions != nil
	data, err := yaml.Marshal(k)
	if err != nil {
		return cost{}, err
	}
	if len(k.Resources) == 0 {
		data = append(data, "resources: []\n"...) // or what has empty lists alone would be empty
	}
	return r.cost, c.write(place{at.tree, path.Join(at.name, file)}, data)
}

func (c *copier) write(at place, data []byte) error {
	if err := c.copy.WriteFile(at.path(), data); err != nil {
		return fmt.Errorf("%s: %w", at.shown(""), err)
	}
	return nil
}

// readFile reads a file that is known to be there.
func (c *copier) readFile(at place) ([]byte, cost, error) {
	file, err := at.tree.files.Open(at.name)
	if err != nil {
		return nil, cost{}, fmt.Errorf("%s: %w", at.shown(""), err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, int64(c.opts.MaxReadBytes)+1))
	if err != nil {
		return nil, cost{}, fmt.Errorf("%s: %w", at.shown(""), err)
	}
	if len(data) > c.opts.MaxReadBytes {
		return nil, cost{}, tooLarge(at.shown(""), "the file has more than %d bytes", c.opts.MaxReadBytes)
	}
	if at.tree == c.source {
		c.read = append(c.read, at.name)
	}
	return data, cost{files: 1, bytes: len(data)}, nil
}

// mode is the kind of a file or folder. It looks at every folder on the way to it, because what opens a file may follow links.
func (t *tree) mode(name string) (fs.FileMode, error) {
	mode, at := fs.ModeDir, "."
	for _, part := range strings.Split(name, "/") {
		if part == "." {
			continue
		}
		entries, err := t.list(at)
		if err != nil {
			return 0, err
		}
		found, ok := entries[part]
		switch at = path.Join(at, part); {
		case !ok || !mode.IsDir():
			return 0, fs.ErrNotExist
		case !found.IsDir() && !found.IsRegular():
			return 0, finding.Errorf("", finding.Position{File: t.name + at}, "replace it by the file itself", "is a symbolic link, or another thing that is neither a file nor a folder; these are not followed")
		}
		mode = found
	}
	return mode, nil
}

func (t *tree) list(dir string) (map[string]fs.FileMode, error) {
	if known, ok := t.entries[dir]; ok {
		return known, nil
	}
	list, err := fs.ReadDir(t.files, dir)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", t.name, dir, err)
	}
	entries := make(map[string]fs.FileMode, len(list))
	for _, e := range list {
		entries[e.Name()] = e.Type()
	}
	t.entries[dir] = entries
	return entries, nil
}

// relative is the path from a folder to a place in the copy. It begins with a dot, so that it is no URL.
func relative(from, to place) (string, error) {
	rel, err := filepath.Rel(from.path(), to.path())
	if err != nil {
		return "", err
	}
	if rel = filepath.ToSlash(rel); !strings.HasPrefix(rel, ".") || !strings.HasPrefix(rel, "../") && rel != ".." && rel != "." {
		rel = "./" + rel
	}
	return rel, nil
}

// legalPath replaces the characters that the in-memory file system refuses.
func legalPath(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch ch := name[i]; {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', ch == '-', ch == '_', ch == '/',
			ch == '.' && (i == 0 || name[i-1] != '.'):
			b.WriteByte(ch)
		default:
			fmt.Fprintf(&b, ":%02x", ch)
		}
	}
	return b.String()
}
