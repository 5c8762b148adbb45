// Package template evaluates a platform's templates: it turns texts into a text, without side effects.
//
// Begin with [NewLibrary], which compiles a Template once for all assignments, and render with an [Evaluator] for each
// goroutine. The functions are those of sprig that are pure, and Kalypso's four.
//
// Evaluation is hermetic: it uses no environment variable, clock, random number or network, and the same input gives
// the same bytes. It is bounded: a template that runs too long, or writes or builds too much, fails with an error that
// names its line. Only the platform's text is evaluated, never an app team's; see [Shield]. A result that still
// holds templates, because a configuration value held some, is evaluated again.
package template

import (
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"go.yaml.in/yaml/v3"
	yamlv2 "gopkg.in/yaml.v2"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// Template is a compiled template, ready to run, by several goroutines at once.
type Template struct {
	name           string
	permitsMissing bool
	manifests      []part
}

// Source is a Template as it was written.
type Source struct {
	Name string
	// PermitsMissing is true if the Template may print missing keys; see [MissingKeysAnnotation].
	PermitsMissing bool
	Manifests      []Manifest
}

// Manifest is one item of a Template: a text, or an object whose strings are texts.
type Manifest struct {
	Text   string
	Object *yaml.Node       // nil for a text
	At     finding.Position // of the first line
}

// part is one item of a Template: a text, or an object whose strings are texts.
type part struct {
	text *parsedText
	tree any // a value of yaml.v2, with *textTemplate for strings that hold templates
}

// parsedText is a text that was parsed, or failed to.
type parsedText struct {
	at       finding.Position // of its first line
	run      *template.Template
	shielded *template.Template // the same with shielded functions; nil if no target needs them
	program  program            // the same in pieces, for input without a shield; nil if it cannot be taken apart
	mutates  bool
	err      error
}

// Library compiles Templates. Several goroutines may use it at once.
type Library struct {
	functions template.FuncMap
	shielded  template.FuncMap // nil if no target needs them
}

// NewLibrary returns a library with the pure functions. Marshal, if not nil, is [yamlvalue.Marshal], but faster for the configurations of
// the platform; shield, if not nil, is the shield of some of the inputs.
func NewLibrary(marshal func(any) string, shield *Shield) *Library {
	l := &Library{functions: functions()}
	if marshal != nil {
		l.functions["toYaml"], l.functions["stringify"] = toYAML(marshal), stringify(marshal)
	}
	if shield != nil {
		l.shielded = shield.functions(l.functions)
	}
	return l
}

// Compile parses the texts of a Template. Rendering returns the errors that it finds.
func (l *Library) Compile(src Source) *Template {
	t := &Template{name: src.Name, permitsMissing: src.PermitsMissing}
	for _, m := range src.Manifests {
		if m.Object != nil {
			t.manifests = append(t.manifests, part{tree: l.tree(src.Name, m.Object, m.At)})
		} else {
			t.manifests = append(t.manifests, part{text: l.text(src.Name, m.Text, m.At)})
		}
	}
	return t
}

// text parses one text.
func (l *Library) text(name, s string, at finding.Position) *parsedText {
	t := &parsedText{at: at}
	if len(s) > MaxBytes { // also the parser's stack grows with it
		t.err = finding.Errorf(finding.CodeTooLarge, at, "", "the template is longer than %d bytes", MaxBytes)
		return t
	}
	t.run, t.err = template.New(name).Funcs(l.functions).Parse(s)
	if t.err != nil {
		t.err = explainParse(t.err, s, at)
		return t
	}
	t.mutates = prepare(t.run)
	t.program = takeApart(t.run, l.functions, t.mutates)
	if l.shielded != nil {
		t.shielded = template.Must(t.run.Clone()).Funcs(l.shielded)
	}
	return t
}

// tree reads an object manifest as YAML 1.1, as Kubernetes would have passed it to Kalypso.
func (l *Library) tree(name string, n *yaml.Node, at finding.Position) any {
	var tree any
	written, err := yaml.Marshal(n)
	if err == nil {
		err = yamlv2.Unmarshal(written, &tree)
	}
	if err != nil {
		return &parsedText{at: at, err: finding.Errorf("", at, "", "%v", err)}
	}
	return yamlvalue.MapStrings(tree, func(s string) any {
		if !strings.Contains(s, "{{") {
			return s
		}
		return l.text(name, s, at)
	})
}

// prepare inserts an empty text, which evaluation writes like any other, at the
// beginning of every part that can be repeated: so the writer can count the turns of a loop without output.
// It reports whether the template calls a function that changes maps.
func prepare(t *template.Template) (mutates bool) {
	var actions []*parse.ActionNode
	for _, associated := range t.Templates() {
		if associated.Tree == nil {
			continue
		}
		var lists []*parse.ListNode
		repeats := associated.Name() != t.Name() // a defined template can be called any number of times
		walk(associated.Root, func(n parse.Node) {
			switch n := n.(type) {
			case *parse.RangeNode:
				repeats = true
				tick(n.List, 1)
			case *parse.ListNode:
				lists = append(lists, n)
			case *parse.ActionNode:
				actions = append(actions, n)
			case *parse.IdentifierNode:
				mutates = mutates || slices.Contains(mutating, n.Ident)
			}
		})
		tick(associated.Root, 1)
		for _, list := range lists {
			if repeats {
				tick(list, callSteps*callsIn(list))
			}
		}
	}
	for _, action := range actions {
		if mutates && len(action.Pipe.Decl) == 0 {
			action.Pipe.Cmds = append(action.Pipe.Cmds, measured(action))
		}
	}
	return mutates
}

// measured is the end of a pipeline: it passes a value on, or fails if the value is too long to be written. A value that is
// small when it is built can grow when a map in it is changed.
func measured(action *parse.ActionNode) *parse.CommandNode {
	name := parse.NewIdentifier(measureFunction).SetPos(action.Pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: action.Pos, Args: []parse.Node{name}}
}

func tick(list *parse.ListNode, times int) {
	empty := []parse.Node{&parse.TextNode{NodeType: parse.NodeText}}
	list.Nodes = slices.Insert(list.Nodes, 0, slices.Repeat(empty, times)...)
}

// callSteps is the number of steps that a function call counts in a template that can repeat it, because a call can take as
// long as many texts.
const callSteps = 16

// callsIn counts the functions that a list calls itself, without those in the lists below it.
func callsIn(list *parse.ListNode) int {
	calls := 0
	for _, n := range list.Nodes {
		var pipe *parse.PipeNode
		switch n := n.(type) {
		case *parse.ActionNode:
			pipe = n.Pipe
		case *parse.TemplateNode:
			pipe = n.Pipe
		case *parse.IfNode:
			pipe = n.Pipe
		case *parse.RangeNode:
			pipe = n.Pipe
		case *parse.WithNode:
			pipe = n.Pipe
		}
		walk(pipe, func(n parse.Node) {
			if _, ok := n.(*parse.IdentifierNode); ok {
				calls++
			}
		})
	}
	return calls
}

// walk visits n and all below it.
func walk(n parse.Node, visit func(parse.Node)) {
	walkScoped(n, false, func(n parse.Node, _ bool) { visit(n) })
}

// walkScoped visits n and all below it. Inner is true where a range or with has changed the dot.
func walkScoped(n parse.Node, inner bool, visit func(n parse.Node, inner bool)) {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return
	}
	visit(n, inner)
	switch n := n.(type) {
	case *parse.ListNode:
		for _, item := range n.Nodes {
			walkScoped(item, inner, visit)
		}
	case *parse.ActionNode:
		walkScoped(n.Pipe, inner, visit)
	case *parse.TemplateNode:
		walkScoped(n.Pipe, inner, visit)
	case *parse.IfNode:
		walkBranch(&n.BranchNode, inner, inner, visit)
	case *parse.RangeNode:
		walkBranch(&n.BranchNode, inner, true, visit)
	case *parse.WithNode:
		walkBranch(&n.BranchNode, inner, true, visit)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			walkScoped(command, inner, visit)
		}
	case *parse.CommandNode:
		for _, argument := range n.Args {
			walkScoped(argument, inner, visit)
		}
	case *parse.ChainNode:
		walkScoped(n.Node, inner, visit)
	}
}

func walkBranch(n *parse.BranchNode, inner, list bool, visit func(parse.Node, bool)) {
	walkScoped(n.Pipe, inner, visit)
	walkScoped(n.List, list, visit)
	walkScoped(n.ElseList, inner, visit)
}
