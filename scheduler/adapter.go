package scheduler

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/template"
)

// annotationPrefix begins our annotations on Kalypso's kinds.
const annotationPrefix = "wherry.dev/"

// adapters are the reconcilers that an annotation can choose.
var adapters = []string{"ansible", "argo", "directory", "flux", "kubernetes", "zarf"}

// adapter is the reconciler of an assignment: the one that an annotation names, the most specific
// winning, else the one that the rendered kinds call for.
func adapter(ct *clusterType, t *target, reconciler []byte) (string, error) {
	a, ok := annotationFor(ct, t, "adapter")
	if !ok {
		return inferAdapter(reconciler), nil
	}
	if !slices.Contains(adapters, a.value) {
		return "", a.mistake(hintOf(a.value, adapters), "unknown adapter %q", a.value)
	}
	return a.value, nil
}

// inferAdapter looks at the kinds in a reconciler file. Of several, the engine that brings the others
// along wins.
func inferAdapter(reconciler []byte) string {
	kinds, ok := scanKinds(reconciler)
	if !ok {
		kinds = parseKinds(reconciler)
	}
	found := func(match func(groupKind) bool) bool { return slices.ContainsFunc(kinds, match) }
	switch {
	case found(func(k groupKind) bool { return k.kind == "ZarfPackageConfig" || k == prebuiltPackage }):
		return "zarf"
	case found(func(k groupKind) bool { return strings.HasSuffix(k.group, ".fluxcd.io") }):
		return "flux"
	case found(func(k groupKind) bool { return k.group == "argoproj.io" && k.kind == "Application" }):
		return "argo"
	case found(func(k groupKind) bool { return k.kind == playbook }):
		return "ansible"
	default:
		return "kubernetes"
	}
}

type groupKind struct{ group, kind string }

// prebuiltPackage names a Zarf package of a registry.
var prebuiltPackage = groupKind{"wherry.dev", "ZarfPackage"}

// playbook stands for the kind that a list of plays does not have.
const playbook = "(playbook)"

// scanKinds reads kinds off the unindented lines of block YAML, which is what templates write and is
// many times faster than parsing. It reports false where the file is not that plain.
func scanKinds(file []byte) (kinds []groupKind, plain bool) {
	var next groupKind
	for line := range bytes.Lines(file) {
		switch {
		case bytes.HasPrefix(line, []byte("---")):
			if len(bytes.TrimSpace(line)) > 3 {
				return nil, false
			}
			kinds, next = append(kinds, next), groupKind{}
		case bytes.HasPrefix(line, []byte("apiVersion:")):
			next.group, _, _ = strings.Cut(scalar(line), "/")
		case bytes.HasPrefix(line, []byte("kind:")):
			next.kind = scalar(line)
		case bytes.HasPrefix(line, []byte("- hosts:")), bytes.HasPrefix(line, []byte("- import_playbook:")):
			next.kind = playbook
		case len(line) > 0 && bytes.IndexByte([]byte("{[-\"'&!?<%"), line[0]) >= 0:
			return nil, false
		}
	}
	return append(kinds, next), true
}

// scalar is the plain or quoted value of a "key: value" line.
func scalar(line []byte) string {
	_, value, _ := strings.Cut(string(line), ":")
	value, _, _ = strings.Cut(value, " #")
	return strings.Trim(strings.TrimSpace(value), `"'`)
}

// parseKinds reads kinds off any YAML, up to the first mistake in it.
func parseKinds(file []byte) []groupKind {
	var kinds []groupKind
	documents := yaml.NewDecoder(bytes.NewReader(file))
	for {
		var n yaml.Node
		if documents.Decode(&n) != nil {
			return kinds
		}
		for _, root := range n.Content {
			group, _, _ := strings.Cut(stringField(root, "apiVersion"), "/")
			kinds = append(kinds, groupKind{group, stringField(root, "kind")})
			for _, play := range root.Content {
				if root.Kind == yaml.SequenceNode && stringField(play, "hosts")+stringField(play, "import_playbook") != "" {
					kinds = append(kinds, groupKind{kind: playbook})
				}
			}
		}
	}
}

// ownAnnotations are an object's annotations below wherry.dev/.
func ownAnnotations(o *object) map[string]string {
	var own map[string]string
	for key, value := range o.Metadata.Annotations {
		if strings.HasPrefix(key, annotationPrefix) {
			if own == nil {
				own = map[string]string{}
			}
			own[key] = value.Value
		}
	}
	return own
}

// checkAnnotations warns about annotations below wherry.dev/ that nobody reads: of an unknown name, or
// for a target that is none of targets.
func checkAnnotations(o *object, known, targets []string) []finding.Finding {
	var findings []finding.Finding
	warn := func(code, key, hint, format string, args ...any) {
		findings = append(findings, finding.New(code, o.position(o.Metadata.Annotations[key].line), hint,
			"%s %q: %s", o.Kind, o.Metadata.Name, fmt.Sprintf(format, args...)))
	}
	for _, key := range sortedKeys(o.Metadata.Annotations) {
		before, name, ours := strings.Cut(key, annotationPrefix)
		target, specific := strings.CutSuffix(before, ".")
		switch {
		case !ours || before != "" && !specific:
		case !slices.Contains(known, name):
			warn(finding.CodeUnknownAnnotation, key, finding.DidYouMean(name, known), "unknown annotation %s", key)
		case specific && !slices.Contains(targets, target):
			warn(finding.CodeNoSuchTarget, key, finding.DidYouMean(target, targets), "annotation %s is for a deployment target %q, which there is not", key, target)
		}
	}
	return findings
}

// The annotations that mean something, without their prefix.
var (
	clusterTypeAnnotations = []string{"adapter", "delivery", "pin", "valid-for", "drift", "on-failure", "health", "on-remove", "restart-on-config"}
	templateAnnotations    = []string{strings.TrimPrefix(template.MissingKeysAnnotation, annotationPrefix)}
	workloadAnnotations    = []string{"adapter", "delivery", "depends-on", "drift", "health", "on-failure", "on-remove", "restart-on-config", "wave"}
)
