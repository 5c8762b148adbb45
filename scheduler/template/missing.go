package template

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// A template that prints a missing key writes "<no value>", as text/template does: usually
// the key is misspelt, or its ConfigMap does not apply. Kalypso writes that text, and so does wherry unless it is
// asked to refuse. If the text occurs in a result, the template is run once more, by a copy that records the output of each
// action: so only such templates take longer, and the same text in the input is recognized.

// MissingKeysAnnotation on a Template permits it, with the value kalypso, to print keys that are not there.
const MissingKeysAnnotation = "wherry.dev/missing-keys"

// MissingKeysKalypso is the value of [MissingKeysAnnotation].
const MissingKeysKalypso = "kalypso"

// The texts that text/template and package fmt write for a missing value.
var absent, absentArgument = []byte("<no value>"), []byte("<nil>")

// absentBeginning is the common beginning of both, so that most texts are searched once.
var absentBeginning = []byte("<n")

// mayLack reports whether a rendered text may print a missing key although that is not permitted.
func (in *Input) mayLack(text []byte) bool {
	if !bytes.Contains(text, absentBeginning) || in.template != nil && in.template.permitsMissing {
		return false
	}
	return bytes.Contains(text, absent) || bytes.Contains(text, absentArgument)
}

// printing lists the functions that write a missing value as fmt does.
var printing = []string{"print", "printf", "println", "toString"}

const (
	presentFunction = "wherryPresent"
	hintMissing     = "set it, or give it a default; the annotation " + MissingKeysAnnotation + ": " + MissingKeysKalypso + " on the Template permits it"
)

// lacking is an action that printed a missing key.
type lacking struct {
	line   int    // of the text
	action string // without its braces
}

// lacks returns the actions of run, which has just been run for in, that print missing keys, each once.
func (e *Evaluator) lacks(ctx context.Context, run *template.Template, mutates bool, in *Input) ([]lacking, error) {
	noting, err := run.Clone()
	if err != nil {
		return nil, err
	}
	var found []lacking
	given := false // a function wrote a missing value
	noting.Funcs(e.notingFunctions(in.Shield != nil, &given))
	noting.Funcs(template.FuncMap{presentFunction: func(place string, v reflect.Value) reflect.Value {
		if !v.IsValid() || given && v.Kind() == reflect.String && strings.Contains(v.String(), string(absentArgument)) {
			number, action, _ := strings.Cut(place, " ")
			line, _ := strconv.Atoi(number)
			if next := (lacking{line, action}); !slices.Contains(found, next) {
				found = append(found, next)
			}
		}
		return v
	}})
	for _, t := range noting.Templates() {
		if t.Tree != nil {
			t.Tree = t.Copy()
			notePrinted(t.Tree)
		}
	}
	alone := &Evaluator{lib: e.lib, out: output{ctx: ctx}}
	return found, alone.execute(noting, mutates, in)
}

// notePrinted makes every printing action of tree pass its value to presentFunction first.
func notePrinted(tree *parse.Tree) {
	walk(tree.Root, func(n parse.Node) {
		action, ok := n.(*parse.ActionNode)
		if !ok || len(action.Pipe.Decl) > 0 {
			return
		}
		location, _ := tree.ErrorContext(action) // name:line:byte
		parts := strings.Split(location, ":")
		place := parts[max(0, len(parts)-2)] + " " + withoutOurs(action.Pipe)
		action.Pipe.Cmds = append(action.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: action.Pos, Args: []parse.Node{
			parse.NewIdentifier(presentFunction).SetPos(action.Pos),
			&parse.StringNode{NodeType: parse.NodeString, Pos: action.Pos, Quoted: strconv.Quote(place), Text: place},
		}})
	})
}

// withoutOurs returns a pipeline as it was written, without the additions of prepare.
func withoutOurs(pipe *parse.PipeNode) string {
	return strings.TrimSuffix(pipe.String(), " | "+measureFunction)
}

// notingFunctions returns the functions of printing, which set given when an argument is a missing value.
func (e *Evaluator) notingFunctions(shielded bool, given *bool) template.FuncMap {
	noting := template.FuncMap{}
	for _, name := range printing {
		f := e.lib.functions[name]
		if shielded {
			f = cmp.Or[any](e.lib.shielded[name], f)
		}
		call := reflect.ValueOf(f)
		noting[name] = reflect.MakeFunc(call.Type(), func(args []reflect.Value) []reflect.Value {
			*given = *given || slices.ContainsFunc(args, holdsNil)
			if call.Type().IsVariadic() {
				return call.CallSlice(args)
			}
			return call.Call(args)
		}).Interface()
	}
	return noting
}

// holdsNil reports whether v, or one of a function's further arguments in v, is nil.
func holdsNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface:
		return v.IsNil()
	case reflect.Slice:
		for i := range v.Len() {
			if item := v.Index(i); item.Kind() == reflect.Interface && item.IsNil() {
				return true
			}
		}
	}
	return false
}

// noteMissing adds to in.Missing the missing keys that run has printed. At is the position of its text.
func (e *Evaluator) noteMissing(ctx context.Context, run *template.Template, mutates bool, at finding.Position, in *Input) {
	if !in.mayLack(e.out.buf) {
		return
	}
	found, err := e.lacks(ctx, run, mutates, in)
	if err != nil {
		in.Missing = append(in.Missing, explain(err, at))
	}
	for _, l := range found {
		in.addMissing(l, at, in.text())
	}
}

// noteMissingNested is noteMissing for a text that templates have rendered: it names the configuration value that
// has the action, or else at, the position of the text's template.
func (e *Evaluator) noteMissingNested(ctx context.Context, run *template.Template, mutates bool, at finding.Position, in *Input) {
	if !in.mayLack(e.out.buf) {
		return
	}
	found, err := e.lacks(ctx, run, mutates, in)
	if err != nil {
		in.Missing = append(in.Missing, explain(err, at))
	}
	for _, l := range found {
		if !e.blameValue(ctx, l, in) {
			l.line = 1
			in.addMissing(l, at, in.text()+"in the text that it has rendered: ")
		}
	}
}

// blameValue names the configuration values whose own text has the action l, and reports whether there is one.
func (e *Evaluator) blameValue(ctx context.Context, l lacking, in *Input) (found bool) {
	values := in.Config.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		for _, s := range templatesIn(values[key]) {
			value := e.lib.text("value", s, in.Config.Origin(key))
			if value.err != nil || !strings.Contains(s, l.action) {
				continue
			}
			run := value.run
			if in.Shield != nil {
				run = value.shielded
			}
			all, _ := e.lacks(ctx, run, value.mutates, in)
			if slices.ContainsFunc(all, func(own lacking) bool { return own.action == l.action }) {
				found = true
				in.addMissing(lacking{1, l.action}, in.Config.Origin(key), "value of "+key+": ")
			}
		}
	}
	return found
}

// text returns the name of the rendered text for messages.
func (in *Input) text() string {
	if in.template == nil {
		return "configuration: "
	}
	return fmt.Sprintf("template %q: ", in.template.name)
}

// unset are the fields of an action by which users set values, with the one who lacks them.
var unset = []struct {
	field *lazyregexp.Regexp
	text  string
}{
	{lazyregexp.New(`\.Manifests\.([A-Za-z_][A-Za-z0-9_]*)`), "the target does not set manifests.%s"},
	{lazyregexp.New(`\.ConfigData\.([A-Za-z_][A-Za-z0-9_.]*)`), "the platform configuration does not set %s"},
	{lazyregexp.New(`\.Labels\.([A-Za-z_][A-Za-z0-9_]*)`), "the target has no label %s"},
}

// missing says what is not set: by its name if the action reads one thing.
func (l lacking) missing() string {
	for _, u := range unset {
		if found := u.field.FindStringSubmatch(l.action); found != nil && strings.Count(l.action, " .")+strings.Count(l.action, "$") == 0 {
			return fmt.Sprintf(u.text, found[1])
		}
	}
	return fmt.Sprintf("{{ %s }} prints a value that is not set", shorten(l.action))
}

// addMissing adds the missing key of an action, once. At is the position of the text.
func (in *Input) addMissing(l lacking, at finding.Position, text string) {
	if at.Line > 0 {
		at.Line += l.line - 1
	}
	err := finding.Errorf(finding.CodeMissingKey, at, hintMissing, "%s%s", text, l.missing())
	if !slices.ContainsFunc(in.Missing, func(known error) bool { return known.Error() == err.Error() }) {
		in.Missing = append(in.Missing, err)
	}
}
