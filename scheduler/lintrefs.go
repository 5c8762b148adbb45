package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// references adds what names something that does not exist, and templates that nothing names.
func (l *linter) references() {
	used := map[string]bool{}
	for _, ct := range sortedValues(l.model.clusterTypes) {
		l.templatesOf(ct, used)
	}
	for _, t := range sortedValues(l.model.templates) {
		if !used[t.Metadata.Name] && len(l.model.clusterTypes) > 0 {
			l.addUnused(&t.object, finding.CodeUnusedTemplate, "", "Template %q is used by no ClusterType", t.Metadata.Name)
		}
	}
	l.registrations()
	l.environments()
	l.clusters()
}

func (l *linter) templatesOf(ct *clusterType, used map[string]bool) {
	builtIn := []string{configMapType, envFileType}
	for _, ref := range []struct {
		field, template string
		others          []string
	}{
		{"reconciler", ct.Spec.Reconciler, nil},
		{"namespaceService", ct.Spec.NamespaceService, nil},
		{"configType", ct.Spec.ConfigType, builtIn},
	} {
		used[ref.template] = true
		_, exists := l.model.templates[ref.template]
		switch {
		case exists, ref.field == "configType" && ref.template == "", slices.Contains(ref.others, ref.template):
		case ref.template == "":
			l.add(finding.CodeNoTemplate, ct.at, "it must name a Template", "ClusterType %q has no spec.%s", ct.Metadata.Name, ref.field)
		default:
			names := append(sortedKeys(l.model.templates), ref.others...)
			l.add(finding.CodeNoTemplate, ct.at, finding.DidYouMean(ref.template, names), "ClusterType %q: spec.%s names template %q, which does not exist",
				ct.Metadata.Name, ref.field, ref.template)
		}
	}
}

// registrations adds those whose source gives no Workload, and policies and the Platform's lines for
// workspaces that none has.
func (l *linter) registrations() {
	var workspaces []string
	for _, r := range l.model.Registrations() {
		workspaces = append(workspaces, r.Workspace)
		if !slices.ContainsFunc(l.model.workloads, func(w *workload) bool { return w.registration == r.Name }) {
			l.add(finding.CodeEmptyRegistration, r.Position, "look at its branch and path", "the source of WorkloadRegistration %q holds no Workload", r.Name)
		}
	}
	for _, p := range sortedValues(l.model.policies) {
		if w := p.Spec.DeploymentTargetSelector.Workspace; w != "" && !slices.Contains(workspaces, w) {
			l.add(finding.CodeNoWorkspace, p.at, finding.DidYouMean(w, workspaces), "SchedulingPolicy %q: no WorkloadRegistration has workspace %q", p.Metadata.Name, w)
		}
	}
	for _, w := range sortedKeys(l.model.workspaces) {
		if !slices.Contains(workspaces, w) {
			l.add(finding.CodeUnusedWorkspace, l.model.workspaces[w].at, finding.DidYouMean(w, workspaces), "Platform: no WorkloadRegistration has workspace %q", w)
		}
	}
}

// environments adds deployment targets for environments that do not exist, as far as they are known.
func (l *linter) environments() {
	known := sortedKeys(l.model.environments)
	for _, w := range l.model.workloads {
		for i := range w.Spec.DeploymentTargets {
			t := &w.Spec.DeploymentTargets[i]
			at := w.position(t.Line)
			switch {
			case t.Environment == "":
				l.add(finding.CodeNoEnvironment, at, "", "target %q of workload %q names no environment", t.Name, w.Metadata.Name)
			case len(known) == 0 || slices.Contains(known, t.Environment) || strings.EqualFold(t.Environment, l.model.environment):
			default:
				l.add(finding.CodeNoEnvironment, at, finding.DidYouMean(t.Environment, known), "target %q of workload %q is for environment %q, which does not exist",
					t.Name, w.Metadata.Name, t.Environment)
			}
		}
	}
}

// useless adds the ConfigMaps and ConfigSchemas that can apply to no pair of a cluster type and a target.
// Whether a policy makes the pair does not matter: that may change without them.
func (l *linter) useless() {
	types := sortedValues(l.model.clusterTypes)
	if len(types) == 0 || len(l.targets) == 0 {
		return
	}
	check := func(o *object, code string) {
		if conditions := conditionsOf(o.Metadata.Labels); !appliesSomewhere(conditions, types, l.targets) {
			why, hint := l.whyNowhere(conditions)
			l.addUnused(o, code, hint, "%s %q applies nowhere: %s", o.Kind, o.Metadata.Name, why)
		}
	}
	for _, cm := range sortedValues(l.model.configMaps) {
		if cm.isLabelled() {
			check(&cm.object, finding.CodeUnusedConfigMap)
		}
	}
	for _, s := range sortedValues(l.model.schemas) {
		check(&s.object, finding.CodeUnusedConfigSchema)
	}
}

func appliesSomewhere(conditions []condition, types []*clusterType, targets []*target) bool {
	for _, ct := range types {
		rest := slices.DeleteFunc(slices.Clone(conditions), func(c condition) bool { return c.holdsFor(ct) })
		for _, t := range targets {
			if !slices.ContainsFunc(rest, func(c condition) bool { return !c.holdsForTarget(t) }) {
				return true
			}
		}
	}
	return false
}

// holdsForTarget says whether a target alone fulfils the condition.
func (c condition) holdsForTarget(t *target) bool {
	switch c.key {
	case "cluster-type":
		return false
	case "deployment-target":
		return c.value == t.name
	default:
		return c.value == t.labels[c.key]
	}
}

// whyNowhere names the condition that nothing fulfils, if there is one, and the nearest that something does.
func (l *linter) whyNowhere(conditions []condition) (why, hint string) {
	for _, c := range conditions {
		holds, values := false, map[string]bool{}
		for name, ct := range l.model.clusterTypes {
			holds = holds || c.holdsFor(ct)
			if c.key == "cluster-type" {
				values[name] = true
			}
			values[ct.Metadata.Labels[c.key]] = true
		}
		for _, t := range l.targets {
			holds = holds || c.holdsForTarget(t)
			if c.key == "deployment-target" {
				values[t.name] = true
			}
			values[t.labels[c.key]] = true
		}
		if !holds {
			delete(values, "")
			return fmt.Sprintf("nothing has %s %q", c.key, c.value), finding.DidYouMean(c.value, sortedKeys(values))
		}
	}
	return "no cluster type and target together have all its labels", ""
}

// hintPolicies adds the nearest labels to what is said of policies that select nothing.
func (l *linter) hintPolicies() {
	var types, targets []map[string]string
	for _, ct := range sortedValues(l.model.clusterTypes) {
		types = append(types, ct.Metadata.Labels)
	}
	for _, t := range l.targets {
		targets = append(targets, t.labels)
	}
	for i, f := range l.found {
		for _, p := range l.model.policies {
			switch {
			case p.at != f.Position:
			case f.Code == finding.CodeNoClusterType:
				l.found[i].Hint = nearLabel(p.Spec.ClusterTypeSelector.LabelSelector, types)
			case f.Code == finding.CodeNoTarget:
				l.found[i].Hint = nearLabel(p.Spec.DeploymentTargetSelector.LabelSelector, targets)
			}
		}
	}
}

// nearLabel is a hint about the first label that a selector asks for and no member has.
func nearLabel(s labelSelector, members []map[string]string) string {
	wanted := map[string][]string{}
	for key, value := range s.MatchLabels {
		wanted[key] = []string{value}
	}
	for _, e := range s.MatchExpressions {
		if e.Operator == "In" {
			wanted[e.Key] = e.Values
		}
	}
	for _, key := range sortedKeys(wanted) {
		keys, values := map[string]bool{}, map[string]bool{}
		for _, labels := range members {
			for k := range labels {
				keys[k] = true
			}
			if value, ok := labels[key]; ok {
				values[value] = true
			}
		}
		if !keys[key] {
			return alsoHint(fmt.Sprintf("none has a label %s", key), finding.DidYouMean(key, sortedKeys(keys)))
		}
		if len(wanted[key]) > 0 && !slices.ContainsFunc(wanted[key], func(v string) bool { return values[v] }) {
			return alsoHint(fmt.Sprintf("none has %s %q", key, wanted[key][0]), finding.DidYouMean(wanted[key][0], sortedKeys(values)))
		}
	}
	return ""
}

func alsoHint(hint, more string) string {
	if more != "" {
		hint += "; " + more
	}
	return hint
}
