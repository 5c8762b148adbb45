package chart

import (
	"strings"
	"text/template"
	"text/template/parse"
)

// Functions that the templates get beside those that they name.
const (
	tickFunction    = "wherryTick"    // a turn of a loop
	enterFunction   = "wherryEnter"   // the begin of a template
	leaveFunction   = "wherryLeave"   // and its end
	measureFunction = "wherryMeasure" // around an action that writes
	sitePrefix      = "wherrySite"
)

// site is a place in a template that calls a function whose result is not always the same.
type site struct {
	function string
	template string // as the chart's templates are named
	line     int
	place    string // name, line and column: the same in each run
	// values are those that may keep the call from having an effect, nearest first.
	values []adviceValue
}

// adviceValue is a value of the chart in a condition or a default.
type adviceValue struct {
	path string // without "Values"
	how  advice
}

// advice is a way by which a value keeps a call from having an effect, the likeliest first.
type advice int

const (
	insteadOf  advice = iota // by default, coalesce and the like
	unlessSet                // the call is in the else of its condition
	whileUnset               // the call is where it is not set
	whileSet
)

// rewriter prepares parsed templates: loops and templates count their steps, output is measured, and each call of an impure
// function gets a function of its own.
type rewriter struct {
	run  *run
	tree *parse.Tree
	made template.FuncMap
	// depth is that of blocks and pipes in others.
	depth int
}

// maxTreeDepth bounds blocks in blocks of one template.
const maxTreeDepth = 200

// prepare rewrites the templates of t that were not yet, and gives them their functions.
func (r *run) prepare(t *template.Template) {
	made := template.FuncMap{}
	for _, each := range t.Templates() {
		if each.Tree == nil || each.Root == nil || r.prepared[each.Tree] {
			continue
		}
		r.prepared[each.Tree] = true
		w := &rewriter{run: r, tree: each.Tree, made: made}
		w.list(each.Root, nil)
		each.Root.Nodes = append(append([]parse.Node{call(enterFunction)}, each.Root.Nodes...), call(leaveFunction))
	}
	t.Funcs(made)
}

// call is an action that calls a function without arguments.
func call(function string) parse.Node {
	trees, err := parse.Parse("", "{{"+function+"}}", "", "", map[string]any{function: func() string { return "" }})
	if err != nil {
		panic(err)
	}
	return trees[""].Root.Nodes[0]
}

func (w *rewriter) list(l *parse.ListNode, near []adviceValue) {
	if l == nil {
		return
	}
	if w.depth++; w.depth > maxTreeDepth {
		panic(tooSlow("blocks nest deeper than %d", maxTreeDepth))
	}
	for _, n := range l.Nodes {
		w.node(n, near)
	}
	w.depth--
}

func (w *rewriter) node(n parse.Node, near []adviceValue) {
	switch n := n.(type) {
	case *parse.ActionNode:
		w.pipe(n.Pipe, near)
		if len(n.Pipe.Decl) == 0 && !writesText(n.Pipe) {
			measured := call(measureFunction).(*parse.ActionNode)
			n.Pipe.Cmds = append(n.Pipe.Cmds, measured.Pipe.Cmds...)
		}
	case *parse.IfNode:
		w.branch(&n.BranchNode, near)
	case *parse.WithNode:
		w.branch(&n.BranchNode, near)
	case *parse.RangeNode:
		w.branch(&n.BranchNode, near)
		n.List.Nodes = append([]parse.Node{call(tickFunction)}, n.List.Nodes...)
	case *parse.TemplateNode:
		w.pipe(n.Pipe, near)
	}
}

func (w *rewriter) branch(n *parse.BranchNode, near []adviceValue) {
	w.pipe(n.Pipe, near)
	of := valuesIn(n.Pipe)
	then, otherwise := near, near
	if len(of) == 1 { // of several, nobody knows which one matters
		inThen, inElse := whileSet, unlessSet
		if isNegated(n.Pipe) {
			inThen, inElse = whileUnset, whileSet
		}
		then = append([]adviceValue{{of[0], inThen}}, near...)
		otherwise = append([]adviceValue{{of[0], inElse}}, near...)
	}
	w.list(n.List, then)
	w.list(n.ElseList, otherwise)
}

// isNegated reports whether a condition is one that a value makes false.
func isNegated(p *parse.PipeNode) bool {
	for _, c := range p.Cmds {
		switch first := c.Args[0].(type) {
		case *parse.IdentifierNode:
			if first.Ident == "not" || first.Ident == "empty" || first.Ident == "ne" {
				return true
			}
		case *parse.PipeNode:
			if isNegated(first) {
				return true
			}
		}
	}
	return false
}

func (w *rewriter) pipe(p *parse.PipeNode, near []adviceValue) {
	if p == nil {
		return
	}
	if w.depth++; w.depth > maxTreeDepth {
		panic(tooSlow("blocks nest deeper than %d", maxTreeDepth))
	}
	if isDefaulting(p) {
		for _, path := range valuesIn(p) {
			near = append([]adviceValue{{path, insteadOf}}, near...)
		}
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			switch arg := arg.(type) {
			case *parse.IdentifierNode:
				w.identifier(arg, near)
			case *parse.PipeNode:
				w.pipe(arg, near)
			case *parse.ChainNode:
				if inner, ok := arg.Node.(*parse.PipeNode); ok {
					w.pipe(inner, near)
				}
				w.fields(arg.Field)
			case *parse.FieldNode:
				w.fields(arg.Ident)
			case *parse.VariableNode:
				w.fields(arg.Ident)
			}
		}
	}
	w.depth--
}

// fields refuses the methods of .Values that write it out, which nothing would bound.
func (w *rewriter) fields(path []string) {
	for i, name := range path {
		if i > 0 && path[i-1] == "Values" && (name == "YAML" || name == "Encode") {
			panic(refused("the method %s of .Values is not known here; use toYaml", name))
		}
	}
}

// isDefaulting reports whether a pipe has a function that prefers a value that is set.
func isDefaulting(p *parse.PipeNode) bool {
	for _, c := range p.Cmds {
		if id, ok := c.Args[0].(*parse.IdentifierNode); ok {
			switch id.Ident {
			case "default", "coalesce", "or", "ternary":
				return true
			}
		}
	}
	return false
}

func (w *rewriter) identifier(n *parse.IdentifierNode, near []adviceValue) {
	make, impure := impureFunctions[n.Ident]
	if !impure {
		return
	}
	location, _ := w.tree.ErrorContext(n)
	s := &site{function: n.Ident, template: w.tree.ParseName, place: location, values: near}
	s.line = lineOf(location)
	name := sitePrefix + itoa(len(w.run.sites))
	w.run.sites = append(w.run.sites, s)
	w.made[name] = w.run.bounded(n.Ident, make(w.run, s))
	n.Ident = name
}

// lineOf is the line in "name:line:column".
func lineOf(location string) int {
	parts := strings.Split(location, ":")
	if len(parts) < 3 {
		return 0
	}
	return atoi(parts[len(parts)-2])
}

// writesText reports whether the result of a pipe is text whose length was counted.
func writesText(p *parse.PipeNode) bool {
	id, ok := p.Cmds[len(p.Cmds)-1].Args[0].(*parse.IdentifierNode)
	return ok && (textFunctions[id.Ident] || strings.HasPrefix(id.Ident, sitePrefix))
}

// textFunctions return text.
var textFunctions = setOf("include", "tpl", "quote", "squote", "nindent", "indent", "toYaml", "toJson", "toString", "printf", "print", "println",
	"b64enc", "trunc", "trimSuffix", "trimPrefix", "trim", "lower", "upper", "replace", "join", "sha256sum", "title", "cat", "toPrettyJson", "toToml")

func setOf(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// valuesIn lists the values that a pipe names, such as "auth.password", at any depth.
func valuesIn(p *parse.PipeNode) []string {
	var all []string
	if p == nil {
		return nil
	}
	add := func(path []string) {
		for i, name := range path {
			if name == "Values" && i < 2 && i+1 < len(path) {
				all = append(all, strings.Join(path[i+1:], "."))
				return
			}
		}
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			switch arg := arg.(type) {
			case *parse.FieldNode:
				add(arg.Ident)
			case *parse.VariableNode:
				add(arg.Ident)
			case *parse.PipeNode:
				all = append(all, valuesIn(arg)...)
			}
		}
	}
	return all
}
