package render

import (
	"fmt"
	"strings"
	"text/template/parse"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// twiceError is about a key that a mapping has twice.
type twiceError struct{ key *yaml.Node }

func (e *twiceError) Error() string { return fmt.Sprintf("the key %q is given twice", e.key.Value) }

// keyTwice returns the first key that a mapping of a document has twice; nil if there is none. A key may override a merged one.
func keyTwice(document string) *yaml.Node {
	var n yaml.Node
	if yaml.Unmarshal([]byte(document), &n) != nil {
		return nil
	}
	return twiceIn(&n)
}

func twiceIn(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind == yaml.ScalarNode && seen[key.Value] {
				return key
			}
			seen[key.Value] = true
		}
	}
	for _, below := range n.Content { // of an alias there is none
		if key := twiceIn(below); key != nil {
			return key
		}
	}
	return nil
}

// refuseTwice returns the error about a key that is twice in a document of what a template gave.
func (p *composed) refuseTwice(name, rendered, document string, key *yaml.Node, varied func(string) bool) error {
	before, _, _ := strings.Cut(rendered, strings.TrimSpace(document))
	line := strings.Count(before, "\n") + key.Line
	at := finding.Position{File: inside(name), Line: p.lineOf(name, rendered, line, varied)}
	where := ""
	if at.Line == 0 {
		where = fmt.Sprintf(", in line %d of what the template gives", line)
	}
	return finding.Errorf("", at, "agents and engines refuse that, where Helm alone takes the last one: remove one of them", "the key %q is given twice%s", key.Value, where)
}

// The number of a line is between these in the output of a template whose lines are marked. No template has them: they are no
// characters.
const beginLine, endLine = "\U0010fffe", "\U0010ffff"

// lineOf returns the line of a template by which a line of its output begins; 0 if that is not known. For it the template is rendered
// again, with its lines marked.
func (p *composed) lineOf(name, rendered string, line int, varied func(string) bool) (found int) {
	template := templateOf(p.chart, name)
	if template == nil {
		return 0
	}
	text := template.Data
	template.Data = []byte(markLines(name, string(text)))
	marked, _, err := p.once(varied)
	if template.Data = text; err != nil {
		return 0
	}
	plain, at, begun := strings.Builder{}, 1, "" // the output without marks so far, its lines, and the begin of the last one
	for i, part := range strings.Split(marked[name], beginLine) {
		if i > 0 {
			number, rest, _ := strings.Cut(part, endLine)
			if part = rest; at < line || at == line && strings.TrimSpace(begun) == "" {
				found = atoi(number)
			}
		}
		plain.WriteString(part)
		at += strings.Count(part, "\n")
		if begun += part; strings.Contains(part, "\n") {
			begun = part[strings.LastIndexByte(part, '\n')+1:]
		}
	}
	if plain.String() != rendered {
		return 0
	}
	return found
}

func templateOf(c *helm.Chart, name string) *common.File {
	for _, t := range c.Templates {
		if c.ChartFullPath()+"/"+t.Name == name {
			return t
		}
	}
	for _, below := range c.Dependencies() {
		if t := templateOf(below, name); t != nil {
			return t
		}
	}
	return nil
}

// markLines returns the text of a template with marks before all that it writes by itself, and not by another template. What another
// one gives has the line that includes it.
func markLines(name, text string) string {
	parsed := parse.New(name)
	parsed.Mode = parse.SkipFuncCheck
	if _, err := parsed.Parse(text, "", "", map[string]*parse.Tree{}); err != nil {
		return text
	}
	marks := map[int]string{}
	line, counted := 1, 0 // of the text before the last mark
	mark := func(at int, format string) {
		if at < counted {
			line, counted = 1, 0
		}
		line, counted = line+strings.Count(text[counted:at], "\n"), at
		marks[at] = fmt.Sprintf(format, fmt.Sprint(beginLine, line, endLine))
	}
	var walk func(*parse.ListNode)
	branch := func(n *parse.BranchNode) {
		walk(n.List)
		walk(n.ElseList)
	}
	action := func(pos parse.Pos) {
		begin := strings.LastIndex(text[:pos], "{{")
		if begin < 0 {
			return
		}
		if strings.HasPrefix(text[begin:], "{{-") {
			mark(begin, "{{- %q }}")
		} else {
			mark(begin, "%s")
		}
	}
	walk = func(list *parse.ListNode) {
		if list == nil {
			return
		}
		for _, n := range list.Nodes {
			switch n := n.(type) {
			case *parse.TextNode:
				mark(int(n.Pos), "%s")
				for i, c := range n.Text {
					if c == '\n' {
						mark(int(n.Pos)+i+1, "%s")
					}
				}
			case *parse.ActionNode:
				action(n.Pos)
			case *parse.TemplateNode:
				action(n.Pos)
			case *parse.IfNode:
				branch(&n.BranchNode)
			case *parse.WithNode:
				branch(&n.BranchNode)
			case *parse.RangeNode:
				branch(&n.BranchNode)
			}
		}
	}
	walk(parsed.Root)
	var all strings.Builder
	from := 0
	for at := range text {
		if m, ok := marks[at]; ok {
			all.WriteString(text[from:at] + m)
			from = at
		}
	}
	return all.String() + text[from:]
}
