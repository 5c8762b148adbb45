package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// siteValuesName is the name of the declaration of site values in each environment that has any.
const siteValuesName = "site-values"

// setValue gives a cluster a site value. It reports false if the value or the key cannot be one.
func (c *cluster) setValue(key string, value any) bool {
	p := sitevalues.Property{Type: typeOf(value)}
	if _, err := p.Read(value); err != nil || len(key) > sitevalues.MaxKeyBytes {
		return false
	}
	if c.values == nil {
		c.values = map[string]any{}
	}
	if _, known := c.values[key]; !known && len(c.values) >= sitevalues.MaxKeys {
		return false
	}
	c.values[key] = value
	return true
}

func typeOf(value any) sitevalues.Type {
	switch value.(type) {
	case bool:
		return sitevalues.Boolean
	case int, int64, uint64:
		return sitevalues.Integer
	case float64:
		return sitevalues.Number
	}
	return sitevalues.String
}

// siteKey returns a path of the other system as the key of a site value: capitals become small letters after a hyphen.
func siteKey(path string) string {
	var b strings.Builder
	for i, r := range path {
		switch {
		case r >= 'A' && r <= 'Z':
			if i > 0 && !strings.HasSuffix(b.String(), "-") && !strings.HasSuffix(b.String(), ".") {
				b.WriteByte('-')
			}
			b.WriteRune(unicode.ToLower(r))
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	key := strings.TrimLeft(b.String(), "._-")
	if strings.HasPrefix(sitevalues.Variable(key), "cluster_") {
		key = "site." + key
	}
	return key
}

// declaration returns the declaration of the site values of an environment; nil if no cluster of it has any. A key is of the
// type that all its values have, or else a string, which the values then are too.
func (e *estate) declaration(environment string) object {
	types := map[string]sitevalues.Type{}
	for _, c := range e.clusters {
		for key, value := range c.values {
			if c.environment != environment {
				continue
			}
			t := typeOf(value)
			switch known, ok := types[key]; {
			case !ok || known == t:
				types[key] = t
			case known != sitevalues.String && t != sitevalues.String && known != sitevalues.Boolean && t != sitevalues.Boolean:
				types[key] = sitevalues.Number
			default:
				types[key] = sitevalues.String
			}
		}
	}
	if len(types) == 0 {
		return nil
	}
	properties := object{}
	for key, t := range types {
		properties[key] = object{"type": string(t)}
	}
	for _, c := range e.clusters {
		for key, value := range c.values {
			if _, isText := value.(string); c.environment == environment && types[key] == sitevalues.String && !isText {
				c.values[key] = fmt.Sprint(value)
			}
		}
	}
	text, err := yaml.Marshal(object{"properties": properties})
	if err != nil {
		return nil
	}
	return object{
		"apiVersion": kinds.CoreAPI, "kind": "ConfigMap",
		"metadata": object{"name": siteValuesName, "labels": object{kinds.SiteValues: "true"}}, "data": object{"schema": string(text)},
	}
}

// literal returns a text that is not composed when it is a value of the platform.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// leaves calls take with each value in nested maps that is none itself, by its path with dots.
func leaves(prefix string, values map[string]any, take func(path string, value any)) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if inner, ok := values[key].(map[string]any); ok {
			leaves(prefix+key+".", inner, take)
			continue
		}
		take(prefix+key, values[key])
	}
}

// addTemplateValues makes site values of Fleet's templateValues. It returns the paths of those that cannot be one.
func (c *cluster) addTemplateValues(values map[string]any) (left []string) {
	leaves("", values, func(path string, value any) {
		if text, ok := value.(string); ok {
			value = literal(text)
		}
		if _, twice := c.values[siteKey(path)]; twice || !c.setValue(siteKey(path), value) {
			left = append(left, path)
		}
	})
	return left
}

// fleetReference matches what Fleet evaluates in the values of charts, as far as it names one value of the cluster.
var fleetReference = lazyregexp.New(`\$\{\s*(?:\.ClusterValues\.([A-Za-z0-9_.]+)|(\.ClusterName)|\.ClusterLabels\.([A-Za-z0-9_]+)|(?:get|index)\s+\.ClusterLabels\s+"([^"]+)")\s*\}`)

// siteReferences returns a text with Fleet's references as those to site values, the keys that it then uses, and whether
// anything is left that is not evaluated. Declared has the keys of the environment.
func siteReferences(text string, declared map[string]bool) (_ string, uses []string, left bool) {
	text = fleetReference.ReplaceAllStringFunc(text, func(found string) string {
		m := fleetReference.FindStringSubmatch(found)
		key := "cluster.name"
		switch {
		case m[1] != "":
			if key = siteKey(m[1]); !declared[key] {
				return found
			}
		case m[3] != "":
			key = sitevalues.LabelPrefix + labelKey(m[3])
		case m[4] != "":
			key = sitevalues.LabelPrefix + labelKey(m[4])
		}
		uses = append(uses, key)
		return "${site." + key + "}"
	})
	slices.Sort(uses)
	uses = slices.Compact(uses)
	return text, uses, strings.Count(text, "${") > len(regexp.MustCompile(`\$\{site\.`).FindAllString(text, -1))
}

// general is one spec for all clusters of a set, in which site values stand for what differs.
type general struct {
	spec string
	uses []string
	// values are those of each application's cluster, by key.
	values []map[string]string
}

// generalize returns a spec from which the specs of all applications follow by site values; false if there is none. Each
// application must be on a cluster of its own.
func (a *argo) generalize(set string, all []application) (general, bool) {
	differing, keys := map[string]bool{}, map[string]string{}
	flat := make([]map[string]string, len(all))
	clusters := map[*cluster]bool{}
	for i, one := range all {
		if one.params == nil || clusters[one.cluster.cluster] {
			return general{}, false
		}
		clusters[one.cluster.cluster] = true
		flat[i] = map[string]string{}
		leaves("", one.params, func(path string, value any) {
			if text, ok := value.(string); ok {
				flat[i][path] = text
			}
		})
		for path, text := range flat[i] {
			if first, ok := flat[0][path]; !ok || first != text {
				differing[path] = true
			}
		}
	}
	for path := range differing {
		same := func(of func(c *cluster) string) bool {
			for i, one := range all {
				if flat[i][path] != of(one.cluster.cluster) {
					return false
				}
			}
			return true
		}
		key := siteKey(set + "." + path)
		label, isLabel := strings.CutPrefix(path, "metadata.labels.")
		switch {
		case same(func(c *cluster) string { return c.name }):
			key = "cluster.name"
		case isLabel && same(func(c *cluster) string { return c.labels[labelKey(label)] }):
			key = sitevalues.LabelPrefix + labelKey(label)
		}
		keys[path] = key
	}
	params := replacedLeaves("", all[0].params, func(path, text string) string {
		if key, ok := keys[path]; ok {
			return "${site." + key + "}"
		}
		return text
	})
	spec, err := all[0].generators.spec(all[0].template, params)
	if err != nil {
		return general{}, false
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		return general{}, false
	}
	g := general{spec: string(text), uses: sitevalues.References(string(text))}
	for i, one := range all {
		texts := map[string]string{}
		for path, key := range keys {
			if value, ok := flat[i][path]; ok {
				texts[key] = value
			}
		}
		expanded, err := yaml.Marshal(expandAll(spec, texts))
		if err != nil || string(expanded) != one.spec {
			return general{}, false // a condition or a function looks at what differs
		}
		own := map[string]string{}
		for _, key := range g.uses {
			if !sitevalues.IsFact(key) {
				own[key] = texts[key]
			}
		}
		g.values = append(g.values, own)
	}
	return g, len(g.uses) > 0
}

// replacedLeaves returns nested maps with their texts replaced.
func replacedLeaves(prefix string, values map[string]any, replace func(path, text string) string) map[string]any {
	all := map[string]any{}
	for key, value := range values {
		switch value := value.(type) {
		case map[string]any:
			all[key] = replacedLeaves(prefix+key+".", value, replace)
		case string:
			all[key] = replace(prefix+key, value)
		default:
			all[key] = value
		}
	}
	return all
}

// expandAll replaces references in all texts of a value, as agents do.
func expandAll(value any, texts map[string]string) any {
	switch value := value.(type) {
	case string:
		return sitevalues.Expand(value, texts)
	case map[string]any:
		all := map[string]any{}
		for key, inner := range value {
			all[key] = expandAll(inner, texts)
		}
		return all
	case []any:
		all := make([]any, len(value))
		for i, inner := range value {
			all[i] = expandAll(inner, texts)
		}
		return all
	}
	return value
}

// missingValues reports the site values that targets use and that their clusters lack.
func (e *estate) missingValues() {
	for _, r := range e.rules {
		for _, t := range r.targets {
			for _, c := range e.clusters {
				lacks := slices.DeleteFunc(slices.Clone(t.uses), func(key string) bool {
					_, has := c.values[key]
					label, isLabel := strings.CutPrefix(key, sitevalues.LabelPrefix)
					_, labelled := c.labels[label]
					return has || isLabel && labelled || !isLabel && sitevalues.IsFact(key)
				})
				if r.clusters[c] && len(lacks) > 0 {
					e.report.add(Later, c.at, "Cluster "+c.name, "site values", fmt.Sprintf("it has no %s, which %s-%s uses and waits for", strings.Join(lacks, ", "), t.workload.name, t.name))
				}
			}
		}
	}
}
