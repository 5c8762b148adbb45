package scheduler

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// adapter returns the reconciler of an assignment: the one in the most specific annotation, else the one
// that the rendered kinds require.
func adapter(ct *kinds.ClusterType, t *target, reconciler []byte) (string, error) {
	a, ok := kinds.AnnotationFor(ct, &t.Target, "adapter")
	if !ok {
		return inferAdapter(reconciler), nil
	}
	if !slices.Contains(kinds.Adapters, a.Value) {
		return "", a.Mistake(hintOf(a.Value, kinds.Adapters), "unknown adapter %q", a.Value)
	}
	return a.Value, nil
}

// inferAdapter infers the reconciler from the kinds in a reconciler file. If several are possible, the engine that
// can apply the others' objects wins.
func inferAdapter(reconciler []byte) string {
	rendered, ok := scanKinds(reconciler)
	if !ok {
		rendered = parseKinds(reconciler)
	}
	found := func(match func(groupKind) bool) bool { return slices.ContainsFunc(rendered, match) }
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

// scanKinds reads kinds from the unindented lines of block YAML, the usual output of templates. That is
// many times faster than parsing. It returns false if the file is not that plain.
func scanKinds(file []byte) (found []groupKind, plain bool) {
	var next groupKind
	for line := range bytes.Lines(file) {
		switch {
		case bytes.HasPrefix(line, []byte("---")):
			if len(bytes.TrimSpace(line)) > 3 {
				return nil, false
			}
			found, next = append(found, next), groupKind{}
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
	return append(found, next), true
}

// scalar returns the plain or quoted value of a "key: value" line.
func scalar(line []byte) string {
	_, value, _ := strings.Cut(string(line), ":")
	value, _, _ = strings.Cut(value, " #")
	return strings.Trim(strings.TrimSpace(value), `"'`)
}

// parseKinds reads kinds from any YAML, up to its first mistake.
func parseKinds(file []byte) []groupKind {
	var found []groupKind
	documents := yaml.NewDecoder(bytes.NewReader(file))
	for {
		var n yaml.Node
		if documents.Decode(&n) != nil {
			return found
		}
		for _, root := range n.Content {
			group, _, _ := strings.Cut(kinds.StringField(root, "apiVersion"), "/")
			found = append(found, groupKind{group, kinds.StringField(root, "kind")})
			for _, play := range root.Content {
				if root.Kind == yaml.SequenceNode && kinds.StringField(play, "hosts")+kinds.StringField(play, "import_playbook") != "" {
					found = append(found, groupKind{kind: playbook})
				}
			}
		}
	}
}

// ownAnnotations returns an object's annotations below wherry.dev/.
func ownAnnotations(o *kinds.Common) map[string]string {
	var own map[string]string
	for key, value := range o.Metadata.Annotations {
		if strings.HasPrefix(key, kinds.AnnotationPrefix) {
			if own == nil {
				own = map[string]string{}
			}
			own[key] = value.Value
		}
	}
	return own
}

// checkAnnotations warns about annotations below wherry.dev/ without an effect: of an unknown name, or
// for a target that is not in targets.
func checkAnnotations(o *kinds.Common, known, targets []string) []finding.Finding {
	var findings []finding.Finding
	warn := func(code, key, hint, format string, args ...any) {
		findings = append(findings, finding.New(code, o.Position(o.Metadata.Annotations[key].Line), hint,
			"%s %q: %s", o.Kind, o.Metadata.Name, fmt.Sprintf(format, args...)))
	}
	for _, key := range sortedKeys(o.Metadata.Annotations) {
		before, name, ours := strings.Cut(key, kinds.AnnotationPrefix)
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
