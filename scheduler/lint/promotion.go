package lint

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Promotion is what the rules about promotion read of one environment, so that its model need not be kept.
type Promotion struct {
	Environment string
	policy      *kinds.PromotionPolicy // nil if none names the environment, or several do
	based       bool                   // it has the BaseRepo that a promotion pins
	read        promotion.Policy
	clusters    []scheduler.Cluster
}

// PromotionOf returns what the model's environment has for [AcrossEnvironments].
func PromotionOf(m *scheduler.Model) Promotion {
	based := slices.ContainsFunc(m.BaseRepos(), func(b scheduler.BaseRepo) bool { return b.Name == scheduler.MainBase })
	p := Promotion{Environment: m.EnvironmentName(), clusters: m.Clusters(), based: based}
	read, err := m.Promotion()
	if o, ok := m.Objects().Promotions[read.Name]; ok && err == nil {
		p.policy, p.read = o, read
	}
	return p
}

// AcrossEnvironments returns the findings about p's gate that need the other environments: known are the names of all, and
// below is the environment from which p gets its commits, nil if that could not be read.
func (p Promotion) AcrossEnvironments(known []string, below *Promotion) []finding.Finding {
	if p.policy == nil {
		return nil
	}
	found := unknownEnvironments(p.policy, known)
	if below == nil || below.Environment != p.read.Below() {
		return found
	}
	unreachable := p.required(p.read.Gate.Required, p.gate(), below.clusters, "environment "+below.Environment)
	if len(unreachable) == 0 {
		unreachable = p.unproved(below)
	}
	return append(found, unreachable...)
}

// unproved returns a warning if no Cluster below can prove what application teams deliver. Without any Cluster object, a hub knows them.
func (p Promotion) unproved(below *Promotion) []finding.Finding {
	reporting := func(c scheduler.Cluster) bool { return c.Reporting }
	if !p.read.Gate.Content.Held || len(p.clusters)+len(below.clusters) == 0 || slices.ContainsFunc(below.clusters, reporting) {
		return nil
	}
	at := p.policy.Of(p.Environment).Line
	if at == 0 {
		at = p.policy.Spec.Chain[slices.IndexFunc(p.policy.Spec.Chain, func(e kinds.Text) bool { return e.Value == p.Environment })].Line
	}
	return []finding.Finding{finding.New(finding.CodeUnproved, p.policy.Position(at),
		fmt.Sprintf(`add a Cluster of %s with "wherry roster add"`, below.Environment),
		"no Cluster of environment %q reports, so that nothing of an application team is ever proved for environment %q", below.Environment, p.Environment)}
}

// Below returns the name of the environment from which p's gets its commits; empty if there is none.
func (p Promotion) Below() string { return p.read.Below() }

// gate returns the gate of the environment as it is written.
func (p Promotion) gate() *kinds.PromotionGate { return p.policy.GateOf(p.Environment) }

// ringGate is gate for the one between rings.
func (p Promotion) ringGate() *kinds.PromotionGate {
	if own := &p.policy.Of(p.Environment).RingGate; own.Line != 0 {
		return own
	}
	return p.gate()
}

// unknownEnvironments returns errors for environments that the policy names and nobody has. A gate of a misspelt environment
// would keep nothing out.
func unknownEnvironments(o *kinds.PromotionPolicy, known []string) (found []finding.Finding) {
	if len(known) == 0 {
		return nil
	}
	add := func(line kinds.Line, name string) {
		if !slices.Contains(known, name) {
			found = append(found, finding.New(finding.CodePromotion, o.Position(line), finding.DidYouMean(name, known),
				"PromotionPolicy %q names environment %q, which does not exist", o.Metadata.Name, name))
		}
	}
	for _, e := range o.Spec.Chain {
		add(e.Line, e.Value)
	}
	for _, e := range o.Spec.Environments {
		add(e.Line, e.Name)
	}
	return found
}

// required returns an error if the required clusters cannot all become compliant. Without any Cluster object, a hub knows them.
func (p Promotion) required(required labels.Selector, written *kinds.PromotionGate, clusters []scheduler.Cluster, where string) []finding.Finding {
	if required == nil || len(clusters) == 0 {
		return nil
	}
	selected, reporting := 0, 0
	var known []map[string]string
	for _, c := range clusters {
		known = append(known, c.Labels)
		if !required.Matches(labels.Set(c.Labels)) {
			continue
		}
		selected++
		if c.Reporting {
			reporting++
		}
	}
	at := p.policy.Position(written.RequiredClusters.Line)
	switch {
	case selected == 0:
		return []finding.Finding{finding.New(finding.CodeUnreachable, at, nearLabel(written.RequiredClusters, known),
			"requiredClusters of environment %q selects no Cluster of %s", p.Environment, where)}
	case reporting == 0:
		return []finding.Finding{finding.New(finding.CodeUnreachable, at, "select clusters that report",
			"requiredClusters of environment %q selects clusters of %s that send no reports (reporting: none)", p.Environment, where)}
	}
	return nil
}

// unpinnable returns an error if the environment is in a chain and nothing of it can be pinned.
func (p Promotion) unpinnable() []finding.Finding {
	if p.based {
		return nil
	}
	for _, e := range p.policy.Spec.Chain {
		if e.Value == p.Environment {
			return []finding.Finding{finding.New(finding.CodeUnreachable, p.policy.Position(e.Line), fmt.Sprintf(`"wherry new base-repo -e %s" makes one`, p.Environment),
				"environment %q is in the chain and has no BaseRepo called %s, so no commit can be promoted into it", p.Environment, scheduler.MainBase)}
		}
	}
	return nil
}

// promotions adds what is wrong with the policy of the environment, as far as the environment alone shows it.
func (l *linter) promotions() {
	p := PromotionOf(l.model)
	if p.policy == nil {
		return
	}
	l.found = append(l.found, unknownEnvironments(p.policy, l.environmentNames())...)
	l.found = append(l.found, p.unpinnable()...)
	if word := p.gate().Content.Any; p.Below() != "" && word.Line != 0 {
		l.add(finding.CodeContentAny, p.policy.Position(word.Line), "remove it, and name workloads that cannot be proved in content.exempt",
			"environment %q gets what application teams deliver without a proof of %s", p.Environment, p.Below())
		for _, b := range l.model.BaseRepos() { // else publishing asks the gate about each commit
			if !b.Pinned {
				l.add(finding.CodeUnpinnedBase, b.Position, "write the commit that it is to have into spec.commit, which wherry promote moves from then on; or remove content: any",
					"environment %q gets each new commit of base %q without a gate, although commits come to it from %s: its BaseRepo names no commit", p.Environment, b.Name, p.Below())
			}
		}
	}
	if len(p.read.Rings) < 2 || len(p.clusters) == 0 || p.ringGate().Line == 0 {
		return
	}
	first := p.read.Rings[0]
	before := slices.DeleteFunc(slices.Clone(p.clusters), func(c scheduler.Cluster) bool { return c.Ring != first })
	if len(before) == 0 && !p.read.RingGate.AllowEmptyCohort {
		at := p.policy.Of(p.Environment).Line
		if at == 0 {
			at = p.ringGate().Line
		}
		l.add(finding.CodeUnreachable, p.policy.Position(at), "give a Cluster that ring, or set allowEmptyCohort of the ringGate",
			"no Cluster of environment %q is in ring %q, so that ring %q can never get a release by the gate", p.Environment, first, p.read.Rings[1])
		return
	}
	l.found = append(l.found, p.required(p.read.RingGate.Required, p.ringGate(), before, "ring "+first)...)
}
