package chart

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/scheduler/finding"
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

// checkSchemas checks values against the schemas of a chart and of those below it. Helm's own check would fetch what a
// schema refers to.
func checkSchemas(c *helm.Chart, values map[string]any) error {
	var errs []error
	if c.Schema != nil {
		if err := checkSchema(c.Schema, values); err != nil {
			errs = append(errs, finding.Errorf("", finding.Position{File: inChart(c, "values.schema.json")}, "", "the values do not fit the schema: %s", err))
		}
	}
	for _, below := range c.Dependencies() {
		switch own := values[below.Name()].(type) {
		case nil:
		case map[string]any:
			errs = append(errs, checkSchemas(below, own))
		case common.Values:
			errs = append(errs, checkSchemas(below, own))
		default:
			errs = append(errs, finding.Errorf("", finding.Position{File: inChart(c, "values.yaml")}, "", "the values of chart %s must be a map", below.Name()))
		}
	}
	return errors.Join(errs...)
}

func checkSchema(text []byte, values map[string]any) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	const name = "values:///values.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(name, schema); err != nil {
		return err
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), name, "values.schema.json"))
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(asMap(values)); errors.As(err, &invalid) {
		return errors.New(strings.Join(violations(invalid), "; "))
	} else if err != nil {
		return err
	}
	return nil
}

func asMap(values map[string]any) map[string]any {
	if values == nil {
		return map[string]any{}
	}
	return values
}

// violations lists the broken rules with their paths, and no values, because these may be secrets.
func violations(e *jsonschema.ValidationError) []string {
	const most = 10
	var all []string
	if len(e.Causes) == 0 {
		at := strings.Join(e.InstanceLocation, ".")
		if at == "" {
			at = "the values"
		}
		return []string{fmt.Sprintf("%s breaks %s", at, strings.Join(e.ErrorKind.KeywordPath(), "/"))}
	}
	for _, cause := range e.Causes {
		all = append(all, violations(cause)...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > most {
		all = append(all[:most], "…")
	}
	return all
}

// noLoader refuses references of a schema to other documents.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, which is not read", url)
}
