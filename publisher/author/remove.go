package author

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Remove returns the plan that removes an object, and its file if that has no other. What anything refers to is not removed:
// the error lists each reference with its place.
func (p *Platform) Remove(ctx context.Context, kind, name, environment string) (*Plan, error) {
	found, err := p.Find(kind, name, environment, false)
	if err != nil {
		return nil, err
	}
	o := found[0]
	if o.inList {
		return nil, p.inList(o)
	}
	if err := p.unused(o); err != nil {
		return nil, err
	}
	after, err := o.File.text.Remove(o.document)
	if err != nil {
		return nil, byHand(o.File, err)
	}
	plan := &Plan{Edits: []Edit{{o.Position(), fmt.Sprintf("%s %q", kind, name)}}, Notes: removeNotes(kind, p)}
	plan.Changes = []FileChange{{Name: o.File.Name, Before: o.File.Data, After: after}}
	return plan, p.check(ctx, plan)
}

// unused returns an error if anything refers to o, or lies in its folder.
func (p *Platform) unused(o *Object) error {
	var users []string
	for _, r := range p.references(o.Kind, o.Name, o.Name+"-", []*Object{o}) {
		if r.own || r.file.Environment == "" && p.hasTwin(o) {
			continue // it goes with the object, or means another one as well
		}
		users = append(users, fmt.Sprintf("%s: %s", r.position(), r.text))
	}
	if e, err := p.Environment(o.Name); o.Kind == "Environment" && err == nil && e.Folder != "" {
		for _, other := range p.Objects {
			if other.File.Environment == e.Name {
				users = append(users, fmt.Sprintf("%s: %s %q", other.Position(), other.Kind, other.Name))
			}
		}
	}
	if len(users) == 0 {
		return nil
	}
	slices.Sort(users)
	hint := "change or remove these first"
	if o.Kind == "Environment" {
		hint = "change or remove these first; its folder goes as any other, by git rm -r"
	}
	return refused(hint, "%s: %s %q is in use:\n%s", o.Position(), o.Kind, o.Name, strings.Join(users, "\n"))
}

// hasTwin reports whether another environment has an object of this kind and name.
func (p *Platform) hasTwin(o *Object) bool { return len(p.Named(o.Kind, o.Name)) > 1 }

func removeNotes(kind string, p *Platform) []string {
	notes := renameNotes(kind, p)
	notes = slices.DeleteFunc(notes, func(n string) bool { return !strings.HasSuffix(strings.SplitN(n, ":", 2)[0], "are not looked at") })
	if kind == "ClusterType" || kind == "SchedulingPolicy" || kind == "Workload" || kind == "WorkloadRegistration" {
		notes = append(notes, "assignments that end are deleted on clusters with the next release: see wherry plan")
	}
	return notes
}

// FolderOf returns the folder in which most objects of a kind lie, in an environment or, if it is empty, in what
// environments share. It is empty if there are none.
func (p *Platform) FolderOf(kind, environment string) string {
	number := map[string]int{}
	best := ""
	for _, o := range p.Named(kind, "") {
		if dir := path.Dir(o.File.Name); o.File.Environment == environment {
			if number[dir]++; number[dir] > number[best] {
				best = dir
			}
		}
	}
	return best
}
