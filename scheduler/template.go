package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	yamlv2 "gopkg.in/yaml.v2"
	"gopkg.in/yaml.v3"
)

const (
	// maxRounds bounds how often a text is evaluated again because its values hold templates.
	maxRounds = 32
	// maxSteps bounds how many pieces of text and turns of loops make one file.
	maxSteps = 1 << 19
)

// data is what templates see. Repo, Branch and Path are the older generation's names.
type data struct {
	DeploymentTargetName string
	Namespace            string
	Environment          string
	Workspace            string
	Workload             string
	Labels               map[string]string
	Manifests            map[string]string
	ClusterType          string
	ConfigData           map[string]any
	Repo, Branch, Path   string
}

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
	at       Position // of its first line
	run      *template.Template
	shielded *template.Template // the same with shielded functions; nil where no target needs them
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
func (l *library) text(name, s string, at Position) *textTemplate {
	t := &textTemplate{at: at}
	t.run, t.err = template.New(name).Funcs(l.functions).Parse(s)
	if t.err != nil {
		t.err = explain(t.err, at)
		return t
	}
	t.mutates = prepare(t.run)
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
		return &textTemplate{at: at, err: mistake(at, "", "%v", err)}
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
	for _, associated := range t.Templates() {
		if associated.Tree == nil {
			continue
		}
		tick(associated.Root)
		walk(associated.Root, func(n parse.Node) {
			switch n := n.(type) {
			case *parse.RangeNode:
				tick(n.List)
			case *parse.IdentifierNode:
				mutates = mutates || slices.Contains(mutating, n.Ident)
			}
		})
	}
	return mutates
}

func tick(list *parse.ListNode) {
	list.Nodes = slices.Insert(list.Nodes, 0, parse.Node(&parse.TextNode{NodeType: parse.NodeText}))
}

// walk visits n and all below it.
func walk(n parse.Node, visit func(parse.Node)) {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return
	}
	visit(n)
	switch n := n.(type) {
	case *parse.ListNode:
		for _, item := range n.Nodes {
			walk(item, visit)
		}
	case *parse.ActionNode:
		walk(n.Pipe, visit)
	case *parse.TemplateNode:
		walk(n.Pipe, visit)
	case *parse.IfNode:
		walkBranch(&n.BranchNode, visit)
	case *parse.RangeNode:
		walkBranch(&n.BranchNode, visit)
	case *parse.WithNode:
		walkBranch(&n.BranchNode, visit)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			walk(command, visit)
		}
	case *parse.CommandNode:
		for _, argument := range n.Args {
			walk(argument, visit)
		}
	case *parse.ChainNode:
		walk(n.Node, visit)
	}
}

func walkBranch(n *parse.BranchNode, visit func(parse.Node)) {
	walk(n.Pipe, visit)
	walk(n.List, visit)
	walk(n.ElseList, visit)
}

// output is where templates write to: as long and as patient as is permitted.
type output struct {
	ctx   context.Context // of the one evaluation that this is for
	buf   []byte
	steps int
}

var errTooManySteps = fmt.Errorf("evaluation takes more than %d steps", maxSteps)

func (o *output) Write(p []byte) (int, error) {
	if o.steps++; o.steps > maxSteps {
		return 0, errTooManySteps
	}
	if o.steps%4096 == 0 && o.ctx.Err() != nil {
		return 0, o.ctx.Err()
	}
	if len(o.buf)+len(p) > maxTextBytes {
		return 0, errTooLong
	}
	o.buf = append(o.buf, p...)
	return len(p), nil
}

// evaluator runs templates, one at a time.
type evaluator struct {
	library *library
	// base and shielded hold the functions for texts that are parsed while rendering.
	base, shielded *template.Template
	out            output
}

func newEvaluator(l *library) *evaluator {
	e := &evaluator{library: l, base: template.New("").Funcs(l.functions)}
	if l.shielded != nil {
		e.shielded = template.New("").Funcs(l.functions).Funcs(l.shielded)
	}
	return e
}

// input is what one assignment is rendered from.
type input struct {
	*data
	config *config
	// shield, if not nil, is what the texts in data are under.
	shield *shield
}

// evaluate renders t, and again what comes out as long as it holds templates of its own. The result is
// valid until the next call.
func (e *evaluator) evaluate(ctx context.Context, t *textTemplate, in *input) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	run := t.run
	if in.shield != nil {
		run = t.shielded
	}
	e.out = output{ctx: ctx, buf: e.out.buf[:0]}
	if err := e.execute(run, t.mutates, in); err != nil {
		return nil, explain(err, t.at)
	}
	return e.settle(ctx, t.at, in)
}

// value renders a configuration value on its own; at is where it stands.
func (e *evaluator) value(ctx context.Context, s string, at Position, in *input) (string, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	e.out = output{ctx: ctx, buf: append(e.out.buf[:0], s...)}
	settled, err := e.settle(ctx, at, in)
	return string(settled), err
}

// settle evaluates what has been written, and what comes out of that, until no template is left in it.
func (e *evaluator) settle(ctx context.Context, at Position, in *input) ([]byte, error) {
	for round := 2; bytes.Contains(e.out.buf, []byte("{{")); round++ {
		if round > maxRounds {
			return nil, explainCycle(at, in, fmt.Sprintf("the text still holds {{ after %d rounds of evaluation", maxRounds))
		}
		if err := e.again(in); err != nil {
			return nil, e.explainNested(ctx, err, at, in)
		}
	}
	return in.shield.lift(e.out.buf), nil
}

func (e *evaluator) execute(run *template.Template, mutates bool, in *input) error {
	if !mutates {
		return run.Execute(&e.out, in.data)
	}
	own := *in.data
	own.ConfigData = clone(own.ConfigData).(map[string]any)
	return run.Execute(&e.out, &own)
}

// again evaluates what the last evaluation gave.
func (e *evaluator) again(in *input) error {
	text := string(e.out.buf)
	base := e.base
	if in.shield != nil {
		base = e.shielded
	}
	run := base.New("value")
	if strings.Contains(text, "define") || strings.Contains(text, "block") {
		run = template.Must(base.Clone()).New("value") // what it defines must not be there for others
	}
	run, err := run.Parse(text)
	if err != nil {
		return err
	}
	mutates := prepare(run)
	e.out.buf = e.out.buf[:0]
	return e.execute(run, mutates, in)
}

// render renders all manifests of a Template, joined as Kalypso joins them.
func (e *evaluator) render(ctx context.Context, t *compiledTemplate, in *input) ([]byte, error) {
	var file []byte
	for _, m := range t.manifests {
		part, err := e.manifest(ctx, m, in)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", t.Metadata.Name, err)
		}
		if len(part) == 0 {
			continue
		}
		if len(file) > 0 {
			file = append(file, "---\n"...)
		}
		if file = append(file, part...); len(file) > maxTextBytes {
			return nil, fmt.Errorf("template %q: %w", t.Metadata.Name, errTooLong)
		}
	}
	return file, nil
}

func (e *evaluator) manifest(ctx context.Context, m manifest, in *input) ([]byte, error) {
	if m.text != nil {
		return e.evaluate(ctx, m.text, in)
	}
	var errs []error
	object := e.fill(ctx, m.tree, in, &errs)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return yamlv2.Marshal(object)
}

// fill returns an object manifest with its texts rendered.
func (e *evaluator) fill(ctx context.Context, v any, in *input, errs *[]error) any {
	switch v := v.(type) {
	case *textTemplate:
		s, err := e.evaluate(ctx, v, in)
		if err != nil {
			*errs = append(*errs, err)
		}
		return string(s)
	case map[any]any:
		filled := make(map[any]any, len(v))
		for key, value := range v {
			filled[key] = e.fill(ctx, value, in, errs)
		}
		return filled
	case []any:
		filled := make([]any, len(v))
		for i, value := range v {
			filled[i] = e.fill(ctx, value, in, errs)
		}
		return filled
	default:
		return v
	}
}

// explain says where in the input an error of text/template has its cause: at is where the text begins.
func explain(err error, at Position) error {
	message, hint := err.Error(), ""
	if rest, ok := strings.CutPrefix(message, "template: "); ok {
		_, rest, _ = strings.Cut(rest, ":")
		number, rest, _ := strings.Cut(rest, ":")
		message = strings.TrimLeft(rest, "0123456789: ")
		if before, start, ok := strings.Cut(message, " started at "); ok { // it says where it ran out of text
			message, number = before, start[strings.LastIndex(start, ":")+1:]
		}
		if n, convErr := strconv.Atoi(number); convErr == nil && at.Line > 0 {
			at.Line += n - 1
		}
	}
	message = strings.Join(strings.Fields(message), " ")
	if _, rest, ok := strings.Cut(message, "executing "); ok {
		_, message, _ = strings.Cut(rest, " ")
	}
	if before, rest, ok := strings.Cut(message, "can't evaluate field "); ok {
		field, _, _ := strings.Cut(rest, " ")
		message, hint = before+"there is no field "+field, didYouMean(field, dataFields())
	}
	if hint == "" {
		hint = explainFunction(message)
	}
	return &InputError{Position: at, Message: message, Hint: hint, cause: err}
}

func dataFields() []string {
	var names []string
	for f := range reflect.TypeFor[data]().Fields() {
		names = append(names, f.Name)
	}
	return names
}
