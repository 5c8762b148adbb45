package migrate

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// The parts of Fleet's objects that place bundles on clusters.
type (
	fleetTarget struct {
		Name                 string    `yaml:"name"`
		ClusterName          string    `yaml:"clusterName"`
		ClusterSelector      *selector `yaml:"clusterSelector"`
		ClusterGroup         string    `yaml:"clusterGroup"`
		ClusterGroupSelector *selector `yaml:"clusterGroupSelector"`
		DoNotDeploy          bool      `yaml:"doNotDeploy"`
		fleetOptions         `yaml:",inline"`
	}
	fleetOptions struct {
		DefaultNamespace string `yaml:"defaultNamespace"`
		Namespace        string `yaml:"namespace"`
		Helm             struct {
			Chart       string         `yaml:"chart"`
			Repo        string         `yaml:"repo"`
			Version     string         `yaml:"version"`
			ReleaseName string         `yaml:"releaseName"`
			Values      map[string]any `yaml:"values"`
			ValuesFiles []string       `yaml:"valuesFiles"`
			ValuesFrom  []any          `yaml:"valuesFrom"`
		} `yaml:"helm"`
		Kustomize struct {
			Dir string `yaml:"dir"`
		} `yaml:"kustomize"`
		YAML struct {
			Overlays []string `yaml:"overlays"`
		} `yaml:"yaml"`
	}
	fleetBundle struct {
		fleetOptions    `yaml:",inline"`
		Name            string        `yaml:"name"`
		Customizations  []fleetTarget `yaml:"targetCustomizations"`
		Mode            string        `yaml:"targetCustomizationMode"`
		OverrideTargets []fleetTarget `yaml:"overrideTargets"`
		DependsOn       []struct {
			Name     string    `yaml:"name"`
			Selector *selector `yaml:"selector"`
		} `yaml:"dependsOn"`
	}
	fleetRepo struct {
		Repo     string        `yaml:"repo"`
		Branch   string        `yaml:"branch"`
		Revision string        `yaml:"revision"`
		Paths    []string      `yaml:"paths"`
		Targets  []fleetTarget `yaml:"targets"`
		Paused   bool          `yaml:"paused"`
		// TargetNamespace counts more than what fleet.yaml files say.
		TargetNamespace string `yaml:"targetNamespace"`
	}
)

// What of the objects has no counterpart, with what to do.
var (
	fleetRepoFields = map[string]string{
		"serviceAccount":        "list the workspace in the Platform, which names the ServiceAccount that applies its assignments",
		"correctDrift":          "agents correct drift anyway; wherry.dev/drift: report on the Workload leaves it",
		"imageScanInterval":     "images are not scanned for new tags; wherry.dev/pin: commit pins them at each publication",
		"clientSecretName":      "give Flux the login as a Secret, and name it in templates/flux.yaml",
		"helmSecretName":        "give Flux the login as a Secret, and name it in templates/flux.yaml",
		"caBundle":              "give Flux the certificate as a Secret, and name it in templates/flux.yaml",
		"insecureSkipTLSVerify": "give Flux the certificate as a Secret, and name it in templates/flux.yaml",
		"keepResources":         "wherry.dev/on-remove: orphan on the Workload keeps what was applied",
		"deleteNamespace":       "the namespace of an assignment goes with it",
		"pollingInterval":       "templates/flux.yaml has the interval in which Flux asks",
		"bundles":               "write what is listed there as paths",
	}
	fleetBundleFields = map[string]string{
		"diff":                   "there are no patches of comparisons; wherry.dev/drift: report leaves drift as it is",
		"correctDrift":           "agents correct drift anyway; wherry.dev/drift: report on the Workload leaves it",
		"rolloutStrategy":        "name rings in a PromotionPolicy, and give each Cluster its ring",
		"imageScans":             "images are not scanned for new tags; wherry.dev/pin: commit pins them at each publication",
		"ignore":                 "wherry.dev/health on the Workload says which conditions count",
		"labels":                 "labels of bundles are used by nobody here",
		"namespaceLabels":        "add them to templates/namespace.yaml",
		"namespaceAnnotations":   "add them to templates/namespace.yaml",
		"keepResources":          "wherry.dev/on-remove: orphan on the Workload keeps what was applied",
		"deleteCRDResources":     "CRDs are kept or deleted like all else",
		"serviceAccount":         "list the workspace in the Platform, which names the ServiceAccount that applies its assignments",
		"targets":                "targets of the GitRepo, overrideTargets and targetCustomizations are read",
		"overwrites":             "set a dependency between the workloads instead",
		"downstreamResources":    "bring Secrets to the cluster in another way, such as SOPS or an external secret store",
		"helmSecretName":         "give Flux the login as a Secret, and name it in templates/flux.yaml",
		"helm.valuesFrom":        "add valuesFrom to templates/flux.yaml; Flux reads Secrets and ConfigMaps of flux-system",
		"helm.valuesFiles":       "copy the values into the Workload's manifests, or name the files in templates/flux.yaml",
		"helm.force":             "set it in templates/flux.yaml (upgrade.force)",
		"helm.takeOwnership":     "Flux takes ownership of objects anyway",
		"helm.atomic":            "set it in templates/flux.yaml (upgrade.remediation)",
		"helm.timeoutSeconds":    "set it in templates/flux.yaml (timeout)",
		"helm.maxHistory":        "set it in templates/flux.yaml (maxHistory)",
		"helm.disablePreProcess": "of values with ${ }, those that name a value of the cluster become site values",
		"yaml.overlays":          "make a kustomization with a folder for each variant, and name it as path in the Workload",
	}
)

// The fields that are read, or that say nothing here.
var (
	fleetRepoRead   = []string{"repo", "branch", "revision", "paths", "targets", "paused", "forceSyncGeneration", "targetNamespace"}
	fleetBundleRead = []string{
		"defaultNamespace", "namespace", "helm", "kustomize", "yaml", "name", "targetCustomizations", "targetCustomizationMode", "overrideTargets", "dependsOn",
		"helm.chart", "helm.repo", "helm.version", "helm.releaseName", "helm.values", "kustomize.dir",
	}
	fleetTargetRead = append([]string{"clusterName", "clusterSelector", "clusterGroup", "clusterGroupSelector", "doNotDeploy"}, fleetBundleRead...)
)

// fleet imports the objects of Fleet.
type fleet struct {
	estate
	reader       *reader
	options      Options
	environments map[string]string          // of Fleet's namespaces
	groups       map[string][]fleetGroup    // by Fleet's namespace
	clustersOf   map[string][]*fleetCluster // by Fleet's namespace
	bundles      map[string]*workload       // by namespace/name of the bundle
	after        map[*workload][]string     // names of bundles
	names        namer
	declared     map[string]map[string]bool // keys of site values, by Fleet's namespace
	inNamespace  map[string][]*rule         // those whose objects are in a namespace that is to be made, as ENVIRONMENT/NAMESPACE
}

// siteKeys returns the keys of site values of a namespace.
func (f *fleet) siteKeys(namespace string) map[string]bool {
	if f.declared[namespace] == nil {
		f.declared[namespace] = map[string]bool{}
	}
	return f.declared[namespace]
}

type fleetGroup struct {
	name     string
	labels   map[string]string
	selector *selector
}

type fleetCluster struct {
	cluster *cluster
	name    string
	groups  []fleetGroup // that it is in
}

// fromFleet reads GitRepos, Clusters and ClusterGroups, and the fleet.yaml files of the repositories.
func fromFleet(r *reader, o Options) (*estate, error) {
	f := &fleet{
		reader: r, options: o, environments: map[string]string{}, groups: map[string][]fleetGroup{}, clustersOf: map[string][]*fleetCluster{},
		bundles: map[string]*workload{}, after: map[*workload][]string{}, names: namer{}, declared: map[string]map[string]bool{},
		inNamespace: map[string][]*rule{},
	}
	f.engine = engine{"flux", fluxTemplate}
	of := f.objects()
	if len(of["GitRepo"])+len(of["Cluster"]) == 0 {
		return nil, fmt.Errorf("%w: there is no GitRepo and no Cluster of fleet.cattle.io", ErrNothing)
	}
	f.name(of)
	for _, d := range of["GitRepo"] {
		r.names("repo", &yaml.Node{Kind: yaml.MappingNode, Content: specRepo(d)})
	}
	for _, d := range of["Cluster"] {
		f.addCluster(d)
	}
	for _, d := range of["ClusterGroup"] {
		f.addGroup(d)
	}
	f.join()
	for _, d := range of["GitRepo"] {
		f.addRepo(d)
	}
	f.order()
	f.makeNamespaces()
	if len(of["Cluster"]) == 0 {
		f.report.add(Missing, place{}, "Cluster", "all", `the input has no clusters, so that nothing is assigned: add the output of "kubectl get clusters.fleet.cattle.io -A -o yaml"`)
	}
	return &f.estate, nil
}

// specRepo returns the pair spec.repo of a GitRepo.
func specRepo(d document) []*yaml.Node {
	return []*yaml.Node{{Kind: yaml.ScalarNode, Value: "repo"}, kinds.Field(kinds.Field(d.node, "spec"), "repo")}
}

// objects returns Fleet's objects by kind, each once.
func (f *fleet) objects() map[string][]document {
	known := []string{"GitRepo", "Cluster", "ClusterGroup"}
	of, seen := map[string][]document{}, map[string]place{}
	for _, d := range f.reader.documents {
		apiVersion, kind := d.kind()
		if group, _, _ := strings.Cut(apiVersion, "/"); group != "fleet.cattle.io" {
			continue
		}
		namespace, name := d.name()
		key := kind + " " + namespace + "/" + name
		switch first, twice := seen[key]; {
		case !slices.Contains(known, kind):
			if kind != "Bundle" && kind != "BundleDeployment" && kind != "Content" { // Fleet makes these itself
				f.report.add(Missing, d.at, key, "all", "this kind has no counterpart")
			} else if _, made := kinds.Field(kinds.Field(d.node, "metadata"), "labels"), kind == "Bundle"; made && kinds.StringField(kinds.Field(kinds.Field(d.node, "metadata"), "labels"), "fleet.cattle.io/repo-name") == "" {
				f.report.add(Missing, d.at, key, "all", "a Bundle without a GitRepo: put its resources into git")
			}
		case name == "":
			f.report.add(Missing, d.at, kind, "all", "it has no name")
		case twice:
			f.report.add(Missing, d.at, key, "all", "there is one of that name at "+first.String()+", which counts")
		default:
			seen[key] = d.at
			of[kind] = append(of[kind], d)
		}
	}
	return of
}

// name names the environments, which are Fleet's namespaces.
func (f *fleet) name(of map[string][]document) {
	all := map[string]bool{}
	for _, documents := range of {
		for _, d := range documents {
			namespace, _ := d.name()
			all[namespace] = true
		}
	}
	names := namer{}
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		text := cmp.Or(namespace, f.options.Environment)
		if f.environments[namespace] = names.name(text); f.environments[namespace] != text {
			f.report.add(Changed, place{}, "Environment", "environment "+text, "it becomes "+f.environments[namespace])
		}
	}
}

func (f *fleet) addCluster(d document) {
	namespace, name := d.name()
	object := "Cluster " + namespace + "/" + name
	var labels map[string]string
	if err := kinds.Field(kinds.Field(d.node, "metadata"), "labels").Decode(&labels); err != nil && kinds.Field(kinds.Field(d.node, "metadata"), "labels").Kind != 0 {
		f.report.add(Missing, d.at, object, "all", "its labels cannot be read: "+oneLine(err))
		return
	}
	taken := namer{}
	for _, other := range f.clustersOf[namespace] {
		taken[other.cluster.name] = true
	}
	c := &cluster{at: d.at, name: taken.name(name), environment: f.environments[namespace], labels: f.labelsOf(d.at, object, labels)}
	if c.name != name {
		f.report.add(Changed, d.at, object, "name", "it becomes "+c.name)
	}
	spec := kinds.Field(d.node, "spec")
	if values := kinds.Field(spec, "templateValues"); values.Kind == yaml.MappingNode && len(values.Content) > 0 {
		var read map[string]any
		if err := values.Decode(&read); err != nil {
			f.report.add(Missing, d.at, object, "spec.templateValues", "they cannot be read: "+oneLine(err))
		} else if left := c.addTemplateValues(read); len(left) > 0 {
			f.report.add(Missing, d.at, object, "spec.templateValues", "lists, empty values and long texts are no site values, and neither are two of one key: "+strings.Join(left, ", ")+"; they are kept as a comment")
			if text, err := yaml.Marshal(values); err == nil {
				c.remarks = append(c.remarks, "templateValues:\n"+indent(string(text), "  "))
			}
		}
		for key := range c.values {
			f.siteKeys(namespace)[key] = true
		}
	}
	if kinds.StringField(spec, "paused") == "true" {
		f.report.add(Later, d.at, object, "spec.paused", `pause the agent there: "wherry-agent pause"`)
	}
	f.clusters = append(f.clusters, c)
	f.clustersOf[namespace] = append(f.clustersOf[namespace], &fleetCluster{cluster: c, name: name})
}

// labelsOf renames labels that mean something here.
func (f *fleet) labelsOf(at place, object string, labels map[string]string) map[string]string {
	renamed := map[string]string{}
	for _, key := range sortedKeys(labels) {
		valid, value := labelKey(key), labelValue(labels[key])
		if valid != key || value != labels[key] {
			f.report.add(Changed, at, object, "label "+key, fmt.Sprintf("it becomes %s: %s", valid, value))
		}
		renamed[valid] = value
	}
	return renamed
}

func (f *fleet) addGroup(d document) {
	namespace, name := d.name()
	object := "ClusterGroup " + namespace + "/" + name
	var read struct {
		Metadata struct {
			Labels map[string]string `yaml:"labels"`
		} `yaml:"metadata"`
		Spec struct {
			Selector *selector `yaml:"selector"`
		} `yaml:"spec"`
	}
	err := d.node.Decode(&read)
	if err == nil && read.Spec.Selector != nil {
		err = read.Spec.Selector.check()
	}
	if err != nil {
		f.report.add(Missing, d.at, object, "all", "it cannot be read: "+oneLine(err))
		return
	}
	f.groups[namespace] = append(f.groups[namespace], fleetGroup{name, read.Metadata.Labels, renameKeys(read.Spec.Selector)})
}

// renameKeys returns a selector of clusters with the labels that labelsOf gives them; nil stays nil.
func renameKeys(s *selector) *selector {
	if s == nil {
		return nil
	}
	renamed := &selector{}
	for key, value := range s.MatchLabels {
		if renamed.MatchLabels == nil {
			renamed.MatchLabels = map[string]string{}
		}
		renamed.MatchLabels[labelKey(key)] = value
	}
	for _, r := range s.MatchExpressions {
		renamed.MatchExpressions = append(renamed.MatchExpressions, requirement{labelKey(r.Key), r.Operator, r.Values})
	}
	return renamed
}

// join adds clusters to the groups that select them.
func (f *fleet) join() {
	for namespace, clusters := range f.clustersOf {
		for _, c := range clusters {
			for _, g := range f.groups[namespace] {
				if g.selector != nil && g.selector.matches(c.cluster.labels) {
					c.groups = append(c.groups, g)
				}
			}
		}
	}
}

// matches reports whether a target matches a cluster: all criteria that are given must hold, those about groups for one
// group. Without any, it matches nothing.
func (t *fleetTarget) matches(c *fleetCluster) bool {
	if t.ClusterName == "" && t.ClusterSelector == nil && t.ClusterGroup == "" && t.ClusterGroupSelector == nil {
		return false
	}
	if t.ClusterName != "" && t.ClusterName != c.name || t.ClusterSelector != nil && !t.ClusterSelector.matches(c.cluster.labels) {
		return false
	}
	groups := c.groups
	if len(groups) == 0 {
		groups = []fleetGroup{{}}
	}
	return slices.ContainsFunc(groups, func(g fleetGroup) bool {
		return (t.ClusterGroup == "" || t.ClusterGroup == g.name) && (t.ClusterGroupSelector == nil || t.ClusterGroupSelector.matches(g.labels))
	})
}

// selectors returns selectors whose union may say the same as a target; none where only a list of clusters can.
func (f *fleet) selectors(t *fleetTarget, namespace string) []*selector {
	if t.ClusterName != "" {
		return nil
	}
	own := t.ClusterSelector
	if own == nil {
		own = &selector{}
	}
	if t.ClusterGroup == "" && t.ClusterGroupSelector == nil {
		return []*selector{own}
	}
	var all []*selector
	for _, g := range f.groups[namespace] {
		if g.selector != nil && (t.ClusterGroup == "" || t.ClusterGroup == g.name) && (t.ClusterGroupSelector == nil || t.ClusterGroupSelector.matches(g.labels)) {
			all = append(all, g.selector.and(own))
		}
	}
	return all
}

// valid checks the selectors of targets, and renames the labels in them.
func (f *fleet) valid(at place, object, field string, targets []fleetTarget) ([]fleetTarget, bool) {
	for i := range targets {
		t := &targets[i]
		for _, s := range []**selector{&t.ClusterSelector, &t.ClusterGroupSelector} {
			if *s == nil {
				continue
			}
			if err := (*s).check(); err != nil {
				f.report.add(Missing, at, object, "all", fmt.Sprintf("a selector in %s is not valid: %v", field, err))
				return nil, false
			}
		}
		t.ClusterSelector = renameKeys(t.ClusterSelector)
	}
	return targets, true
}

func (f *fleet) addRepo(d document) {
	namespace, name := d.name()
	object := "GitRepo " + namespace + "/" + name
	var read struct {
		Spec fleetRepo `yaml:"spec"`
	}
	if err := d.node.Decode(&read); err != nil {
		f.report.add(Missing, d.at, object, "all", "it cannot be read: "+oneLine(err))
		return
	}
	f.reportFields(d.at.file, object, "", kinds.Field(d.node, "spec"), fleetRepoRead, fleetRepoFields)
	repo := read.Spec
	if repo.Paused {
		f.report.add(Later, d.at, object, "spec.paused", "it is imported as if it ran: take the policies out until it is to")
	}
	given := repo.Targets != nil
	if !given {
		repo.Targets = []fleetTarget{{Name: "default", ClusterGroup: "default"}}
		if !slices.ContainsFunc(f.groups[namespace], func(g fleetGroup) bool { return g.name == "default" }) {
			f.report.add(Missing, d.at, object, "targets", "there are none, which means the ClusterGroup default, and the input has none: add it")
		}
	}
	var ok bool
	if repo.Targets, ok = f.valid(d.at, object, "targets", repo.Targets); !ok {
		return
	}
	var secret bool
	if repo.Repo, secret = withoutPassword(repo.Repo); secret {
		f.report.add(Changed, d.at, object, "spec.repo", "its user and password are left out; give them to Flux as a Secret")
	}
	if len(repo.Paths) == 0 {
		repo.Paths = []string{"."}
	}
	for _, p := range repo.Paths {
		f.addPath(d, object, namespace, name, repo, p)
	}
}

// addPath makes a workload of a path and of each folder below it with a fleet.yaml of its own.
func (f *fleet) addPath(d document, object, namespace, name string, repo fleetRepo, given string) {
	p := path.Clean("/" + given)[1:]
	p = cmp.Or(p, ".")
	files, _ := f.reader.checkout(repo.Repo)
	if strings.ContainsAny(p, "*?[") {
		found, err := fs.Glob(files, p)
		if err != nil || len(found) == 0 {
			f.report.add(Missing, d.at, object, "path "+given, "the pattern matches no folder of the input: give the repository with --checkout URL=DIR")
			return
		}
		for _, one := range found {
			if info, err := fs.Stat(files, one); err == nil && info.IsDir() {
				f.addPath(d, object, namespace, name, repo, one)
			}
		}
		return
	}
	folders, resources := f.bundlesBelow(d, object, files, p)
	if len(folders) == 0 || resources && folders[0] != p {
		if _, err := fs.Stat(files, p); err != nil {
			f.report.add(Changed, d.at, object, "path "+given, "its files are not in the input, so that a fleet.yaml in it is not known: give the repository with --checkout URL=DIR")
		}
		f.addBundle(d, object, namespace, name, repo, p, fleetBundle{}, place{})
	}
	for _, folder := range folders {
		b, at, ok := f.readBundle(object, files, path.Join(folder, fleetFile(files, folder)))
		if ok {
			f.addBundle(d, object, namespace, name, repo, folder, b, at)
		}
	}
}

// fleetFiles are the names of the file with a bundle's options, of which the first that is there counts.
var fleetFiles = []string{"fleet.yaml", "fleet.yml"}

// fleetFile returns the name of the file in a folder, empty if there is none.
func fleetFile(files fs.FS, folder string) string {
	for _, name := range fleetFiles {
		if info, err := fs.Stat(files, path.Join(folder, name)); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// bundlesBelow returns the folders with options, from p downwards, and whether there are resources in no such folder: those are
// a bundle of p itself. What .fleetignore leaves out is passed over.
func (f *fleet) bundlesBelow(d document, object string, files fs.FS, p string) (folders []string, resources bool) {
	ignored := fleetIgnore{}
	_ = fs.WalkDir(files, p, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case at != p && ignored.leavesOut(at, e.IsDir()):
			if e.IsDir() && fleetFile(files, at) != "" {
				f.report.add(Changed, d.at, object+" "+at, "all", "a .fleetignore above leaves the folder out, and it is no bundle of its own here")
			}
			return skipped(e)
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && at != p:
			return fs.SkipDir
		case e.IsDir():
			ignored.read(files, at)
			if fleetFile(files, at) != "" {
				folders = append(folders, at)
			}
			return nil
		}
		inside := slices.ContainsFunc(folders, func(folder string) bool { return folder == "." || strings.HasPrefix(at, folder+"/") })
		if ext := path.Ext(at); !inside && (ext == ".yaml" || ext == ".yml") {
			resources = true
		}
		return nil
	})
	return folders, resources
}

func skipped(e fs.DirEntry) error {
	if e.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// fleetIgnore holds the lines of .fleetignore files, by the folder. As in Fleet, a line is a pattern for names at any depth below, and
// NAME/* is for a folder as a whole.
type fleetIgnore map[string][]string

func (i fleetIgnore) read(files fs.FS, folder string) {
	data, err := readFile(files, path.Join(folder, ".fleetignore"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" && !strings.HasPrefix(line, "#") {
			i[folder] = append(i[folder], line)
		}
	}
}

func (i fleetIgnore) leavesOut(at string, isDir bool) bool {
	for folder, lines := range i {
		if folder != "." && !strings.HasPrefix(at, folder+"/") {
			continue
		}
		for _, line := range lines {
			name, whole := strings.CutSuffix(line, "/*")
			if ok, err := path.Match(name, path.Base(at)); err == nil && ok && (isDir || !whole) {
				return true
			}
		}
	}
	return false
}

// patterns returns the lines as .gitignore has them, from the top of the repository.
func (i fleetIgnore) patterns() (all []string) {
	for _, folder := range sortedKeys(i) {
		for _, line := range i[folder] {
			if name, whole := strings.CutSuffix(line, "/*"); whole {
				line = name + "/"
			} else if strings.Contains(line, "/") {
				continue // which matches nothing in Fleet
			}
			all = append(all, path.Join("/", folder, "**")+"/"+line)
		}
	}
	return all
}

// ignore returns what Flux has to leave out of a folder, as .gitignore has it: files with Fleet's options, which are no objects, and
// what Fleet leaves out. Plain objects are all those of the folder.
func (f *fleet) ignore(w *workload, at place, files fs.FS, folder string, plain bool) string {
	ignored := fleetIgnore{}
	options := map[string]bool{}
	_ = fs.WalkDir(files, folder, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case name != folder && ignored.leavesOut(name, e.IsDir()):
			return skipped(e)
		case e.IsDir():
			ignored.read(files, name)
		case slices.Contains(fleetFiles, e.Name()):
			options[e.Name()] = true
		}
		return nil
	})
	all := ignored.patterns()
	if len(all) > 0 {
		f.report.add(Changed, at, w.object, ".fleetignore", "it becomes spec.ignore of Flux's GitRepository")
	}
	for _, name := range fleetFiles {
		if options[name] {
			all = append(all, path.Join("/", folder, "**", name))
		}
	}
	overlays := path.Join(folder, "overlays")
	if info, err := fs.Stat(files, overlays); plain && err == nil && info.IsDir() && !isKustomization(files, folder) {
		all = append(all, "/"+overlays+"/") // which only yaml.overlays brings in
	}
	return strings.Join(all, "\n")
}

func isKustomization(files fs.FS, folder string) bool {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := fs.Stat(files, path.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}

// readBundle reads a fleet.yaml.
func (f *fleet) readBundle(object string, files fs.FS, file string) (b fleetBundle, at place, ok bool) {
	at = place{file, 1}
	data, err := readFile(files, file)
	if err == nil {
		var documents []document
		if documents, err = documentsOf(file, data); err == nil && len(documents) > 0 {
			at.line = documents[0].at.line
			n := documents[0].node
			if err = n.Decode(&b); err == nil {
				f.reportBundle(file, object+" "+path.Dir(file), n)
			}
		}
	}
	if err != nil {
		f.report.add(Missing, at, object+" "+path.Dir(file), "all", path.Base(file)+" cannot be read: "+oneLine(err))
		return b, at, false
	}
	return b, at, true
}

// reportBundle reports what of a fleet.yaml is not read.
func (f *fleet) reportBundle(file, object string, n *yaml.Node) {
	parts := func(n *yaml.Node, read []string) {
		f.reportFields(file, object, "", n, read, fleetBundleFields)
		for _, part := range []string{"helm", "kustomize", "yaml"} {
			f.reportFields(file, object, part+".", kinds.Field(n, part), read, fleetBundleFields)
		}
	}
	parts(n, fleetBundleRead)
	for _, c := range kinds.SequenceField(n, "targetCustomizations") {
		parts(c, fleetTargetRead)
	}
	for _, t := range kinds.SequenceField(n, "overrideTargets") {
		parts(t, fleetTargetRead)
	}
	for _, d := range kinds.SequenceField(n, "dependsOn") {
		f.reportFields(file, object, "dependsOn.", d, []string{"dependsOn.name", "dependsOn.selector"}, fleetBundleFields)
	}
}

// reportFields reports fields that are not read, with what to do where that is known. Fields of the object in the field
// PREFIX are called PREFIX.NAME.
func (f *fleet) reportFields(file, object, prefix string, n *yaml.Node, read []string, known map[string]string) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if name := prefix + key.Value; !slices.Contains(read, name) && !isZero(value) {
			f.report.add(Missing, place{file, key.Line}, object, name, cmp.Or(known[name], "it has no counterpart"))
		}
	}
}

// isZero reports whether a value says nothing.
func isZero(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && slices.Contains([]string{"", "false", "0", "null"}, n.Value) || n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && len(n.Content) == 0
}

// addBundle makes a workload of a bundle, a target of each set of customisations that clusters get, and a rule of each.
func (f *fleet) addBundle(d document, object, namespace, name string, repo fleetRepo, folder string, b fleetBundle, at place) {
	bundle := cmp.Or(b.Name, strings.Trim(name+"-"+strings.ReplaceAll(folder, "/", "-"), "-."))
	if at.file == "" {
		at = d.at
	}
	targets := repo.Targets
	if b.OverrideTargets != nil {
		targets = b.OverrideTargets
	}
	var ok, okToo bool
	if targets, ok = f.valid(at, object, "overrideTargets", slices.Clone(targets)); !ok {
		return
	}
	if b.Customizations, okToo = f.valid(at, object, "targetCustomizations", b.Customizations); !okToo {
		return
	}
	w := &workload{at: at, name: f.names.name(bundle), object: object + " " + folder, bundle: bundle}
	if w.name != bundle {
		f.report.add(Changed, at, w.object, "bundle "+bundle, "it becomes workload "+w.name)
	}
	f.workloads = append(f.workloads, w)
	f.bundles[namespace+"/"+bundle] = w
	for _, dependency := range b.DependsOn {
		if dependency.Selector != nil {
			f.report.add(Missing, at, w.object, "dependsOn", "dependencies by label have no counterpart: name the workloads in wherry.dev/depends-on")
		}
		if dependency.Name != "" {
			f.after[w] = append(f.after[w], namespace+"/"+dependency.Name)
		}
	}
	variants := map[string]*rule{}
	names := namer{}
	for _, c := range f.clustersOf[namespace] {
		if !slices.ContainsFunc(targets, func(t fleetTarget) bool { return t.matches(c) }) {
			continue
		}
		key, custom, deployed := b.customization(c)
		if !deployed {
			continue
		}
		r := variants[key]
		if r == nil {
			r = f.variant(w, names, object, repo, folder, namespace, b, custom, at)
			for i := range targets {
				r.where = append(r.where, f.narrowed(&targets[i], custom, namespace)...)
			}
			variants[key] = r
		}
		r.clusters[c.cluster] = true
	}
	if len(variants) == 0 {
		r := f.variant(w, names, object, repo, folder, namespace, b, nil, at)
		_ = r // it says in the report that no cluster matches
	}
}

// customization returns the customisations that a cluster gets, with a key that is the same for the same ones.
func (b *fleetBundle) customization(c *fleetCluster) (key string, custom []*fleetTarget, deployed bool) {
	for i := range b.Customizations {
		t := &b.Customizations[i]
		if !t.matches(c) {
			continue
		}
		if t.DoNotDeploy {
			return "", nil, false
		}
		key += strconv.Itoa(i) + " "
		custom = append(custom, t)
		if b.Mode != "AllMatches" {
			break
		}
	}
	return key, custom, true
}

// narrowed returns selectors for a target of the GitRepo and the customisations.
func (f *fleet) narrowed(t *fleetTarget, custom []*fleetTarget, namespace string) []*selector {
	all := f.selectors(t, namespace)
	for _, c := range custom {
		var both []*selector
		for _, s := range f.selectors(c, namespace) {
			for _, before := range all {
				if len(both) < maxSelectors {
					both = append(both, before.and(s))
				}
			}
		}
		all = both
	}
	return all
}

// maxSelectors bounds the policies that one rule becomes; a rule with more lists its cluster types.
const maxSelectors = 20

// variant makes a target of a workload, and its rule.
func (f *fleet) variant(w *workload, names namer, object string, repo fleetRepo, folder, namespace string, b fleetBundle, custom []*fleetTarget, at place) *rule {
	name := "main"
	options := []*fleetOptions{&b.fleetOptions}
	var parts []string
	for _, c := range custom {
		parts = append(parts, cmp.Or(c.Name, "custom"))
		options = append(options, &c.fleetOptions)
	}
	if len(parts) > 0 {
		name = strings.Join(parts, "-")
	}
	t := &target{workload: w, name: names.name(name), environment: f.environments[namespace]}
	t.manifests, t.uses = f.manifests(w, at, repo, folder, options, f.siteKeys(namespace))
	w.targets = append(w.targets, t)
	r := &rule{at: at, object: w.object, name: w.name + "-" + t.name, environment: t.environment, targets: []*target{t}, clusters: map[*cluster]bool{}}
	f.rules = append(f.rules, r)
	if in := t.manifests["namespace"]; t.manifests["chart"]+t.manifests["chartPath"] == "" && !slices.Contains(existing, in) {
		key := t.environment + "/" + in
		f.inNamespace[key] = append(f.inNamespace[key], r)
	}
	return r
}

// manifests returns what the template needs: the last of the options that sets a field counts, and values are merged.
// Uses are the site values in them.
func (f *fleet) manifests(w *workload, at place, repo fleetRepo, folder string, options []*fleetOptions, declared map[string]bool) (m map[string]string, uses []string) {
	var namespace, ifNone, chart, chartRepo, version, release, dir string
	values := map[string]any{}
	for _, o := range options {
		namespace, ifNone = cmp.Or(o.Namespace, namespace), cmp.Or(o.DefaultNamespace, ifNone)
		chart, chartRepo = cmp.Or(o.Helm.Chart, chart), cmp.Or(o.Helm.Repo, chartRepo)
		version, release, dir = cmp.Or(o.Helm.Version, version), cmp.Or(o.Helm.ReleaseName, release), cmp.Or(o.Kustomize.Dir, dir)
		values = merged(values, o.Helm.Values)
	}
	namespace = cmp.Or(repo.TargetNamespace, namespace)
	chartRepo, secret := withoutPassword(chartRepo)
	chart, secretToo := withoutPassword(chart)
	if secret || secretToo {
		f.report.add(Changed, at, w.object, "helm", "users and passwords of URLs are left out; give them to Flux as a Secret")
	}
	files, known := f.reader.checkout(repo.Repo)
	chart, chartRepo = f.chart(w, at, files, known, folder, chart, chartRepo)
	if chart == "" && namespace == "" && ifNone != "" {
		f.report.add(Changed, at, w.object, "defaultNamespace", "Flux puts all objects into this namespace, those that name another one too")
	}
	m = manifests("namespace", cmp.Or(namespace, ifNone, "default")) // which is Fleet's default
	if chartRepo == "" {
		maps.Copy(m, manifests("repo", repo.Repo, "branch", repo.Branch, "path", "./"+path.Join(folder, dir), "ignore", f.ignore(w, at, files, folder, chart == "" && dir == "")))
		if len(repo.Revision) == 40 {
			m["commit"] = repo.Revision
		} else if repo.Revision != "" {
			m["branch"] = repo.Revision
			f.report.add(Changed, at, w.object, "spec.revision "+repo.Revision, "it is taken for a branch: write tag into templates/flux.yaml if it is one")
		}
	}
	if chart == "" {
		return m, nil
	}
	if chartRepo == "" {
		m["path"], m["chartPath"], chart = chart, chart, ""
	} else {
		m["repo"] = chartRepo
	}
	if dir != "" {
		f.postRender(w, at, files, path.Join(folder, dir), m)
	}
	maps.Copy(m, manifests("chart", chart, "version", version, "releaseName", cmp.Or(release, f.release(w, at))))
	if len(values) > 0 {
		data, err := yaml.Marshal(values)
		text, left := string(data), false
		if text, uses, left = siteReferences(text, declared); err == nil {
			m["values"] = text
		}
		if len(uses) > 0 {
			f.report.add(Changed, at, w.object, "helm.values", "${ … } becomes ${site.KEY}, which the agent replaces by the site value as a text: "+strings.Join(uses, ", "))
		}
		if left {
			f.report.add(Missing, at, w.object, "helm.values", "a ${ … } is not evaluated: only the name, a label or a templateValue of the cluster can be a site value, so write the value, or make a target of each")
		}
	}
	return m, uses
}

// chart returns the chart of a bundle and its repository: one of the folder's own, one in the repository of the bundle, or one of a
// chart repository or registry. It is empty for a bundle without a chart.
func (f *fleet) chart(w *workload, at place, files fs.FS, known bool, folder, chart, chartRepo string) (string, string) {
	whole := chart // of a registry
	if chart == "" {
		whole = chartRepo
	}
	switch {
	case strings.HasPrefix(whole, "oci://") && (chart == "" || chartRepo == ""):
		if i := strings.LastIndex(whole, "/"); i > len("oci://") {
			return whole[i+1:], whole[:i]
		}
	case chart != "" && chartRepo != "":
		return chart, chartRepo
	case chart == "":
		if _, err := fs.Stat(files, path.Join(folder, "Chart.yaml")); err != nil {
			return "", ""
		}
		return "./" + folder, ""
	}
	local, foreign := path.Join(folder, chart), strings.Contains(chart, "://") || strings.Contains(chart, "::")
	if _, err := fs.Stat(files, path.Join(local, "Chart.yaml")); foreign {
		f.report.add(Missing, at, w.object, "helm.chart "+chart, "Flux and embedded delivery take no chart by its own URL: write its chart repository, name and version into the Workload's manifests (repo, chart, version), or put the chart into git")
	} else if known && err != nil {
		f.report.add(Missing, at, w.object, "helm.chart "+chart, "it is no folder of the repository with a Chart.yaml: write the chart's repository and name into the Workload's manifests (repo, chart, version)")
	}
	if foreign {
		return chart, "" // so that Flux says so, too
	}
	return "./" + local, ""
}

// maxRelease is the length of a release's name in Helm.
const maxRelease = 53

// release returns the name of the release that Fleet installs if fleet.yaml names none: that of the bundle.
func (f *fleet) release(w *workload, at place) string {
	var b strings.Builder
	for _, r := range strings.ToLower(w.bundle) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-")
	if short := shorten(name, maxRelease); short != name {
		f.report.add(Changed, at, w.object, "release "+name, "it becomes "+short+", and Fleet shortens it in another way: give helm.releaseName the name that \"helm list\" shows, to take the release over")
		return short
	}
	return name
}

// existing are namespaces of every cluster.
var existing = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// makeNamespaces makes a workload of each namespace that Fleet makes before it applies plain objects, on the clusters that have any of
// them. Helm makes those of charts.
func (f *fleet) makeNamespaces() {
	for _, key := range sortedKeys(f.inNamespace) {
		rules := f.inNamespace[key]
		namespace, environment := rules[0].targets[0].manifests["namespace"], rules[0].environment
		w := &workload{at: rules[0].at, name: f.names.name("namespace-" + namespace), object: "namespace " + namespace, keep: true}
		t := &target{workload: w, name: "main", environment: environment, manifests: map[string]string{"makeNamespace": namespace}}
		own := &rule{at: w.at, object: w.object, name: w.name, environment: environment, targets: []*target{t}, clusters: map[*cluster]bool{}}
		w.targets, f.workloads, f.rules = []*target{t}, append(f.workloads, w), append(f.rules, own)
		for _, r := range rules {
			maps.Copy(own.clusters, r.clusters)
			for _, s := range r.where {
				if len(own.where) < maxSelectors && !slices.ContainsFunc(own.where, func(known *selector) bool { return asJSON(known) == asJSON(s) }) {
					own.where = append(own.where, s)
				}
			}
			for _, t := range r.targets {
				t.after = append(t.after, w)
			}
		}
		f.report.add(Changed, w.at, w.object, "the namespace", "Fleet makes it before the objects in it; here the workload "+w.name+" does, and keeps it")
	}
}

// merged returns a map with the values of another laid over it, at any depth.
func merged(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	for key, value := range b {
		inner, isMap := value.(map[string]any)
		before, wasMap := all[key].(map[string]any)
		if isMap && wasMap {
			value = merged(before, inner)
		}
		all[key] = value
	}
	return all
}

// order adds the dependencies between bundles.
func (f *fleet) order() {
	for _, w := range f.workloads {
		for _, name := range f.after[w] {
			other := f.bundles[name]
			if other == nil {
				f.report.add(Missing, w.at, w.object, "dependsOn "+name, "there is no such bundle in the input")
				continue
			}
			for _, t := range w.targets {
				t.after = append(t.after, other)
			}
		}
	}
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return strings.TrimRight(b.String(), "\n")
}
