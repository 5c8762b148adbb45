// Package yamlvalue handles the values of a platform's configuration as Kalypso does: it reads them as YAML 1.1, merges
// those of several ConfigMaps, and writes them as yaml.v3 does.
//
// A value has the types of yaml.v2: a string, number, boolean or nil, a []any, or a map[any]any. [Parse] reads one, [Merge]
// merges a later one into an earlier one, [Marshal] writes one. A [Writer] writes many values with common keys and parts,
// with the same bytes and much faster.
package yamlvalue

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	yamlv2 "gopkg.in/yaml.v2"
)

// Parse reads a ConfigMap's value as Kalypso does: a text that is a map or a list in YAML 1.1 becomes one,
// any other text stays as it is, without single quotes around it.
func Parse(s string) any {
	if trimmed := strings.TrimSpace(s); strings.HasPrefix(trimmed, "'") && strings.HasSuffix(trimmed, "'") {
		return strings.Trim(trimmed, "'")
	}
	var value any
	if yamlv2.Unmarshal([]byte(s), &value) != nil {
		return s
	}
	switch value.(type) {
	case []any, map[any]any:
		return value
	default:
		return s
	}
}

// IsStructured reports whether v is a map or a list.
func IsStructured(v any) bool {
	switch v.(type) {
	case []any, map[any]any:
		return true
	default:
		return false
	}
}

// Merge merges a later value into an earlier one, which it may change. Maps merge key by key. Lists are
// appended, but a map in a list merges into each earlier one of the same name; maps without a name
// count as having the same one. For other values the later one wins.
func Merge(earlier, later any) any {
	switch later := later.(type) {
	case []any:
		if list, ok := earlier.([]any); ok {
			return mergeLists(list, later)
		}
	case map[any]any:
		if m, ok := earlier.(map[any]any); ok {
			for key, value := range later {
				if old, ok := m[key]; ok {
					value = Merge(old, value)
				}
				m[key] = value
			}
			return m
		}
	}
	return later
}

func mergeLists(list, later []any) []any {
	for _, value := range later {
		item, isMap := value.(map[any]any)
		merged := false
		for i := range list {
			if old, ok := list[i].(map[any]any); ok && isMap && reflect.DeepEqual(old["name"], item["name"]) {
				list[i], merged = Merge(old, value), true
			}
		}
		if !merged {
			list = append(list, value)
		}
	}
	return list
}

// Clone copies maps and lists all the way down.
func Clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, value := range v {
			c[key] = Clone(value)
		}
		return c
	case map[any]any:
		c := make(map[any]any, len(v))
		for key, value := range v {
			c[key] = Clone(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = Clone(value)
		}
		return c
	default:
		return v
	}
}

// MapStrings replaces the strings of a value, but not the keys of its maps.
func MapStrings(v any, replace func(string) any) any {
	switch v := v.(type) {
	case string:
		return replace(v)
	case map[any]any:
		for key, value := range v {
			v[key] = MapStrings(value, replace)
		}
	case []any:
		for i, value := range v {
			v[i] = MapStrings(value, replace)
		}
	}
	return v
}

// Marshal returns the YAML of v as yaml.v3 writes it, without the last line break. It returns "" for a value that cannot be
// written.
func Marshal(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}
