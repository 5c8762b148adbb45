package render

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/wherry-dev/wherry/scheduler/finding"
)

// checkSchemas checks values against the schemas of a chart and of those below it, as far as they can be read: Helm's own check
// would fetch what a schema refers to.
func (p *composed) checkSchemas(c *helm.Chart, values map[string]any) error {
	var errs []error
	if c.Schema != nil {
		at := finding.Position{File: inChart(c, "values.schema.json")}
		elsewhere, err := checkSchema(c.Schema, values)
		if err != nil {
			errs = append(errs, finding.Errorf("", at, "", "the values do not fit the schema: %s", err))
		}
		for _, url := range elsewhere {
			p.schemaNotes = append(p.schemaNotes, finding.Finding{
				Position: at, Code: finding.CodeSchemaElsewhere, Message: finding.Sentence("it refers to %s, which is not read: the values are checked against the rest", url),
				Hint: "put that schema into the chart, below $defs",
			})
		}
	}
	for _, below := range c.Dependencies() {
		switch own := values[below.Name()].(type) {
		case nil:
		case map[string]any:
			errs = append(errs, p.checkSchemas(below, own))
		case common.Values:
			errs = append(errs, p.checkSchemas(below, own))
		default:
			errs = append(errs, finding.Errorf("", finding.Position{File: inChart(c, "values.yaml")}, "", "the values of chart %s must be a map", below.Name()))
		}
	}
	return errors.Join(errs...)
}

// checkSchema checks values against a schema without its references to other documents, which it returns.
func checkSchema(text []byte, values map[string]any) (elsewhere []string, err error) {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	const name = "values:///values.schema.json"
	var compiled *jsonschema.Schema
	for {
		compiler := jsonschema.NewCompiler()
		compiler.UseLoader(noLoader{})
		if err := compiler.AddResource(name, schema); err != nil {
			return elsewhere, err
		}
		var unread *jsonschema.LoadURLError
		if compiled, err = compiler.Compile(name); errors.As(err, &unread) && withoutReference(schema, unread.URL) {
			elsewhere = append(elsewhere, strings.TrimPrefix(unread.URL, "values:///"))
			continue
		}
		break
	}
	if err != nil {
		return elsewhere, errors.New(strings.ReplaceAll(err.Error(), name, "values.schema.json"))
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(asMap(values)); errors.As(err, &invalid) {
		return elsewhere, errors.New(strings.Join(violations(invalid), "; "))
	} else if err != nil {
		return elsewhere, err
	}
	return elsewhere, nil
}

// withoutReference removes the references to the document at url from a schema, and reports whether there were any.
func withoutReference(schema any, url string) (found bool) {
	switch schema := schema.(type) {
	case map[string]any:
		for _, key := range []string{"$ref", "$dynamicRef", "$schema"} {
			reference, isText := schema[key].(string)
			document, _, _ := strings.Cut(reference, "#")
			if isText && document != "" && (document == url || strings.HasSuffix(url, "/"+strings.TrimLeft(document, "./"))) {
				delete(schema, key)
				found = true
			}
		}
		for _, below := range schema {
			found = withoutReference(below, url) || found
		}
	case []any:
		for _, below := range schema {
			found = withoutReference(below, url) || found
		}
	}
	return found
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
