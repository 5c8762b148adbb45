package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	kube "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/memo"
)

// sight is something that was seen in a rendered file: an object, or a mistake.
type sight struct {
	// Place is such as: reconciler.yaml, document 2.
	Place string
	// Group, Kind, Namespace and Name identify an object, if Code is empty.
	Group, Kind, Namespace, Name string
	// Code, Hint and Message are those of a finding. Findings with the same Code, Place and Same are added once.
	Code, Hint, Message, Same string
	// At says where in the platform the mistake is, and About which one it is there.
	At    sightAt
	About string
}

func (s sight) id() kubeID { return kubeID{s.Group, s.Kind, s.Namespace, s.Name} }

// shared returns the finding about an object that is there already.
func (s sight) shared(code, hint, format string, args ...any) sight {
	return sight{Place: s.Place, Code: code, Hint: hint, Same: s.Kind, Message: finding.Sentence(format, args...)}
}

// sightTexts is how many texts the fields of a sight are.
const sightTexts = 11

func (s *sight) fields() [sightTexts]*string {
	return [sightTexts]*string{&s.Place, &s.Group, &s.Kind, &s.Namespace, &s.Name, &s.Code, &s.Hint, &s.Message, &s.Same, (*string)(&s.At), &s.About}
}

func encodeSights(seen []sight) []byte {
	var data []byte
	for i := range seen {
		for _, field := range seen[i].fields() {
			data = memo.AppendTexts(data, *field)
		}
	}
	return data
}

// decodeSights reads what encodeSights wrote; ok is false for anything else.
func decodeSights(data []byte) (seen []sight, ok bool) {
	texts, ok := memo.Texts(data)
	for ; len(texts) >= sightTexts; texts = texts[sightTexts:] {
		var s sight
		for i, field := range s.fields() {
			*field = texts[i]
		}
		seen = append(seen, s)
	}
	return seen, ok && len(texts) == 0
}

func encodeInspection(all inspection) []byte {
	var data []byte
	for _, s := range all {
		data = memo.AppendTexts(data, strconv.Itoa(s.assignment), s.path, string(encodeSights([]sight{s.sight})))
	}
	return data
}

// decodeInspection reads what encodeInspection wrote; ok is false for anything else.
func decodeInspection(data []byte) (all inspection, ok bool) {
	texts, ok := memo.Texts(data)
	for ; ok && len(texts) >= 3; texts = texts[3:] {
		i, err := strconv.Atoi(texts[0])
		seen, whole := decodeSights([]byte(texts[2]))
		if ok = err == nil && whole && len(seen) == 1; ok {
			all = append(all, sighting{i, texts[1], seen[0]})
		}
	}
	return all, ok && len(texts) == 0
}

// sightAt is a kind of place in the platform.
type sightAt string

const (
	atTemplate   sightAt = ""         // the template, or the cluster type if that is built in
	atAPIVersion sightAt = "flux"     // the apiVersion About, of an object of Kind, in the template
	atConfig     sightAt = "config"   // the key About of the configuration
	atWorkload   sightAt = "workload" // the site values that it lists, of which About is not one
)

// fileInspector lists the findings of one file, in its order.
type fileInspector struct {
	place string
	seen  []sight
	// refers is true if the file may refer to site values.
	refers bool
}

// inspectFile lists the findings of a file. Its documents are Kubernetes objects if objects is true.
func inspectFile(path string, data []byte, objects bool) []sight {
	in := &fileInspector{refers: mayRefer(data)}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for number := 1; ; number++ {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return in.seen
		}
		in.place = fmt.Sprintf("%s, document %d", path, number)
		if err != nil {
			in.place = path
			in.say(finding.CodeRenderedSyntax, "", "what is rendered is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			return in.seen
		}
		if len(n.Content) == 1 && objects {
			in.object(n.Content[0], true)
		} else if in.refers {
			in.siteReferences(in.place, &n)
		}
	}
}

// say notes a mistake.
func (in *fileInspector) say(code, same, format string, args ...any) *sight {
	in.seen = append(in.seen, sight{Place: in.place, Code: code, Same: same, Message: finding.Sentence(format, args...)})
	return &in.seen[len(in.seen)-1]
}

// object checks one document, or an item of a List. It skips a List in a List, which could be the same one.
func (in *fileInspector) object(n *yaml.Node, lists bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		in.say(finding.CodeNoKubeObject, "kind", "a %s, where a Kubernetes object belongs", kinds.KindName(n))
		return
	}
	apiVersion, kind := kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind")
	if lists && apiVersion == kinds.CoreAPI && kind == "List" {
		for _, item := range kinds.SequenceField(n, "items") {
			in.object(item, false)
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
			in.say(finding.CodeNoKubeObject, required.field, "no %s", required.field)
			return
		}
	}
	in.names(id, metadata)
	in.seen = append(in.seen, sight{Place: in.place, Group: id.group, Kind: id.kind, Namespace: id.namespace, Name: id.name})
	in.fluxVersion(id.group, version, kind)
	if in.refers {
		in.siteReferences(id.String(), n)
	}
	if kind == "ConfigMap" && apiVersion == kinds.CoreAPI {
		in.configMapData(kinds.Field(n, "data"))
	}
}

// names checks the metadata that the API server checks for every object.
func (in *fileInspector) names(id kubeID, metadata *yaml.Node) {
	check := validation.IsDNS1123Subdomain
	switch {
	case id.group == "rbac.authorization.k8s.io":
		check = kube.IsPathSegmentName
	case id.group == "" && slices.Contains([]string{"Namespace", "Service"}, id.kind):
		check = validation.IsDNS1123Label
	}
	if problems := check(id.name); len(problems) > 0 {
		in.say(finding.CodeKubeName, "name", "%s cannot be called %q: %s", id.kind, id.name, problems[0])
	}
	if problems := validation.IsDNS1123Label(id.namespace); id.namespace != "" && len(problems) > 0 {
		in.say(finding.CodeKubeName, "namespace", "%s %s cannot be in namespace %q: %s", id.kind, id.name, id.namespace, problems[0])
	}
	for _, part := range []string{"labels", "annotations"} {
		entries := kinds.Field(metadata, part)
		for i := 0; entries.Kind == yaml.MappingNode && i+1 < len(entries.Content); i += 2 {
			in.entry(id, part, entries.Content[i], entries.Content[i+1])
		}
	}
}

func (in *fileInspector) entry(id kubeID, part string, key, value *yaml.Node) {
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
		in.say(finding.CodeKubeName, part+key.Value, "%s cannot have %s: %q in its %s: %s", id, key.Value, value.Value, part, problems[0])
	}
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

func (in *fileInspector) fluxVersion(group, version, kind string) {
	flux := fluxVersions[group]
	if !slices.Contains(flux.gone, version) {
		return
	}
	s := in.say(finding.CodeFluxVersion, group+version+kind, "today's Flux does not serve %s of %s/%s", kind, group, version)
	s.Hint, s.At, s.About, s.Kind = "write "+group+"/"+flux.now, atAPIVersion, group+"/"+version, kind
}

// configMapData notes values that are no texts.
func (in *fileInspector) configMapData(data *yaml.Node) {
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
		s := in.say(finding.CodeNoTextInConfig, key.Value, "%s is a %s, and a ConfigMap takes only texts", key.Value, what)
		s.Hint = `have the template write it as a text, such as with "stringify" or toJson, or put it in single quotes inside the value`
		s.At, s.About = atConfig, key.Value
	}
}
