package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	yamlv2 "gopkg.in/yaml.v2"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

const (
	// maxRounds bounds the repeated evaluations of a text whose values hold templates.
	maxRounds = 32
	// maxSteps bounds the pieces of text and turns of loops of one file.
	maxSteps = 1 << 19
	// maxTime bounds the evaluation of one text with few and slow steps. The texts of a fleet
	// take milliseconds, and one with fewer steps than timedSteps is not timed at all: so the clock
	// does not affect the result of rendering.
	maxTime = 30 * time.Second
	// timedSteps is the number of steps between two checks of ctx and the time.
	timedSteps = 1024
)

// output receives the text of templates, and enforces the bounds on its length, steps and time.
type output struct {
	ctx   context.Context // of the one evaluation that this is for
	buf   []byte
	steps int
	since time.Time // of the first look at the time
}

var (
	errTooManySteps = fmt.Errorf("evaluation takes more than %d steps", maxSteps)
	errTooMuchTime  = fmt.Errorf("evaluation takes longer than %s", maxTime)
)

// Write appends p unless that would exceed a bound.
func (o *output) Write(p []byte) (int, error) {
	if err := o.step(len(p)); err != nil {
		return 0, err
	}
	o.buf = append(o.buf, p...)
	return len(p), nil
}

func (o *output) writeString(s string) error {
	err := o.step(len(s))
	if err == nil {
		o.buf = append(o.buf, s...)
	}
	return err
}

// step returns an error if n more bytes exceed a bound.
func (o *output) step(n int) error {
	if o.steps++; o.steps > maxSteps {
		return errTooManySteps
	}
	if o.steps%timedSteps == 0 {
		if err := o.patience(); err != nil {
			return err
		}
	}
	if len(o.buf)+n > MaxBytes {
		return ErrTooLong
	}
	return nil
}

func (o *output) patience() error {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	if time.Since(o.since) > maxTime {
		return errTooMuchTime
	}
	return o.ctx.Err()
}

// Evaluator runs templates, one at a time.
type Evaluator struct {
	lib *Library
	// base and shielded hold the functions for texts that are parsed while rendering.
	base, shielded func() *template.Template
	out            output
}

// NewEvaluator returns an evaluator for the templates of l.
func NewEvaluator(l *Library) *Evaluator {
	e := &Evaluator{lib: l}
	e.base = sync.OnceValue(func() *template.Template { return template.New("").Funcs(l.functions) })
	e.shielded = sync.OnceValue(func() *template.Template { return template.New("").Funcs(l.functions).Funcs(l.shielded) })
	return e
}

// evaluate renders t, and renders the result again while it holds templates. The result is valid until the next
// call.
func (e *Evaluator) evaluate(ctx context.Context, t *parsedText, in *Input) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	run := t.run
	if in.Shield != nil {
		run = t.shielded
	}
	e.out = output{ctx: ctx, buf: e.out.buf[:0]}
	if t.program == nil || in.Shield != nil || !t.program.run(&e.out, in) {
		e.out = output{ctx: ctx, buf: e.out.buf[:0]}
		if err := e.execute(run, t.mutates, in); err != nil {
			return nil, explain(err, t.at)
		}
	}
	e.noteMissing(ctx, run, t.mutates, t.at, in)
	return e.settle(ctx, t.at, in)
}

// Value renders a configuration value on its own; at is its position.
func (e *Evaluator) Value(ctx context.Context, s string, at finding.Position, in *Input) (string, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	e.out = output{ctx: ctx, buf: append(e.out.buf[:0], s...)}
	settled, err := e.settle(ctx, at, in)
	return string(settled), err
}

// settle evaluates the output again and again, until no template is left in it.
func (e *Evaluator) settle(ctx context.Context, at finding.Position, in *Input) ([]byte, error) {
	for round := 2; bytes.Contains(e.out.buf, []byte("{{")); round++ {
		if round > maxRounds {
			return nil, explainCycle(at, in, fmt.Sprintf("the text still holds {{ after %d rounds of evaluation", maxRounds))
		}
		if err := e.again(ctx, at, in); err != nil {
			return nil, e.explainNested(ctx, err, at, in)
		}
	}
	return in.Shield.lift(e.out.buf), nil
}

func (e *Evaluator) execute(run *template.Template, mutates bool, in *Input) error {
	in.ConfigData = in.Config.Values()
	if !mutates {
		return run.Execute(&e.out, *in.Data)
	}
	own := *in.Data
	own.ConfigData = yamlvalue.Clone(own.ConfigData).(map[string]any)
	return run.Execute(&e.out, own)
}

// again evaluates the result of the last evaluation.
func (e *Evaluator) again(ctx context.Context, at finding.Position, in *Input) error {
	text := string(e.out.buf)
	base := e.base
	if in.Shield != nil {
		base = e.shielded
	}
	run := base().New("value")
	if strings.Contains(text, "define") || strings.Contains(text, "block") {
		run = template.Must(base().Clone()).New("value") // its definitions must not be there for other texts
	}
	run, err := run.Parse(text)
	if err != nil {
		return err
	}
	mutates := prepare(run)
	e.out.buf = e.out.buf[:0]
	if err := e.execute(run, mutates, in); err != nil {
		return err
	}
	e.noteMissingNested(ctx, run, mutates, at, in)
	return nil
}

// Render renders all manifests of a Template, joined as Kalypso joins them.
func (e *Evaluator) Render(ctx context.Context, t *Template, in *Input) ([]byte, error) {
	file := []byte{}
	in.template = t
	defer func() { in.template = nil }()
	for _, m := range t.manifests {
		part, err := e.manifest(ctx, m, in)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", t.name, err)
		}
		if len(part) == 0 {
			continue
		}
		if len(file) > 0 {
			file = append(file, "---\n"...)
		}
		if file = append(file, part...); len(file) > MaxBytes {
			return nil, fmt.Errorf("template %q: %w", t.name, ErrTooLong)
		}
	}
	return file, nil
}

func (e *Evaluator) manifest(ctx context.Context, m part, in *Input) ([]byte, error) {
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
func (e *Evaluator) fill(ctx context.Context, v any, in *Input, errs *[]error) any {
	switch v := v.(type) {
	case *parsedText:
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

// explainParse is explain for an error in the syntax of s. The parser names the last line for an action without an end.
func explainParse(err error, s string, at finding.Position) error {
	if !strings.HasSuffix(err.Error(), "unexpected EOF") {
		return explain(err, at)
	}
	var open [][]int
	for _, m := range block.FindAllStringSubmatchIndex(s, -1) {
		switch {
		case s[m[2]:m[3]] != "end":
			open = append(open, m)
		case len(open) > 0:
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return explain(err, at)
	}
	last := open[len(open)-1]
	if at.Line > 0 {
		at.Line += strings.Count(s[:last[0]], "\n")
	}
	return &finding.Error{Position: at, Message: fmt.Sprintf("{{ %s }} has no {{ end }}", s[last[2]:last[3]]), Err: err}
}

// block finds the actions that begin or end a block.
var block = lazyregexp.New(`\{\{(?:- )?\s*(if|range|with|block|define|end)\b`)

// explain returns an error of text/template with its position in the input; at is the position of the text.
func explain(err error, at finding.Position) error {
	message, hint := err.Error(), ""
	if rest, ok := strings.CutPrefix(message, "template: "); ok {
		_, rest, _ = strings.Cut(rest, ":")
		number, rest, _ := strings.Cut(rest, ":")
		message = strings.TrimLeft(rest, "0123456789: ")
		if before, start, ok := strings.Cut(message, " started at "); ok { // use the line of the start, not of the end
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
		field, in, _ := strings.Cut(rest, " in type ")
		message, hint = before+"there is no field "+field, finding.DidYouMean(field, dataFields())
		if slices.Contains(dataFields(), field) {
			message, hint = message+" in type "+in, "within range and with, write $."+field
		}
	}
	if hint == "" {
		hint = explainFunction(message)
	}
	return &finding.Error{Position: at, Message: shorten(message), Hint: hint, Err: err}
}

// shorten cuts out the middle of a message that quotes a very long action.
func shorten(message string) string {
	const most = 400
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most/2], "") + " … " + strings.ToValidUTF8(message[len(message)-most/2:], "")
}

func dataFields() []string {
	var names []string
	for f := range reflect.TypeFor[Data]().Fields() {
		if f.IsExported() {
			names = append(names, f.Name)
		}
	}
	for m := range reflect.TypeFor[Data]().Methods() {
		if m.Name != "Format" {
			names = append(names, m.Name)
		}
	}
	return names
}
