package scheduler

import (
	"fmt"

	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// check evaluates the platform's checks for a rendered assignment. It returns those of severity warning that are not met,
// and the others as an error.
func (a *assigner) check(made *Assignment, t *target) (warnings []error, err error) {
	if a.checks == nil {
		return nil, nil
	}
	input := &check.Assignment{
		Environment: a.model.environment, Workload: made.Workload, Workspace: made.Workspace,
		ClusterType: check.ClusterType{Name: made.ClusterType, Labels: a.ct.Metadata.Labels},
		Target: check.Target{
			Name: made.Name, Labels: t.Labels, Namespace: made.Namespace, Registration: t.Workload.Registration, Adapter: made.Adapter,
		},
	}
	for _, f := range made.Files {
		input.Files = append(input.Files, check.File(f))
	}
	var errs []error
	for _, v := range a.checks.Run(input) {
		if found := a.violation(v, t); v.Warning {
			warnings = append(warnings, found)
		} else {
			errs = append(errs, found)
		}
	}
	return warnings, finding.Join(errs)
}

// violation returns the error about an object, at its place in the Template that renders it.
func (a *assigner) violation(v check.Violation, t *target) error {
	at := a.ct.At
	if source := a.model.templateOf(a.ct, v.File); source != nil {
		at = source.FindKind(v.Kind)
	}
	code := finding.CodeCheckFailed
	switch {
	case v.Warning:
		code = finding.CodeCheckWarned
	case v.Unanswered:
		code = finding.CodeCheckEvaluation
	}
	hint := fmt.Sprintf("PlatformCheck %q at %s; %s at %s", v.Check, v.At, t, t.At)
	if v.Hint != "" {
		hint = v.Hint + "; " + hint
	}
	return &finding.Error{Position: at, Code: code, Message: finding.Sentence("%s", v.Message), Hint: finding.Sentence("%s", hint), Group: v.Check}
}

// templateOf returns the Template from which a cluster type renders a file; nil for a file that is rendered in a built-in
// way.
func (m *Model) templateOf(ct *kinds.ClusterType, file string) *kinds.Template {
	return m.objects.Templates[ct.TemplateOf(file)]
}
