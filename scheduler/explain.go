package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Explainer gives the reasons for the decisions about an environment. It reads the same objects by the same rules as
// [Model.Render]; one Explainer answers any number of questions. The JSON forms of its answers are
// interfaces, and no answer holds the value of a secret (see [show.LooksSecret]).
type Explainer struct {
	r      *renderer
	layers []layer
}

// Explainer returns an explainer of the environment. A decision, if not nil, takes the place of the scheduling policies, for
// [Explainer.Waiting] only. It returns an error if nothing can be decided about the environment.
func (m *Model) Explainer(decision *Decision) (*Explainer, error) {
	r, err := newRenderer(m, Options{Decision: decision, Incomplete: true})
	if err != nil {
		return nil, err
	}
	return &Explainer{r: r, layers: layersOf(m.objects.ConfigMaps)}, nil
}

// Explanation holds the reasons why a deployment target is on a cluster type, or is not.
type Explanation struct {
	Environment string `json:"environment"`
	ClusterType Named  `json:"clusterType"`
	Target      Named  `json:"target"`
	Workload    string `json:"workload"`
	// Registration is the WorkloadRegistration whose source has the target; empty for a target of the platform
	// itself, which belongs to no workspace.
	Registration string `json:"registration,omitempty"`
	Workspace    string `json:"workspace,omitempty"`
	// Assigned is true if at least one policy selects the pair.
	Assigned bool `json:"assigned"`
	// Policies holds all policies of the environment, sorted by name.
	Policies []PolicyMatch `json:"policies"`
	// The fields below are set for an assigned pair.
	Namespace string `json:"namespace,omitempty"`
	// Config lists the ConfigMaps that match, in the order in which they are merged.
	Config []Named `json:"config,omitempty"`
	// Adapter is the reconciler, and AdapterBecause the reason for it.
	Adapter        string `json:"adapter,omitempty"`
	AdapterBecause string `json:"adapterBecause,omitempty"`
	// Settings lists the other annotations in effect, sorted by name.
	Settings []Setting `json:"settings,omitempty"`
	// Error is the reason why the assignment cannot be rendered; empty if it can.
	Error string `json:"error,omitempty"`
	// Rendered is the assignment with its rendered files; nil if it cannot be rendered.
	Rendered *Assignment `json:"-"`
}

// Setting is an annotation in effect for an assignment, the most specific one of its name.
type Setting struct {
	// Name is the annotation's name without target and prefix, such as drift.
	Name  string `json:"name"`
	Value string `json:"value"`
	// Because names the object that has it, and its place.
	Because string `json:"because"`
}

// Named is an object with its position.
type Named struct {
	Name string `json:"name"`
	finding.Position
}

// PolicyMatch is the comparison of a scheduling policy with a pair of cluster type and deployment target.
type PolicyMatch struct {
	Named
	// Selects is true if every term is met.
	Selects bool   `json:"selects"`
	Terms   []Term `json:"terms"`
	// Error is a mistake in the policy's selectors; with one it selects nothing.
	Error string `json:"error,omitempty"`
}

// Unmet counts the terms that are not met.
func (p PolicyMatch) Unmet() int {
	n := 0
	for _, t := range p.Terms {
		if !t.Met {
			n++
		}
	}
	return n
}

// Side is the object whose labels a term compares.
type Side string

// The sides.
const (
	TypeSide   Side = "clusterType"
	TargetSide Side = "deploymentTarget"
)

// Term is one requirement of a policy. A policy without terms selects everything.
type Term struct {
	Side Side `json:"side"`
	// Asks is the term in the syntax of kubectl's --selector, such as "size in (small)" or "!kind"; a policy's
	// workspace becomes "workspace=NAME", and its annotation wherry.dev/under "LABEL under PATH".
	Asks  string `json:"asks"`
	Label string `json:"label"`
	// Value is the label's value on that side; nil if the label is missing.
	Value *string `json:"value"`
	Met   bool    `json:"met"`
}

// Pair explains one pair. The error names what does not exist, with a suggestion.
func (e *Explainer) Pair(ctx context.Context, clusterType, target string) (*Explanation, error) {
	ct, i, err := e.find(clusterType, target)
	if err != nil {
		return nil, err
	}
	t := e.r.targets[i]
	x := &Explanation{
		Environment: e.r.model.environment,
		ClusterType: Named{ct.Metadata.Name, ct.At}, Target: Named{t.Name, t.At},
		Workload: t.Workload.Metadata.Name, Registration: t.Workload.Registration, Workspace: t.Workspace,
		Policies: e.matches(ct, t),
	}
	x.Assigned = e.selects(ct, t)
	if !x.Assigned {
		return x, nil
	}
	a := newAssigner(e.r, ct)
	if in, err := a.input(i); err == nil {
		x.Namespace = in.Namespace
		for _, s := range in.config.sources {
			x.Config = append(x.Config, Named(s))
		}
	}
	if clash := e.clash(ctx, ct, i); clash != nil {
		x.Error = clash.Error()
		return x, ctx.Err()
	}
	assignment, err := a.assign(ctx, i)
	if err != nil {
		x.Error = err.Error()
		return x, ctx.Err()
	}
	if assignment.Settings, err = settings(ct, t); err != nil {
		x.Error = err.Error()
		return x, nil
	}
	schema, schemaErr := e.r.siteSchemas.of(ct)
	if assignment.SiteValues, err = siteKeys(ct, t, schema, schemaErr); err != nil {
		x.Error = err.Error()
		return x, nil
	}
	assignment.Manifests, assignment.Registration = t.Spec.Manifests, t.Workload.Registration
	x.Rendered = assignment
	x.Adapter, x.AdapterBecause, x.Settings = assignment.Adapter, whyAdapter(ct, t), settingsOf(ct, t)
	return x, nil
}

// find looks up both sides of a pair. If targets share a name, it prefers one that is on the cluster type.
func (e *Explainer) find(clusterType, target string) (*kinds.ClusterType, int, error) {
	ct, typeErr := e.findType(clusterType)
	i, targetErr := e.findTarget(target)
	if err := errors.Join(typeErr, targetErr); err != nil {
		return nil, 0, err
	}
	for t := i; t < len(e.r.targets) && e.r.targets[t].Name == target; t++ {
		if e.selects(ct, e.r.targets[t]) {
			return ct, t, nil
		}
	}
	return ct, i, nil
}

// selects reports whether a policy brings t to the cluster type.
func (e *Explainer) selects(ct *kinds.ClusterType, t *target) bool {
	return slices.ContainsFunc(e.matches(ct, t), func(p PolicyMatch) bool { return p.Selects })
}

// clash returns an error if other targets on the cluster type want the name of the i-th target.
func (e *Explainer) clash(ctx context.Context, ct *kinds.ClusterType, i int) error {
	here := newBitset(len(e.r.targets))
	for t := i; t < len(e.r.targets) && e.r.targets[t].Name == e.r.targets[i].Name; t++ {
		if e.selects(ct, e.r.targets[t]) {
			here.add(t)
		}
	}
	return e.r.share(ctx, ct, here).lost[i]
}

func (e *Explainer) findType(name string) (*kinds.ClusterType, error) {
	if ct, ok := e.r.model.objects.ClusterTypes[name]; ok {
		return ct, nil
	}
	return nil, finding.Errorf("", finding.Position{}, suggest(name, sortedKeys(e.r.model.objects.ClusterTypes), "cluster type"),
		"environment %q has no cluster type %q", e.r.model.environment, name)
}

func (e *Explainer) findTarget(name string) (int, error) {
	i := slices.IndexFunc(e.r.targets, func(t *target) bool { return t.Name == name })
	if i >= 0 {
		return i, nil
	}
	for _, w := range e.r.model.objects.Workloads {
		for j := range w.Spec.DeploymentTargets {
			if t := &w.Spec.DeploymentTargets[j]; w.Metadata.Name+"-"+t.Name == name {
				return 0, finding.Errorf("", w.Position(t.Line), "", "deployment target %q is for environment %q, not for %q", name, t.Environment, e.r.model.environment)
			}
		}
	}
	var known []string
	for _, t := range e.r.targets {
		known = append(known, t.Name)
	}
	return 0, finding.Errorf("", finding.Position{}, suggest(name, known, "deployment target"),
		"environment %q has no deployment target %q", e.r.model.environment, name)
}

// maxSuggestions bounds how many names a hint lists.
const maxSuggestions = 8

// suggest returns a hint with the names that an unknown name may mean: the nearest one, else those that contain it,
// since a target's full name begins with its workload's, else all if they are few.
func suggest(name string, known []string, kind string) string {
	if hint := finding.DidYouMean(name, known); hint != "" {
		return hint
	}
	var parts []string
	for _, k := range known {
		if name != "" && (strings.HasSuffix(k, "-"+name) || strings.HasPrefix(k, name+"-")) {
			parts = append(parts, k)
		}
	}
	switch {
	case len(known) == 0:
		return "there is no " + kind
	case len(parts) > 0 && len(parts) <= maxSuggestions:
		return "did you mean " + strings.Join(parts, ", ") + "?"
	case len(known) <= maxSuggestions:
		return "known: " + strings.Join(known, ", ")
	}
	return ""
}

// matches compares all policies with a pair.
func (e *Explainer) matches(ct *kinds.ClusterType, t *target) []PolicyMatch {
	all := []PolicyMatch{}
	for _, p := range sortedValues(e.r.model.objects.Policies) {
		match := PolicyMatch{Named: Named{p.Metadata.Name, p.At}, Terms: policyTerms(p, ct, t)}
		if len(p.Mistakes) > 0 {
			match.Error = finding.Join(slices.Clone(p.Mistakes)).Error()
		}
		match.Selects = match.Error == "" && !slices.ContainsFunc(match.Terms, func(t Term) bool { return !t.Met })
		all = append(all, match)
	}
	return all
}

// policyTerms compares each requirement of a policy with a pair. The policy's selectors have been parsed
// without error before.
func policyTerms(p *kinds.SchedulingPolicy, ct *kinds.ClusterType, t *target) []Term {
	terms := []Term{}
	add := func(side Side, s *kinds.LabelSelector, has map[string]string) {
		requirements, _ := requirements(s, &p.Common)
		for _, r := range requirements {
			terms = append(terms, Term{
				Side: side, Asks: r.String(), Label: r.Key(), Value: labelValue(has, r.Key()), Met: r.Matches(labels.Set(has)),
			})
		}
	}
	if u := p.Under; u != (kinds.Under{}) {
		terms = append(terms, Term{
			Side: TypeSide, Asks: u.String(), Label: u.Key, Value: labelValue(ct.Metadata.Labels, u.Key), Met: u.HoldsFor(ct.Metadata.Labels),
		})
	}
	add(TypeSide, &p.Spec.ClusterTypeSelector.LabelSelector, ct.Metadata.Labels)
	if w := p.Spec.DeploymentTargetSelector.Workspace; w != "" {
		terms = append(terms, Term{
			Side: TargetSide, Asks: "workspace=" + w, Label: "workspace", Value: labelValue(t.Labels, "workspace"), Met: t.Workspace == w,
		})
	}
	add(TargetSide, &p.Spec.DeploymentTargetSelector.LabelSelector, t.Labels)
	return terms
}

func labelValue(has map[string]string, key string) *string {
	if value, ok := has[key]; ok {
		return &value
	}
	return nil
}

// whyAdapter returns the reason for the choice of the adapter.
func whyAdapter(ct *kinds.ClusterType, t *target) string {
	if a, ok := kinds.AnnotationFor(ct, &t.Target, "adapter"); ok {
		return a.Origin()
	}
	return "the kinds in reconciler.yaml"
}

// settingsOf lists the annotations that count for an assignment beside the one that chooses the adapter.
func settingsOf(ct *kinds.ClusterType, t *target) []Setting {
	var all []Setting
	for _, name := range kinds.WorkloadAnnotations {
		if a, ok := kinds.AnnotationFor(ct, &t.Target, name); ok && name != "adapter" {
			all = append(all, Setting{name, strings.TrimSpace(a.Value), a.Origin()})
		}
	}
	return all
}

// WaitingTarget is a deployment target of the environment that is on no cluster type.
type WaitingTarget struct {
	Named
	Workspace string `json:"workspace,omitempty"`
	Workload  string `json:"workload"`
}

// Waiting lists the deployment targets that no policy brings to any cluster type, sorted by name.
func (e *Explainer) Waiting() []WaitingTarget {
	selected := newBitset(len(e.r.targets))
	for _, p := range e.r.policies {
		if !p.types.empty() {
			selected.union(p.targets)
		}
	}
	waiting := []WaitingTarget{}
	for i, t := range e.r.targets {
		if !selected.has(i) {
			waiting = append(waiting, WaitingTarget{Named{t.Name, t.At}, t.Workspace, t.Workload.Metadata.Name})
		}
	}
	return waiting
}

// Policy returns the position of a policy; the zero Position if there is no policy of that name.
func (e *Explainer) Policy(name string) finding.Position {
	if p, ok := e.r.model.objects.Policies[name]; ok {
		return p.At
	}
	return finding.Position{}
}

// Template returns the Template from which a cluster type renders one of an assignment's files; none for a file that is
// rendered in a built-in way.
func (e *Explainer) Template(clusterType, file string) Named {
	ct, ok := e.r.model.objects.ClusterTypes[clusterType]
	if !ok {
		return Named{}
	}
	if t := e.r.model.templateOf(ct, file); t != nil {
		return Named{t.Metadata.Name, t.At}
	}
	return Named{}
}

// minManifestText is the minimum length of a text of a target's manifests that is searched for in other texts.
const minManifestText = 4

// Manifest returns the position of a deployment target if its manifests contain the text, or a part of it. For a nil text
// it returns false.
func (e *Explainer) Manifest(target string, text *string) (finding.Position, bool) {
	i, err := e.findTarget(target)
	if err != nil || text == nil {
		return finding.Position{}, false
	}
	t := e.r.targets[i]
	for _, m := range t.Spec.Manifests {
		if m == *text || len(m) >= minManifestText && strings.Contains(*text, m) {
			return t.At, true
		}
	}
	return finding.Position{}, false
}
