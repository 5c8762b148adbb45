package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

const (
	// maxExpression bounds an expression, in bytes.
	maxExpression = 4 << 10
	// maxNesting bounds expressions in expressions, and maxLoops all, exists, map and filter in one another.
	maxNesting, maxLoops = 100, 4
	// maxEstimate bounds the estimated cost of an expression, in CEL's units: three loops in one another exceed it.
	maxEstimate = 100_000_000
	// usualSize is the number of items, entries or characters that the estimate takes a value of unknown size for.
	usualSize = 200
	// maxCost bounds the cost of one evaluation, in CEL's units: some tens of milliseconds.
	maxCost = 200_000
)

// language is CEL with the variables of one kind of check.
type language struct {
	env       *cel.Env
	variables []string
}

// objectLanguage is the language of checks about objects, and planLanguage that of checks about publications.
var (
	objectLanguage = sync.OnceValue(func() *language {
		return newLanguage(map[string]*cel.Type{
			"object":      cel.MapType(cel.StringType, cel.DynType),
			"clusterType": cel.ObjectType("check.ClusterType"),
			"target":      cel.ObjectType("check.Target"),
			"environment": cel.StringType, "workload": cel.StringType, "workspace": cel.StringType,
		}, reflect.TypeFor[ClusterType](), reflect.TypeFor[Target]())
	})
	planLanguage = sync.OnceValue(func() *language {
		return newLanguage(map[string]*cel.Type{"plan": cel.ObjectType("check.Plan"), "environment": cel.StringType},
			reflect.TypeFor[Plan](), reflect.TypeFor[PlannedType](), reflect.TypeFor[Counts](), reflect.TypeFor[AssignmentCounts](), reflect.TypeFor[PlannedWorkspace]())
	})
)

func newLanguage(variables map[string]*cel.Type, structs ...any) *language {
	options := []cel.EnvOption{
		cel.OptionalTypes(), // which takes the types of structs only from those after it
		ext.NativeTypes(append(structs, ext.ParseStructTags(true))...),
		func(e *cel.Env) (*cel.Env, error) { return cel.CustomTypeAdapter(sortedAdapter{e.CELTypeAdapter()})(e) },
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(maxNesting),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateComprehensionNestingLimit(maxLoops)),
	}
	for name, t := range variables {
		options = append(options, cel.Variable(name, t))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic("CEL's environment: " + err.Error()) // a test makes both
	}
	return &language{env, slices.Sorted(maps.Keys(variables))}
}

// compile compiles an expression of o whose value has the type want.
func (l *language) compile(o *kinds.PlatformCheck, text kinds.Text, want *cel.Type) (*cel.Ast, cel.Program, error) {
	at := o.Position(text.First)
	if len(text.Value) > maxExpression {
		return nil, nil, mistake(o, at, "make several checks of it", "the expression has %d bytes, %d are permitted", len(text.Value), maxExpression)
	}
	parsed, issues := l.env.Compile(text.Value)
	if issues.Err() != nil {
		return nil, nil, l.mistakes(o, text, issues.Errors())
	}
	if t := parsed.OutputType(); !t.IsExactType(want) && !t.IsExactType(cel.DynType) {
		return nil, nil, mistake(o, at, "", "the expression gives a %s, and must give a %s", t, want)
	}
	estimate, err := l.env.EstimateCost(parsed, usualSizes{})
	if err == nil && estimate.Max > maxEstimate {
		err = errors.New("the expression may cost too much: use fewer nested loops")
	}
	if err != nil {
		return nil, nil, mistake(o, at, "", "%v", err)
	}
	program, err := l.env.Program(parsed, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, nil, mistake(o, at, "", "%v", err)
	}
	return parsed, program, nil
}

// mistakes are CEL's errors with their places in the file.
func (l *language) mistakes(o *kinds.PlatformCheck, text kinds.Text, all []*common.Error) error {
	var errs []error
	for _, e := range all {
		message, _, _ := strings.Cut(e.Message, " (in container '')")
		line, column := e.Location.Line(), e.Location.Column()
		found := &finding.Error{
			Position: o.Position(text.First + kinds.Line(max(0, line-1))), Code: finding.CodeCheck, Hint: l.hint(message),
			Message: finding.Sentence("PlatformCheck %q: column %d of the expression: %s", o.Metadata.Name, column+1, message),
		}
		if text.Column > 0 {
			found.Column = int(text.Column) + column
		}
		errs = append(errs, found)
	}
	return finding.Join(errs)
}

// hint returns advice for a message of the compiler.
func (l *language) hint(message string) string {
	name, unknown := strings.CutPrefix(message, "undeclared reference to '")
	switch {
	case unknown:
		return cmp.Or(finding.DidYouMean(strings.TrimSuffix(name, "'"), l.variables), "variables: "+strings.Join(l.variables, ", "))
	case strings.Contains(message, "(double, int)"), strings.Contains(message, "(int, double)"):
		return "counts have a fraction: write 10.0 in place of 10"
	}
	return ""
}

// usualSizes estimates the sizes of values that only a rendered object has.
type usualSizes struct{}

func (usualSizes) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Max: usualSize}
}

func (usualSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// readsField reports whether an expression reads a field of that name.
func readsField(a *cel.Ast, field string) bool {
	return len(ast.MatchDescendants(ast.NavigateAST(a.NativeRep()), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.SelectKind && e.AsSelect().FieldName() == field
	})) > 0
}

// evaluate returns the value of a program, with its cost.
func evaluate(p cel.Program, variables map[string]any) (ref.Val, uint64, error) {
	value, details, err := p.Eval(variables)
	cost := uint64(maxCost)
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	if err != nil && strings.Contains(err.Error(), "actual cost limit exceeded") {
		err = fmt.Errorf("it costs more than %d steps", maxCost)
	}
	return value, cost, err
}

// sortedAdapter makes maps of strings whose entries are visited in the order of their keys.
type sortedAdapter struct{ types.Adapter }

func (a sortedAdapter) NativeToValue(v any) ref.Val {
	if m, ok := v.(map[string]string); ok {
		return &sortedMap{types.NewStringStringMap(a, m), slices.Sorted(maps.Keys(m))}
	}
	return a.Adapter.NativeToValue(v)
}

// sortedMap is a map whose entries are visited in the order of its keys.
type sortedMap struct {
	traits.Mapper
	keys []string
}

func (m *sortedMap) Iterator() traits.Iterator {
	return &keyIterator{Iterator: m.Mapper.Iterator(), keys: m.keys}
}

// keyIterator yields the keys of a sortedMap. The embedded one gives it the methods of a value.
type keyIterator struct {
	traits.Iterator
	keys []string
}

func (i *keyIterator) HasNext() ref.Val { return types.Bool(len(i.keys) > 0) }

func (i *keyIterator) Next() ref.Val {
	key := i.keys[0]
	i.keys = i.keys[1:]
	return types.String(key)
}
