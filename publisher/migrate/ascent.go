package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// The entities of Ascent's service, as it answers with them in JSON.
type (
	ascentApplication struct {
		Name       string         `yaml:"name"`
		RepoURL    string         `yaml:"repo_url"`
		RepoBranch string         `yaml:"repo_branch"`
		RepoPath   string         `yaml:"repo_path"`
		Metadata   map[string]any `yaml:"metadata"`
		Namespace  string         `yaml:"namespace"`
	}
	ascentCluster struct {
		Name        string         `yaml:"name"`
		ShortName   string         `yaml:"shortName"`
		Environment string         `yaml:"environment"`
		Metadata    map[string]any `yaml:"metadata"`
	}
	ascentPolicy struct {
		Name            string         `yaml:"name"`
		AppSelector     map[string]any `yaml:"app_selector"`
		ClusterSelector map[string]any `yaml:"cluster_selector"`
	}
)

// ascent imports the entities of one service.
type ascent struct {
	estate
	environments namer
	names        map[string]map[string]string // of environments and so on, by their names in the service
	applications []*ascentApplied
}

// ascentApplied is an application with the labels that policies see.
type ascentApplied struct {
	workload *workload
	labels   map[string]string
}

// fromAscent reads Applications, Clusters and TargetPolicies: each a document, or an item of a list, wherever it lies.
func fromAscent(r *reader, o Options) (*estate, error) {
	a := &ascent{environments: namer{}, names: map[string]map[string]string{"environment": {}, "cluster": {}}}
	a.byLabels, a.engine = true, engine{"flux", fluxTemplate}
	var found ascentEntities
	for _, d := range r.documents {
		found.collect(d.at.file, d.node)
	}
	if len(found.applications)+len(found.clusters)+len(found.policies) == 0 {
		return nil, fmt.Errorf("%w: there is no Application, Cluster or TargetPolicy", ErrNothing)
	}
	a.addClusters(found.clusters, o)
	a.addApplications(found.applications, o)
	a.addPolicies(found.policies)
	if len(found.clusters) == 0 {
		a.report.add(Missing, place{}, "Cluster", "all", "the input has no clusters, so that nothing is assigned: add what the service lists")
	}
	for _, n := range found.namespaces {
		a.report.add(Later, n.at, "Namespace "+kinds.StringField(n.node, "name"), "groups", "a team becomes a workspace once its workloads come from a WorkloadRegistration of their own; list its groups in the Platform")
	}
	for _, n := range found.unknown {
		a.report.add(Missing, n.at, cmp.Or(kinds.StringField(n.node, "name"), "an object"), "all", "it is no Application, Cluster, TargetPolicy or Namespace")
	}
	return &a.estate, nil
}

// ascentEntities are documents by their type.
type ascentEntities struct {
	applications, clusters, policies, namespaces, unknown []document
}

// collect sorts an object, or all objects in a list, or in the lists of a mapping, by their fields.
func (e *ascentEntities) collect(file string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d := document{place{file, n.Line}, n}
	has := func(key string) bool { return kinds.Field(n, key).Kind != 0 }
	switch {
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			e.collect(file, item)
		}
	case n.Kind != yaml.MappingNode:
	case has("app_selector") || has("cluster_selector"):
		e.policies = append(e.policies, d)
	case has("repo_url") || has("repo_path"):
		e.applications = append(e.applications, d)
	case has("shortName") || has("environment"):
		e.clusters = append(e.clusters, d)
	case has("name"):
		if has("groups") || has("deploy_groups") || has("kubectl_groups") {
			e.namespaces = append(e.namespaces, d)
		} else {
			e.unknown = append(e.unknown, d)
		}
	default: // such as {"applications": […]}
		for i := 1; i < len(n.Content); i += 2 {
			if n.Content[i].Kind == yaml.SequenceNode {
				e.collect(file, n.Content[i])
			}
		}
	}
}

// decode reads an entity, and reports one that cannot be read or has no name.
func (a *ascent) decode(d document, kind string, into any, seen map[string]place) bool {
	name := kinds.StringField(d.node, "name")
	if err := d.node.Decode(into); err != nil {
		a.report.add(Missing, d.at, kind+" "+name, "all", "it cannot be read: "+oneLine(err))
		return false
	}
	if name == "" {
		a.report.add(Missing, d.at, kind, "all", "it has no name")
		return false
	}
	if first, twice := seen[name]; twice {
		a.report.add(Missing, d.at, kind+" "+name, "all", "there is one of that name at "+first.String()+", which counts")
		return false
	}
	seen[name] = d.at
	return true
}

func (a *ascent) addClusters(documents []document, o Options) {
	names, seen := map[string]namer{}, map[string]place{}
	for _, d := range documents {
		var c ascentCluster
		if !a.decode(d, "Cluster", &c, seen) {
			continue
		}
		environment := a.environment(d.at, "Cluster "+c.Name, cmp.Or(c.Environment, o.Environment))
		if names[environment] == nil {
			names[environment] = namer{}
		}
		one := &cluster{at: d.at, name: names[environment].name(c.Name), environment: environment, labels: a.labels(d.at, "Cluster "+c.Name, c.Metadata)}
		if one.name != c.Name {
			a.report.add(Changed, d.at, "Cluster "+c.Name, "name", "it becomes "+one.name)
			one.remarks = append(one.remarks, "Its name was "+c.Name)
		}
		if c.ShortName != "" {
			one.remarks = append(one.remarks, "Its short name was "+c.ShortName)
		}
		a.clusters = append(a.clusters, one)
	}
}

// environment returns the valid name of an environment, and reports another one where it is first named.
func (a *ascent) environment(at place, object, text string) string {
	known := a.names["environment"]
	if known[text] == "" {
		known[text] = a.environments.name(text)
		if known[text] != text {
			a.report.add(Changed, at, object, "environment "+text, "it becomes "+known[text])
		}
	}
	return known[text]
}

// labels returns metadata as labels. Different texts stay different.
func (a *ascent) labels(at place, object string, metadata map[string]any) map[string]string {
	labels := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		text := fmt.Sprint(metadata[key])
		validKey, value := labelKey(key), labelValue(text)
		if validKey != key || value != text {
			a.report.add(Changed, at, object, "metadata "+key, fmt.Sprintf("it becomes the label %s: %s", validKey, value))
		}
		labels[validKey] = value
	}
	return labels
}

func (a *ascent) addApplications(documents []document, o Options) {
	names, seen := namer{}, map[string]place{}
	environments := a.estate.environments()
	if len(environments) == 0 {
		environments = []string{a.environment(place{}, "Environment", o.Environment)}
	}
	for _, d := range documents {
		var app ascentApplication
		if !a.decode(d, "Application", &app, seen) {
			continue
		}
		object := "Application " + app.Name
		w := &workload{at: d.at, name: names.name(app.Name), object: object}
		if w.name != app.Name {
			a.report.add(Changed, d.at, object, "name", "it becomes "+w.name)
		}
		repo, secret := withoutPassword(app.RepoURL)
		if secret {
			a.report.add(Changed, d.at, object, "repo_url", "its user and password are left out; give them to Flux as a Secret")
		}
		labels := a.labels(d.at, object, app.Metadata)
		for _, environment := range environments {
			w.targets = append(w.targets, &target{
				workload: w, name: environment, environment: environment, labels: labels,
				manifests: manifests("repo", repo, "branch", app.RepoBranch, "path", app.RepoPath),
			})
		}
		if app.Namespace != "" {
			a.report.add(Later, d.at, object, "namespace "+app.Namespace, "the platform itself holds the workload, which has no workspace; move it to a repository of the team and add a WorkloadRegistration with this workspace")
		}
		a.workloads = append(a.workloads, w)
		a.applications = append(a.applications, &ascentApplied{w, labels})
	}
}

func (a *ascent) addPolicies(documents []document) {
	seen := map[string]place{}
	for _, d := range documents {
		var p ascentPolicy
		if !a.decode(d, "TargetPolicy", &p, seen) {
			continue
		}
		object := "TargetPolicy " + p.Name
		apps := &selector{MatchLabels: a.labels(d.at, object, p.AppSelector)}
		clusters := &selector{MatchLabels: a.labels(d.at, object, p.ClusterSelector)}
		if apps.empty() || clusters.empty() {
			a.report.add(Changed, d.at, object, "an empty selector", "it selects everything; look whether this was meant")
		}
		any := false
		for _, environment := range a.estate.environments() {
			r := &rule{at: d.at, object: object, name: p.Name, environment: environment, selects: apps, clusters: map[*cluster]bool{}, where: []*selector{clusters}}
			for _, app := range a.applications {
				if apps.matches(app.labels) {
					for _, t := range app.workload.targets {
						if t.environment == environment {
							r.targets = append(r.targets, t)
						}
					}
				}
			}
			for _, c := range a.clusters {
				if c.environment == environment && clusters.matches(c.labels) {
					r.clusters[c], any = true, true
				}
			}
			if len(r.clusters) > 0 {
				a.rules = append(a.rules, r)
			}
		}
		if !any {
			a.report.add(Changed, d.at, object, "cluster_selector "+clusters.String(), "no cluster has these labels, so that no policy is written")
		}
	}
}

// manifests returns the pairs of key and value that have a value.
func manifests(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all[pairs[i]] = pairs[i+1]
		}
	}
	return all
}
