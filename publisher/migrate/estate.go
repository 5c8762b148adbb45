package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// typeLabel is the label of each imported cluster type with its own name, for policies that list cluster types.
const typeLabel = "cluster-type"

// variantLabel is the label of a deployment target with its name, where a workload has several.
const variantLabel = "variant"

// maxNamespace is the length of a namespace, ENVIRONMENT-TYPE-WORKLOAD-TARGET.
const maxNamespace = 63

// estate is what an importer has found: clusters, workloads, and rules that say which target runs on which cluster. Its
// rules are evaluated already, by the other system's meaning; platform expresses them as policies.
type estate struct {
	report    Report
	clusters  []*cluster
	workloads []*workload
	rules     []*rule
	// byLabels makes one cluster type only of clusters with the same values of all labels that rules name, so that every
	// rule stays as it is written.
	byLabels bool
	// engine is the engine of all cluster types.
	engine engine
}

// cluster is a cluster of the other system.
type cluster struct {
	at          place
	name        string // valid, and unique in its environment
	environment string
	labels      map[string]string
	remarks     []string       // for people, such as values that cannot be imported
	values      map[string]any // site values
	typ         *clusterType
}

// workload is an application with its variants.
type workload struct {
	at      place
	name    string
	object  string // its name in the other system, for people
	bundle  string // its name as one of Fleet's bundles
	keep    bool   // what was applied stays when it goes
	targets []*target
}

// target is a deployment target of one environment.
type target struct {
	workload    *workload
	name        string
	environment string
	labels      map[string]string
	manifests   map[string]string
	uses        []string // site values, sorted
	// after names workloads that have to be there before, with the object that says so.
	after []*workload
}

// rule assigns targets to clusters.
type rule struct {
	at          place
	object      string
	name        string
	environment string
	targets     []*target
	// selects selects exactly these targets; nil for the labels of the one target.
	selects *selector
	// clusters are those for which the rule holds.
	clusters map[*cluster]bool
	// where are selectors whose union may say the same; they are used where they do.
	where []*selector
}

// clusterType is a group of clusters that run the same targets.
type clusterType struct {
	name        string
	environment string
	labels      map[string]string
	clusters    []*cluster
	rules       map[*rule]bool
	on          []*target // see targets
}

// targets lists the targets on a cluster type, sorted by the names that they have at the first call.
func (t *clusterType) targets() []*target {
	if t.on != nil {
		return t.on
	}
	seen := map[*target]bool{}
	var all []*target
	for r := range t.rules {
		for _, one := range r.targets {
			if !seen[one] {
				seen[one] = true
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b *target) int {
		return cmp.Or(strings.Compare(a.workload.name, b.workload.name), strings.Compare(a.name, b.name))
	})
	t.on = all
	return all
}

// platform turns the estate into files.
func (e *estate) platform() (*Result, error) {
	if len(e.workloads) == 0 && len(e.clusters) == 0 {
		if len(e.report.Findings) == 0 {
			return nil, ErrNothing
		}
		e.report.sort()
		e.report.Types = []Type{}
		return &Result{Report: e.report}, nil
	}
	environments := e.environments()
	var types []*clusterType
	for _, environment := range environments {
		types = append(types, e.group(environment)...)
	}
	e.uniqueTargets()
	e.fit(types)
	policies := e.policies(types)
	e.dependencies(types)
	e.missingValues()

	result := &Result{Files: e.files(environments, types, policies)}
	r := &e.report
	r.Environments, r.Clusters, r.ClusterTypes, r.Workloads, r.Policies = len(environments), len(e.clusters), len(types), len(e.workloads), len(policies)
	for _, w := range e.workloads {
		r.Targets += len(w.targets)
	}
	for _, t := range types {
		one := Type{Environment: t.environment, Name: t.name, Clusters: []string{}, Targets: []string{}}
		for _, c := range t.clusters {
			one.Clusters = append(one.Clusters, c.name)
		}
		for _, target := range t.targets() {
			one.Targets = append(one.Targets, target.workload.name+"-"+target.name)
		}
		r.Assignments += len(t.clusters) * len(one.Targets)
		r.Types = append(r.Types, one)
	}
	r.sort()
	result.Report = *r
	return result, nil
}

// environments lists the environments of clusters and targets.
func (e *estate) environments() []string {
	all := map[string]bool{}
	for _, c := range e.clusters {
		all[c.environment] = true
	}
	for _, w := range e.workloads {
		for _, t := range w.targets {
			all[t.environment] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// group makes the cluster types of an environment.
func (e *estate) group(environment string) []*clusterType {
	var rules []*rule
	named := map[string]bool{}
	for _, r := range e.rules {
		if r.environment == environment {
			rules = append(rules, r)
			for _, s := range r.where {
				s.keys(named)
			}
		}
	}
	keys := slices.Sorted(maps.Keys(named))
	bySignature := map[string]*clusterType{}
	var types []*clusterType
	for _, c := range e.clusters {
		if c.environment != environment {
			continue
		}
		signature := membership(c, rules)
		if e.byLabels {
			signature = valuesOf(c, keys)
		}
		t := bySignature[signature]
		if t == nil {
			t = &clusterType{environment: environment, rules: map[*rule]bool{}}
			bySignature[signature] = t
			types = append(types, t)
			for _, r := range rules {
				if r.clusters[c] {
					t.rules[r] = true
				}
			}
		}
		t.clusters = append(t.clusters, c)
		c.typ = t
	}
	nameTypes(types, keys)
	return types
}

func membership(c *cluster, rules []*rule) string {
	bits := make([]byte, len(rules))
	for i, r := range rules {
		if bits[i] = '0'; r.clusters[c] {
			bits[i] = '1'
		}
	}
	return string(bits)
}

func valuesOf(c *cluster, keys []string) string {
	var parts []string
	for _, key := range keys {
		value, ok := c.labels[key]
		parts = append(parts, fmt.Sprintf("%q %v %q", key, ok, value))
	}
	return strings.Join(parts, "\n")
}

// nameTypes gives cluster types their labels, those of the named ones that all their clusters share, and names from the
// labels' values.
func nameTypes(types []*clusterType, keys []string) {
	wanted := map[string]int{}
	names := make([]string, len(types))
	for i, t := range types {
		t.labels = map[string]string{}
		var values []string
		for _, key := range keys {
			value, ok := t.clusters[0].labels[key]
			shared := ok && !slices.ContainsFunc(t.clusters, func(c *cluster) bool { v, has := c.labels[key]; return !has || v != value })
			if shared {
				t.labels[key] = value
				if value != "" && value != "true" && value != "false" {
					values = append(values, value)
				}
			}
		}
		names[i] = strings.Join(values, "-")
		if len(t.rules) == 0 {
			names[i] = "unassigned"
		}
		wanted[slug(names[i])]++
	}
	taken := namer{}
	for i, t := range types {
		switch name := names[i]; {
		case name != "" && wanted[slug(name)] == 1:
			t.name = taken.name(name)
		case len(t.clusters) == 1:
			t.name = taken.name(t.clusters[0].name)
		default:
			t.name = taken.name(fmt.Sprintf("%s-%d", cmp.Or(slug(cmp.Or(name, "type")), "type"), i+1))
		}
	}
}

// uniqueTargets renames targets whose full names, WORKLOAD-TARGET, would be those of others.
func (e *estate) uniqueTargets() {
	taken := map[string]*workload{}
	for _, w := range e.workloads {
		for _, t := range w.targets {
			full := w.name + "-" + t.name
			if other := taken[full]; other != nil && other != w {
				t.name = shorten(t.name, maxName-5) + "-" + shortHash(w.name)
				full = w.name + "-" + t.name
			}
			taken[full] = w
		}
	}
}

// fit shortens names until the namespace of every assignment has at most maxNamespace characters.
func (e *estate) fit(types []*clusterType) {
	const maxEnvironment, maxType, maxWorkload, maxTarget = 12, 14, 20, 14 // and three hyphens
	long := map[*clusterType]bool{}
	workloads, targets, environments := map[*workload]bool{}, map[*target]bool{}, map[string]bool{}
	for _, ct := range types {
		for _, t := range ct.targets() {
			if len(ct.environment)+len(ct.name)+len(t.workload.name)+len(t.name)+3 > maxNamespace {
				long[ct], workloads[t.workload], targets[t], environments[ct.environment] = true, true, true, true
			}
		}
	}
	tooLong := fmt.Sprintf(", since a namespace has at most %d characters", maxNamespace)
	for _, name := range slices.Sorted(maps.Keys(environments)) {
		if short := shorten(name, maxEnvironment); short != name {
			e.report.add(Changed, place{}, "Environment", "environment "+name, "it becomes "+short+tooLong)
		}
	}
	for _, ct := range types {
		if long[ct] {
			ct.name = shorten(ct.name, maxType)
		}
		if environments[ct.environment] {
			ct.environment = shorten(ct.environment, maxEnvironment)
		}
	}
	for _, c := range e.clusters {
		if environments[c.environment] {
			c.environment = shorten(c.environment, maxEnvironment)
		}
	}
	for _, w := range e.workloads {
		if short := shorten(w.name, maxWorkload); workloads[w] && short != w.name {
			e.report.add(Changed, w.at, w.object, "name "+w.name, "it becomes "+short+tooLong)
			w.name = short
		}
		for _, t := range w.targets {
			if targets[t] {
				t.name = shorten(t.name, maxTarget)
			}
			if environments[t.environment] {
				t.environment = shorten(t.environment, maxEnvironment)
			}
		}
	}
	for _, r := range e.rules {
		if environments[r.environment] {
			r.environment = shorten(r.environment, maxEnvironment)
		}
	}
	e.uniqueTargets()
}

// policy is a SchedulingPolicy that is written.
type policy struct {
	rule    *rule
	name    string
	targets *selector
	types   *selector
}

// policies expresses rules as policies. A rule whose own selectors select the right cluster types keeps them; else the
// cluster types are listed.
func (e *estate) policies(types []*clusterType) []policy {
	var all []policy
	taken := map[string]namer{}
	for _, ct := range types {
		ct.labels[typeLabel] = ct.name
	}
	for _, r := range e.rules {
		var right []string
		for _, ct := range types {
			if ct.environment == r.environment && ct.rules[r] {
				right = append(right, ct.name)
			}
		}
		if len(right) == 0 {
			e.report.add(Changed, r.at, r.object, "targets", "no cluster of the input matches, so that no policy is written")
			continue
		}
		if taken[r.environment] == nil {
			taken[r.environment] = namer{}
		}
		for _, where := range r.expressed(types, right) {
			all = append(all, policy{rule: r, name: taken[r.environment].name(r.name), targets: r.selection(), types: where})
		}
	}
	return all
}

// expressed returns selectors of cluster types for a rule that holds for the named ones.
func (r *rule) expressed(types []*clusterType, right []string) []*selector {
	union := map[string]bool{}
	var used []*selector
	for _, s := range r.where {
		selects := false
		for _, ct := range types {
			if ct.environment == r.environment && s.matches(ct.labels) {
				union[ct.name], selects = true, true
			}
		}
		if selects {
			used = append(used, s)
		}
	}
	if slices.Equal(slices.Sorted(maps.Keys(union)), slices.Sorted(slices.Values(right))) {
		return used
	}
	return []*selector{{MatchExpressions: []requirement{{typeLabel, "In", slices.Sorted(slices.Values(right))}}}}
}

// selection returns a selector of the rule's targets.
func (r *rule) selection() *selector {
	if r.selects != nil {
		return r.selects
	}
	t := r.targets[0]
	labels := map[string]string{"workload": t.workload.name}
	if len(t.workload.targets) > 1 {
		labels[variantLabel] = t.name
	}
	return &selector{MatchLabels: labels}
}

// dependencies drops what a workload is to come after where it is not on each cluster type with it, and circles: the
// scheduler would refuse both.
func (e *estate) dependencies(types []*clusterType) {
	for _, w := range e.workloads {
		for _, t := range w.targets {
			t.after = slices.DeleteFunc(t.after, func(other *workload) bool {
				for _, ct := range types {
					on := ct.targets()
					if slices.Contains(on, t) && !slices.ContainsFunc(on, func(o *target) bool { return o.workload == other }) {
						e.report.add(Missing, w.at, w.object, "dependsOn "+other.object, fmt.Sprintf("it is not on cluster type %s, where the workload would wait for ever", ct.name))
						return true
					}
				}
				return false
			})
		}
	}
	for _, w := range e.workloads {
		for _, t := range w.targets {
			t.after = slices.DeleteFunc(t.after, func(other *workload) bool {
				if other == w || leadsTo(other, w, map[*workload]bool{}) {
					e.report.add(Missing, w.at, w.object, "dependsOn "+other.object, "the two depend on each other")
					return true
				}
				return false
			})
		}
	}
}

func leadsTo(from, to *workload, seen map[*workload]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, t := range from.targets {
		for _, next := range t.after {
			if next == to || leadsTo(next, to, seen) {
				return true
			}
		}
	}
	return false
}
