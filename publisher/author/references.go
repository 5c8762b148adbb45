package author

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// reference is a scalar that names an object, a workspace, a ring or a group.
type reference struct {
	file *File
	node *yaml.Node // as it is written: perhaps an alias
	text string     // such as: ClusterType "drone": spec.reconciler
	// renamed is the value after the object has got its new name.
	renamed string
	// own is true for a part of the object itself: removing the object removes it too.
	own bool
}

func (r reference) position() finding.Position {
	return finding.Position{File: r.file.shown, Line: r.node.Line}
}

// search collects the references to one name.
type search struct {
	platform  *Platform
	kind      string
	from, to  string
	targets   []*Object // the objects of that name that are meant
	found     []reference
	seen      map[*yaml.Node]bool
	otherType bool // another ClusterType has the label cluster-type with this value
}

// references lists what refers to a name of a kind. targets are the objects that are meant; none for a workspace, a ring or a group.
func (p *Platform) references(kind, from, to string, targets []*Object) []reference {
	s := &search{platform: p, kind: kind, from: from, to: to, targets: targets, seen: map[*yaml.Node]bool{}}
	for _, o := range p.Named("ClusterType", "") {
		s.otherType = s.otherType || !slices.Contains(targets, o) && yamltext.Text(o.node, "metadata", "labels", "cluster-type") == from
	}
	for _, o := range p.Objects {
		if s.visible(o) {
			s.object(o)
		}
	}
	if p.Settings != nil && p.Settings.text != nil && len(p.Settings.text.Documents) > 0 {
		s.settings(p.Settings, p.Settings.text.Documents[0], SettingsFile+": ")
	}
	return s.found
}

// visible reports whether o can mean one of the targets: it is in the same environment, or one of the two is shared.
func (s *search) visible(o *Object) bool {
	return len(s.targets) == 0 || s.kind == "Environment" || slices.ContainsFunc(s.targets, func(t *Object) bool {
		return t.File.Environment == "" || o.File.Environment == "" || t.File.Environment == o.File.Environment
	})
}

// add adds n, a scalar or an alias, if its value is the name that is searched for.
func (s *search) add(o *Object, n *yaml.Node, what string) { s.addAs(o, n, what, s.from, s.to) }

// addAs is add for another value, which becomes renamed.
func (s *search) addAs(o *Object, n *yaml.Node, what, value, renamed string) {
	resolved := yamltext.Resolve(n)
	if resolved == nil || resolved.Kind != yaml.ScalarNode || resolved.Value != value || value == renamed || s.seen[n] {
		return
	}
	s.seen[n] = true
	s.found = append(s.found, reference{
		file: o.File, node: n, renamed: renamed, own: slices.Contains(s.targets, o), text: o.Kind + " \"" + o.Name + "\": " + what,
	})
}

func (s *search) field(o *Object, keys ...string) {
	s.add(o, yamltext.Lookup(o.node, keys...), strings.Join(keys, "."))
}

// label adds the label key of the object, if it has the name for its value.
func (s *search) label(o *Object, key string) { s.field(o, "metadata", "labels", key) }

// selector adds the values of a label in a selector.
func (s *search) selector(o *Object, key, value, renamed string, keys ...string) {
	at := strings.Join(keys, ".")
	n := yamltext.Resolve(yamltext.Lookup(o.node, append(slices.Clone(keys), "labelSelector")...))
	s.addAs(o, yamltext.Lookup(n, "matchLabels", key), at+".labelSelector.matchLabels."+key, value, renamed)
	for _, e := range yamltext.Items(n, "matchExpressions") {
		if yamltext.Text(e, "key") != key {
			continue
		}
		for _, v := range yamltext.Items(e, "values") {
			s.addAs(o, v, at+".labelSelector.matchExpressions: "+key, value, renamed)
		}
	}
}

func (s *search) object(o *Object) {
	switch s.kind {
	case "Template":
		if o.Kind == "ClusterType" {
			for _, key := range []string{"reconciler", "namespaceService", "configType"} {
				s.field(o, "spec", key)
			}
		}
	case "ConfigMap":
		if o.Kind == "ClusterType" { // of a declaration of site values
			s.field(o, "metadata", "annotations", kinds.SiteValues)
		}
	case "ClusterType":
		s.clusterType(o)
	case "Workload":
		s.workload(o)
	case "Environment":
		s.environment(o)
	case Workspace:
		s.workspace(o)
	case Ring:
		s.ring(o)
	case Group:
		s.group(o)
	}
	if o.Kind == "Platform" {
		s.settings(o.File, yamltext.Resolve(yamltext.Lookup(o.node, "spec")), "Platform \""+o.Name+"\": spec.")
	}
}

func isConfig(o *Object) bool { return o.Kind == "ConfigMap" || o.Kind == "ConfigSchema" }

func (s *search) clusterType(o *Object) {
	switch {
	case isConfig(o):
		s.label(o, "cluster-type")
		s.azure(o, "cluster-type")
	case o.Kind == "Cluster":
		s.field(o, "spec", "clusterType")
	case s.otherType: // the label is not this cluster type's alone
	case o.Kind == "ClusterType" && slices.Contains(s.targets, o):
		s.label(o, "cluster-type")
	case o.Kind == "SchedulingPolicy" && s.labelled():
		s.selector(o, "cluster-type", s.from, s.to, "spec", "clusterTypeSelector")
	}
}

// labelled reports whether a target has its name in its label cluster-type, so that selectors can select it by that.
func (s *search) labelled() bool {
	return slices.ContainsFunc(s.targets, func(o *Object) bool { return yamltext.Text(o.node, "metadata", "labels", "cluster-type") == s.from })
}

// azure adds the keys of a ConfigMap of Azure App Configuration that hold for the name: label.value.label.value.KEY.
func (s *search) azure(o *Object, label string) {
	data := yamltext.Resolve(yamltext.Lookup(o.node, "data"))
	if o.Kind != "ConfigMap" || !strings.HasPrefix(o.Name, "azure-app-config") || data == nil || data.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(data.Content); i += 2 {
		parts := strings.Split(data.Content[i].Value, ".")
		for j := 0; j+2 < len(parts); j += 2 {
			if parts[j] == label && parts[j+1] == s.from {
				parts[j+1] = s.to
			}
		}
		s.addAs(o, data.Content[i], "data", data.Content[i].Value, strings.Join(parts, "."))
	}
}

func (s *search) workload(o *Object) {
	switch {
	case isConfig(o):
		s.label(o, "workload")
		s.azure(o, "workload")
		for _, target := range s.targetNames() {
			label := yamltext.Lookup(o.node, "metadata", "labels", "deployment-target")
			s.addAs(o, label, "metadata.labels.deployment-target", s.from+"-"+target, s.to+"-"+target)
		}
	case o.Kind == "SchedulingPolicy":
		s.selector(o, "workload", s.from, s.to, "spec", "deploymentTargetSelector")
	case o.Kind == "Workload":
		s.dependsOn(o)
	}
}

// targetNames returns the names of the deployment targets of the workloads that are meant.
func (s *search) targetNames() []string {
	var names []string
	for _, o := range s.targets {
		for _, t := range yamltext.Items(o.node, "spec", "deploymentTargets") {
			names = append(names, yamltext.Text(t, "name"))
		}
	}
	return names
}

// dependency is one name in an annotation depends-on: WORKLOAD or WORKLOAD/TARGET.
var dependency = lazyregexp.New(`[^\s,]+`)

func (s *search) dependsOn(o *Object) {
	annotations := yamltext.Resolve(yamltext.Lookup(o.node, "metadata", "annotations"))
	if annotations == nil || annotations.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(annotations.Content); i += 2 {
		key, n := annotations.Content[i].Value, annotations.Content[i+1]
		if key != "wherry.dev/depends-on" && !strings.HasSuffix(key, ".wherry.dev/depends-on") {
			continue
		}
		value := yamltext.Resolve(n).Value
		renamed := dependency.ReplaceAllStringFunc(value, func(name string) string {
			workload, target, found := strings.Cut(name, "/")
			if workload != s.from {
				return name
			}
			if found {
				return s.to + "/" + target
			}
			return s.to
		})
		s.addAs(o, n, "metadata.annotations."+key, value, renamed)
	}
}

func (s *search) environment(o *Object) {
	switch o.Kind {
	case "Workload":
		for _, t := range yamltext.Items(o.node, "spec", "deploymentTargets") {
			s.add(o, yamltext.Lookup(t, "environment"), "deployment target "+yamltext.Text(t, "name"))
		}
	case "PromotionPolicy":
		for _, e := range yamltext.Items(o.node, "spec", "chain") {
			s.add(o, e, "spec.chain")
		}
		for _, e := range yamltext.Items(o.node, "spec", "environments") {
			s.add(o, yamltext.Lookup(e, "name"), "spec.environments")
		}
		for _, g := range gates(o) {
			for _, e := range yamltext.Items(g.node, "soakIn") {
				s.add(o, e, g.name+": soakIn")
			}
		}
	}
}

// gate is a gate of a PromotionPolicy with its place.
type gate struct {
	name string
	node *yaml.Node
}

func gates(o *Object) []gate {
	all := []gate{{"spec.gate", yamltext.Resolve(yamltext.Lookup(o.node, "spec", "gate"))}}
	for _, e := range yamltext.Items(o.node, "spec", "environments") {
		for _, key := range []string{"gate", "ringGate"} {
			all = append(all, gate{key + " of " + yamltext.Text(e, "name"), yamltext.Resolve(yamltext.Lookup(e, key))})
		}
	}
	return slices.DeleteFunc(all, func(g gate) bool { return g.node == nil })
}

// group is a group of people of a PromotionPolicy. Each policy has its own.
func (s *search) group(o *Object) {
	if o.Kind != "PromotionPolicy" {
		return
	}
	for _, g := range yamltext.Items(o.node, "spec", "groups") {
		s.add(o, yamltext.Lookup(g, "name"), "spec.groups")
	}
	for _, g := range gates(o) {
		for _, key := range []string{"approvals", "override"} {
			s.add(o, yamltext.Lookup(g.node, key, "group"), g.name+": "+key)
		}
	}
}

func (s *search) workspace(o *Object) {
	switch {
	case isConfig(o):
		s.label(o, "workspace")
		s.azure(o, "workspace")
	case o.Kind == "WorkloadRegistration":
		s.field(o, "spec", "workspace")
	case o.Kind == "SchedulingPolicy":
		s.field(o, "spec", "deploymentTargetSelector", "workspace")
		s.selector(o, "workspace", s.from, s.to, "spec", "deploymentTargetSelector")
	case o.Kind == "Platform":
		for _, w := range yamltext.Items(o.node, "spec", "workspaces") {
			s.add(o, yamltext.Lookup(w, "name"), "spec.workspaces")
		}
	}
}

func (s *search) ring(o *Object) {
	switch o.Kind {
	case "Platform":
		for _, r := range yamltext.Items(o.node, "spec", "rings") {
			s.add(o, r, "spec.rings")
		}
	case "PromotionPolicy":
		for _, e := range yamltext.Items(o.node, "spec", "environments") {
			for _, r := range yamltext.Items(e, "rings") {
				s.add(o, r, "rings of "+yamltext.Text(e, "name"))
			}
		}
	case "Cluster":
		s.field(o, "spec", "ring")
	}
}

// settings looks into the settings of a platform: those of a file, or of the Platform object.
func (s *search) settings(f *File, n *yaml.Node, what string) {
	at := &Object{File: f}
	before := len(s.found)
	switch s.kind {
	case "Environment":
		s.add(at, yamltext.Lookup(n, "environment"), "environment")
	case "WorkloadRegistration":
		if k, _ := yamltext.Pair(yamltext.Resolve(yamltext.Lookup(n, "workloads")), s.from); k != nil {
			s.add(at, k, "workloads")
		}
	}
	for i := before; i < len(s.found); i++ {
		_, key, _ := strings.Cut(s.found[i].text, ": ")
		s.found[i].text = what + key
	}
}
