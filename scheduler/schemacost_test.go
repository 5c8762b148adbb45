package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/schema"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

// doubling is a schema of n definitions that refer to the next one twice, in this form.
func doubling(n int, form string) string {
	var b strings.Builder
	for i := range n {
		next := fmt.Sprintf(`{"$ref": "#/definitions/d%d"}`, i+1)
		fmt.Fprintf(&b, `"d%d": %s, `, i, strings.ReplaceAll(form, "NEXT", next))
	}
	return fmt.Sprintf(`{"$ref": "#/definitions/d0", "definitions": {%s"d%d": {"maxProperties": 1000}}}`, b.String(), n)
}

// hostileSchemas would take the library minutes or all memory. Each has its expected error.
var hostileSchemas = map[string]struct{ schema, says string }{
	"two references, thirty deep":       {doubling(30, `{"allOf": [NEXT, NEXT]}`), "takes more than 262144 steps"},
	"alternatives, thirty deep":         {doubling(30, `{"anyOf": [{"allOf": [NEXT, false]}, NEXT]}`), "takes more than 262144 steps"},
	"one of two, thirty deep":           {doubling(30, `{"oneOf": [NEXT, NEXT]}`), "takes more than 262144 steps"},
	"a condition, thirty deep":          {doubling(30, `{"if": NEXT, "then": NEXT}`), "takes more than 262144 steps"},
	"a negation beside, thirty deep":    {doubling(30, `{"not": NEXT, "allOf": [NEXT]}`), "takes more than 262144 steps"},
	"dependencies, thirty deep":         {doubling(30, `{"dependencies": {"K": NEXT, "L": NEXT}}`), "takes more than 262144 steps"},
	"values, thirty deep":               {doubling(30, `{"items": {"allOf": [NEXT, NEXT]}, "patternProperties": {"D$": NEXT, "^D": NEXT}}`), "takes more than 262144 steps"},
	"names of properties, thirty deep":  {doubling(30, `{"propertyNames": {"allOf": [NEXT, NEXT]}, "allOf": [NEXT, NEXT]}`), "takes more than 262144 steps"},
	"dynamic references":                {dynamic(30), "takes more than 262144 steps"},
	"all of one another":                {entangled(12), "refers to itself for one and the same value, without an end"},
	"a chain of references":             {doubling(1500, `NEXT`), "takes more than 262144 steps"},
	"many types for many keys":          {`{"allOf": [` + strings.Repeat(`{"additionalProperties": {"$ref": "#/definitions/big"}}, `, 900) + `{}], "definitions": {"big": {"allOf": [` + strings.Repeat(`{"type": "string"}, `, 900) + `{}]}}}`, "takes more than 262144 steps"},
	"a pattern of a million parts":      {`{"properties": {"K": {"pattern": "^(` + strings.Repeat("a?", 1000) + `){999}$"}}}`, "its patterns have more than 200000 instructions"},
	"thousands of patterns":             {`{"patternProperties": {` + numbered(3000, `"(%dabcdefghi){900}": {}, `) + `"x": {}}}`, "its patterns have more than 200000 instructions"},
	"patterns on a long text":           {`{"properties": {"L": {"items": {"allOf": [` + strings.Repeat(`{"pattern": "(x+x+){50}y"}, `, 500) + `{}]}}}}`, "takes more than 262144 steps"},
	"many subschemas":                   {`{"allOf": [` + strings.Repeat(`{}, `, 5000) + `{}]}`, "more than 4000 subschemas"},
	"subschemas with long paths":        {strings.Repeat(`{"not": `, 2000) + "{}" + strings.Repeat("}", 2000), "it nests too deep for its size"},
	"a number of a million digits":      {`{"properties": {"K": {"minimum": 1e999999}}}`, "the number 1e999999 is out of range"},
	"many choices for many values":      {`{"properties": {"L": {"items": {"allOf": [` + strings.Repeat(`{"$ref": "#/definitions/e"}, `, 100) + `{}]}}}, "definitions": {"e": {"enum": [` + numbered(5000, `"%d", `) + `"x"]}}}`, "takes more than 262144 steps"},
	"recursion that branches each time": {`{"properties": {"D": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"allOf": [{"items": {"$ref": "#/definitions/n"}}, {"items": {"$ref": "#/definitions/n"}}]}}}`, "takes more than 262144 steps"},
}

// dynamic is doubling with dynamic references, each of which there are two of.
func dynamic(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d": {"$dynamicAnchor": "a%d", "allOf": [{"$dynamicRef": "#a%d"}, {"$dynamicRef": "#a%d"}]}, `, i, i, i+1, i+1)
	}
	return fmt.Sprintf(`{"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/d0", "$defs": {%s"d%d": {"$dynamicAnchor": "a%d"}}}`, b.String(), n, n)
}

// entangled is a schema of n definitions that each refer to all.
func entangled(n int) string {
	all := strings.TrimSuffix(numbered(n, `{"$ref": "#/definitions/d%d"}, `), ", ")
	return `{"$ref": "#/definitions/d0", "definitions": {` + strings.ReplaceAll(numbered(n, `"d%d": {"anyOf": [ALL]}, `), "ALL", all) + `"x": {}}}`
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// withSchema is an app team's file with one target and a schema for its configuration.
func withSchema(name string, schemas ...string) string {
	file := "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: " + name + "}\nspec:\n  configSchemas:\n"
	for _, s := range schemas {
		file += "    - |\n      " + s + "\n"
	}
	return file + "  deploymentTargets:\n    - name: t1\n      environment: dev\n---\n"
}

// someValues is configuration of all kinds: a text, an array of long texts and one of arrays of arrays.
var someValues = configMapYAML("c", "  K: x\n  L: |\n    ["+strings.Repeat(strings.Repeat("x", 100)+", ", 100)+"x]\n  D: |\n    "+strings.Repeat("[", 40)+strings.Repeat("]", 40))

func TestHostileSchemasFailTheirAssignmentAlone(t *testing.T) {
	for name, c := range hostileSchemas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := render(t, basics+someValues, withSchema("hostile", c.schema)+withSchema("honest", `{"required": ["K"]}`))
			require.Len(t, result.ClusterTypes, 1)
			edge := result.ClusterTypes[0]
			require.Len(t, edge.Assignments, 1)
			require.Equal(t, "honest-t1", edge.Assignments[0].Name)
			require.Len(t, edge.Failures, 1)
			require.Equal(t, "hostile-t1", edge.Failures[0].Name)
			require.Equal(t, SchemaViolated, edge.Failures[0].Reason)
			require.Contains(t, edge.Failures[0].Err.Error(), `a schema of workload "hostile"`)
			require.Contains(t, edge.Failures[0].Err.Error(), c.says)
			require.Contains(t, []string{finding.CodeSchema, finding.CodeSchemaCost}, finding.In(edge.Failures[0].Err)[0].Code)
		})
	}
}

// A schema of a ConfigSchema is bounded as one of a workload is.
func TestAConfigSchemaIsBoundedToo(t *testing.T) {
	platform := basics + someValues + "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s}\nspec:\n  schema: |\n    " +
		hostileSchemas["two references, thirty deep"].schema + "\n---\n"
	require.Contains(t, failure(t, render(t, platform, oneTarget)), `ConfigSchema "s" takes more than 262144 steps`)
}

func TestSchemasOfAWorkloadShareTheirSteps(t *testing.T) {
	one := doubling(10, `{"allOf": [NEXT, NEXT]}`)
	some := []string{one}
	for i := range 12 {
		some = append(some, strings.Replace(one, "1000", fmt.Sprint(1001+i), 1))
	}
	only(t, render(t, basics+someValues, withSchema("app", some[:4]...)))
	require.Contains(t, failure(t, render(t, basics+someValues, withSchema("app", some...))), "takes more than 262144 steps")
}

func TestTargetsOfARegistrationShareTheirSteps(t *testing.T) {
	for targets, want := range map[int]int{1: 1 << 18, 256: 1 << 18, 257: 1 << 17, 512: 1 << 17, 513: 1 << 16, 36_000: 1 << 10} {
		require.Equal(t, want, schemaLimit(targets), "%d targets", targets)
	}
	var many strings.Builder
	for i := range 600 {
		many.WriteString(withSchema(fmt.Sprintf("app%d", i), doubling(12, `{"allOf": [NEXT, NEXT]}`)))
	}
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", basics+someValues))
	require.NoError(t, load(m, "reg", "app.yaml", many.String()))
	result, err := m.Render(t.Context(), Options{})
	require.NoError(t, err)
	require.Len(t, result.ClusterTypes[0].Failures, 600)
	require.ErrorContains(t, result.ClusterTypes[0].Failures[0].Err, "takes more than 65536 steps")
}

func TestSchemasOfARegistrationAreBoundedTogether(t *testing.T) {
	var files string
	for i := range 3 {
		files += withSchema(fmt.Sprintf("app%d", i), `{"title": "`+strings.Repeat(fmt.Sprint(i), 400_000)+`"}`)
	}
	result := render(t, basics, files)
	require.Len(t, result.ClusterTypes[0].Failures, 3)
	require.ErrorContains(t, result.ClusterTypes[0].Failures[0].Err, "which are larger than 1048576 bytes together")
}

// honestSchemas are much larger or deeper than those of real platforms.
var honestSchemas = map[string]string{
	"a tree":                     `{"properties": {"D": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "array", "items": {"$ref": "#/definitions/n"}}}}`,
	"a tree of the whole schema": `{"type": ["object", "array", "string"], "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}`,
	"a tree by a dynamic anchor": `{"$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicAnchor": "n", "type": ["object", "array", "string"], "items": {"$dynamicRef": "#n"}, "additionalProperties": {"$dynamicRef": "#n"}}`,
	"a tree by a recursive one":  `{"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "type": ["object", "array", "string"], "items": {"$recursiveRef": "#"}, "additionalProperties": {"$recursiveRef": "#"}}`,
	"a thousand properties":      `{"properties": {` + numbered(1000, `"P%d": {"type": "string", "maxLength": 9}, `) + `"K": {"type": "string"}}, "required": ["K"], "additionalProperties": {"type": ["array", "object"]}}`,
	"fifty alternatives":         `{"properties": {"L": {"items": {"anyOf": [` + numbered(50, `{"const": "c%d"}, `) + `{"pattern": "^[a-z0-9]([-a-z0-9]{0,99}[a-z0-9])?$"}]}}}}`,
	"a thousand choices":         `{"properties": {"K": {"enum": [` + numbered(1000, `"c%d", `) + `"x"]}, "L": {"uniqueItems": false, "maxItems": 200}}}`,
	"the same definition often":  `{"allOf": [` + strings.Repeat(`{"$ref": "#/definitions/d"}, `, 50) + `{}], "definitions": {"d": {"properties": {"K": {"type": "string"}}, "required": ["K"]}}}`,
}

func TestSchemasOfRealWorkloadsPass(t *testing.T) {
	for name, schema := range honestSchemas {
		t.Run(name, func(t *testing.T) {
			only(t, render(t, basics+someValues, withSchema("app", schema)))
		})
	}
}

func TestSchemasSeeMergedValues(t *testing.T) {
	list := entry{key: "LIST", value: yamlvalue.Parse("[1, 2]"), text: "[1, 2]"}
	layers := []layer{{entries: []entry{{key: "PORT", value: "x"}}}, {entries: []entry{list}}, {entries: []entry{list}}}
	w := newWriter(layers)
	one, two := slices.Collect(compose(layers[:2], w).schemaValues), slices.Collect(compose(layers, w).schemaValues)
	require.Equal(t, []schema.Value{{Key: "LIST", Value: []any{1, 2}}, {Key: "PORT", Value: "x"}}, one)
	require.Equal(t, []schema.Value{{Key: "LIST", Value: []any{1, 2, 1, 2}}, {Key: "PORT", Value: "x"}}, two)
}
