package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	yamlv2 "gopkg.in/yaml.v2"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// values adds findings about single values: secrets, and values that YAML 1.1 and a person read differently.
func (l *linter) values() {
	for _, cm := range sortedValues(l.objects.ConfigMaps) {
		for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
			l.value(cm, key, cm.Data[key])
		}
	}
	for _, w := range l.objects.Workloads {
		for i := range w.Spec.DeploymentTargets {
			t := &w.Spec.DeploymentTargets[i]
			for _, key := range slices.Sorted(maps.Keys(t.Manifests)) {
				if show.LooksSecret(key, t.Manifests[key]) {
					l.add(finding.CodeSecret, w.Position(t.Line), secretHint, "manifests.%s of target %q of workload %q looks like a secret", key, t.Name, w.Metadata.Name)
				}
			}
		}
	}
}

const secretHint = "name a Secret here, and bring its content to the cluster in another way: bundles are signed, not encrypted"

func (l *linter) value(cm *kinds.ConfigMap, key string, v kinds.Text) {
	_, name := kinds.SplitAzureKey(key)
	if !cm.IsAzure() {
		name = key
	}
	if show.LooksSecret(name, v.Value) {
		l.add(finding.CodeSecret, cm.Position(v.Line), secretHint, "%s of ConfigMap %q looks like a secret", key, cm.Metadata.Name)
	}
	parsed := yamlvalue.Parse(v.Value)
	if !yamlvalue.IsStructured(parsed) {
		return
	}
	if kind := looksLikeText(v.Value, parsed); kind != "" {
		l.add(finding.CodeTextReadAsMap, cm.Position(v.Line), "if it is a text, put it in single quotes inside the value, as in "+key+`: "'…'"`,
			"%s of ConfigMap %q is read as a %s", key, cm.Metadata.Name, kind)
		return
	}
	var document yaml.Node
	if yaml.Unmarshal([]byte(v.Value), &document) != nil {
		return // valid in YAML 1.1 only; it is rendered all the same
	}
	w := &scalarWalk{linter: l, configMap: cm, value: v}
	w.walk(&document, key)
}

// looksLikeText returns the kind that a value is read as, if a person would call it a text: one line with a
// colon or a dash in it, or a placeholder in braces.
func looksLikeText(s string, parsed any) string {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "\n") || strings.HasPrefix(s, "[") {
		return ""
	}
	if list, ok := parsed.([]any); ok {
		if _, isText := list[0].(string); isText && len(list) == 1 {
			return "list"
		}
		return ""
	}
	m, isMap := parsed.(map[any]any)
	if !isMap {
		return ""
	}
	if strings.HasPrefix(s, "{") {
		for _, value := range m {
			if value != nil {
				return ""
			}
		}
		if len(m) == 0 {
			return ""
		}
	}
	return "mapping"
}

// scalarWalk checks the plain scalars of one structured value.
type scalarWalk struct {
	*linter
	configMap *kinds.ConfigMap
	value     kinds.Text
	seen      int // nodes, aliases expanded
}

func (w *scalarWalk) walk(n *yaml.Node, path string) {
	if w.seen++; w.seen > kinds.MaxNodes {
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		w.walk(n.Content[0], path)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if now, changed := readAs(key); changed {
				w.report(finding.CodeKeyReadAsBool, key, "put the key in quotes", "key %s of %s in ConfigMap %q is read as %s", key.Value, path, w.configMap.Metadata.Name, now)
			}
			w.walk(value, path+"."+key.Value)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			w.walk(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		if now, changed := readAs(n); changed {
			w.report(finding.CodeValueChanged, n, "put it in quotes if it is a text, else write "+now, "%s of ConfigMap %q: %s is read as %s", path, w.configMap.Metadata.Name, n.Value, now)
		}
	}
}

func (w *scalarWalk) report(code string, n *yaml.Node, hint, format string, args ...any) {
	at := w.value.Line
	if w.value.First > at { // a block text: its lines are those of the file
		at = w.value.First + kinds.Line(n.Line) - 1
	}
	w.add(code, w.configMap.Position(at), hint, format, args...)
}

// readAs returns the value that YAML 1.1 reads from a plain scalar, if it differs from the text: y is
// true, 0777 is 511, 1.10 is 1.1. It ignores numbers that a person would also read as such, for example 0.50.
func readAs(n *yaml.Node) (now string, changed bool) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return "", false
	}
	var value any
	if yamlv2.Unmarshal([]byte(n.Value), &value) != nil {
		return "", false
	}
	s := n.Value
	switch value.(type) {
	case bool:
		changed = !strings.EqualFold(s, "true") && !strings.EqualFold(s, "false")
	case int, int64, uint64:
		changed = strings.TrimLeft(s, "+-") != "0"
	case float64:
		version := strings.HasSuffix(s, "0") && !strings.HasSuffix(s, ".0") && !strings.HasPrefix(s, "0.")
		changed = version && strings.Contains(s, ".") || strings.ContainsAny(s, "eE") && !strings.ContainsAny(s, ".+-") || isZeroed(s)
	}
	now = yamlvalue.Marshal(value)
	return now, changed && now != s && "+"+now != s
}

// isZeroed reports whether s is digits with a leading zero, such as 08, which is no octal number.
func isZeroed(s string) bool {
	return len(s) > 1 && s[0] == '0' && strings.Trim(s, "0123456789") == ""
}

// merges adds findings about ConfigMaps that are merged in an assignment.
func (l *linter) merges() {
	seen := map[string]bool{}
	for _, ct := range l.result.ClusterTypes {
		for _, a := range ct.Assignments {
			var names []string
			for _, source := range a.Config {
				names = append(names, source.Name)
			}
			if composition := strings.Join(names, "\n"); !seen[composition] {
				seen[composition] = true
				l.composition(names)
			}
		}
	}
}

// mergedValue is a value of a ConfigMap.
type mergedValue struct {
	key, text  string
	structured bool     // a map or a list
	unnamed    []string // the paths of lists in it that have items without name
}

// valuesOf returns the values of a ConfigMap by key: they are parsed once, and merged in many assignments.
func (l *linter) valuesOf(cm *kinds.ConfigMap) []mergedValue {
	values, known := l.merged[cm]
	if !known {
		for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
			text := cm.Data[key].Value
			v := yamlvalue.Parse(text)
			values = append(values, mergedValue{key, text, yamlvalue.IsStructured(v), unnamedLists(v, key)})
		}
		l.merged[cm] = values
	}
	return values
}

// valueIn is a value with its ConfigMap.
type valueIn struct {
	*mergedValue
	of *kinds.ConfigMap
}

// composition follows the keys of ConfigMaps in the order in which they are merged. It leaves out those that Azure App
// Configuration has written, which sorts them by itself.
func (l *linter) composition(names []string) {
	last := map[string]valueIn{}             // by key
	unnamed := map[string]*kinds.ConfigMap{} // by the path of a list that has items without name
	for _, name := range names {
		cm := l.objects.ConfigMaps[name]
		if cm == nil || !cm.IsLabelled() {
			continue
		}
		values := l.valuesOf(cm)
		for i := range values {
			v := valueIn{&values[i], cm}
			if earlier := last[v.key]; earlier.of != nil {
				l.generalWins(earlier, v)
			}
			last[v.key] = v
			for _, path := range v.unnamed {
				if earlier := unnamed[path]; earlier != nil && earlier != cm {
					l.add(finding.CodeUnnamedMerge, cm.Position(cm.Data[v.key].Line), "give each item a name",
						"%s: items without name of ConfigMap %q merge into every item without name of ConfigMap %q at %s",
						path, cm.Metadata.Name, earlier.Metadata.Name, earlier.Position(earlier.Data[v.key].Line))
				}
				unnamed[path] = cm
			}
		}
	}
}

// generalWins adds a value that replaces one from a ConfigMap with the same conditions and more.
func (l *linter) generalWins(before, after valueIn) {
	if before.text == after.text || before.structured && after.structured {
		return
	}
	earlier, later := before.of, after.of
	special, general := kinds.ConditionsOf(earlier.Metadata.Labels), kinds.ConditionsOf(later.Metadata.Labels)
	if len(general) >= len(special) || slices.ContainsFunc(general, func(c kinds.Condition) bool { return !slices.Contains(special, c) }) {
		return
	}
	l.add(finding.CodeGeneralWins, later.Position(later.Data[after.key].Line), "ConfigMaps are merged in the order of their names: rename one of them",
		"%s of ConfigMap %q replaces that of ConfigMap %q at %s, which is for fewer assignments",
		after.key, later.Metadata.Name, earlier.Metadata.Name, earlier.Position(earlier.Data[before.key].Line))
}

// unnamedLists lists the paths of lists, at any depth, that hold mappings without a name.
func unnamedLists(v any, path string) []string {
	var found []string
	switch v := v.(type) {
	case map[any]any:
		for key, value := range v {
			found = append(found, unnamedLists(value, fmt.Sprintf("%s.%v", path, key))...)
		}
	case []any:
		for _, value := range v {
			item, isMap := value.(map[any]any)
			switch {
			case isMap && item["name"] == nil:
				found = append(found, path)
			case isMap:
				found = append(found, unnamedLists(value, fmt.Sprintf("%s[%v]", path, item["name"]))...)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
