// Package author changes a platform that lies in a folder: it finds objects and all that refers to them, and edits, renames
// and removes them.
//
// Begin with [Open]. [Platform.Find] returns objects, [Platform.Set], [Platform.Replace], [Platform.Rename] and
// [Platform.Remove] return a [Plan], and [Plan.Apply] writes it. A plan is checked before it exists: the platform is loaded
// as it would be, and mistakes that it does not have yet are an error. Text that does not change stays as it is, byte for
// byte. Only files of the folder are read: other branches and repositories of app teams are out of reach, and a plan says
// so where that matters. A plan's [FileSet] changes several files as one operation: if a step fails, the steps before it are
// undone, and if somebody has changed a file since it was read, no file changes.
package author

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/settings"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// SettingsFile is the file with the settings of a platform, at its top.
const SettingsFile = kinds.SettingsFile

// environmentsFolder holds Environment objects, and is read although its name begins with a dot.
const environmentsFolder = ".environments"

// ErrNotFound is wrapped by errors about objects that do not exist.
var ErrNotFound = errors.New("not found")

// Error is a mistake that a person can mend, with a hint.
type Error struct {
	Err  error
	Hint string
	// Refused is true if the platform forbids the change, such as removing an object in use, and false if the
	// question or the input is wrong.
	Refused bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func wrong(hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint}
}

func refused(hint, format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...), Hint: hint, Refused: true}
}

// Platform is a platform in a folder, as it was read.
type Platform struct {
	Root         string
	Files        []*File // by name
	Environments []Environment
	Objects      []*Object // by file and line
	Settings     *File     // nil where there is no SettingsFile
	// Own is the environment whose branch the folder is a work tree of; empty where environments have no branches.
	Own string
	// SharedBranch is the default branch, with what environments share, where Own has another one, and SharedCommit its commit.
	SharedBranch, SharedCommit string
	shared                     *Platform // what is there, which is only looked at; may be nil

	branch string                   // that is checked out; empty outside git
	exists func(branch string) bool // nil outside git
	// below are the folders of other platforms, which have settings or environments of their own.
	below []string
}

// File is a file with objects.
type File struct {
	Name string // slash-separated, below the root
	Data []byte
	// Environment is the one whose folder has the file; empty for what environments share.
	Environment string
	shown       string         // its path for messages
	text        *yamltext.File // nil where the file is no YAML
}

// Environment is an environment that has an Environment object.
type Environment struct {
	Name   string
	Repo   string
	Branch string
	Folder string // below the root; empty if its objects lie elsewhere
	Object *Object
}

// Object is an object of a platform.
type Object struct {
	APIVersion, Kind, Name string
	File                   *File
	document               int
	inList                 bool // a List has it
	node                   *yaml.Node
}

// Position returns the place of the object for messages.
func (o *Object) Position() finding.Position {
	return finding.Position{File: o.File.shown, Line: o.node.Line}
}

// Top returns the folder of the platform that dir is in, as it is from the current folder; dir itself where there is none.
func Top(dir string) string {
	r, err := settings.Find(dir)
	if err != nil {
		return dir
	}
	here, err := os.Getwd()
	if err != nil {
		return r.Dir
	}
	return settings.From(here, r.Dir)
}

// ErrBelow is wrapped by the error of Open for a folder that is no platform and has one in a folder below.
var ErrBelow = errors.New("is no platform")

// Open reads the platform in a folder. Files that are no YAML have no objects; Check names their mistakes.
func Open(ctx context.Context, root string) (*Platform, error) {
	p, err := readFolder(ctx, root)
	if err != nil {
		return nil, err
	}
	if len(p.below) > 0 && !p.isTop() {
		return nil, wrong("go to it, or name it with --platform", "%s %w; there is one in %s", root, ErrBelow, p.display(p.below[0]))
	}
	return p, p.onBranch(ctx)
}

// readFolder reads all files of a folder, of whatever platforms they are.
func readFolder(ctx context.Context, root string) (*Platform, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, wrong("give the folder of a platform; \"wherry init\" makes one", "%s: %w", root, cause(err))
	}
	defer func() { _ = dir.Close() }()
	p := &Platform{Root: root}
	if err := p.read(ctx, dir.FS()); err != nil {
		return nil, err
	}
	p.index(dir.FS())
	return p, nil
}

// read reads the files of a folder or branch.
func (p *Platform) read(ctx context.Context, files fs.FS) error {
	tree := gitrepo.Guard(platform.Ignoring(files))
	return fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return p.visit(tree, name, e, err)
	})
}

// isTop reports whether the folder is that of a platform by what lies in it, and not in folders below.
func (p *Platform) isTop() bool {
	return p.Settings != nil || slices.ContainsFunc(p.Files, func(f *File) bool {
		return path.Dir(f.Name) == environmentsFolder || f.Name == "platform.yaml"
	})
}

// onBranch finds the environment whose branch is checked out, and the objects that it shares with others.
func (p *Platform) onBranch(ctx context.Context) error {
	r, err := settings.Find(p.Root)
	if err != nil || r.Clone == nil {
		return nil // a folder outside git
	}
	p.exists = r.Clone.Has
	if p.branch = r.Clone.Branch(); !sameFolder(r.Dir, p.Root) {
		return nil
	}
	own, branch, tree, ok := r.OnBranch()
	if p.Own = own; !ok || branch == "" {
		return nil
	}
	p.SharedBranch, p.SharedCommit, p.shared = branch, tree.Commit, &Platform{Root: gitrepo.BranchPlace(p.Root, branch, ".")}
	if err := p.shared.read(ctx, tree.FS); err != nil {
		return err
	}
	p.shared.index(tree.FS)
	p.shared.Files = slices.DeleteFunc(p.shared.Files, func(f *File) bool { return f.Environment != "" })
	p.shared.Objects = slices.DeleteFunc(p.shared.Objects, func(o *Object) bool { return o.File.Environment != "" })
	return nil
}

func sameFolder(abs, dir string) bool {
	other, err := filepath.Abs(dir)
	return err == nil && abs == other
}

func cause(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

// maxFiles bounds the files of a platform, as the scheduler does.
const maxFiles = 100_000

func (p *Platform) visit(tree fs.FS, name string, e fs.DirEntry, err error) error {
	ext := path.Ext(name)
	if base := path.Base(name); path.Dir(name) != "." && (base == environmentsFolder || base == SettingsFile) {
		p.below = append(p.below, path.Dir(name))
	}
	switch base := path.Base(name); {
	case err != nil:
		return err
	case e.IsDir() && name != "." && strings.HasPrefix(base, ".") && base != environmentsFolder:
		return fs.SkipDir
	case e.IsDir(), !e.Type().IsRegular(), ext != ".yaml" && ext != ".yml" && ext != ".json":
		return nil
	}
	if len(p.Files) == maxFiles {
		return wrong("", "%s: more than %d files: is this the right folder?", p.Root, maxFiles)
	}
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	f := &File{Name: name, Data: data, shown: p.display(name)}
	if name == SettingsFile {
		f.text, _ = yamltext.Parse(data)
		p.Settings = f
		return nil
	}
	p.Files = append(p.Files, f)
	return nil
}

// index finds the environments and all objects.
func (p *Platform) index(tree fs.FS) {
	for _, f := range p.Files {
		var err error
		if f.text, err = yamltext.Parse(f.Data); err != nil || len(f.Data) > MaxBytes {
			f.text = nil
			continue
		}
		for i, n := range f.text.Documents {
			p.object(f, i, n, false)
		}
	}
	for _, o := range p.Objects {
		if o.Kind != "Environment" {
			continue
		}
		e := Environment{Name: o.Name, Repo: yamltext.Text(o.node, "spec", "controlPlane", "repo"), Branch: yamltext.Text(o.node, "spec", "controlPlane", "branch"), Object: o}
		if folder, err := gitrepo.CleanPath(yamltext.Text(o.node, "spec", "controlPlane", "path")); err == nil && folder != "." {
			if info, err := fs.Stat(tree, folder); err == nil && info.IsDir() {
				e.Folder = folder
			}
		}
		p.Environments = append(p.Environments, e)
	}
	slices.SortStableFunc(p.Environments, func(a, b Environment) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range p.Files {
		for _, e := range p.Environments {
			if e.Folder != "" && strings.HasPrefix(f.Name, e.Folder+"/") {
				f.Environment = e.Name
			}
		}
	}
}

func (p *Platform) object(f *File, document int, n *yaml.Node, inList bool) {
	apiVersion, kind := yamltext.Text(n, "apiVersion"), yamltext.Text(n, "kind")
	if apiVersion == kinds.CoreAPI && kind == "List" && !inList {
		if items := yamltext.Resolve(yamltext.Lookup(n, "items")); items != nil && items.Kind == yaml.SequenceNode {
			for _, item := range items.Content {
				p.object(f, document, yamltext.Resolve(item), true)
			}
		}
		return
	}
	o := &Object{APIVersion: apiVersion, Kind: kind, Name: yamltext.Text(n, "metadata", "name"), File: f, document: document, inList: inList, node: n}
	if kinds.New(apiVersion, kind) == nil || kind == "ConfigMap" && !o.isConfig() {
		return
	}
	p.Objects = append(p.Objects, o)
}

// isConfig reports whether a ConfigMap is part of a platform: of its configuration, or as a declaration of site values.
func (o *Object) isConfig() bool {
	c := &kinds.ConfigMap{}
	c.Metadata.Name = o.Name
	c.Metadata.Labels = map[string]string{}
	for _, label := range []string{kinds.PlatformConfig, kinds.SiteValues} {
		c.Metadata.Labels[label] = yamltext.Text(o.node, "metadata", "labels", label)
	}
	return c.IsPlatform() || c.IsSiteValues()
}

// Named returns the objects of a kind and, if name is not empty, of that name.
func (p *Platform) Named(kind, name string) []*Object {
	var found []*Object
	for _, o := range p.Objects {
		if o.Kind == kind && (name == "" || o.Name == name) {
			found = append(found, o)
		}
	}
	return found
}

// Names returns the sorted names of the objects of a kind.
func (p *Platform) Names(kind string) []string {
	var names []string
	for _, o := range p.Named(kind, "") {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// All returns the objects of a kind, those of the default branch among them.
func (p *Platform) All(kind string) []*Object {
	all := p.Named(kind, "")
	if p.shared != nil {
		all = append(all, p.shared.Named(kind, "")...)
	}
	return all
}

// OnOtherBranch reports whether an environment has a branch of its own which is not checked out here.
func (p *Platform) OnOtherBranch(e Environment) bool {
	return e.Folder == "" && e.Branch != "" && p.branch != "" && e.Branch != p.branch
}

// BranchExists reports whether the git repository around the platform has a branch, its own or origin's.
func (p *Platform) BranchExists(branch string) bool { return p.exists != nil && p.exists(branch) }

// HasBranch reports whether a branch is the one with the platform's folders.
func (p *Platform) HasBranch(branch string) bool {
	return branch == p.branch || slices.ContainsFunc(p.Environments, func(e Environment) bool { return e.Folder != "" && e.Branch == branch })
}

// Visible returns the sorted names of the objects of a kind that an environment has: its own and the shared ones.
func (p *Platform) Visible(kind, environment string) []string {
	var names []string
	for _, o := range p.All(kind) {
		if o.File.Environment == "" || o.File.Environment == environment || environment == "" {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Environment returns the environment of that name.
func (p *Platform) Environment(name string) (Environment, error) {
	if name != "" && name == p.Own {
		return Environment{Name: name, Branch: p.branch}, nil
	}
	var known []string
	for _, e := range p.Environments {
		if e.Name == name {
			return e, nil
		}
		known = append(known, e.Name)
	}
	if len(known) == 0 {
		return Environment{}, wrong(`"wherry new environment" makes one`, "the platform has no Environment object")
	}
	return Environment{}, wrong("known: "+strings.Join(known, ", "), "no Environment object is called %q", name)
}

// Find returns the objects of a kind and name: in the given environment, or, if it is empty, the only one. Objects of one
// name in several files are an error that names all of them, unless many is true and each is of another environment.
func (p *Platform) Find(kind, name, environment string, many bool) ([]*Object, error) {
	var found []*Object
	for _, o := range p.Named(kind, name) {
		if environment == "" || o.File.Environment == environment || o.File.Environment == "" && kind != "Environment" {
			found = append(found, o)
		}
	}
	if environment != "" {
		if _, err := p.Environment(environment); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		hint := finding.DidYouMean(name, p.Names(kind))
		if hint == "" {
			hint = "there is no " + kind
		}
		return nil, wrong(hint, "%w: %s %q", ErrNotFound, kind, name)
	}
	places := map[string]*Object{}
	for _, o := range found {
		if twin := places[o.File.Environment]; twin != nil {
			return nil, wrong("remove one of them", "%s %q is defined twice: at %s and %s", kind, name, twin.Position(), o.Position())
		}
		places[o.File.Environment] = o
	}
	if len(found) > 1 && !many {
		var where []string
		for _, o := range found {
			where = append(where, o.Position().String())
		}
		return nil, wrong("name one with -e ENVIRONMENT", "%s %q is in several environments: %s", kind, name, strings.Join(where, ", "))
	}
	return found, nil
}

// Text returns the text of an object: its document without the markers around it.
func (p *Platform) Text(o *Object) ([]byte, error) {
	if o.inList {
		return nil, p.inList(o)
	}
	from, to := o.File.text.Extent(o.document)
	return o.File.Data[from:to], nil
}

func (p *Platform) inList(o *Object) error {
	return wrong("edit "+o.File.shown+" by hand", "%s: %s %q is an item of a List", o.Position(), o.Kind, o.Name)
}

// Source returns the text of the file that has the object, as far as it is the object's.
func (o *Object) Source() []byte {
	from, to := o.File.text.Extent(o.document)
	return o.File.Data[from:to]
}

// Text returns the scalar that keys lead to in the object, empty where there is none.
func (o *Object) Text(keys ...string) string { return yamltext.Text(o.node, keys...) }
