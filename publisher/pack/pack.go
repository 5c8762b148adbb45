// Package pack makes the tree of a bundle of rendered assignments.
//
// [Tree] packs a cluster type, and a [Packer] takes it from a cache where nothing has changed, also while other types are
// still being rendered. [Deltas] leads to it from earlier trees. The same assignments give the same bytes.
package pack

import (
	"cmp"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/scheduler"
)

// Tree makes the tree: a folder per assignment with its non-empty files, the list of assignments,
// the list of artifacts that they need from outside, and that of the sources of embedded files. More are files beside them,
// such as those of SiteFiles.
func Tree(assignments []scheduler.Assignment, held []Held, more ...bundle.File) (*bundle.Packed, bundle.Artifacts, error) {
	b, err := tree(new(artifacts.Finder), assignments, held, more)
	return b.Tree, b.Artifacts, err
}

func tree(find *artifacts.Finder, assignments []scheduler.Assignment, held []Held, more []bundle.File) (Bundle, error) {
	files := slices.Clone(more)
	var list []bundle.Assignment
	var from []bundle.AssignmentSources
	needs, unlisted := find.Find(assignments)
	workloads := newNeeds(assignments, needs)
	for _, h := range held {
		list = append(list, h.Line)
		needs = append(needs, h.Artifacts...)
		if len(h.Sources) > 0 {
			from = append(from, bundle.AssignmentSources{Assignment: h.Line.Name, Sources: h.Sources})
		}
		for _, f := range h.Files {
			f.Path = h.Line.Name + "/" + f.Path
			files = append(files, f)
		}
	}
	for i, a := range assignments {
		if _, err := artifacts.Fetched(&a); err != nil {
			return Bundle{}, err
		}
		var own []bundle.File
		for _, f := range a.Files {
			if len(f.Data) > 0 {
				own = append(own, bundle.File{Path: f.Path, Data: f.Data})
				files = append(files, bundle.File{Path: a.Name + "/" + f.Path, Data: f.Data})
			}
		}
		line := Line(a, own)
		line.Floating = unlisted[i]
		list = append(list, line)
		if len(a.Sources) > 0 {
			from = append(from, bundle.AssignmentSources{Assignment: a.Name, Sources: SourcesOf(a)})
		}
	}
	slices.SortFunc(list, func(a, b bundle.Assignment) int { return cmp.Compare(a.Name, b.Name) })
	data, err := bundle.MarshalAssignments(list)
	if err != nil {
		return Bundle{}, err
	}
	files = append(files, bundle.File{Path: bundle.AssignmentsPath, Data: data})
	data, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts(needs))
	if err != nil {
		return Bundle{}, err
	}
	if len(data) > 0 {
		files = append(files, bundle.File{Path: bundle.ArtifactsPath, Data: data})
	}
	if len(from) > 0 {
		slices.SortFunc(from, func(a, b bundle.AssignmentSources) int { return cmp.Compare(a.Assignment, b.Assignment) })
		if data, err = bundle.MarshalSources(from); err != nil {
			return Bundle{}, err
		}
		files = append(files, bundle.File{Path: bundle.SourcesPath, Data: data})
	}
	packed, err := bundle.Pack(files)
	return Bundle{packed, sum, workloads}, err
}

// Line returns the line of the bundle for an assignment with these files. It leaves out where a ConfigMap stands: a tree must not change because a platform was read from
// another folder, or a comment was added above.
func Line(a scheduler.Assignment, files []bundle.File) bundle.Assignment {
	l := bundle.Assignment{
		Name: a.Name, Workspace: a.Workspace, Registration: a.Registration, Workload: a.Workload, Target: a.Target, Namespace: a.Namespace,
		ServiceAccount: a.ServiceAccount,
		Policies:       a.Policies, ConfigDigest: a.ConfigDigest, Adapter: a.Adapter, Content: bundle.ContentDigest(files),
		Version: a.Version, Application: a.Application,
		Wave: a.Wave, DependsOn: a.DependsOn, Drift: a.Drift, OnFailure: a.OnFailure, OnRemove: a.OnRemove, Health: a.Health, RestartOnConfig: a.RestartOnConfig,
		SiteValues: a.SiteValues, Delivery: a.Delivery, Carry: a.Carry,
	}
	l.Fetched, _ = artifacts.Fetched(&a) // the annotation was checked before
	for _, c := range a.Config {
		l.Config = append(l.Config, bundle.ConfigSource{Name: c.Name})
	}
	return l
}

// SourcesOf returns where the embedded files of an assignment came from, as the bundle lists it.
func SourcesOf(a scheduler.Assignment) []bundle.ContentSource {
	list := make([]bundle.ContentSource, len(a.Sources))
	for i, s := range a.Sources {
		list[i] = bundle.ContentSource{Type: s.Type, Name: s.Name, Revision: s.Revision, Path: s.Path, Chart: s.Chart, Version: s.Version, Files: s.Files}
	}
	return list
}

// Held is an assignment that is published as an earlier release has it.
type Held struct {
	Line      bundle.Assignment
	Files     []bundle.File
	Artifacts []bundle.Artifact
	Sources   []bundle.ContentSource
}
