package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// target is a deployment target of this environment.
type target struct {
	name      string // <workload>-<target>
	workspace string
	workload  *workload
	spec      *deploymentTarget
	at        finding.Position
	labels    map[string]string
	schemas   []schemaUse
}

// targets lists the environment's deployment targets, sorted by name.
func (m *Model) targets() ([]*target, error) {
	var all []*target
	var errs []error
	for _, w := range m.workloads {
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
		return cmp.Or(strings.Compare(a.name, b.name), a.at.Compare(b.at))
	})
	shareSchemaSteps(all)
	return all, finding.Join(errs)
}

// workspaceOf is the workspace of the registration whose source w was found in. What lies in the
// platform itself belongs to no workspace.
func (m *Model) workspaceOf(w *workload) (string, error) {
	if w.registration == "" {
		return "", nil
	}
	r, ok := m.registrations[w.registration]
	if !ok {
		return "", finding.Errorf(finding.CodeNoRegistration, w.at, finding.DidYouMean(w.registration, sortedKeys(m.registrations)),
			"workload %q comes from registration %q, and there is no WorkloadRegistration of that name", w.Metadata.Name, w.registration)
	}
	return r.Workspace, nil
}

func (m *Model) newTarget(w *workload, spec *deploymentTarget, workspace string) *target {
	t := &target{
		name:      w.Metadata.Name + "-" + spec.Name,
		workspace: workspace,
		workload:  w,
		spec:      spec,
		at:        w.position(spec.Line),
		labels:    make(map[string]string, len(spec.Labels)+len(w.Metadata.Labels)+2),
	}
	maps.Copy(t.labels, spec.Labels)
	maps.Copy(t.labels, w.Metadata.Labels)
	if w.registration != "" {
		t.labels[fluxName], t.labels[fluxNamespace] = m.environment+"-"+w.registration, "flux-system"
	}
	t.labels["workload"], t.labels["workspace"] = w.Metadata.Name, workspace // nobody can pose as another
	for _, schema := range slices.Concat(spec.ConfigSchemas, w.Spec.ConfigSchemas) {
		t.schemas = append(t.schemas, schemaUse{owner: fmt.Sprintf("a schema of workload %q", w.Metadata.Name), at: w.position(schema.line), text: schema.Value})
	}
	return t
}

// checkEnvironments warns about targets that seem to be meant for the environment and are not.
func (w *workload) checkEnvironments(environment string) []finding.Finding {
	var findings []finding.Finding
	for i := range w.Spec.DeploymentTargets {
		t := &w.Spec.DeploymentTargets[i]
		if t.Environment != environment && strings.EqualFold(t.Environment, environment) {
			findings = append(findings, finding.New(finding.CodeEnvironmentCase, w.position(t.Line), "names of environments are compared to the letter",
				"target %q is for environment %q, which is not %q", t.Name, t.Environment, environment))
		}
	}
	return findings
}

func (t *target) String() string {
	s := fmt.Sprintf("target %q of workload %q", t.spec.Name, t.workload.Metadata.Name)
	if r := t.workload.registration; r != "" {
		s += fmt.Sprintf(" (registration %q)", r)
	}
	return s
}

func (w *workload) targetNames() []string {
	var names []string
	for i := range w.Spec.DeploymentTargets {
		names = append(names, w.Spec.DeploymentTargets[i].Name)
	}
	return names
}

// hasBraces reports whether any text of the app team needs a shield.
func (t *target) hasBraces() bool {
	for _, texts := range []map[string]string{t.labels, t.spec.Manifests} {
		for key, value := range texts {
			if strings.ContainsAny(key, "{}") || strings.ContainsAny(value, "{}") {
				return true
			}
		}
	}
	return false
}
