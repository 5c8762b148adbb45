package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	kube "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// objectAdapters are the reconcilers whose files hold Kubernetes objects and nothing else.
var objectAdapters = []string{"argo", "flux", "kubernetes"}

// rendered checks the files of all assignments as the cluster would.
func (l *linter) rendered() {
	for _, ct := range l.result.ClusterTypes {
		owners := map[kubeID]string{} // the assignment of each object
		for _, a := range ct.Assignments {
			r := &renderedFiles{linter: l, ct: l.objects.ClusterTypes[ct.Name], assignment: a, owners: owners, own: map[kubeID]string{}}
			for _, f := range a.Files {
				if strings.HasSuffix(f.Path, ".yaml") {
					r.file(f)
				}
			}
			r.health()
			for id := range r.own {
				owners[id] = a.Name
			}
		}
	}
}

// kubeID is the identity of an object in a cluster.
type kubeID struct{ group, kind, namespace, name string }

func (id kubeID) String() string {
	if id.namespace == "" {
		return id.kind + " " + id.name
	}
	return id.kind + " " + id.namespace + "/" + id.name
}

// renderedFiles checks the files of one assignment.
type renderedFiles struct {
	*linter
	ct         *kinds.ClusterType
	assignment scheduler.Assignment
	owners     map[kubeID]string // the earlier assignments, by their objects
	own        map[kubeID]string // the documents of this assignment, by their objects
	place      string            // such as: reconciler.yaml, document 2
	template   *kinds.Template   // that wrote the file; nil if it is built in
}

// say adds a finding about the output of a template. Findings of the same kind are added once.
func (r *renderedFiles) say(code, kind, hint, format string, args ...any) {
	at := r.ct.At
	if r.template != nil {
		at = r.template.At
	}
	r.sayAt(at, code, kind, hint, format, args...)
}

func (r *renderedFiles) sayAt(at finding.Position, code, kind, hint, format string, args ...any) {
	f := finding.New(code, at, hint, format, args...)
	f.Message = r.place + ": " + f.Message
	r.addFor(r.place+kind, r.ct.Metadata.Name+"/"+r.assignment.Name, f)
}

func (r *renderedFiles) file(f scheduler.File) {
	name := map[string]string{"namespace.yaml": r.ct.Spec.NamespaceService, "reconciler.yaml": r.ct.Spec.Reconciler}[f.Path]
	if strings.HasPrefix(f.Path, kinds.PlatformConfig) {
		name = r.ct.Spec.ConfigType
	}
	r.template = r.objects.Templates[name]
	documents := yaml.NewDecoder(bytes.NewReader(f.Data))
	for number := 1; ; number++ {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		r.place = fmt.Sprintf("%s, document %d", f.Path, number)
		if err != nil {
			r.place = f.Path
			r.say(finding.CodeRenderedSyntax, "", "", "what is rendered is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			return
		}
		if len(n.Content) == 1 && slices.Contains(objectAdapters, r.assignment.Adapter) {
			r.object(n.Content[0], true)
		}
	}
}

// object checks one document, or an item of a List. It skips a List in a List, which could be the same one.
func (r *renderedFiles) object(n *yaml.Node, lists bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.say(finding.CodeNoKubeObject, "kind", "", "a %s, where a Kubernetes object belongs", kinds.KindName(n))
		return
	}
	apiVersion, kind := kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind")
	if lists && apiVersion == kinds.CoreAPI && kind == "List" {
		for _, item := range kinds.SequenceField(n, "items") {
			r.object(item, false)
		}
		return
	}
	metadata := kinds.Field(n, "metadata")
	id := kubeID{kind: kind, namespace: kinds.StringField(metadata, "namespace"), name: kinds.StringField(metadata, "name")}
	version := apiVersion
	if group, v, ok := strings.Cut(apiVersion, "/"); ok {
		id.group, version = group, v
	}
	for _, required := range []struct{ field, value string }{{"apiVersion", apiVersion}, {"kind", kind}, {"metadata.name", id.name}} {
		if required.value == "" {
			r.say(finding.CodeNoKubeObject, required.field, "", "no %s", required.field)
			return
		}
	}
	r.names(id, metadata)
	r.unique(id)
	r.fluxVersion(id.group, version, kind)
	if kind == "ConfigMap" && apiVersion == kinds.CoreAPI {
		r.configMapData(kinds.Field(n, "data"))
	}
}

// names checks the metadata that the API server checks for every object.
func (r *renderedFiles) names(id kubeID, metadata *yaml.Node) {
	check := validation.IsDNS1123Subdomain
	switch {
	case id.group == "rbac.authorization.k8s.io":
		check = kube.IsPathSegmentName
	case id.group == "" && slices.Contains([]string{"Namespace", "Service"}, id.kind):
		check = validation.IsDNS1123Label
	}
	if problems := check(id.name); len(problems) > 0 {
		r.say(finding.CodeKubeName, "name", "", "%s cannot be called %q: %s", id.kind, id.name, problems[0])
	}
	if problems := validation.IsDNS1123Label(id.namespace); id.namespace != "" && len(problems) > 0 {
		r.say(finding.CodeKubeName, "namespace", "", "%s %s cannot be in namespace %q: %s", id.kind, id.name, id.namespace, problems[0])
	}
	for _, part := range []string{"labels", "annotations"} {
		entries := kinds.Field(metadata, part)
		for i := 0; entries.Kind == yaml.MappingNode && i+1 < len(entries.Content); i += 2 {
			r.entry(id, part, entries.Content[i], entries.Content[i+1])
		}
	}
}

func (r *renderedFiles) entry(id kubeID, part string, key, value *yaml.Node) {
	if key.ShortTag() == "!!merge" {
		return
	}
	problems := validation.IsQualifiedName(strings.ToLower(key.Value))
	if tag := kinds.ShortTag(value); tag != "!!str" && tag != "!!null" {
		problems = append(problems, fmt.Sprintf("%s is a %s, not a text", value.Value, kinds.TagName(tag)))
	} else if part == "labels" {
		problems = append(problems, validation.IsValidLabelValue(value.Value)...)
	}
	if len(problems) > 0 {
		r.say(finding.CodeKubeName, part+key.Value, "", "%s cannot have %s: %q in its %s: %s", id, key.Value, value.Value, part, problems[0])
	}
}

// unique adds an object that the assignment, or another of the type, holds already. Namespaces may be
// shared: the agent applies with one field manager for each assignment.
func (r *renderedFiles) unique(id kubeID) {
	if first, ok := r.own[id]; ok {
		r.say(finding.CodeObjectTwice, id.kind, "", "%s is in %s already", id, first)
	} else if other, ok := r.owners[id]; ok && (id.group != "" || id.kind != "Namespace") {
		r.say(finding.CodeObjectShared, id.kind, "put .DeploymentTargetName or .Namespace into its name", "%s is also in %s", id, other)
	}
	r.own[id] = r.place
}

// fluxVersions are the versions that Flux has removed, with their replacements: source-controller 1.9
// and kustomize-controller 1.9 serve only v1, helm-controller only v2.
var fluxVersions = map[string]struct {
	gone []string
	now  string
}{
	"source.toolkit.fluxcd.io":    {[]string{"v1beta1", "v1beta2"}, "v1"},
	"kustomize.toolkit.fluxcd.io": {[]string{"v1alpha1", "v1beta1", "v1beta2"}, "v1"},
	"helm.toolkit.fluxcd.io":      {[]string{"v2alpha1", "v2beta1", "v2beta2"}, "v2"},
}

func (r *renderedFiles) fluxVersion(group, version, kind string) {
	flux := fluxVersions[group]
	if !slices.Contains(flux.gone, version) {
		return
	}
	at := r.ct.At
	if r.template != nil {
		at = findIn(r.template, group+"/"+version, kind)
	}
	r.sayAt(at, finding.CodeFluxVersion, group+version+kind, "write "+group+"/"+flux.now, "today's Flux does not serve %s of %s/%s", kind, group, version)
}

// findIn returns the position of an apiVersion in a Template, in a manifest that also has the kind, or else the position of
// the Template.
func findIn(t *kinds.Template, apiVersion, kind string) finding.Position {
	for _, m := range t.Spec.Manifests {
		if m.Object != nil {
			if n := kinds.Field(m.Object, "apiVersion"); n.Value == apiVersion && kinds.StringField(m.Object, "kind") == kind {
				return t.Position(kinds.Line(n.Line))
			}
			continue
		}
		if before, _, ok := strings.Cut(m.Text.Value, apiVersion); ok && strings.Contains(m.Text.Value, kind) {
			return t.Position(m.Text.First + kinds.Line(strings.Count(before, "\n")))
		}
	}
	return t.At
}

// configMapData adds values that are no texts, at their position in the configuration.
func (r *renderedFiles) configMapData(data *yaml.Node) {
	for i := 0; data.Kind == yaml.MappingNode && i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i], data.Content[i+1]
		tag := kinds.ShortTag(value)
		if value.Kind == yaml.ScalarNode && (tag == "!!str" || tag == "!!null") {
			continue
		}
		what := kinds.KindName(value)
		if value.Kind == yaml.ScalarNode {
			what = kinds.TagName(tag)
		}
		at, hint := r.origin(key.Value), `have the template write it as a text, such as with "stringify" or toJson, or put it in single quotes inside the value`
		r.sayAt(at, finding.CodeNoTextInConfig, key.Value, hint, "%s is a %s, and a ConfigMap takes only texts", key.Value, what)
	}
}

// origin returns the position at which a value of the configuration was last set, or else the template's.
func (r *renderedFiles) origin(key string) finding.Position {
	for _, source := range slices.Backward(r.assignment.Config) {
		if cm := r.objects.ConfigMaps[source.Name]; cm != nil {
			if v, ok := cm.Data[key]; ok {
				return cm.Position(v.Line)
			}
		}
	}
	if r.template != nil {
		return r.template.At
	}
	return r.ct.At
}
