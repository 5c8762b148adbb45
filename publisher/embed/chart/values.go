package chart

import (
	"fmt"
	"maps"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// maxValuesBytes bounds a file of values.
const maxValuesBytes = 4 << 20

// ParseValues reads a file of values.
func ParseValues(data []byte) (map[string]any, error) {
	if len(data) > maxValuesBytes {
		return nil, fmt.Errorf("%w: values may have %d bytes", ErrTooLarge, maxValuesBytes)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return values, nil
}

// MergeValues returns values with over on top, as Helm merges a later --values file: maps are merged, all else is replaced. A
// null stays, and removes the chart's own value. It changes neither.
func MergeValues(values, over map[string]any) map[string]any {
	all := maps.Clone(values)
	if all == nil {
		all = map[string]any{}
	}
	for key, value := range over {
		under, ok := all[key].(map[string]any)
		if above, isMap := value.(map[string]any); ok && isMap {
			value = MergeValues(under, above)
		}
		all[key] = value
	}
	return all
}

// SetValue sets one value by a path such as "a.b[0].c" in values, as helm's --set does, or --set-string with asText. It
// changes values, and the maps and lists on the way. A comma is part of the value, as with Argo CD's parameters, but in a
// list such as "{a,b}".
func SetValue(values map[string]any, path, value string, asText bool) error {
	set := strvals.ParseInto
	if asText {
		set = strvals.ParseIntoString
	}
	text := value
	if !strings.HasPrefix(value, "{") || !strings.HasSuffix(value, "}") {
		text = escapeCommas(value)
	}
	if err := set(path+"="+text, values); err != nil {
		return fmt.Errorf("parameter %s: %s", path, withoutValue(err, value))
	}
	return nil
}

// escapeCommas puts a backslash in front of each comma that has none.
func escapeCommas(value string) string {
	var b strings.Builder
	for i := range len(value) {
		if value[i] == ',' && (i == 0 || value[i-1] != '\\') {
			b.WriteByte('\\')
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

// withoutValue is a message without the value that it is about, which may be a secret.
func withoutValue(err error, value string) string {
	if value == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), value, "…")
}
