package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// CheckName returns an error unless an object can have the name.
func CheckName(kind, name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return wrong("use up to 253 lower-case letters, digits, hyphens and dots, with a letter or digit at both ends", "%s cannot be called %q", kind, name)
	}
	return nil
}

// Rename returns the plan that gives an object another name, with all that refers to it. Without an environment, the objects
// of that name in all environments are renamed. The file or the folder that has the object's name is renamed too.
func (p *Platform) Rename(ctx context.Context, kind, from, to, environment string) (*Plan, error) {
	if err := CheckName(kind, to); err != nil {
		return nil, err
	}
	if from == to {
		return nil, wrong("", "it is called %q already", to)
	}
	var targets []*Object
	var references []reference
	if kind == Workspace || kind == Ring || kind == Group {
		references = p.references(kind, from, to, nil)
		if len(references) == 0 {
			return nil, wrong("", "%w: no object names the %s %q", ErrNotFound, kind, from)
		}
		if taken := p.references(kind, to, to+"-", nil); len(taken) > 0 {
			return nil, refused("two of them cannot become one", "%s: there is a %s %q already", taken[0].position(), kind, to)
		}
	} else {
		var err error
		if targets, err = p.Find(kind, from, environment, true); err != nil {
			return nil, err
		}
		if err := p.checkFree(kind, to, targets); err != nil {
			return nil, err
		}
		references = p.references(kind, from, to, targets)
		if err := p.checkShared(kind, from, environment, targets, references); err != nil {
			return nil, err
		}
	}
	plan := &Plan{Notes: renameNotes(kind, p)}
	changes := newRewriting(p)
	for _, o := range targets {
		n := yamltext.Lookup(o.node, "metadata", "name")
		changes.add(reference{file: o.File, node: n, renamed: to, text: fmt.Sprintf("%s %q: metadata.name", kind, from)})
		if kind == "Environment" {
			plan.Moves = append(plan.Moves, p.moveFolder(o, from, to, changes)...)
		}
		if move, ok := p.moveFile(o, from, to); ok {
			plan.Moves = append(plan.Moves, move)
		}
	}
	for _, r := range references {
		changes.add(r)
	}
	slices.SortStableFunc(plan.Moves, func(a, b FileMove) int { // files first, since their folder may move
		return cmp.Or(strings.Count(b.From, "/")-strings.Count(a.From, "/"), strings.Compare(a.From, b.From))
	})
	var err error
	if plan.Changes, err = changes.write(); err != nil {
		return nil, err
	}
	plan.Edits = changes.edits
	return plan, p.check(ctx, plan)
}

// checkFree returns an error if an object that one of the targets can meet has the name already.
func (p *Platform) checkFree(kind, name string, targets []*Object) error {
	for _, o := range p.Named(kind, name) {
		for _, t := range targets {
			if a, b := o.File.Environment, t.File.Environment; a == b || a == "" || b == "" {
				return refused("choose another name", "%s: there is a %s %q already", o.Position(), kind, name)
			}
		}
	}
	return nil
}

// checkShared returns an error if what environments share refers to an object that is renamed in one of them alone.
func (p *Platform) checkShared(kind, name, environment string, targets []*Object, references []reference) error {
	if environment == "" || len(p.Named(kind, name)) == len(targets) {
		return nil
	}
	for _, r := range references {
		if r.file.Environment == "" && !r.own {
			return refused("leave out -e to rename it in all environments", "%s: %s is shared, and other environments have a %s %q as well", r.position(), r.text, kind, name)
		}
	}
	return nil
}

// moveFile returns the move of a file that is called like its only object.
func (p *Platform) moveFile(o *Object, from, to string) (FileMove, bool) {
	base, ext := path.Base(o.File.Name), path.Ext(o.File.Name)
	for _, other := range p.Objects {
		if other != o && other.File == o.File {
			return FileMove{}, false
		}
	}
	return FileMove{From: o.File.Name, To: path.Join(path.Dir(o.File.Name), to+ext)}, base == from+ext
}

// moveFolder renames the folder of an environment that is called like it, and the path that leads to it.
func (p *Platform) moveFolder(o *Object, from, to string, changes *rewriting) []FileMove {
	e, err := p.Environment(from)
	n := yamltext.Lookup(o.node, "spec", "controlPlane", "path")
	if err != nil || e.Folder == "" || path.Base(e.Folder) != from {
		return nil
	}
	written := yamltext.Resolve(n).Value
	at := strings.LastIndex(written, from)
	changes.add(reference{file: o.File, node: n, renamed: written[:at] + to + written[at+len(from):], text: fmt.Sprintf("Environment %q: spec.controlPlane.path", from)})
	return []FileMove{{From: e.Folder, To: path.Join(path.Dir(e.Folder), to)}}
}

// renameNotes lists the consequences of another name beyond the folder.
func renameNotes(kind string, p *Platform) []string {
	var notes []string
	switch kind {
	case "ClusterType", "Environment":
		notes = append(notes, "agents ask for the old name until they are told otherwise: see wherry-agent rebind")
	case "Platform":
		notes = append(notes, "agents refuse releases of another platform than the one that they are configured for")
	case "ConfigMap":
		notes = append(notes, "ConfigMaps count in the order of their names, so another name can change which value wins: see wherry plan")
	}
	if kind == "Environment" || kind == "Workload" {
		notes = append(notes, "repositories of app teams are not looked at: their deployment targets and dependencies have to follow")
	}
	if bases := p.Names("BaseRepo"); len(bases) > 0 && len(p.Environments) == 0 {
		notes = append(notes, "bases in git are not looked at: "+strings.Join(bases, ", "))
	}
	for _, e := range p.Environments {
		if e.Folder == "" && kind != "Environment" {
			return append(notes, "environments on other branches are not looked at: "+e.Name+" is on branch "+e.Branch)
		}
	}
	return notes
}

// rewriting collects other values for scalars, by file.
type rewriting struct {
	platform *Platform
	values   map[*File]map[*yaml.Node]string
	edits    []Edit
}

func newRewriting(p *Platform) *rewriting {
	return &rewriting{platform: p, values: map[*File]map[*yaml.Node]string{}}
}

func (w *rewriting) add(r reference) {
	if w.values[r.file] == nil {
		w.values[r.file] = map[*yaml.Node]string{}
	}
	w.values[r.file][r.node] = r.renamed
	w.edits = append(w.edits, Edit{r.position(), r.text})
}

func (w *rewriting) write() ([]FileChange, error) {
	slices.SortStableFunc(w.edits, func(a, b Edit) int { return a.Position.Compare(b.Position) })
	var changes []FileChange
	for _, f := range append(slices.Clone(w.platform.Files), w.platform.Settings) {
		if values := w.values[f]; len(values) > 0 {
			after, err := f.text.Replace(values)
			if err != nil {
				return nil, byHand(f, err)
			}
			changes = append(changes, FileChange{Name: f.Name, Before: f.Data, After: after})
		}
	}
	return changes, nil
}

// byHand gives an error about text that cannot be changed its place.
func byHand(f *File, err error) error {
	at := finding.Position{File: f.shown}
	if h := (*yamltext.HardError)(nil); errors.As(err, &h) {
		at.Line = h.Line
	}
	return wrong("change it by hand", "%s: %w", at, err)
}
