package migrate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"go.yaml.in/yaml/v3"
)

// maxRendered bounds a text that a template makes.
const maxRendered = 1 << 20

// render returns a node with all texts in it evaluated.
func (g *generators) render(n *yaml.Node, params map[string]any) (*yaml.Node, error) {
	return rendered(n, func(text string) (string, error) { return evaluate(text, params, g.goTemplate) })
}

// lenient is render for the second generator of a matrix; without parameters it changes nothing.
func (g *generators) lenient(n *yaml.Node, params map[string]any) (*yaml.Node, error) {
	if params == nil {
		return n, nil
	}
	return rendered(n, func(text string) (string, error) {
		if made, err := evaluate(text, params, g.goTemplate); err == nil {
			return made, nil
		}
		return text, nil // it may name the generator's own parameters
	})
}

func rendered(n *yaml.Node, evaluate func(string) (string, error)) (*yaml.Node, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	made := *n
	made.Anchor = ""
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "{{") {
		text, err := evaluate(n.Value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		made.Value, made.Tag, made.Style = text, "!!str", yaml.DoubleQuotedStyle
		return &made, nil
	}
	made.Content = nil
	for _, inner := range n.Content {
		one, err := rendered(inner, evaluate)
		if err != nil {
			return nil, err
		}
		made.Content = append(made.Content, one)
	}
	return &made, nil
}

// evaluate evaluates a text of an ApplicationSet.
func evaluate(text string, params map[string]any, goTemplate bool) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	if goTemplate {
		return evaluateGo(text, params)
	}
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, behind, closed := strings.Cut(after, "}}")
		if !closed {
			return "", errors.New("{{ without }}")
		}
		value, ok := lookup(params, strings.TrimSpace(name))
		if !ok {
			return "", fmt.Errorf("there is no parameter %s", strings.TrimSpace(name))
		}
		switch v := value.(type) {
		case map[string]any:
			folder, ok := v["path"].(string)
			if !ok {
				return "", fmt.Errorf("parameter %s is not a text", strings.TrimSpace(name))
			}
			b.WriteString(folder)
		default:
			b.WriteString(fmt.Sprint(v))
		}
		if rest = behind; b.Len() > maxRendered {
			return "", fmt.Errorf("the text has more than %d bytes", maxRendered)
		}
	}
}

// lookup finds a parameter by its key, or by a path with dots and indices, such as metadata.labels.env or path[0].
func lookup(params map[string]any, name string) (any, bool) {
	if value, ok := params[name]; ok {
		return value, true
	}
	if inner, index, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok && strings.HasSuffix(name, "]") {
		i, err := strconv.Atoi(index)
		at, _ := params[inner].(map[string]any)
		segments, _ := at["segments"].([]any)
		if err != nil || i < 0 || i >= len(segments) {
			return nil, false
		}
		return segments[i], true
	}
	for i := 0; i < len(name); i++ { // labels have dots in their keys
		if name[i] != '.' {
			continue
		}
		if inner, ok := params[name[:i]].(map[string]any); ok {
			if value, ok := lookup(inner, name[i+1:]); ok {
				return value, true
			}
		}
	}
	return nil, false
}

// goFunctions are the functions that are evaluated: pure, and without a result larger than their arguments together.
var goFunctions = template.FuncMap{
	"lower": strings.ToLower, "upper": strings.ToUpper, "trim": strings.TrimSpace,
	"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
	"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
	"hasPrefix":  func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
	"hasSuffix":  func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
	"contains":   func(part, s string) bool { return strings.Contains(s, part) },
	"normalize":  slug,
	"toString":   func(v any) string { return fmt.Sprint(v) },
	"default": func(otherwise, v any) any {
		if v == nil || v == "" || v == false || v == 0 {
			return otherwise
		}
		return v
	},
}

// goBuiltins are functions of text/template that are evaluated too.
var goBuiltins = []string{"index", "eq", "ne", "and", "or", "not", "len"}

// evaluateGo evaluates a Go template without loops, definitions and other functions. A missing key is an error.
func evaluateGo(text string, params map[string]any) (string, error) {
	t, err := template.New("").Option("missingkey=error").Funcs(goFunctions).Parse(text)
	if err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if len(t.Templates()) > 1 || t.Tree == nil {
		return "", errors.New("definitions of templates are not evaluated")
	}
	if err := plain(t.Root); err != nil {
		return "", err
	}
	out := &limitedBuilder{}
	if err := t.Execute(out, params); err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if strings.Contains(out.String(), "<no value>") || strings.Contains(out.String(), "map[") {
		return "", errors.New("the template prints a value that is no text")
	}
	return out.String(), nil
}

// limitedBuilder is a strings.Builder that refuses to grow above maxRendered.
type limitedBuilder struct{ strings.Builder }

func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxRendered {
		return 0, fmt.Errorf("the text has more than %d bytes", maxRendered)
	}
	return b.Builder.Write(p)
}

// plain returns an error for a part of a template that is not evaluated.
func plain(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, inner := range n.Nodes {
			if err := plain(inner); err != nil {
				return err
			}
		}
		return nil
	case *parse.IfNode:
		return errors.Join(plain(n.Pipe), plain(n.List), plain(n.ElseList))
	case *parse.WithNode:
		return errors.Join(plain(n.Pipe), plain(n.List), plain(n.ElseList))
	case *parse.ActionNode:
		return plain(n.Pipe)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				if err := plain(arg); err != nil {
					return err
				}
			}
		}
		return nil
	case *parse.IdentifierNode:
		if _, ok := goFunctions[n.Ident]; ok {
			return nil
		}
		for _, known := range goBuiltins {
			if n.Ident == known {
				return nil
			}
		}
		return fmt.Errorf("function %s is not evaluated", n.Ident)
	case *parse.ChainNode:
		return plain(n.Node)
	case *parse.TextNode, *parse.CommentNode, *parse.FieldNode, *parse.DotNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode, *parse.NilNode, *parse.VariableNode:
		return nil
	default:
		return fmt.Errorf("%s is not evaluated: it is a loop or a definition", n)
	}
}
