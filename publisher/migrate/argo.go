package migrate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// localServer is how Argo CD calls the cluster that it runs on.
const localServer = "https://kubernetes.default.svc"

// argoSecretLabel marks the Secrets that stand for clusters.
const argoSecretLabel = "argocd.argoproj.io/secret-type"

// argoCluster is a cluster as Argo CD knows it.
type argoCluster struct {
	at           place
	cluster      *cluster
	name, server string
	labels       map[string]string
	annotations  map[string]string
	declared     bool // by a Secret or a list, so that generators find it
}

// argo imports ApplicationSets.
type argo struct {
	estate
	reader       *reader
	options      Options
	environment  string
	known        []*argoCluster
	applications map[string]madeBy // by NAMESPACE/NAME
	clusterNames namer
	names        namer
}

// madeBy is the set that makes an Application.
type madeBy struct {
	object string
	at     place
}

// fromArgo reads ApplicationSets, the Secrets of clusters, and lists of clusters.
func fromArgo(r *reader, o Options) (*estate, error) {
	a := &argo{reader: r, options: o, environment: slug(o.Environment), clusterNames: namer{}, names: namer{}, applications: map[string]madeBy{}}
	if a.environment != o.Environment {
		a.report.add(Changed, place{}, "Environment", "environment "+o.Environment, "it becomes "+a.environment)
	}
	a.engine = engine{"argo", argoTemplate}
	var sets []document
	seen := map[string]place{}
	for _, d := range r.documents {
		apiVersion, kind := d.kind()
		switch group, _, _ := strings.Cut(apiVersion, "/"); {
		case group == "argoproj.io" && kind == "ApplicationSet":
			sets = append(sets, d)
		case group == "argoproj.io" && kind == "Application":
			namespace, name := d.name()
			a.report.add(Missing, d.at, "Application "+namespace+"/"+name, "all", "only ApplicationSets are imported: write a Workload for it")
		case apiVersion == "v1" && kind == "Secret":
			a.addSecret(d)
		case apiVersion == "" && kind == "":
			a.addList(d)
		}
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("%w: there is no ApplicationSet of argoproj.io", ErrNothing)
	}
	for _, d := range sets {
		r.names("repoURL", kinds.Field(kinds.Field(d.node, "spec"), "generators"))
	}
	for _, d := range sets {
		namespace, name := d.name()
		object := "ApplicationSet " + strings.TrimPrefix(namespace+"/"+name, "/")
		if first, twice := seen[object]; twice {
			a.report.add(Missing, d.at, object, "all", "there is one of that name at "+first.String()+", which counts")
			continue
		}
		seen[object] = d.at
		a.addSet(d, object, name)
	}
	return &a.estate, nil
}

// addSecret takes a cluster from its Secret: name and server, and nothing else of its data.
func (a *argo) addSecret(d document) {
	var s struct {
		Metadata struct {
			Name        string            `yaml:"name"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"metadata"`
		StringData struct {
			Name   string `yaml:"name"`
			Server string `yaml:"server"`
		} `yaml:"stringData"`
		Data struct {
			Name   string `yaml:"name"`
			Server string `yaml:"server"`
		} `yaml:"data"`
	}
	if err := d.node.Decode(&s); err != nil {
		a.report.add(Missing, d.at, "Secret", "all", "it cannot be read as a Secret") // without the error, which may quote it
		return
	}
	if s.Metadata.Labels[argoSecretLabel] != "cluster" {
		return
	}
	decoded := func(text string) string {
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return ""
		}
		return string(plain)
	}
	name := cmp.Or(s.StringData.Name, decoded(s.Data.Name), s.Metadata.Name)
	a.declare(d.at, "Secret "+s.Metadata.Name, argoCluster{
		name: name, server: cmp.Or(s.StringData.Server, decoded(s.Data.Server)), labels: s.Metadata.Labels, annotations: s.Metadata.Annotations,
	})
}

// addList takes clusters from a document {clusters: [{name, server, labels}]}, for people who do not export Secrets.
func (a *argo) addList(d document) {
	for _, item := range kinds.SequenceField(d.node, "clusters") {
		var c struct {
			Name        string            `yaml:"name"`
			Server      string            `yaml:"server"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		}
		at := place{d.at.file, item.Line}
		if err := item.Decode(&c); err != nil || c.Name == "" {
			a.report.add(Missing, at, "a cluster of the list", "all", "it has no name, or cannot be read")
			continue
		}
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[argoSecretLabel] = "cluster" // every Secret has it, and selectors name it
		a.declare(at, "cluster "+c.Name, argoCluster{name: c.Name, server: c.Server, labels: c.Labels, annotations: c.Annotations})
	}
}

func (a *argo) declare(at place, object string, c argoCluster) {
	if slices.ContainsFunc(a.known, func(k *argoCluster) bool { return k.name == c.name || c.server != "" && k.server == c.server }) {
		a.report.add(Missing, at, object, "all", "there is another cluster of this name or server, which counts")
		return
	}
	c.declared = true
	a.add(at, c)
}

func (a *argo) add(at place, c argoCluster) *argoCluster {
	labels := map[string]string{}
	for key, value := range c.labels {
		if key != argoSecretLabel {
			labels[labelKey(key)] = labelValue(value)
		}
	}
	c.at = at
	c.cluster = &cluster{at: at, name: a.clusterNames.name(c.name), environment: a.environment, labels: labels}
	if c.cluster.name != c.name {
		c.cluster.remarks = append(c.cluster.remarks, "Its name was "+c.name)
	}
	a.known = append(a.known, &c)
	a.clusters = append(a.clusters, c.cluster)
	return &c
}

// destination returns the cluster that an Application names.
func (a *argo) destination(at place, object, name, server string) *argoCluster {
	for _, k := range a.known {
		if name != "" && k.name == name || name == "" && k.server == server {
			return k
		}
	}
	if server == localServer || name == "in-cluster" {
		for _, k := range a.known {
			if k.server == localServer {
				return k
			}
		}
		return a.add(at, argoCluster{name: "in-cluster", server: localServer})
	}
	if name == "" {
		if u, err := url.Parse(server); err == nil {
			name = u.Host
		}
		name = cmp.Or(name, server)
	}
	a.report.add(Changed, at, object, "destination "+name, "no Secret describes this cluster, so that it has no labels")
	return a.add(at, argoCluster{name: name, server: server})
}

// application is an Application that a set generates.
type application struct {
	name    string
	cluster *argoCluster
	spec    string // without the destination's cluster, as YAML
	path    string
	chart   string
	// The generators, the template and the parameters that it was made of.
	generators *generators
	template   *yaml.Node
	params     map[string]any
}

// argoFields are fields of an ApplicationSet without a counterpart, with what to do.
var argoFields = map[string]string{
	"strategy":                     "name rings in a PromotionPolicy, and give each Cluster its ring, instead of rollingSync",
	"syncPolicy":                   "an assignment goes when it is no longer assigned; wherry.dev/on-remove: orphan on the Workload keeps what was applied",
	"preservedFields":              "the template writes the whole Application",
	"ignoreApplicationDifferences": "the template writes the whole Application",
}

// reportFields reports the fields of a set that are not read.
func (a *argo) reportFields(file, object string, spec *yaml.Node) {
	read := []string{"generators", "template", "templatePatch", "goTemplate", "goTemplateOptions"}
	for i := 0; spec.Kind == yaml.MappingNode && i+1 < len(spec.Content); i += 2 {
		if key := spec.Content[i]; !slices.Contains(read, key.Value) && !isZero(spec.Content[i+1]) {
			a.report.add(Missing, place{file, key.Line}, object, "spec."+key.Value, cmp.Or(argoFields[key.Value], "it has no counterpart"))
		}
	}
}

func (a *argo) addSet(d document, object, name string) {
	spec := kinds.Field(d.node, "spec")
	a.reportFields(d.at.file, object, spec)
	if n := kinds.Field(spec, "templatePatch"); n.Kind != 0 {
		a.report.add(Missing, place{d.at.file, n.Line}, object, "all", "spec.templatePatch may change anything, and is not evaluated")
		return
	}
	g := &generators{argo: a, file: d.at.file, object: object, goTemplate: kinds.StringField(spec, "goTemplate") == "true"}
	template := kinds.Field(spec, "template")
	var all []application
	made := map[string]application{} // by name
	selectors := []*selector{}
	for _, n := range kinds.SequenceField(spec, "generators") {
		sets := g.generate(n, nil)
		selectors = append(selectors, g.selectors...)
		for _, one := range sets {
			generated, ok := a.application(g, place{d.at.file, template.Line}, object, overlaid(template, one.template), one.params)
			if first, twice := made[generated.name]; ok && twice && generated.name != "" {
				a.report.add(Missing, d.at, object, "Application "+generated.name, "Argo CD makes one Application of a name, the first, which is on cluster "+first.cluster.name)
				continue
			}
			if ok {
				made[generated.name] = generated
				generated.generators, generated.template, generated.params = g, overlaid(template, one.template), one.params
				all = append(all, generated)
			}
		}
	}
	if len(all) == 0 {
		a.report.add(Missing, d.at, object, "all", "it generates no Application from this input")
		return
	}
	a.claim(d, object, all)
	a.addApplications(d, object, name, all, selectors)
}

// claim reports Applications that other sets make as well: Argo CD has one object of a name, in the namespace of its sets.
func (a *argo) claim(d document, object string, all []application) {
	namespace, _ := d.name()
	shared := map[madeBy][]string{}
	for _, one := range all {
		if one.name == "" {
			continue
		}
		key := cmp.Or(namespace, argoNamespace) + "/" + one.name
		if first, twice := a.applications[key]; twice {
			shared[first] = append(shared[first], one.name)
		} else {
			a.applications[key] = madeBy{object, d.at}
		}
	}
	for first, names := range shared {
		what := "Application "
		if len(names) > 1 {
			what = "Applications "
		}
		a.report.add(Missing, d.at, object, what+show.List(names, maxNames), first.object+" at "+first.at.String()+
			" makes one of that name too: Argo CD keeps one object of a name, of the set that was first, and here both are assigned: rename one of them, or take its Workload out")
	}
}

// argoNamespace is where sets without a namespace are usually applied, and maxNames bounds the Applications in a finding.
const (
	argoNamespace = "argocd"
	maxNames      = 5
)

// addApplications makes a workload of a set, with a target of each different spec.
func (a *argo) addApplications(d document, object, name string, all []application, selectors []*selector) {
	w := &workload{at: d.at, name: a.names.name(name), object: object}
	a.workloads = append(a.workloads, w)
	if a.addGeneral(w, d, object, all, selectors) {
		return
	}
	bySpec := map[string][]application{}
	var order []string
	onCluster := map[string]application{}
	for _, one := range all {
		key := one.cluster.cluster.name + "\n" + one.spec
		if first, twice := onCluster[key]; twice {
			a.report.add(Changed, d.at, object, "Applications "+first.name+" and "+one.name, "they are the same on cluster "+one.cluster.name+", and become one")
			continue
		}
		onCluster[key] = one
		if bySpec[one.spec] == nil {
			order = append(order, one.spec)
		}
		bySpec[one.spec] = append(bySpec[one.spec], one)
	}
	slices.Sort(order)
	names := variantNames(order, bySpec)
	single := 0
	for i, spec := range order {
		t := &target{workload: w, name: names[i], environment: a.environment, manifests: applicationManifests(spec)}
		w.targets = append(w.targets, t)
		r := &rule{at: d.at, object: object, name: w.name + "-" + t.name, environment: a.environment, targets: []*target{t}, clusters: map[*cluster]bool{}, where: selectors}
		for _, one := range bySpec[spec] {
			r.clusters[one.cluster.cluster] = true
		}
		if len(r.clusters) == 1 {
			single++
		}
		a.rules = append(a.rules, r)
	}
	a.report.add(Changed, d.at, object, "names of Applications", "they are WORKLOAD-TARGET on every cluster, and each cluster's own Argo CD has them")
	if single > 1 && single == len(order) {
		a.report.add(Later, d.at, object, "parameters of a cluster", "every cluster has a spec of its own, and so a target of its own: what differs cannot be expressed by site values")
	}
}

// addGeneral makes one target of a set whose spec differs on every cluster, if site values can express that.
func (a *argo) addGeneral(w *workload, d document, object string, all []application, selectors []*selector) bool {
	specs := map[string]bool{}
	for _, one := range all {
		specs[one.spec] = true
	}
	if len(specs) < 2 || len(specs) < len(all) {
		return false
	}
	made, ok := a.generalize(w.name, all)
	if !ok {
		return false
	}
	before := make([]map[string]any, len(all))
	for i, one := range all {
		before[i] = maps.Clone(one.cluster.cluster.values)
	}
	for i, one := range all {
		for key, text := range made.values[i] {
			if !one.cluster.cluster.setValue(key, literal(text)) {
				for j, other := range all {
					other.cluster.cluster.values = before[j]
				}
				return false
			}
		}
	}
	t := &target{workload: w, name: "main", environment: a.environment, manifests: applicationManifests(made.spec), uses: made.uses}
	w.targets = append(w.targets, t)
	r := &rule{at: d.at, object: object, name: w.name + "-" + t.name, environment: a.environment, targets: []*target{t}, clusters: map[*cluster]bool{}, where: selectors}
	for _, one := range all {
		r.clusters[one.cluster.cluster] = true
	}
	a.rules = append(a.rules, r)
	a.report.add(Changed, d.at, object, "names of Applications", "they are WORKLOAD-TARGET on every cluster, and each cluster's own Argo CD has them")
	a.report.add(Changed, d.at, object, "parameters of a cluster", "they become site values, which the agent puts into the Application: "+strings.Join(made.uses, ", "))
	return true
}

// applicationManifests returns the manifests of a target with the spec of an Application: the spec for the template, and its source,
// if it is one folder or chart that is the same for all clusters, which may then be embedded.
func applicationManifests(spec string) map[string]string {
	all := map[string]string{"spec": spec}
	var read struct {
		Source struct {
			RepoURL        string `yaml:"repoURL"`
			TargetRevision string `yaml:"targetRevision"`
			Path           string `yaml:"path"`
			Chart          string `yaml:"chart"`
		} `yaml:"source"`
	}
	source := &read.Source
	if yaml.Unmarshal([]byte(spec), &read) != nil || source.RepoURL == "" || strings.Contains(source.RepoURL+source.TargetRevision+source.Path+source.Chart, "${site.") {
		return all
	}
	if source.Chart == "" {
		maps.Copy(all, manifests("repo", source.RepoURL, "path", cmp.Or(source.Path, "."), "branch", source.TargetRevision))
		if all["branch"] == "HEAD" {
			delete(all, "branch")
		}
		return all
	}
	maps.Copy(all, manifests("repo", source.RepoURL, "chart", source.Chart, "version", source.TargetRevision))
	return all
}

// variantNames names targets by what tells their specs apart: the folder, the chart, the one cluster, or else a number.
func variantNames(order []string, bySpec map[string][]application) []string {
	if len(order) == 1 {
		return []string{"main"}
	}
	folder := func(spec string) string { return strings.Trim(path.Base("/"+bySpec[spec][0].path), "/.") }
	for _, of := range []func(spec string) string{
		folder,
		func(spec string) string { return bySpec[spec][0].chart },
		func(spec string) string {
			if len(bySpec[spec]) > 1 {
				return ""
			}
			return bySpec[spec][0].cluster.name
		},
	} {
		var names []string
		for _, spec := range order {
			if text := of(spec); text != "" {
				names = append(names, slug(text))
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(order) {
			return names
		}
	}
	var names []string
	count := map[string]int{}
	for _, spec := range order {
		stem := "t"
		if text := folder(spec); text != "" {
			stem = slug(text) + "-"
		}
		count[stem]++
		names = append(names, stem+strconv.Itoa(count[stem]))
	}
	return names
}

// application renders the template of a set for parameters.
func (a *argo) application(g *generators, at place, object string, template *yaml.Node, params map[string]any) (application, bool) {
	rendered, err := g.render(template, params)
	if err != nil {
		a.report.add(Missing, at, object, "an Application", "its template cannot be evaluated: "+oneLine(err))
		return application{}, false
	}
	var spec map[string]any
	if err := kinds.Field(rendered, "spec").Decode(&spec); err != nil {
		a.report.add(Missing, at, object, "an Application", "its spec cannot be read: "+oneLine(err))
		return application{}, false
	}
	one := application{name: kinds.StringField(kinds.Field(rendered, "metadata"), "name")}
	destination, _ := spec["destination"].(map[string]any)
	name, _ := destination["name"].(string)
	server, _ := destination["server"].(string)
	if name == "" && server == "" {
		a.report.add(Missing, at, object, "Application "+one.name, "it has no destination")
		return application{}, false
	}
	spec = localSpec(spec)
	a.clean(at, object, spec)
	text, err := yaml.Marshal(spec)
	if err != nil {
		return application{}, false
	}
	one.spec, one.cluster = string(text), a.destination(at, object, name, server)
	source, _ := spec["source"].(map[string]any)
	one.path, _ = source["path"].(string)
	one.chart, _ = source["chart"].(string)
	return one, true
}

// localSpec returns the spec of an Application for the Argo CD of its own cluster.
func localSpec(spec map[string]any) map[string]any {
	destination, _ := spec["destination"].(map[string]any)
	here := map[string]any{"server": localServer}
	if namespace := destination["namespace"]; namespace != nil {
		here["namespace"] = namespace
	}
	spec = maps.Clone(spec)
	spec["destination"] = here
	return spec
}

// spec returns the local spec of an Application for parameters.
func (g *generators) spec(template *yaml.Node, params map[string]any) (map[string]any, error) {
	rendered, err := g.render(template, params)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := kinds.Field(rendered, "spec").Decode(&spec); err != nil {
		return nil, err
	}
	return localSpec(spec), nil
}

// clean takes passwords out of the sources' URLs.
func (a *argo) clean(at place, object string, spec map[string]any) {
	sources, _ := spec["sources"].([]any)
	if one, ok := spec["source"]; ok {
		sources = append(slices.Clone(sources), one)
	}
	for _, s := range sources {
		source, _ := s.(map[string]any)
		text, _ := source["repoURL"].(string)
		if plain, secret := withoutPassword(text); secret {
			source["repoURL"] = plain
			a.report.add(Changed, at, object, "repoURL", "its user and password are left out; give them to Argo CD as a Secret")
		}
	}
}

// overlaid returns a template with a generator's own template over it.
func overlaid(base, over *yaml.Node) *yaml.Node {
	if over == nil || over.Kind != yaml.MappingNode {
		return base
	}
	if base == nil || base.Kind != yaml.MappingNode {
		return over
	}
	both := &yaml.Node{Kind: yaml.MappingNode, Line: base.Line}
	both.Content = slices.Clone(base.Content)
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		if isZero(value) {
			continue
		}
		found := false
		for j := 0; j+1 < len(both.Content); j += 2 {
			if both.Content[j].Value == key.Value {
				if value.Kind == yaml.MappingNode {
					value = overlaid(both.Content[j+1], value)
				}
				both.Content[j+1], found = value, true
			}
		}
		if !found {
			both.Content = append(both.Content, key, value)
		}
	}
	return both
}
