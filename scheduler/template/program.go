package template

import (
	"slices"
	"text/template"
	"text/template/parse"
)

// program is a parsed text taken apart, so that most of it needs no text/template: text is copied, plain
// fields are written as they are, and a piece that depends on the configuration alone runs once for each configuration.
// The output and the number of steps are those of the whole text. If a piece fails, the whole text is run for its error.
type program []*piece

// piece is a part of a text. Exactly one of its fields is set, but for whole with run.
type piece struct {
	text  []byte // nil for none; an empty text counts as a step too
	field func(*Data) (string, bool)
	run   *template.Template
	// reads is for run.
	reads reads
}

// reads lists the data that a piece of a template reads.
type reads struct {
	config bool // ConfigData
	others bool // anything else
}

// Fields that are texts, and those that are maps of texts.
var (
	textFields = map[string]func(*Data) string{
		"DeploymentTargetName": func(d *Data) string { return d.DeploymentTargetName },
		"Namespace":            func(d *Data) string { return d.Namespace },
		"Environment":          func(d *Data) string { return d.Environment },
		"Workspace":            func(d *Data) string { return d.Workspace },
		"Workload":             func(d *Data) string { return d.Workload },
		"ClusterType":          func(d *Data) string { return d.ClusterType },
		"Repo":                 (*Data).Repo,
		"Branch":               (*Data).Branch,
		"Path":                 (*Data).Path,
		"ServiceAccount":       (*Data).ServiceAccount,
	}
	mapFields = map[string]func(*Data) map[string]string{
		"Labels":    func(d *Data) map[string]string { return d.Labels },
		"Manifests": func(d *Data) map[string]string { return d.Manifests },

		"NamespaceLabels":      (*Data).NamespaceLabels,
		"NamespaceAnnotations": (*Data).NamespaceAnnotations,
	}
)

// takeApart returns nil for a text whose pieces depend on each other: through templates that it defines,
// variables, or functions that change the data.
func takeApart(t *template.Template, functions template.FuncMap, mutates bool) program {
	if mutates || t.Tree == nil || len(t.Templates()) > 1 {
		return nil
	}
	var p program
	for _, n := range t.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			p = append(p, &piece{text: append([]byte{}, n.Text...)})
			continue
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				return nil
			}
			if field := plainField(n.Pipe); field != nil {
				p = append(p, &piece{field: field})
				continue
			}
		case *parse.IfNode, *parse.RangeNode, *parse.WithNode:
		default:
			return nil
		}
		alone := &parse.Tree{Name: t.Name(), Root: &parse.ListNode{NodeType: parse.NodeList, Nodes: []parse.Node{n}}}
		run, err := template.New(t.Name()).Funcs(functions).AddParseTree(t.Name(), alone)
		if err != nil {
			return nil
		}
		next := &piece{run: run}
		next.reads.of(n, false)
		p = append(p, next)
	}
	return p
}

// plainField returns the function of an action that only prints a field, else nil.
func plainField(pipe *parse.PipeNode) func(*Data) (string, bool) {
	if len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return nil
	}
	f, ok := pipe.Cmds[0].Args[0].(*parse.FieldNode)
	if !ok {
		return nil
	}
	if get := textFields[f.Ident[0]]; get != nil && len(f.Ident) == 1 {
		return func(d *Data) (string, bool) { return get(d), true }
	}
	if get := mapFields[f.Ident[0]]; get != nil && len(f.Ident) == 2 {
		return func(d *Data) (string, bool) {
			s, ok := get(d)[f.Ident[1]]
			return s, ok
		}
	}
	return nil
}

// of records the data that n reads. Inner is true if the dot is no longer the data, but a part of the value that the node
// around n has read.
func (r *reads) of(n parse.Node, inner bool) {
	walkScoped(n, inner, func(n parse.Node, inner bool) {
		switch n := n.(type) {
		case *parse.DotNode:
			r.others = r.others || !inner
		case *parse.FieldNode:
			if !inner {
				r.field(n.Ident[0])
			}
		case *parse.VariableNode:
			if n.Ident[0] == "$" && len(n.Ident) > 1 {
				r.field(n.Ident[1])
			} else if n.Ident[0] == "$" {
				r.others = true
			}
		case *parse.TemplateNode:
			r.others = true
		}
	})
}

func (r *reads) field(name string) {
	if name == "ConfigData" {
		r.config = true
	} else {
		r.others = true
	}
}

// onlyConfig reports whether the piece has the same output for all assignments of one configuration.
func (r reads) onlyConfig() bool { return r.config && !r.others }

// run writes the text for in. It returns false if the whole text must be run instead.
func (p program) run(o *output, in *Input) bool {
	for _, next := range p {
		if !next.write(o, in) {
			return false
		}
	}
	return true
}

func (p *piece) write(o *output, in *Input) bool {
	switch {
	case p.text != nil:
		_, err := o.Write(p.text)
		return err == nil
	case p.field != nil:
		s, ok := p.field(in.Data)
		if !ok {
			s = "<no value>" // as text/template has it
		}
		return o.writeString(s) == nil
	case p.reads.onlyConfig():
		return p.once(o, in)
	default:
		return p.execute(o, in)
	}
}

func (p *piece) execute(o *output, in *Input) bool {
	if p.reads.config || p.reads.others {
		in.ConfigData = in.Config.Values()
	}
	return p.run.Execute(o, *in.Data) == nil
}

// once runs a piece for the first assignment of a configuration and repeats it for the others.
func (p *piece) once(o *output, in *Input) bool {
	if known, ok := in.Config.memo.get(p); ok {
		if o.steps += known.steps - 1; o.steps >= maxSteps {
			return false
		}
		return o.writeString(known.text) == nil
	}
	from, steps := len(o.buf), o.steps
	if !p.execute(o, in) {
		return false
	}
	in.Config.memo.put(written{p, string(o.buf[from:]), o.steps - steps})
	return true
}

// plainReads are the fields whose reading is known; kept in one place with data by a test.
func plainReads() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range textFields {
			if !yield(name) {
				return
			}
		}
		for name := range mapFields {
			if !yield(name) {
				return
			}
		}
	})
}
