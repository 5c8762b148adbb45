package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/scheduler"
)

// changed compares an assignment with its earlier state; it returns nil if both are the same.
func (c *Comparison) changed(ctx context.Context, a scheduler.Assignment, was bundle.Assignment, old *Tree) (*AssignmentDifference, error) {
	files := filesOf(a)
	now := pack.Line(a, files)
	d := &AssignmentDifference{Name: a.Name, Change: ChangeChanged, Workspace: a.Workspace}
	if !old.namesOnly {
		if d.Fields = compareFields(was, now); len(d.Fields) == 0 && was.Content == now.Content {
			return nil, nil
		}
	}
	before, err := old.Read(was)
	if err != nil {
		return nil, err
	}
	from := old.sourcesOf(a.Name)
	for _, name := range unionOf(before, files) {
		if err := c.file(ctx, d, a, name, before[name], files, from); err != nil {
			return nil, err
		}
	}
	if len(d.Files)+len(d.Fields) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(d.Files, func(f FileDifference) bool { return isEmbedded(f.Path) }) {
		d.sources(from, sourcesNow(a))
	}
	d.restarts(was, now, before, files, old.namesOnly)
	return d, nil
}

// filesOf lists the files that a bundle holds of an assignment.
func filesOf(a scheduler.Assignment) []bundle.File {
	var files []bundle.File
	for _, f := range a.Files {
		if len(f.Data) > 0 {
			files = append(files, bundle.File{Path: f.Path, Data: f.Data})
		}
	}
	return files
}

func unionOf(before map[string][]byte, files []bundle.File) []string {
	var all []string
	for name := range before {
		all = append(all, name)
	}
	for _, f := range files {
		all = append(all, f.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// file compares one file and adds what differs to d.
func (c *Comparison) file(ctx context.Context, d *AssignmentDifference, a scheduler.Assignment, name string, before []byte, files []bundle.File, from []bundle.ContentSource) error {
	var after []byte
	for _, f := range files {
		if f.Path == name {
			after = f.Data
		}
	}
	f := FileDifference{Path: name, Change: ChangeChanged}
	switch {
	case bytes.Equal(before, after):
		return nil
	case before == nil:
		f.Change = ChangeAdded
	case after == nil:
		f.Change = ChangeRemoved
	}
	if t := c.explain.Template(a.ClusterType, name); t.Name != "" {
		f.Because = []Cause{{"Template", t}}
	}
	if isEmbedded(name) {
		f.Because = embeddedCause(from, sourcesNow(a), name)
	}
	d.Files = append(d.Files, f)
	values, _ := compareValues(name, before, after)
	for i := range values {
		if values[i].Because = f.Because; isEmbedded(name) {
			continue
		}
		if err := c.origin(ctx, a, &values[i]); err != nil {
			return err
		}
	}
	d.Values = append(d.Values, values...)
	return nil
}

// maxCauses bounds the ConfigMaps that are named for a value which has gone.
const maxCauses = 3

// origin sets the cause of a value, if a better one than the Template is known: the ConfigMap of a configuration value,
// or the Workload of a value in its target's manifests.
func (c *Comparison) origin(ctx context.Context, a scheduler.Assignment, v *ValueDifference) error {
	if v.configKey == "" {
		if at, ok := c.explain.Manifest(a.Name, v.New); ok {
			v.Because = []Cause{{"Workload", scheduler.Named{Name: a.Workload, Position: at}}}
		}
		return nil
	}
	x, err := c.explain.Config(ctx, a.ClusterType, a.Name, v.configKey)
	if err != nil {
		return err
	}
	if v.Because = nil; !x.Set {
		for _, g := range x.Others[:min(len(x.Others), maxCauses)] {
			v.Because = append(v.Because, Cause{"ConfigMap", g.Named})
		}
		return nil
	}
	last := x.Given[len(x.Given)-1].Named
	for _, part := range x.Parts {
		if part.Path == v.configSub {
			last = part.Named
		}
	}
	v.Because = []Cause{{"ConfigMap", last}}
	return nil
}

// compareFields lists the fields in which two assignments of a bundle differ, except for the content, which is compared
// file by file, and the digest of the configuration, which follows from the files.
func compareFields(was, now bundle.Assignment) []FieldDifference {
	was.Content, now.Content, was.ConfigDigest, now.ConfigDigest = "", "", "", ""
	before, after := fieldsOf(was), fieldsOf(now)
	var all []FieldDifference
	for name := range after {
		if _, there := before[name]; !there {
			before[name] = nil
		}
	}
	for name, old := range before {
		if !bytes.Equal(old, after[name]) {
			all = append(all, FieldDifference{Field: name, Old: old, New: after[name]})
		}
	}
	slices.SortFunc(all, func(a, b FieldDifference) int { return strings.Compare(a.Field, b.Field) })
	return all
}

func fieldsOf(a bundle.Assignment) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	data, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		panic(err) // the struct is our own
	}
	return fields
}
