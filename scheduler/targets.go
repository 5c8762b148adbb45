package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// target is a deployment target with the schemas of its workload.
type target struct {
	kinds.Target
	schemas []schemaUse
}

// targets lists the environment's deployment targets, sorted by name.
func (m *Model) targets() ([]*target, error) {
	var all []*target
	var errs []error
	for _, w := range m.objects.Workloads {
		workspace, err := m.workspaceOf(w)
		if err != nil {
			errs = append(errs, err)
		}
		for i := range w.Spec.DeploymentTargets {
			if spec := &w.Spec.DeploymentTargets[i]; spec.Environment == m.environment {
				all = append(all, m.newTarget(w, spec, workspace))
			}
		}
	}
	slices.SortFunc(all, func(a, b *target) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.At.Compare(b.At))
	})
	shareSchemaSteps(all)
	return all, finding.Join(errs)
}

// Targets returns the environment's deployment targets, sorted by name. [Model.Render] reports their errors.
func (m *Model) Targets() []*kinds.Target {
	all, _ := m.targets()
	targets := make([]*kinds.Target, len(all))
	for i, t := range all {
		targets[i] = &t.Target
	}
	return targets
}

// workspaceOf returns the workspace of the registration whose source has w. Workloads of the
// platform itself belong to no workspace.
func (m *Model) workspaceOf(w *kinds.Workload) (string, error) {
	if w.Registration == "" {
		return "", nil
	}
	r, ok := m.registrations[w.Registration]
	if !ok {
		return "", finding.Errorf(finding.CodeNoRegistration, w.At, finding.DidYouMean(w.Registration, sortedKeys(m.registrations)),
			"workload %q comes from registration %q, and there is no WorkloadRegistration of that name", w.Metadata.Name, w.Registration)
	}
	return r.Workspace, nil
}

func (m *Model) newTarget(w *kinds.Workload, spec *kinds.DeploymentTarget, workspace string) *target {
	t := &target{Target: kinds.Target{
		Name:      w.Metadata.Name + "-" + spec.Name,
		Workspace: workspace,
		Workload:  w,
		Spec:      spec,
		At:        w.Position(spec.Line),
		Labels:    make(map[string]string, len(spec.Labels)+len(w.Metadata.Labels)+2),
	}}
	maps.Copy(t.Labels, spec.Labels)
	maps.Copy(t.Labels, w.Metadata.Labels)
	if w.Registration != "" {
		t.Labels[kinds.FluxName], t.Labels[kinds.FluxNamespace] = m.environment+"-"+w.Registration, "flux-system"
	}
	t.Labels["workload"], t.Labels["workspace"] = w.Metadata.Name, workspace // a team cannot pose as another
	for _, schema := range slices.Concat(spec.ConfigSchemas, w.Spec.ConfigSchemas) {
		t.schemas = append(t.schemas, schemaUse{owner: fmt.Sprintf("a schema of workload %q", w.Metadata.Name), at: w.Position(schema.Line), text: schema.Value})
	}
	return t
}

// checkEnvironments warns about targets whose environment differs from this one in case only.
func checkEnvironments(w *kinds.Workload, environment string) []finding.Finding {
	var findings []finding.Finding
	for i := range w.Spec.DeploymentTargets {
		t := &w.Spec.DeploymentTargets[i]
		if t.Environment != environment && strings.EqualFold(t.Environment, environment) {
			findings = append(findings, finding.New(finding.CodeEnvironmentCase, w.Position(t.Line), "names of environments are compared to the letter",
				"target %q is for environment %q, which is not %q", t.Name, t.Environment, environment))
		}
	}
	return findings
}

// hasBraces reports whether any text of the app team needs a shield.
func hasBraces(t *target) bool {
	for _, texts := range []map[string]string{t.Labels, t.Spec.Manifests} {
		for key, value := range texts {
			if strings.ContainsAny(key, "{}") || strings.ContainsAny(value, "{}") {
				return true
			}
		}
	}
	return false
}
