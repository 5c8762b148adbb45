package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// configFile holds the fields of a file that are settings.
type configFile struct {
	path   string
	values map[string]fileValue // by field
}

type fileValue struct {
	texts []string
	line  int
}

// readConfigFile reads a YAML mapping. Fields that are no setting are errors, with their line.
func readConfigFile(path string, known []Setting) (configFile, error) {
	f := configFile{path: path, values: map[string]fileValue{}}
	r, err := diskfile.Open(path)
	if err != nil {
		return f, fmt.Errorf("configuration: %w", err)
	}
	defer r.Close()
	var doc yaml.Node
	dec := yaml.NewDecoder(io.LimitReader(r, maxConfigBytes))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return f, nil // an empty file
	}
	fields := map[string]Setting{}
	for _, s := range known {
		fields[s.Field] = s
	}
	return f, f.read(doc.Content[0], "", fields)
}

// read takes the fields of a mapping, which lies in the field prefix.
func (f configFile) read(n *yaml.Node, prefix string, fields map[string]Setting) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: %s holds no fields", f.path, n.Line, orFile(prefix))
	}
	var problems []error
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := strings.TrimPrefix(prefix+"."+key.Value, ".")
		s, known := fields[field]
		switch {
		case known && f.values[field].line > 0:
			problems = append(problems, fmt.Errorf("%s:%d: field %s is there twice", f.path, key.Line, field))
		case known:
			texts, err := textsOf(value, s)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s:%d: %s (also --%s, %s): %w", f.path, value.Line, field, s.Flag, s.Variable(), s.refusal(value.Value, err)))
			}
			f.values[field] = fileValue{texts, key.Line}
		case strings.HasSuffix("."+field, ".allowExpired"):
			problems = append(problems, fmt.Errorf("%s:%d: %s: %w: %s", f.path, key.Line, field, errNotSettable, allowExpiredHint))
		case hasBelow(fields, field):
			problems = append(problems, f.read(value, field, fields))
		default:
			problems = append(problems, fmt.Errorf("%s:%d: unknown field %s%s", f.path, key.Line, field, suggestion(field, prefix, fields)))
		}
	}
	return errors.Join(problems...)
}

// textsOf returns a scalar, a list of items, one item, or a mapping as KEY=VALUE.
func textsOf(n *yaml.Node, s Setting) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && s.List:
		var texts []string
		for _, item := range n.Content {
			text, err := textOf(item, s)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		return texts, nil
	case n.Kind == yaml.MappingNode && s.parts != nil:
		text, err := textOf(n, s)
		return []string{text}, err
	case n.Kind == yaml.MappingNode && s.List:
		var texts []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return nil, errors.New("the mapping holds more than plain values")
			}
			texts = append(texts, n.Content[i].Value+"="+n.Content[i+1].Value)
		}
		return texts, nil
	}
	return nil, errors.New("must be a plain value")
}

// textOf returns an item of a list: a scalar, or the values of a mapping's fields in their order.
func textOf(n *yaml.Node, s Setting) (string, error) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind != yaml.MappingNode || s.parts == nil:
		return "", errors.New("the list holds more than plain values")
	}
	values := make([]string, len(s.parts))
	for i := 0; i+1 < len(n.Content); i += 2 {
		at := slices.Index(s.parts, n.Content[i].Value)
		if at < 0 || n.Content[i+1].Kind != yaml.ScalarNode || n.Content[i+1].Value == "" || values[at] != "" {
			return "", fmt.Errorf("line %d: an item has the fields %s, each once and with a plain value", n.Content[i].Line, strings.Join(s.parts, ", "))
		}
		values[at] = n.Content[i+1].Value
	}
	if last := len(values) - 1; slices.Contains(values[:last], "") {
		return "", fmt.Errorf("line %d: an item needs the fields %s", n.Line, strings.Join(s.parts[:last], " and "))
	}
	return strings.TrimSpace(strings.Join(values, " ")), nil
}

func hasBelow(fields map[string]Setting, field string) bool {
	for name := range fields {
		if strings.HasPrefix(name, field+".") {
			return true
		}
	}
	return false
}

// maxFieldsListed bounds how many fields an error lists.
const maxFieldsListed = 8

// suggestion returns the fields that an unknown field in the field prefix may stand for: the nearest of all, else those
// beside it if they are few.
func suggestion(field, prefix string, fields map[string]Setting) string {
	known := slices.Sorted(maps.Keys(fields))
	best := show.Nearest(field, known)
	if best == "" { // or a field of the same name somewhere else, or under the name of its flag
		for _, name := range known {
			last := name[strings.LastIndex(name, ".")+1:]
			if word := field[strings.LastIndex(field, ".")+1:]; strings.EqualFold(word, last) || word == fields[name].Flag {
				best = name
			}
		}
	}
	if best != "" {
		return fmt.Sprintf(": did you mean %s?", best)
	}
	if beside := siblings(prefix, known); len(beside) <= maxFieldsListed {
		return " (known: " + strings.Join(beside, ", ") + ")"
	}
	return ""
}

// siblings names the fields that may stand in the field prefix.
func siblings(prefix string, known []string) []string {
	if prefix != "" {
		prefix += "."
	}
	var names []string
	for _, field := range known {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}

func orFile(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return prefix
}
