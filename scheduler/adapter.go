package scheduler

import (
	"bytes"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// annotationPrefix begins our annotations on Kalypso's kinds.
const annotationPrefix = "wherry.dev/"

const adapterAnnotation = annotationPrefix + "adapter"

// adapters are the reconcilers that an annotation can choose.
var adapters = []string{"ansible", "argo", "directory", "flux", "kubernetes", "zarf"}

// adapter is the reconciler of an assignment: the one that an annotation names, the most specific
// winning, else the one that the rendered kinds call for.
func adapter(ct *clusterType, t *target, reconciler []byte) (string, error) {
	for _, place := range []struct {
		object *object
		key    string
	}{
		{&t.workload.object, t.spec.Name + "." + adapterAnnotation},
		{&t.workload.object, adapterAnnotation},
		{&ct.object, adapterAnnotation},
	} {
		name, ok := place.object.Metadata.Annotations[place.key]
		if !ok {
			continue
		}
		if !slices.Contains(adapters, name) {
			hint := didYouMean(name, adapters)
			if hint == "" {
				hint = "there are " + strings.Join(adapters, ", ")
			}
			return "", coded(codeAnnotationValue, mistake(place.object.at, hint, "annotation %s: there is no adapter %q", place.key, name))
		}
		return name, nil
	}
	return inferAdapter(reconciler), nil
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
	case found(func(k groupKind) bool { return k.kind == "ZarfPackageConfig" }):
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
			own[key] = value
		}
	}
	return own
}

// checkAnnotations warns about annotations below wherry.dev/ that nobody reads.
func checkAnnotations(o *object, known []string) []Finding {
	var findings []Finding
	for _, key := range sortedKeys(o.Metadata.Annotations) {
		before, name, ours := strings.Cut(key, annotationPrefix)
		ours = ours && (before == "" || strings.HasSuffix(before, "."))
		if ours && !slices.Contains(known, name) {
			findings = append(findings, finding(codeUnknownAnnotation, o.at, didYouMean(name, known), "%s %q: unknown annotation %s", o.Kind, o.Metadata.Name, key))
		}
	}
	return findings
}

// The annotations that mean something, without their prefix.
var (
	clusterTypeAnnotations = []string{"adapter", "delivery", "pin", "valid-for", "drift", "on-failure", "health", "on-remove"}
	workloadAnnotations    = []string{"adapter", "delivery", "depends-on", "drift", "health", "on-failure", "on-remove", "wave"}
)
