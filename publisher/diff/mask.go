package diff

import (
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/textdiff"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// maskedLines returns the lines of a file, in which values that look like secrets are masked. They are found in YAML and in
// lists of exports by their keys, and in any line by its form. The lines are compared as they are.
func maskedLines(file string, data []byte) []textdiff.Line {
	lines := plainLines(data)
	for i, l := range lines {
		lines[i].Key = "=" + l.Text
		if l.Text != "(no text)" && show.LooksSecret("", l.Text) {
			lines[i].Text = maskAfter(l.Text)
		}
	}
	switch {
	case path.Ext(file) == ".sh":
		maskExports(lines)
	case strings.Contains(string(data), "PRIVATE KEY-----"):
		maskAll(lines)
	default:
		if !maskYAML(lines, data) {
			return lines
		}
	}
	return lines
}

// maskAfter masks what follows the first separator of a line, or all but its indentation.
func maskAfter(line string) string {
	if i := strings.IndexAny(line, ":="); i >= 0 && !strings.HasPrefix(line[i:], "://") {
		return line[:i+1] + " " + show.Masked
	}
	return indentation(line) + show.Masked
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

func maskAll(lines []textdiff.Line) {
	for i := range lines {
		lines[i].Text = indentation(lines[i].Text) + show.Masked
	}
}

// maskExports masks the lines of an environment file. Values may go on over several lines.
func maskExports(lines []textdiff.Line) {
	begin, key, text := 0, "", ""
	end := func(to int) {
		if key != "" && show.LooksSecret(key, strings.Trim(text, `"`)) {
			lines[begin].Text = "export " + key + "=" + show.Masked
			maskAll(lines[begin+1 : to])
		}
	}
	for i := range lines {
		line := lines[i].Key[1:]
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !strings.HasPrefix(line, "export ") || !ok {
			text += "\n" + line
			continue
		}
		end(i)
		begin, key, text = i, name, value
	}
	end(len(lines))
}

// maskYAML masks the lines of values that look like secrets. It returns false if data is no YAML.
func maskYAML(lines []textdiff.Line, data []byte) bool {
	var all []leaf
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var root yaml.Node
		err := documents.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false
		}
		if len(root.Content) != 1 {
			continue
		}
		d := document{node: root.Content[0]}
		all = append(all, leavesOf(d)...)
	}
	slices.SortStableFunc(all, func(a, b leaf) int { return a.line - b.line })
	masked := 0 // the last line that is masked from a value on
	for i, l := range all {
		if !l.secret || l.line == masked {
			continue
		}
		masked = l.line
		end := len(lines) // the lines up to the next node are the value's
		if i+1 < len(all) {
			end = max(all[i+1].line-1, l.line)
		}
		for n := l.line - 1; n < min(end, len(lines)); n++ {
			text := lines[n].Key[1:]
			switch {
			case n > l.line-1 && (text == "---" || text == "..."):
				n = end
			case n == l.line-1:
				runes := []rune(text)
				lines[n].Text = string(runes[:min(l.column-1, len(runes))]) + show.Masked
			default:
				lines[n].Text = indentation(text) + show.Masked
			}
		}
	}
	return true
}

// leaf is the place of a node of a YAML file: a single value, or a key.
type leaf struct {
	line, column int
	secret       bool
}

// leavesOf returns the places of the keys and single values of a document, and which of the values look like secrets.
func leavesOf(d document) []leaf {
	var all []leaf
	isSecret := kinds.Field(d.node, "kind").Value == "Secret"
	var walk func(n *yaml.Node, where, top string)
	walk = func(n *yaml.Node, where, top string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i]
				all = append(all, leaf{line: key.Line, column: key.Column})
				below := strings.TrimPrefix(where+"."+key.Value, ".")
				inside := top
				if where == "" || where == "data" { // the keys of configuration
					inside = key.Value
				}
				walk(n.Content[i+1], below, inside)
			}
		case yaml.SequenceNode:
			for i, item := range namesOfItems(n.Content) {
				walk(n.Content[i], where+"["+item+"]", top)
			}
		case yaml.ScalarNode:
			hidden := show.LooksSecret(where, n.Value) || show.LooksSecret(top, n.Value) ||
				isSecret && (strings.HasPrefix(where, "data.") || strings.HasPrefix(where, "stringData."))
			eachLeaf(structure(n), func(sub, text string) { hidden = hidden || sub != "" && show.LooksSecret(sub, text) })
			all = append(all, leaf{n.Line, n.Column, hidden})
		}
	}
	walk(d.node, "", "")
	return all
}
