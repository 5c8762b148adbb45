package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/check"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// references adds names of objects that do not exist, and templates that nothing names.
func (l *linter) references() {
	used := map[string]bool{}
	for _, ct := range sortedValues(l.objects.ClusterTypes) {
		l.templatesOf(ct, used)
	}
	for _, t := range sortedValues(l.objects.Templates) {
		if !used[t.Metadata.Name] && len(l.objects.ClusterTypes) > 0 {
			l.addUnused(&t.Common, finding.CodeUnusedTemplate, "", "Template %q is used by no ClusterType", t.Metadata.Name)
		}
	}
	l.registrations()
	l.environments()
	l.clusters()
	l.promotions()
	l.checks()
}

// checks adds the PlatformChecks that apply to nothing.
func (l *linter) checks() {
	known := l.environmentNames()
	for _, c := range sortedValues(l.objects.Checks) {
		for _, e := range c.Spec.Environments {
			if len(known) > 0 && !slices.Contains(known, e) {
				l.add(finding.CodeUnusedCheck, c.At, finding.DidYouMean(e, known), "PlatformCheck %q is for environment %q, which does not exist", c.Metadata.Name, e)
			}
		}
		applies := func(ct *kinds.ClusterType) bool { return check.Applies(c, ct.Metadata.Labels) }
		if types := sortedValues(l.objects.ClusterTypes); len(types) > 0 && !slices.ContainsFunc(types, applies) {
			var labels []map[string]string
			for _, ct := range types {
				labels = append(labels, ct.Metadata.Labels)
			}
			l.addUnused(&c.Common, finding.CodeUnusedCheck, nearLabel(c.Spec.ClusterTypeSelector.LabelSelector, labels),
				"PlatformCheck %q selects no cluster type", c.Metadata.Name)
		}
	}
}

// templateTypes are the types that a Template may state. Nothing but this check reads them.
var templateTypes = []string{"reconciler", "namespace", "config"}

// templatesOf adds the Templates that ct names and that do not exist, or state another use.
func (l *linter) templatesOf(ct *kinds.ClusterType, used map[string]bool) {
	builtIn := []string{kinds.ConfigMapType, kinds.EnvFileType}
	for _, ref := range []struct {
		field, template, kind string
		others                []string
	}{
		{"reconciler", ct.Spec.Reconciler, "reconciler", nil},
		{"namespaceService", ct.Spec.NamespaceService, "namespace", nil},
		{"configType", ct.Spec.ConfigType, "config", builtIn},
	} {
		used[ref.template] = true
		t, exists := l.objects.Templates[ref.template]
		if exists && t.Spec.Type != ref.kind && slices.Contains(templateTypes, t.Spec.Type) {
			l.add(finding.CodeTemplateType, ct.At, fmt.Sprintf("name a Template of type %s, or correct the type of this one", ref.kind),
				"ClusterType %q: spec.%s names template %q, whose type is %s", ct.Metadata.Name, ref.field, ref.template, t.Spec.Type)
		}
		switch {
		case exists, ref.field == "configType" && ref.template == "", slices.Contains(ref.others, ref.template):
		case ref.template == "":
			l.add(finding.CodeNoTemplate, ct.At, "it must name a Template", "ClusterType %q has no spec.%s", ct.Metadata.Name, ref.field)
		default:
			names := append(slices.Sorted(maps.Keys(l.objects.Templates)), ref.others...)
			l.add(finding.CodeNoTemplate, ct.At, finding.DidYouMean(ref.template, names), "ClusterType %q: spec.%s names template %q, which does not exist",
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
		if !slices.ContainsFunc(l.objects.Workloads, func(w *kinds.Workload) bool { return w.Registration == r.Name }) {
			l.add(finding.CodeEmptyRegistration, r.Position, "look at its branch and path", "the source of WorkloadRegistration %q holds no Workload", r.Name)
		}
	}
	for _, p := range sortedValues(l.objects.Policies) {
		if w := p.Spec.DeploymentTargetSelector.Workspace; w != "" && !slices.Contains(workspaces, w) {
			l.add(finding.CodeNoWorkspace, p.At, finding.DidYouMean(w, workspaces), "SchedulingPolicy %q: no WorkloadRegistration has workspace %q", p.Metadata.Name, w)
		}
	}
	if p := l.objects.Platform; p != nil {
		listed := slices.SortedFunc(slices.Values(p.Spec.Workspaces), func(a, b kinds.Workspace) int { return strings.Compare(a.Name, b.Name) })
		for _, w := range listed {
			if !slices.Contains(workspaces, w.Name) {
				l.add(finding.CodeUnusedWorkspace, p.Position(w.Line), finding.DidYouMean(w.Name, workspaces), "Platform: no WorkloadRegistration has workspace %q", w.Name)
			}
			if len(w.Repositories) == 0 && slices.ContainsFunc(listed, func(o kinds.Workspace) bool { return len(o.Repositories) > 0 }) {
				l.add(finding.CodeUnboundWorkspace, p.Position(w.Line), "give it repositories", "workspace %q may use every repository, and others may not", w.Name)
			}
		}
	}
}

// environments adds deployment targets for environments that do not exist, as far as they are known.
func (l *linter) environments() {
	known := l.environmentNames()
	for _, w := range l.objects.Workloads {
		for i := range w.Spec.DeploymentTargets {
			t := &w.Spec.DeploymentTargets[i]
			at := w.Position(t.Line)
			switch {
			case t.Environment == "":
				l.add(finding.CodeNoEnvironment, at, "", "target %q of workload %q names no environment", t.Name, w.Metadata.Name)
			case len(known) == 0 || slices.Contains(known, t.Environment) || strings.EqualFold(t.Environment, l.model.EnvironmentName()):
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
	types := sortedValues(l.objects.ClusterTypes)
	if len(types) == 0 || len(l.targets) == 0 {
		return
	}
	check := func(o *kinds.Common, code string) {
		if conditions := kinds.ConditionsOf(o.Metadata.Labels); !appliesSomewhere(conditions, types, l.targets) {
			why, hint := l.whyNowhere(conditions)
			l.addUnused(o, code, hint, "%s %q applies nowhere: %s", o.Kind, o.Metadata.Name, why)
		}
	}
	for _, cm := range sortedValues(l.objects.ConfigMaps) {
		if cm.IsLabelled() {
			check(&cm.Common, finding.CodeUnusedConfigMap)
		}
	}
	for _, s := range sortedValues(l.objects.Schemas) {
		check(&s.Common, finding.CodeUnusedConfigSchema)
	}
}

func appliesSomewhere(conditions []kinds.Condition, types []*kinds.ClusterType, targets []*kinds.Target) bool {
	for _, ct := range types {
		rest := slices.DeleteFunc(slices.Clone(conditions), func(c kinds.Condition) bool { return c.HoldsFor(ct) })
		for _, t := range targets {
			if !slices.ContainsFunc(rest, func(c kinds.Condition) bool { return !c.HoldsForTarget(t) }) {
				return true
			}
		}
	}
	return false
}

// whyNowhere returns a condition that no cluster type or target fulfils, if there is one, and a hint with the nearest one
// that is fulfilled.
func (l *linter) whyNowhere(conditions []kinds.Condition) (why, hint string) {
	for _, c := range conditions {
		holds, values := false, map[string]bool{}
		for name, ct := range l.objects.ClusterTypes {
			holds = holds || c.HoldsFor(ct)
			if c.Key == "cluster-type" {
				values[name] = true
			}
			values[ct.Metadata.Labels[c.Key]] = true
		}
		for _, t := range l.targets {
			holds = holds || c.HoldsForTarget(t)
			if c.Key == "deployment-target" {
				values[t.Name] = true
			}
			values[t.Labels[c.Key]] = true
		}
		if !holds {
			delete(values, "")
			known := slices.Sorted(maps.Keys(values))
			near := slices.IndexFunc(known, func(k string) bool { return strings.HasSuffix(k, "-"+c.Value) }) // a target without its workload
			switch hint = finding.DidYouMean(c.Value, known); {
			case near >= 0 && c.Key == "deployment-target":
				hint = fmt.Sprintf("did you mean %q?", known[near])
			case hint == "" && len(known) > 0:
				hint = "known: " + show.List(known, 5)
			}
			return fmt.Sprintf("nothing has %s %q", c.Key, c.Value), hint
		}
	}
	return "no cluster type and target together have all its labels", ""
}

// hintPolicies adds the nearest labels to the findings about policies that select nothing.
func (l *linter) hintPolicies() {
	var types, targets []map[string]string
	for _, ct := range sortedValues(l.objects.ClusterTypes) {
		types = append(types, ct.Metadata.Labels)
	}
	for _, t := range l.targets {
		targets = append(targets, t.Labels)
	}
	for i, f := range l.found {
		for _, p := range l.objects.Policies {
			switch {
			case p.At != f.Position:
			case f.Code == finding.CodeNoClusterType:
				l.found[i].Hint = nearLabel(p.Spec.ClusterTypeSelector.LabelSelector, types)
			case f.Code == finding.CodeNoTarget:
				l.found[i].Hint = nearLabel(p.Spec.DeploymentTargetSelector.LabelSelector, targets)
			}
		}
	}
}

// nearLabel returns a hint about the first label that a selector requires and no member has.
func nearLabel(s kinds.LabelSelector, members []map[string]string) string {
	wanted := map[string][]string{}
	for key, value := range s.MatchLabels {
		wanted[key] = []string{value}
	}
	for _, e := range s.MatchExpressions {
		if e.Operator == "In" {
			wanted[e.Key] = e.Values
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
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
			return alsoHint(fmt.Sprintf("none has a label %s", key), finding.DidYouMean(key, slices.Sorted(maps.Keys(keys))))
		}
		if len(wanted[key]) > 0 && !slices.ContainsFunc(wanted[key], func(v string) bool { return values[v] }) {
			return alsoHint(fmt.Sprintf("none has %s %q", key, wanted[key][0]), finding.DidYouMean(wanted[key][0], slices.Sorted(maps.Keys(values))))
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
