package diff

import (
	"bytes"
	"maps"
	"slices"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/textdiff"
	"github.com/wherry-dev/wherry/scheduler"
)

// TreeOf returns rendered assignments as the tree of their bundle would have them.
func TreeOf(assignments []scheduler.Assignment) *Tree {
	all := map[string]map[string][]byte{}
	t := &Tree{Read: func(a bundle.Assignment) (map[string][]byte, error) { return all[a.Name], nil }}
	for _, a := range assignments {
		files := filesOf(a)
		t.Listed = append(t.Listed, pack.Line(a, files))
		if from := pack.SourcesOf(a); len(from) > 0 {
			t.Sources = append(t.Sources, bundle.AssignmentSources{Assignment: a.Name, Sources: from})
		}
		all[a.Name] = map[string][]byte{}
		for _, f := range files {
			all[a.Name][f.Path] = f.Data
		}
	}
	return t
}

// Between returns the assignments in which two trees differ, sorted by name, and how many are the same. With patches, each
// file that differs has its difference as a text. Causes are not known. Values that look like secrets are masked.
func Between(old, now *Tree, patches bool) (changes []AssignmentDifference, unchanged int, err error) {
	before, after := byName(old.Listed), byName(now.Listed)
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, there := before[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	changes = []AssignmentDifference{}
	for _, name := range names {
		was, had := before[name]
		is, has := after[name]
		d := AssignmentDifference{Name: name, Change: ChangeChanged, Workspace: is.Workspace}
		switch {
		case !had:
			d.Change = ChangeAdded
		case !has:
			d.Change, d.Workspace = ChangeRemoved, was.Workspace
		default:
			if d.Fields = compareFields(was, is); len(d.Fields) == 0 && was.Content == is.Content {
				unchanged++
				continue
			}
		}
		if err := d.fill(old, now, was, is, patches); err != nil {
			return nil, 0, err
		}
		changes = append(changes, d)
	}
	return changes, unchanged, nil
}

func byName(all []bundle.Assignment) map[string]bundle.Assignment {
	m := make(map[string]bundle.Assignment, len(all))
	for _, a := range all {
		m[a.Name] = a
	}
	return m
}

// fill adds what differs in the files of an assignment, of which was and is are the lines in the two trees.
func (d *AssignmentDifference) fill(old, now *Tree, was, is bundle.Assignment, patches bool) error {
	var before, after map[string][]byte
	var err error
	if d.Change != ChangeAdded {
		before, err = old.Read(was)
	}
	if err == nil && d.Change != ChangeRemoved {
		after, err = now.Read(is)
	}
	if err != nil {
		return err
	}
	var files []bundle.File
	for name, data := range after {
		files = append(files, bundle.File{Path: name, Data: data})
	}
	for _, name := range unionOf(before, files) {
		a, b := before[name], after[name]
		f := FileDifference{Path: name, Change: ChangeChanged}
		switch {
		case bytes.Equal(a, b):
			continue
		case a == nil:
			f.Change = ChangeAdded
		case b == nil:
			f.Change = ChangeRemoved
		}
		if patches {
			f.Patch, f.PatchLeft = textdiff.Unified(maskedLines(name, a), maskedLines(name, b), maxPatchLines)
		}
		d.Files = append(d.Files, f)
		if d.Change == ChangeChanged {
			values, _ := compareValues(name, a, b)
			d.Values = append(d.Values, values...)
		}
	}
	if d.Change == ChangeChanged {
		d.restarts(was, is, before, files, false)
		d.sources(old.sourcesOf(d.Name), now.sourcesOf(d.Name))
	}
	return nil
}

// maxPatchLines bounds the difference of one file, in lines.
const maxPatchLines = 2000

// plainLines returns the lines of a text, each as it is compared and shown.
func plainLines(data []byte) []textdiff.Line {
	if len(data) == 0 {
		return nil
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return []textdiff.Line{{Text: "(no text)", Key: string(data)}}
	}
	return textdiff.Lines(string(data))
}
