package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

const (
	// maxTotal bounds the cost of all evaluations for one assignment, in CEL's units.
	maxTotal = 10 * maxCost
	// maxViolations bounds the violations of one assignment that are listed.
	maxViolations = 10
)

// ClusterType is the variable clusterType.
type ClusterType struct {
	Name   string            `cel:"name"`
	Labels map[string]string `cel:"labels"`
}

// Target is the variable target.
type Target struct {
	// Name is the deployment target's full name, <workload>-<target>.
	Name         string            `cel:"name"`
	Labels       map[string]string `cel:"labels"`
	Namespace    string            `cel:"namespace"`
	Registration string            `cel:"registration"`
	Adapter      string            `cel:"adapter"`
}

// Assignment is a rendered assignment, as checks read it.
type Assignment struct {
	Environment, Workload, Workspace string
	ClusterType                      ClusterType
	Target                           Target
	Files                            []File
}

// File is a rendered file.
type File struct {
	Path string
	Data []byte
}

// Violation is a check that does not accept an object.
type Violation struct {
	// Check is the name of the check, and At its expression.
	Check string
	At    finding.Position
	// Warning is true for a check of severity warning.
	Warning bool
	// Unanswered is true if the check could not be evaluated.
	Unanswered bool
	// File is the path of the file, and Kind that of the object, which is empty for a file that cannot be read.
	File, Kind string
	// Message names the problem, for people, and Hint a remedy.
	Message, Hint string
}

// Run evaluates the checks for each object of an assignment, in the order of files and documents and then of the names of
// checks. It returns no more than ten violations.
func (o *Objects) Run(a *Assignment) []Violation {
	if o == nil {
		return nil
	}
	r := &run{variables: map[string]any{
		"clusterType": a.ClusterType, "target": a.Target,
		"environment": a.Environment, "workload": a.Workload, "workspace": a.Workspace,
	}}
	for _, f := range a.Files {
		if strings.HasSuffix(f.Path, ".yaml") {
			r.file(o.checks, f)
		}
	}
	return r.found
}

// run is the evaluation of checks for one assignment.
type run struct {
	variables map[string]any
	cost      uint64
	found     []Violation
}

func (r *run) full() bool { return len(r.found) >= maxViolations }

func (r *run) file(checks []*check, f File) {
	if len(f.Data) == 0 {
		return
	}
	checks = slices.DeleteFunc(slices.Clone(checks), func(c *check) bool { return !mayHave(f.Data, c.kinds) })
	if len(checks) == 0 {
		return
	}
	objects, err := relevantObjects(f.Data, kindsOf(checks))
	if err != nil {
		for _, c := range checks {
			r.add(c, Violation{Unanswered: true, File: f.Path, Message: fmt.Sprintf("%s cannot be read, so it cannot be checked: %v", f.Path, err)})
		}
		return
	}
	for _, o := range objects {
		for _, c := range checks {
			if len(c.kinds) == 0 || slices.ContainsFunc(c.kinds, o.is) {
				r.object(c, f.Path, o)
			}
		}
	}
}

func (r *run) add(c *check, v Violation) {
	if !r.full() {
		v.Check, v.At, v.Warning = c.name, c.at, c.warning
		r.found = append(r.found, v)
	}
}

// object evaluates one check for one object.
func (r *run) object(c *check, path string, o object) {
	if r.full() {
		return
	}
	v := Violation{File: path, Kind: o.kind}
	r.variables["object"] = o.value
	met, message, hint := c.judge(r.variables, &r.cost)
	if met {
		return
	}
	v.Unanswered, v.Hint = hint != "", hint
	v.Message = fmt.Sprintf("%s in %s: %s", o, path, message)
	r.add(c, v)
}

// judge evaluates the check, and returns the message if it is not met. The hint is empty unless the check gave no answer.
func (c *check) judge(variables map[string]any, cost *uint64) (met bool, message, hint string) {
	if *cost > maxTotal {
		return false, fmt.Sprintf("the checks of one assignment cost more than %d steps together", maxTotal), "render fewer objects, or simplify the checks"
	}
	value, taken, err := evaluate(c.program, variables)
	*cost += taken
	if err != nil {
		return false, "the check cannot be evaluated: " + err.Error(), hintOf(err)
	}
	accepted, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Sprintf("the check gives a %s, not true or false", value.Type().TypeName()), "compare the value, such as with == true"
	}
	if accepted {
		return true, "", ""
	}
	if c.expression != nil {
		text, taken, err := evaluate(c.expression, variables)
		*cost += taken
		if s, ok := text.(types.String); err == nil && ok && strings.TrimSpace(string(s)) != "" {
			return false, strings.Join(strings.Fields(string(s)), " "), ""
		}
	}
	return false, c.message, ""
}

// hintOf returns advice for an error of an evaluation.
func hintOf(err error) string {
	if key, ok := strings.CutPrefix(err.Error(), "no such key: "); ok {
		return fmt.Sprintf("ask before you read, as with !has(object.spec.%s) || …, or give a default, as with object.?spec.?%s.orValue('')", key, key)
	}
	return "an expression that gives no answer refuses the object"
}
