package scheduler

import (
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/wherry-dev/wherry/scheduler/finding"
	yamlv2 "gopkg.in/yaml.v2"
	"gopkg.in/yaml.v3"
)

// data is what templates see.
type data = dataType

// dataType has Kalypso's name and Kalypso's fields because templates can see both: {{ hash . }} and
// {{ typeOf . }} depend on them.
type dataType struct {
	DeploymentTargetName string
	Namespace            string
	Environment          string
	Workspace            string
	Workload             string
	Labels               map[string]string
	Manifests            map[string]string
	ClusterType          string
	ConfigData           map[string]any
}

// Repo is what templates of the older generation call .Manifests.repo.
func (d dataType) Repo() string { return d.Manifests["repo"] }

// Branch is what they call .Manifests.branch.
func (d dataType) Branch() string { return d.Manifests["branch"] }

// Path is what they call .Manifests.path.
func (d dataType) Path() string { return d.Manifests["path"] }

// compiledTemplate is a Template ready to run, by several goroutines at once.
type compiledTemplate struct {
	*templateObject
	manifests []manifest
}

// manifest is one item of a Template: a text, or an object whose strings are texts.
type manifest struct {
	text *textTemplate
	tree any // as yaml.v2 has it, with *textTemplate for strings that hold templates
}

// textTemplate is a text that was parsed, or failed to.
type textTemplate struct {
	at       finding.Position // of its first line
	run      *template.Template
	shielded *template.Template // the same with shielded functions; nil where no target needs them
	program  program            // the same in pieces, for what needs no shield; nil where it cannot be
	mutates  bool
	err      error
}

// library compiles Templates.
type library struct {
	functions template.FuncMap
	shielded  template.FuncMap // nil where no target needs them
}

func (l *library) compile(t *templateObject) *compiledTemplate {
	c := &compiledTemplate{templateObject: t}
	for _, m := range t.Spec.Manifests {
		if m.object != nil {
			c.manifests = append(c.manifests, manifest{tree: l.tree(t, m.object)})
		} else {
			c.manifests = append(c.manifests, manifest{text: l.text(t.Metadata.Name, m.text.Value, t.position(m.text.first))})
		}
	}
	return c
}

// text parses one text.
func (l *library) text(name, s string, at finding.Position) *textTemplate {
	t := &textTemplate{at: at}
	if len(s) > maxTextBytes { // also the parser's stack grows with it
		t.err = finding.Errorf(finding.CodeTooLarge, at, "", "the template is longer than %d bytes", maxTextBytes)
		return t
	}
	t.run, t.err = template.New(name).Funcs(l.functions).Parse(s)
	if t.err != nil {
		t.err = explain(t.err, at)
		return t
	}
	t.mutates = prepare(t.run)
	t.program = takeApart(t.run, l.functions, t.mutates)
	if l.shielded != nil {
		t.shielded = template.Must(t.run.Clone()).Funcs(l.shielded)
	}
	return t
}

// tree takes an object manifest the way Kubernetes would have handed it to Kalypso, as YAML 1.1.
func (l *library) tree(t *templateObject, n *yaml.Node) any {
	at := t.position(line(n.Line))
	var tree any
	written, err := yaml.Marshal(n)
	if err == nil {
		err = yamlv2.Unmarshal(written, &tree)
	}
	if err != nil {
		return &textTemplate{at: at, err: finding.Errorf("", at, "", "%v", err)}
	}
	return mapStrings(tree, func(s string) any {
		if !strings.Contains(s, "{{") {
			return s
		}
		return l.text(t.Metadata.Name, s, at)
	})
}

// mapStrings replaces the strings of a value, but not the keys of its maps.
func mapStrings(v any, replace func(string) any) any {
	switch v := v.(type) {
	case string:
		return replace(v)
	case map[any]any:
		for key, value := range v {
			v[key] = mapStrings(value, replace)
		}
	case []any:
		for i, value := range v {
			v[i] = mapStrings(value, replace)
		}
	}
	return v
}

// prepare puts an empty text, which evaluation hands to the writer as it does any other, at the
// beginning of whatever can be repeated: so the writer can count the turns of a loop that writes nothing.
// It says whether the template calls a function that changes maps.
func prepare(t *template.Template) (mutates bool) {
	var actions []*parse.ActionNode
	for _, associated := range t.Templates() {
		if associated.Tree == nil {
			continue
		}
		var lists []*parse.ListNode
		repeats := associated.Name() != t.Name() // what is defined can be called any number of times
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

// measured is the end of a pipeline that hands on what comes, unless it is too much to be written: values
// that are small when they are put together can grow by what is set in one of them.
func measured(action *parse.ActionNode) *parse.CommandNode {
	name := parse.NewIdentifier(measureFunction).SetPos(action.Pos)
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: action.Pos, Args: []parse.Node{name}}
}

func tick(list *parse.ListNode, times int) {
	empty := []parse.Node{&parse.TextNode{NodeType: parse.NodeText}}
	list.Nodes = slices.Insert(list.Nodes, 0, slices.Repeat(empty, times)...)
}

// callSteps is what a function counts in a template that can repeat it, because a call can take as long as
// many texts.
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

// walkScoped visits n and all below it. inner is true where a range or with has changed the dot.
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
