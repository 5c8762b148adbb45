package scheduler

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// DecisionVersion is the version of the decision's form that this code writes and reads.
const DecisionVersion = 1

// DecisionSchema is the JSON schema of a Decision, for programs that write one.
//
//go:embed decision.schema.json
var DecisionSchema string

// Decision lists the assignments of deployment targets to cluster types, with reasons, before anything is rendered.
// [Model.Decide] makes one from the platform's scheduling policies; another program may make one too, for
// [Options].Decision. Its JSON form is an interface: see [DecisionSchema].
type Decision struct {
	// Schema is DecisionVersion.
	Schema      int    `json:"schema"`
	Environment string `json:"environment"`
	// Assignments is sorted by cluster type and name if Decide made it; the order has no meaning.
	Assignments []Decided `json:"assignments"`
	// Warnings holds warnings and notes about the platform, sorted by position.
	Warnings []finding.Finding `json:"-"`

	at finding.Position // of the document that it was read from; else zero
}

// Decided is one assignment of a Decision.
type Decided struct {
	ClusterType string `json:"clusterType"`
	// Name is the deployment target's full name, <workload>-<target>. Workspace, Workload and Target may be left
	// out; if given, they must match it.
	Name      string `json:"name"`
	Workspace string `json:"workspace,omitempty"`
	Workload  string `json:"workload,omitempty"`
	Target    string `json:"target,omitempty"`
	// Registration tells apart targets of the same name, which may be on different cluster types. Decide sets it for
	// such targets only.
	Registration string `json:"registration,omitempty"`
	// Policies are the reasons. Another scheduler may give names of its own, or none; they travel in the
	// bundle.
	Policies []DecidedBy `json:"policies,omitempty"`

	at finding.Position
}

// DecidedBy is a reason: a scheduling policy, and the terms of its selectors, all of which hold for the
// assignment. A policy without terms on one side selects everything there.
type DecidedBy struct {
	Name string `json:"name"`
	// TargetTerms are about the deployment target's labels, such as "workspace=shop" or "purpose in (a,b)".
	TargetTerms []string `json:"targetTerms,omitempty"`
	// ClusterTypeTerms are about the cluster type's labels, such as "size=small" or "group under europe/plant-7".
	ClusterTypeTerms []string `json:"clusterTypeTerms,omitempty"`
}

// Decide returns the pairs that the platform's policies select. It returns an error if these cannot be determined, such as
// for an invalid selector, and if ctx has ended.
func (m *Model) Decide(ctx context.Context) (*Decision, error) {
	if err := m.checkEnvironment(); err != nil {
		return nil, err
	}
	r := &renderer{model: m}
	index, err := r.list()
	if err == nil {
		err = r.selectPairs(index)
	}
	if err != nil {
		return nil, err
	}
	d := &Decision{
		Schema: DecisionVersion, Environment: m.environment, Assignments: []Decided{},
		Warnings: sortedFindings(m.findings, r.findings),
	}
	for i, ct := range sortedValues(m.objects.ClusterTypes) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d.Assignments = append(d.Assignments, r.decide(i, ct.Metadata.Name)...)
	}
	return d, nil
}

// decide lists the assignments of the i-th cluster type. Targets of different registrations that share a name are there with
// their registrations: which one gets the name is decided when they are rendered. Those of one registration are one
// assignment, with the fields that all of them share.
func (r *renderer) decide(i int, clusterType string) []Decided {
	var all []Decided
	policies, selected := r.selecting(i)
	for t := range selected.all {
		target := r.targets[t]
		d := Decided{
			ClusterType: clusterType, Name: target.Name,
			Workspace: target.Workspace, Workload: target.Workload.Metadata.Name, Target: target.Spec.Name,
		}
		if r.isShared(t) {
			d.Registration = target.Workload.Registration
		}
		for _, p := range policies {
			if p.targets.has(t) {
				d.Policies = append(d.Policies, DecidedBy{Name: p.policy, TargetTerms: p.targetTerms, ClusterTypeTerms: p.typeTerms})
			}
		}
		if twin := r.twin(all, t); twin >= 0 {
			all[twin].join(d)
		} else {
			all = append(all, d)
		}
	}
	return all
}

// isShared reports whether another target of the environment has the name of the i-th.
func (r *renderer) isShared(i int) bool {
	return i > 0 && r.targets[i-1].Name == r.targets[i].Name || i+1 < len(r.targets) && r.targets[i+1].Name == r.targets[i].Name
}

// twin returns the index in all, which is sorted by name, of the assignment that the t-th target is merged with; -1
// if there is none.
func (r *renderer) twin(all []Decided, t int) int {
	target := r.targets[t]
	for i := len(all) - 1; i >= 0 && all[i].Name == target.Name; i-- {
		if all[i].Registration == target.Workload.Registration {
			return i
		}
	}
	return -1
}

// join keeps the fields of d that are the same in other, and adds the policies of other.
func (d *Decided) join(other Decided) {
	for _, f := range []struct {
		field *string
		other string
	}{{&d.Workspace, other.Workspace}, {&d.Workload, other.Workload}, {&d.Target, other.Target}} {
		if *f.field != f.other {
			*f.field = ""
		}
	}
	for _, p := range other.Policies {
		if !slices.ContainsFunc(d.Policies, func(known DecidedBy) bool { return known.Name == p.Name }) {
			d.Policies = append(d.Policies, p)
		}
	}
	slices.SortFunc(d.Policies, func(a, b DecidedBy) int { return strings.Compare(a.Name, b.Name) })
}

// checkEnvironment makes sure that the environment's name can be part of others.
func (m *Model) checkEnvironment() error {
	if problems := validation.IsDNS1123Subdomain(m.environment); len(problems) > 0 {
		return finding.Errorf("", finding.Position{}, "", "there can be no environment %q: %s", m.environment, problems[0])
	}
	return nil
}
