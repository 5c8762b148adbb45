package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// ErrNoPlatform is returned for a folder that is in no platform repository.
var ErrNoPlatform = errors.New("not in a platform repository")

// Bounds on the reading that finds a platform and its settings.
const (
	maxSettingsBytes = 64 << 10
	maxObjectBytes   = 1 << 20 // of a file with Platform or Environment objects
	maxObjectFiles   = 64      // that lie at the top
	maxFolders       = 256     // below the top, for a platform.yaml in one of them
	maxEnvironments  = 1000    // files in .environments
)

// environmentsFolder is the folder of Environment objects.
const environmentsFolder = ".environments"

// Repository is a platform repository on this machine.
type Repository struct {
	// Dir is the folder of the platform, and Here the folder that it was looked for from. Both are absolute.
	Dir, Here string
	cwd       string // that paths are shown and used from
	// Name is that of the Platform object, known once the settings are read; empty without one.
	Name string
	// Clone is the git repository around Dir; nil outside git.
	Clone *gitrepo.Clone
}

// Find returns the platform repository around dir: the nearest folder with a wherry.yaml or with a folder .environments,
// else the nearest one with a platform.yaml, else the top of the git work tree. Beyond a git work tree nothing is looked
// at, and outside git no folder that everybody can write to.
func Find(dir string) (*Repository, error) {
	here, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cwd, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	r := &Repository{Here: here, cwd: cwd}
	top := gitrepo.TopOf(here)
	if top != "" {
		if r.Clone, err = gitrepo.OpenClone(top); err != nil {
			r.Clone = nil // a repository of a form that is not known serves as a folder
		}
	}
	object := ""
	for at := here; ; at = filepath.Dir(at) {
		if top == "" && isForAll(at) {
			break
		}
		if isFile(filepath.Join(at, kinds.SettingsFile)) || isFolder(filepath.Join(at, environmentsFolder)) {
			r.Dir = at
			return r, nil
		}
		if object == "" && isFile(filepath.Join(at, platformFile)) {
			object = at
		}
		if at == top || at == filepath.Dir(at) {
			break
		}
	}
	if r.Dir = object; r.Dir == "" {
		r.Dir = top
	}
	if r.Dir == "" {
		return nil, fmt.Errorf("%s is %w", here, ErrNoPlatform)
	}
	return r, nil
}

// platformFile is the usual name of the file with the Platform object.
const platformFile = "platform.yaml"

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// isForAll reports whether everybody may write to a folder, such as /tmp: anybody's wherry.yaml may be in it.
func isForAll(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o002 != 0
}

// settings returns what wherry.yaml gives. A work tree without one takes that of the work tree with the default branch,
// where a platform with a branch for each environment has it.
func (r *Repository) settings() (Settings, error) {
	for _, dir := range r.places() {
		name := filepath.Join(dir, kinds.SettingsFile)
		if !isFile(name) {
			continue
		}
		shown := From(r.cwd, name)
		data, err := diskfile.Read(name, maxSettingsBytes)
		if err != nil {
			return Settings{}, &Error{Text: err.Error(), Err: err}
		}
		k, err := parse(shown, data)
		return fileSettings(shown, dir, r.cwd, k), err
	}
	return Settings{}, nil
}

// places lists the folders in which the settings of the platform may lie: its own, and the top of the work tree with the
// default branch.
func (r *Repository) places() []string {
	all := []string{r.Dir}
	if r.Clone != nil && r.Dir == r.Clone.Top {
		if top := r.Clone.WorkTree(r.Clone.DefaultBranch()); top != "" && top != r.Dir {
			all = append(all, top)
		}
	}
	return all
}

// parse reads a wherry.yaml. Its errors name each line, and repeat no credentials. A file with objects has no settings.
func parse(name string, data []byte) (kinds.Settings, error) {
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var n yaml.Node
	if err := documents.Decode(&n); errors.Is(err, io.EOF) {
		return kinds.Settings{}, nil
	} else if err != nil {
		return kinds.Settings{}, syntaxError(name, data, err)
	}
	if len(n.Content) != 1 || kinds.StringField(n.Content[0], "kind") != "" {
		return kinds.Settings{}, nil
	}
	k, err := kinds.DecodeSettings(name, n.Content[0])
	if err == nil {
		err = excluding(name, k)
	}
	if err == nil && !errors.Is(documents.Decode(new(yaml.Node)), io.EOF) {
		err = fmt.Errorf("%s has more than one document", name)
	}
	if err != nil {
		return k, &Error{Text: show.Redact(err.Error()), Hint: `"wherry help configuration" lists the settings`, Err: err}
	}
	return k, nil
}

// excluding returns an error if a file has both keys and trust, of which one stands for the other.
func excluding(name string, k kinds.Settings) error {
	if k.Trust.Value == "" || len(k.Keys) == 0 {
		return nil
	}
	return finding.Errorf("", finding.Position{File: name, Line: int(k.Trust.Line)}, "keep one of them", "keys and trust exclude each other")
}

func syntaxError(name string, data []byte, err error) error {
	line, text := yamltext.Mistake(data, err)
	return &Error{Text: show.Redact(fmt.Sprintf("%s: %s", finding.Position{File: name, Line: line}, text)), Err: err}
}

// sharedSettings returns what the Platform object gives, the one of the platform's folder, else that of the default branch.
func (r *Repository) sharedSettings() (Settings, error) {
	for _, dir := range r.places() {
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue
		}
		file, p := findPlatform(root.FS())
		_ = root.Close()
		if p == nil {
			continue
		}
		r.Name = p.Metadata.Name
		k := kinds.Settings{SharedSettings: p.Spec.SharedSettings}
		shown := From(r.cwd, filepath.Join(dir, filepath.FromSlash(file)))
		if err := excluding(shown, k); err != nil {
			return Settings{}, &Error{Text: err.Error(), Err: err}
		}
		return fileSettings(shown, filepath.Join(dir, filepath.FromSlash(path.Dir(file))), r.cwd, k).reaching(p), nil
	}
	if tree, ok := r.defaultTree(); ok {
		if file, p := findPlatform(tree.FS); p != nil {
			r.Name = p.Metadata.Name
			shown := r.Clone.DefaultBranch() + ":" + file
			s := fileSettings(shown, r.Dir, r.cwd, kinds.Settings{SharedSettings: p.Spec.SharedSettings})
			s.Trust, s.Keys = Value{}, nil // files that are in no folder
			return s.reaching(p), nil
		}
	}
	return Settings{}, nil
}

// reaching returns s with what p says about the places that may be reached.
func (s Settings) reaching(p *kinds.Platform) Settings {
	for _, w := range p.Spec.Workspaces {
		s.Places = append(s.Places, w.Repositories...)
	}
	s.AllowPrivate = p.Spec.Sources.AllowPrivate
	return s
}

// defaultTree returns the default branch as it was committed, for a work tree of another branch.
func (r *Repository) defaultTree() (gitrepo.Tree, bool) {
	if r.Clone == nil || r.Dir != r.Clone.Top {
		return gitrepo.Tree{}, false
	}
	branch := r.Clone.DefaultBranch()
	if branch == "" || branch == r.Clone.Branch() {
		return gitrepo.Tree{}, false
	}
	tree, err := r.Clone.Tree(branch)
	return tree, err == nil
}

// OnBranch returns the environment that has a branch of its own which is checked out at the platform's folder, and the default
// branch, with what environments share, as it was committed. Without such a branch, shared is empty.
func (r *Repository) OnBranch() (environment, branch string, shared gitrepo.Tree, ok bool) {
	if r.Clone == nil || r.Dir != r.Clone.Top {
		return "", "", shared, false
	}
	known := r.Environments()
	e, ok := r.inside(known)
	if !ok || r.byFolder(e, known) {
		return "", "", shared, false
	}
	if tree, found := r.defaultTree(); found {
		branch, shared = r.Clone.DefaultBranch(), tree
	}
	return e.Name, branch, shared, true
}

// findPlatform returns the Platform object in the files at the top, or in a platform.yaml of a folder there.
func findPlatform(files fs.FS) (file string, found *kinds.Platform) {
	names := []string{platformFile}
	for _, name := range objectFiles(files, ".", maxObjectFiles) {
		if name != platformFile {
			names = append(names, name)
		}
	}
	entries, _ := fs.ReadDir(files, ".")
	folders := 0
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && folders < maxFolders {
			folders++
			names = append(names, path.Join(e.Name(), platformFile))
		}
	}
	for _, name := range names {
		for _, o := range objects(files, name, "Platform") {
			p := new(kinds.Platform)
			if kinds.StringField(o, "apiVersion") == kinds.WherryAPI && len(kinds.Decode(name, o, p, false).Errs) == 0 {
				return name, p
			}
		}
	}
	return "", nil
}

// objectFiles lists the files of a folder that may hold objects, sorted.
func objectFiles(files fs.FS, dir string, limit int) (names []string) {
	entries, _ := fs.ReadDir(files, dir)
	for _, e := range entries {
		if e.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(e.Name())) && len(names) < limit {
			names = append(names, path.Join(dir, e.Name()))
		}
	}
	return names
}

// objects returns the objects of a kind in a file. A file that cannot be read has none: commands that read the platform
// report it.
func objects(files fs.FS, name, kind string) (found []*yaml.Node) {
	info, err := fs.Stat(files, name)
	if err != nil || !info.Mode().IsRegular() { // to open a pipe would not end
		return nil
	}
	f, err := files.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxObjectBytes+1))
	if err != nil || len(data) > maxObjectBytes || !bytes.Contains(data, []byte(kind)) {
		return nil
	}
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if err := documents.Decode(&n); err != nil {
			return found
		}
		if len(n.Content) == 1 {
			found = append(found, ofKind(n.Content[0], kind)...)
		}
	}
}

// ofKind returns the object n if it is of the kind, or those in a List.
func ofKind(n *yaml.Node, kind string) (found []*yaml.Node) {
	switch kinds.StringField(n, "kind") {
	case kind:
		return []*yaml.Node{n}
	case "List":
		for _, item := range kinds.SequenceField(n, "items") {
			found = append(found, ofKind(item, kind)...)
		}
	}
	return found
}
