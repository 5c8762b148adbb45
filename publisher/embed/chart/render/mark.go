package render

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"
)

// siteName is the name by which a template calls the function of a marked place.
func siteName(i int) string { return "wherrySite" + strconv.Itoa(i) }

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

// marker finds the calls of impure functions in one template.
type marker struct {
	tree  *parse.Tree
	calls []markedCall
}

type markedCall struct {
	at   parse.Pos // in the text
	site *site
}

// mark gives each call of an impure function in the templates of a chart a name of its own, and returns the places by it.
func mark(c *helm.Chart, done map[*common.File]bool, sites []*site) []*site {
	for _, t := range c.Templates {
		if done[t] {
			continue
		}
		done[t] = true
		name := path.Join(c.ChartFullPath(), t.Name)
		parsed := parse.New(name)
		parsed.Mode = parse.SkipFuncCheck
		trees := map[string]*parse.Tree{}
		if _, err := parsed.Parse(string(t.Data), "", "", trees); err != nil {
			continue // Helm has said so
		}
		trees[name] = parsed
		m := &marker{}
		for _, tree := range trees {
			m.tree = tree
			m.list(tree.Root, nil)
		}
		slices.SortFunc(m.calls, func(a, b markedCall) int { return int(a.at) - int(b.at) })
		m.calls = slices.CompactFunc(m.calls, func(a, b markedCall) bool { return a.at == b.at })
		text := strings.Builder{}
		from := 0
		for _, call := range m.calls {
			if !strings.HasPrefix(string(t.Data[call.at:]), call.site.function) {
				continue
			}
			text.Write(t.Data[from:call.at])
			text.WriteString(siteName(len(sites)))
			sites, from = append(sites, call.site), int(call.at)+len(call.site.function)
		}
		text.Write(t.Data[from:])
		t.Data = []byte(text.String())
	}
	for _, below := range c.Dependencies() {
		sites = mark(below, done, sites)
	}
	return sites
}

func (m *marker) list(l *parse.ListNode, near []adviceValue) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		m.node(n, near)
	}
}

func (m *marker) node(n parse.Node, near []adviceValue) {
	switch n := n.(type) {
	case *parse.ActionNode:
		m.pipe(n.Pipe, near)
	case *parse.IfNode:
		m.branch(&n.BranchNode, near)
	case *parse.WithNode:
		m.branch(&n.BranchNode, near)
	case *parse.RangeNode:
		m.branch(&n.BranchNode, near)
	case *parse.TemplateNode:
		m.pipe(n.Pipe, near)
	}
}

func (m *marker) branch(n *parse.BranchNode, near []adviceValue) {
	m.pipe(n.Pipe, near)
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
	m.list(n.List, then)
	m.list(n.ElseList, otherwise)
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

func (m *marker) pipe(p *parse.PipeNode, near []adviceValue) {
	if p == nil {
		return
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
				m.identifier(arg, near)
			case *parse.PipeNode:
				m.pipe(arg, near)
			case *parse.ChainNode:
				if inner, ok := arg.Node.(*parse.PipeNode); ok {
					m.pipe(inner, near)
				}
			}
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

func (m *marker) identifier(n *parse.IdentifierNode, near []adviceValue) {
	if _, impure := impureFunctions[n.Ident]; !impure {
		return
	}
	location, _ := m.tree.ErrorContext(n)
	m.calls = append(m.calls, markedCall{n.Pos, &site{function: n.Ident, template: m.tree.ParseName, line: lineOf(location), place: location, values: near}})
}

// lineOf is the line in "name:line:column".
func lineOf(location string) int {
	parts := strings.Split(location, ":")
	if len(parts) < 3 {
		return 0
	}
	return atoi(parts[len(parts)-2])
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
