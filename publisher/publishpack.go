package publisher

import (
	"cmp"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// packAssignments makes the tree: a folder per assignment with its non-empty files, and the list.
func packAssignments(assignments []scheduler.Assignment, held []heldContent) (*bundle.Packed, error) {
	var files []bundle.File
	var list []bundle.Assignment
	for _, h := range held {
		list = append(list, h.line)
		for _, f := range h.files {
			f.Path = h.line.Name + "/" + f.Path
			files = append(files, f)
		}
	}
	for _, a := range assignments {
		var own []bundle.File
		for _, f := range a.Files {
			if len(f.Data) > 0 {
				own = append(own, bundle.File{Path: f.Path, Data: f.Data})
				files = append(files, bundle.File{Path: a.Name + "/" + f.Path, Data: f.Data})
			}
		}
		list = append(list, listed(a, own))
	}
	slices.SortFunc(list, func(a, b bundle.Assignment) int { return cmp.Compare(a.Name, b.Name) })
	data, err := bundle.MarshalAssignments(list)
	if err != nil {
		return nil, err
	}
	return bundle.Pack(append(files, bundle.File{Path: bundle.AssignmentsPath, Data: data}))
}

// listed leaves out where a ConfigMap stands: a tree must not change because a platform was read from
// another folder, or a comment was added above.
func listed(a scheduler.Assignment, files []bundle.File) bundle.Assignment {
	l := bundle.Assignment{
		Name: a.Name, Workspace: a.Workspace, Registration: a.Registration, Workload: a.Workload, Target: a.Target, Namespace: a.Namespace,
		Policies: a.Policies, ConfigDigest: a.ConfigDigest, Adapter: a.Adapter, Content: bundle.ContentDigest(files),
		Wave: a.Wave, DependsOn: a.DependsOn, Drift: a.Drift, OnFailure: a.OnFailure, OnRemove: a.OnRemove, Health: a.Health,
	}
	for _, c := range a.Config {
		l.Config = append(l.Config, bundle.ConfigSource{Name: c.Name})
	}
	return l
}
