package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kube "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/scheduler/builtin"
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
	// Unparsed is not empty for what the parser of agents refuses.
	Unparsed string
}

func (s sight) id() kubeID { return kubeID{s.Group, s.Kind, s.Namespace, s.Name} }

// shared returns the finding about an object that is there already.
func (s sight) shared(code, hint, format string, args ...any) sight {
	return sight{Place: s.Place, Code: code, Hint: hint, Same: s.Kind, Message: finding.Sentence(format, args...)}
}

// sightTexts is how many texts the fields of a sight are.
const sightTexts = 12

func (s *sight) fields() [sightTexts]*string {
	return [sightTexts]*string{&s.Place, &s.Group, &s.Kind, &s.Namespace, &s.Name, &s.Code, &s.Hint, &s.Message, &s.Same, (*string)(&s.At), &s.About, &s.Unparsed}
}

func encodeSights(seen []sight) []byte {
	data := make([]byte, 0, 128*len(seen))
	for i := range seen {
		for _, field := range seen[i].fields() {
			data = memo.AppendTexts(data, *field)
		}
	}
	return data
}

// decodeSights reads what encodeSights wrote; ok is false for anything else.
func decodeSights(data []byte) (seen []sight, ok bool) {
	texts, ok := memo.Texts[string](data)
	for ; len(texts) >= sightTexts; texts = texts[sightTexts:] {
		var s sight
		for i, field := range s.fields() {
			*field = texts[i]
		}
		seen = append(seen, s)
	}
	return seen, ok && len(texts) == 0
}

// sightAt is a kind of place in the platform.
type sightAt string

const (
	atTemplate   sightAt = ""         // the template, or the cluster type if that is built in
	atAPIVersion sightAt = "flux"     // the apiVersion About, of an object of Kind, in the template
	atConfig     sightAt = "config"   // the key About of the configuration
	atWorkload   sightAt = "workload" // the site values that it lists, of which About is not one
)

// notKubernetes is sight.About for a document that is no Kubernetes object, in an assignment whose templates make no object: they
// make something else, and its reconciler is a guess.
const notKubernetes = "not kubernetes"

// isYAML is sight.About for a file that is YAML, but with something that JSON has not, and so no object.
const isYAML = "YAML"

// isYAML reports whether the file is YAML, whatever is in it.
func (in *fileInspector) isYAML() bool {
	documents := yaml.NewDecoder(bytes.NewReader(in.data))
	for {
		var n yaml.Node
		if err := documents.Decode(&n); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// fileInspector lists the findings of one file, in its order.
type fileInspector struct {
	place string
	seen  []sight
	// refers is true if the file may refer to site values.
	refers bool
	data   []byte
	treatment
}

// treatment says how a file is inspected.
type treatment struct {
	// objects is true if the documents are Kubernetes objects.
	objects bool
	// apply is false for what is not applied by server-side apply.
	apply bool
	// substitutes is true if the engine replaces ${NAME} in objects, and patched if it changes any of their fields, before it
	// applies them.
	substitutes, patched bool
	// values are what is filled in for ${site.KEY}; nil if nothing is.
	values *fillings
}

// inspectFile lists the findings of a file.
func inspectFile(path string, data []byte, how treatment) []sight {
	in := &fileInspector{refers: mayRefer(data), data: data, treatment: how}
	if !how.objects {
		in.documents(path)
		return in.seen
	}
	if how.values == nil || !in.refers {
		in.manifests(path, data, "", true)
		return in.seen
	}
	in.references(path)
	for i, v := range how.values.of(path, data) {
		if v.err != nil {
			if in.place = path; len(in.seen) == 0 { // else a reference is the mistake
				in.report(finding.CodeRenderedSyntax, "values", "%v", v.err).Unparsed = "values"
			}
			continue
		}
		seen := in.seen
		in.seen = nil
		in.manifests(path, v.data, v.cluster, !v.sampled)
		for _, s := range in.seen {
			if s.Code != "" || i == 0 { // each variant has the same objects
				seen = append(seen, s)
			}
		}
		in.seen = seen
	}
	return in.seen
}

// documents lists the findings of a file that is YAML, and not Kubernetes objects.
func (in *fileInspector) documents(path string) {
	documents := yaml.NewDecoder(bytes.NewReader(in.data))
	for number := 1; ; number++ {
		var n yaml.Node
		err := documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		in.place = fmt.Sprintf("%s, document %d", path, number)
		if err != nil {
			in.place = path
			in.report(finding.CodeRenderedSyntax, "", "what is rendered is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			return
		}
		if in.refers {
			in.siteReferences(in.place, func(take func(string)) { walkTexts(&n, take) })
		}
	}
}

// references notes the keys of site values that the objects of a file refer to.
func (in *fileInspector) references(path string) {
	found, _ := manifests.Read(path, in.data)
	for _, o := range found {
		in.place = fmt.Sprintf("%s, document %d", path, o.Document)
		in.siteReferences(idOf(o.Unstructured).String(), func(take func(string)) { eachText(o.Object, take) })
	}
	in.seen = slices.DeleteFunc(in.seen, func(s sight) bool { return slices.Contains(in.values.keys, s.About) })
	for i := range in.seen {
		in.seen[i].Unparsed = "values"
	}
}

// manifests lists the findings of a file as the agent reads it, for a cluster if that is not empty. If final is false, a
// part of the file is not known, and only the parser is asked.
func (in *fileInspector) manifests(path string, data []byte, cluster string, final bool) {
	found, mistakes := manifests.Read(path, data)
	from := len(in.seen)
	for _, m := range mistakes {
		in.place = fmt.Sprintf("%s, document %d", path, m.Document)
		before := len(in.seen)
		in.mistake(path, m)
		for i := before; i < len(in.seen); i++ {
			in.seen[i].Unparsed = string(m.Problem)
		}
	}
	for _, o := range found {
		in.place = fmt.Sprintf("%s, document %d", path, o.Document)
		in.object(o.Unstructured, final)
	}
	for i := from; i < len(in.seen) && cluster != ""; i++ {
		if in.seen[i].Code != "" {
			in.seen[i].Message += " (with the site values of cluster " + cluster + ")"
		}
	}
}

// mistake notes why the agent's parser refuses a document.
func (in *fileInspector) mistake(path string, m *manifests.Mistake) {
	switch {
	case m.Problem == manifests.Syntax:
		in.place = path
		s := in.report(finding.CodeRenderedSyntax, m.Origin, "what is rendered is not YAML: %s", m.Text)
		if in.isYAML() {
			s.Message, s.About = finding.Sentence("what is rendered is not YAML that Kubernetes reads: %s", m.Text), isYAML
		}
	case m.Problem == manifests.TooLarge:
		in.report(finding.CodeRenderedSyntax, "", "%s", m.Text)
	case m.Problem == manifests.NoObject && m.Field == "":
		in.report(finding.CodeNoKubeObject, "kind", "a %s, where a Kubernetes object belongs", kindName(m.Value))
	case m.Problem == manifests.NoObject:
		in.report(finding.CodeNoKubeObject, m.Field, "no %s", m.Field).About = apiVersionOf(m.Object)
	default:
		before := len(in.seen)
		if m.Field == "metadata.labels" || m.Field == "metadata.annotations" {
			in.names(idOf(m.Object), m.Object)
		}
		if len(in.seen) == before {
			in.report(finding.CodeKubeName, m.Field, "%s", m.Text)
		}
		id := idOf(m.Object)
		in.seen = append(in.seen, sight{Place: in.place, Group: id.group, Kind: id.kind, Namespace: id.namespace, Name: id.name})
	}
}

func apiVersionOf(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	return o.GetAPIVersion()
}

// kindName is the word for a value.
func kindName(value any) string {
	switch value.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	}
	return "single value"
}

func idOf(o *unstructured.Unstructured) kubeID {
	return kubeID{o.GroupVersionKind().Group, o.GetKind(), o.GetNamespace(), o.GetName()}
}

// report notes a mistake.
func (in *fileInspector) report(code, same, format string, args ...any) *sight {
	in.seen = append(in.seen, sight{Place: in.place, Code: code, Same: same, Message: finding.Sentence(format, args...)})
	return &in.seen[len(in.seen)-1]
}

// object checks an object. If final is false, only the parser has judged it.
func (in *fileInspector) object(o *unstructured.Unstructured, final bool) {
	id := idOf(o)
	if final = final && !in.patched && !(in.substitutes && hasVariable(o.Object)); final {
		in.names(id, o)
	}
	in.seen = append(in.seen, sight{Place: in.place, Group: id.group, Kind: id.kind, Namespace: id.namespace, Name: id.name})
	in.fluxVersion(id.group, o.GroupVersionKind().Version, id.kind)
	if in.refers && in.values == nil {
		in.siteReferences(id.String(), func(take func(string)) { eachText(o.Object, take) })
	}
	if !final {
		return
	}
	isConfigMap := id.kind == "ConfigMap" && o.GetAPIVersion() == kinds.CoreAPI
	if isConfigMap {
		in.configMapData(o.Object["data"])
	}
	for _, m := range builtin.Check(o.Object) {
		if isConfigMap && m.NoText && strings.HasPrefix(m.Field, "data.") || m.Apply && !in.apply {
			continue
		}
		in.report(finding.CodeRefusedObject, id.String()+m.Field, "%s: %s", id, m)
	}
}

// hasVariable reports whether a text of an object has ${NAME}.
func hasVariable(object map[string]any) (found bool) {
	eachText(object, func(text string) { found = found || strings.Contains(text, "${") })
	return found
}

// names checks the metadata that the API server checks for every object.
func (in *fileInspector) names(id kubeID, o *unstructured.Unstructured) {
	check := validation.IsDNS1123Subdomain
	switch {
	case hasFreeNames(id):
		check = kube.IsPathSegmentName
	case id.group == "" && (id.kind == "Namespace" || id.kind == "Service"):
		check = validation.IsDNS1123Label
	}
	if !isPlainWord(id.name) {
		if problems := check(id.name); len(problems) > 0 {
			in.report(finding.CodeKubeName, "name", "%s cannot be called %q: %s", id.kind, id.name, problems[0])
		}
	}
	if id.namespace != "" && !isPlainWord(id.namespace) {
		if problems := validation.IsDNS1123Label(id.namespace); len(problems) > 0 {
			in.report(finding.CodeKubeName, "namespace", "%s %s cannot be in namespace %q: %s", id.kind, id.name, id.namespace, problems[0])
		}
	}
	metadata, _ := o.Object["metadata"].(map[string]any)
	for _, part := range []string{"labels", "annotations"} {
		entries, _ := metadata[part].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			in.entry(id, part, key, entries[key])
		}
	}
}

// isPlainWord reports whether a text has at most 63 small letters, digits and inner hyphens: then it can be any name, key or
// value of a label. Most are, and the rules are slow regular expressions.
func isPlainWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= validation.DNS1123LabelMaxLength
}

// hasFreeNames reports whether objects may have any name that can be a part of a URL: roles, addresses, and kinds of OpenShift
// that are no custom resources, such as Identity.
func hasFreeNames(id kubeID) bool {
	return id.group == "rbac.authorization.k8s.io" || id.group == "networking.k8s.io" && id.kind == "IPAddress" || strings.HasSuffix(id.group, ".openshift.io")
}

func (in *fileInspector) entry(id kubeID, part, key string, value any) {
	text, isText := value.(string)
	lower := strings.ToLower(key)
	if isText && isPlainWord(lower) && (part != "labels" || text == "" || isPlainWord(text)) {
		return
	}
	problems := validation.IsQualifiedName(lower)
	if value != nil && !isText {
		text = in.written(part, key, value)
		problems = append(problems, fmt.Sprintf("%s is a %s, not a text", text, valueName(value)))
	} else if part == "labels" {
		problems = append(problems, validation.IsValidLabelValue(text)...)
	}
	if len(problems) > 0 {
		in.report(finding.CodeKubeName, part+key, "%s cannot have %s: %q in its %s: %s", id, key, text, part, problems[0])
	}
}

// valueName is the word for a value that is not a text.
func valueName(value any) string {
	switch value.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	case bool:
		return "boolean"
	}
	return "number"
}

// written returns a value of a label or annotation as the file has it: yes, and not true.
func (in *fileInspector) written(part, key string, value any) string {
	documents := yaml.NewDecoder(bytes.NewReader(in.data))
	for {
		var n yaml.Node
		if documents.Decode(&n) != nil {
			return fmt.Sprint(value)
		}
		for _, root := range n.Content {
			found := kinds.Field(kinds.Field(kinds.Field(root, "metadata"), part), key)
			if found.Kind == yaml.ScalarNode && kinds.ShortTag(found) != "!!str" {
				return found.Value
			}
		}
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
	s := in.report(finding.CodeFluxVersion, group+version+kind, "today's Flux does not serve %s of %s/%s", kind, group, version)
	s.Hint, s.At, s.About, s.Kind = "write "+group+"/"+flux.now, atAPIVersion, group+"/"+version, kind
}

// configMapData notes values that are no texts.
func (in *fileInspector) configMapData(data any) {
	entries, _ := data.(map[string]any)
	wrong := map[string]any{}
	for key, value := range entries {
		if _, isText := value.(string); !isText && value != nil {
			wrong[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		value := wrong[key]
		s := in.report(finding.CodeNoTextInConfig, key, "%s is a %s, and a ConfigMap takes only texts", key, valueName(value))
		s.Hint = `have the template write it as a text, such as with "stringify" or toJson, or put it in single quotes inside the value`
		s.At, s.About = atConfig, key
	}
}
