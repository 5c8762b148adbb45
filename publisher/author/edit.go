package author

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Setting is one change of a value: PATH=VALUE, or with Unset the removal of PATH.
type Setting struct {
	Path  yamltext.Path
	Value string
	Unset bool
}

// ParseSetting reads PATH=VALUE. A value is a text, or whatever else the field takes: a number, or a list as [a, b].
func ParseSetting(s string) (Setting, error) {
	depth := 0 // of brackets, in which = is part of a key
	for i, r := range s {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == '=' && depth == 0:
			path, err := yamltext.ParsePath(s[:i])
			if err != nil {
				return Setting{}, wrong("", "%w", err)
			}
			return Setting{Path: path, Value: s[i+1:]}, nil
		}
	}
	return Setting{}, wrong("such as --set spec.reconciler=flux", "%q has no =", s)
}

// Set returns the plan that changes values of an object.
func (p *Platform) Set(ctx context.Context, o *Object, settings []Setting) (*Plan, error) {
	if o.inList {
		return nil, p.inList(o)
	}
	plan := &Plan{}
	data := o.File.Data
	for _, s := range settings {
		if len(s.Path) == 2 && s.Path[0].Key == "metadata" && s.Path[1].Key == "name" {
			return nil, wrong(`"wherry rename" changes what refers to it too`, "a name is not set")
		}
		after, err := set(data, o, s)
		if err != nil {
			return nil, byHand(o.File, err)
		}
		data = after
		plan.Edits = append(plan.Edits, Edit{placeOf(data, o, s), fmt.Sprintf("%s %q: %s", o.Kind, o.Name, s.Path)})
	}
	plan.Changes = []FileChange{{Name: o.File.Name, Before: o.File.Data, After: data}}
	return plan, p.check(ctx, plan)
}

// Append returns the plan that adds an item, YAML of one line, to a list of an object. A list that is not there is made.
func (p *Platform) Append(ctx context.Context, o *Object, list yamltext.Path, value string) (*Plan, error) {
	if o.inList {
		return nil, p.inList(o)
	}
	data, err := o.File.text.Append(o.document, list, value)
	if err != nil {
		return nil, byHand(o.File, err)
	}
	plan := &Plan{Edits: []Edit{{placeOf(data, o, Setting{Path: list}), fmt.Sprintf("%s %q: %s", o.Kind, o.Name, list)}}}
	plan.Changes = []FileChange{{Name: o.File.Name, Before: o.File.Data, After: data}}
	return plan, p.check(ctx, plan)
}

// placeOf returns the place of a value that was set, and of the object for one that was removed.
func placeOf(data []byte, o *Object, s Setting) finding.Position {
	at := o.Position()
	if f, err := yamltext.Parse(data); err == nil && !s.Unset {
		if n := f.Find(o.document, s.Path); n != nil {
			at.Line = n.Line
		}
	}
	return at
}

// set changes one value. It is written as a text, unless the field takes no text and does take what the value is in YAML.
func set(data []byte, o *Object, s Setting) ([]byte, error) {
	f, err := yamltext.Parse(data)
	if err != nil {
		return nil, err
	}
	if s.Unset {
		return f.Unset(o.document, s.Path)
	}
	asText, err := f.Set(o.document, s.Path, s.Value, false)
	if err == nil && mistakesOf(asText, o) <= mistakesOf(data, o) {
		return asText, nil
	}
	if asYAML, err := f.Set(o.document, s.Path, s.Value, true); err == nil && mistakesOf(asYAML, o) <= mistakesOf(data, o) {
		return asYAML, nil
	}
	return asText, err
}

// mistakesOf counts the mistakes of an object's own fields.
func mistakesOf(data []byte, o *Object) int {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var n yaml.Node
	for range o.document + 1 {
		if n = (yaml.Node{}); decoder.Decode(&n) != nil || len(n.Content) != 1 {
			return 1 << 20
		}
	}
	return len(kinds.Decode(o.File.Name, n.Content[0], kinds.New(o.APIVersion, o.Kind), false).Errs)
}

// Replace returns the plan that gives an object another text. Line breaks are written as the file has them.
func (p *Platform) Replace(ctx context.Context, o *Object, text []byte) (*Plan, error) {
	if o.inList {
		return nil, p.inList(o)
	}
	if o.File.text.Newline() == "\r\n" {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	}
	from, to := o.File.text.Extent(o.document)
	if len(text) > 0 && to < len(o.File.Data) && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(slices.Clone(text), o.File.text.Newline()...)
	}
	after := slices.Concat(o.File.Data[:from], text, o.File.Data[to:])
	if _, err := yamltext.Parse(after); err != nil {
		return nil, syntaxError(o, after, err)
	}
	if err := sameObject(text, o); err != nil {
		return nil, err
	}
	plan := &Plan{Edits: []Edit{{o.Position(), fmt.Sprintf("%s %q", o.Kind, o.Name)}}}
	plan.Changes = []FileChange{{Name: o.File.Name, Before: o.File.Data, After: after}}
	return plan, p.check(ctx, plan)
}

// sameObject returns an error unless a text is one object of the kind and name of o.
func sameObject(data []byte, o *Object) error {
	f, err := yamltext.Parse(data)
	switch {
	case err != nil:
		return syntaxError(o, data, err)
	case len(f.Documents) != 1:
		return wrong("\"wherry new\" and \"wherry rm\" add and remove objects", "the text has %s, not one", count(len(f.Documents), "document"))
	case yamltext.Text(f.Documents[0], "apiVersion") != o.APIVersion || yamltext.Text(f.Documents[0], "kind") != o.Kind:
		return wrong("", "the object is no %s any more", o.Kind)
	case yamltext.Text(f.Documents[0], "metadata", "name") != o.Name:
		return wrong(fmt.Sprintf("\"wherry rename %s %s NEW\" changes what refers to it too", Word(o.Kind), o.Name), "the object is not called %q any more", o.Name)
	}
	return nil
}

func syntaxError(o *Object, data []byte, err error) error {
	line, text := yamltext.Mistake(data, err)
	return wrong("", "%s: %s", finding.Position{File: o.File.shown, Line: line}, text)
}

// Create returns the plan that adds new files.
func (p *Platform) Create(ctx context.Context, created map[string][]byte) (*Plan, error) {
	plan := &Plan{}
	for name, data := range created {
		plan.Changes = append(plan.Changes, FileChange{Name: name, After: data})
	}
	slices.SortFunc(plan.Changes, func(a, b FileChange) int { return strings.Compare(a.Name, b.Name) })
	return plan, p.check(ctx, plan)
}
