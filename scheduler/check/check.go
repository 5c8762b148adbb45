// Package check evaluates the PlatformChecks of a platform: rules in CEL about rendered objects, and about publications.
//
// [Compile] compiles all checks of a platform and returns those of one environment as a [Set]. [Set.For] returns the object
// checks of a cluster type, whose Run judges an assignment, and [Set.Plan] judges the facts about a publication. Expressions
// are type-checked, have no clock, no randomness and no input but their variables, and are bounded: in their length, by an
// estimate of their cost, and by a budget when they run. A check that gives no answer refuses. The same input gives the same
// findings in the same order. The package reads and writes nothing.
package check

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// maxChecks bounds the checks of a platform.
const maxChecks = 256

// Set holds the checks of an environment. A nil Set has none. It may be used by several goroutines.
type Set struct {
	objects, plans []*check // sorted by name
}

// check is a compiled PlatformCheck.
type check struct {
	name    string
	at      finding.Position // of its expression
	warning bool
	types   labels.Selector
	kinds   []groupKind
	program cel.Program
	// message names the problem; expression, if not nil, may give another one.
	message    string
	expression cel.Program
	// clusters is true if the expression reads numbers of clusters.
	clusters bool
	digest   [sha256.Size]byte
}

// groupKind is a kind that a check is for; an empty group means any.
type groupKind struct{ kind, group string }

// Compile compiles checks and returns those of an environment. Its errors are about all of them, each with the place in the
// expression.
func Compile(all []*kinds.PlatformCheck, environment string) (*Set, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if len(all) > maxChecks {
		return nil, finding.Errorf(finding.CodeCheck, all[maxChecks].At, "put several rules into one expression", "the platform has %d checks, %d are permitted", len(all), maxChecks)
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b *kinds.PlatformCheck) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	s := &Set{}
	var errs []error
	for _, o := range all {
		c, err := compile(o)
		switch names := o.Spec.Environments; {
		case err != nil:
			errs = append(errs, err)
		case len(names) > 0 && !slices.Contains(names, environment):
		case o.Spec.Plan.Value != "":
			s.plans = append(s.plans, c)
		default:
			s.objects = append(s.objects, c)
		}
	}
	return s, finding.Join(errs)
}

// compile compiles one check. Its error joins all mistakes in it.
func compile(o *kinds.PlatformCheck) (*check, error) {
	spec := &o.Spec
	c := &check{name: o.Metadata.Name, warning: spec.Severity == kinds.SeverityWarning, message: spec.Message}
	var errs []error
	wrong := func(hint, format string, args ...any) {
		errs = append(errs, mistake(o, o.Position(spec.Line), hint, format, args...))
	}
	if known := []string{kinds.SeverityError, kinds.SeverityWarning}; spec.Severity != "" && !slices.Contains(known, spec.Severity) {
		wrong("known: "+strings.Join(known, ", "), "unknown severity %q", spec.Severity)
	}
	if len(spec.Message) > maxExpression {
		wrong("", "the message has %d bytes, %d are permitted", len(spec.Message), maxExpression)
	}
	var err error
	if c.types, err = selector(o); err != nil {
		wrong("operators are In, NotIn, Exists and DoesNotExist", "clusterTypeSelector: %v", err)
	}
	for _, k := range spec.Objects.Kinds {
		kind, group, _ := strings.Cut(k, ".")
		if kind == "" {
			wrong("write Service, or Deployment.apps", "%q is not a kind", k)
		}
		c.kinds = append(c.kinds, groupKind{kind, group})
	}
	about, text := objectLanguage, spec.Expression
	if spec.Plan.Value != "" {
		about, text = planLanguage, spec.Plan
	}
	switch isPlan := spec.Plan.Value != ""; {
	case spec.Expression.Value == "" && !isPlan:
		wrong("expression is about rendered objects, plan about a publication", "it has neither an expression nor a plan")
	case spec.Expression.Value != "" && isPlan:
		wrong("make two checks of it", "it has both an expression and a plan")
	case isPlan && len(c.kinds) > 0:
		wrong("remove them", "objects.kinds have no meaning for a plan")
	}
	if len(errs) > 0 {
		return nil, finding.Join(errs)
	}
	c.at = o.Position(text.First)
	var ast *cel.Ast
	ast, c.program, err = about().compile(o, text, cel.BoolType)
	if err != nil {
		errs = append(errs, err)
	} else {
		c.clusters = readsField(ast, "clusters")
	}
	if m := spec.MessageExpression; m.Value != "" {
		if _, c.expression, err = about().compile(o, m, cel.StringType); err != nil {
			errs = append(errs, err)
		}
	}
	if c.message == "" {
		c.message = "it does not meet " + strings.Join(strings.Fields(text.Value), " ")
	}
	c.digest = digestOf(o)
	return c, finding.Join(errs)
}

func mistake(o *kinds.PlatformCheck, at finding.Position, hint, format string, args ...any) error {
	return finding.Errorf(finding.CodeCheck, at, hint, "PlatformCheck %q: %s", o.Metadata.Name, fmt.Sprintf(format, args...))
}

// selector returns the selector of cluster types.
func selector(o *kinds.PlatformCheck) (labels.Selector, error) {
	s := o.Spec.ClusterTypeSelector.LabelSelector
	kube := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		kube.MatchExpressions = append(kube.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	return metav1.LabelSelectorAsSelector(&kube)
}

// digestOf returns a digest of what decides the outcome of a check for an assignment that it is for.
func digestOf(o *kinds.PlatformCheck) [sha256.Size]byte {
	s := o.Spec
	text, _ := json.Marshal([]any{o.Metadata.Name, s.Severity, s.Objects.Kinds, s.Expression.Value}) // strings have a JSON form
	return sha256.Sum256(text)
}

// Objects are the object checks of a cluster type. A nil Objects has none.
type Objects struct {
	checks []*check
	// Digest changes with the checks. An assignment with the same files, variables and digest has the same outcome.
	Digest [sha256.Size]byte
}

// For returns the object checks of a cluster type with these labels; nil if there are none.
func (s *Set) For(types map[string]string) *Objects {
	if s == nil {
		return nil
	}
	o := &Objects{}
	sum := sha256.New()
	for _, c := range s.objects {
		if c.types.Matches(labels.Set(types)) {
			o.checks = append(o.checks, c)
			_, _ = sum.Write(c.digest[:])
		}
	}
	if len(o.checks) == 0 {
		return nil
	}
	sum.Sum(o.Digest[:0])
	return o
}

// Applies reports whether a check that Compile accepts is for a cluster type with these labels.
func Applies(o *kinds.PlatformCheck, types map[string]string) bool {
	s, err := selector(o)
	return err == nil && s.Matches(labels.Set(types))
}
