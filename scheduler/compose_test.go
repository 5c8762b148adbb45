package scheduler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/yamlvalue"
)

func TestParseValue(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		value any
	}{
		"a text":                              {"West US", "West US"},
		"a number stays a text":               {"007", "007"},
		"a float stays a text":                {"1.50", "1.50"},
		"a boolean stays a text":              {"true", "true"},
		"nothing stays nothing":               {"", ""},
		"null stays a text":                   {"null", "null"},
		"a date stays a text":                 {"2024-01-01", "2024-01-01"},
		"white space stays":                   {"  padded ", "  padded "},
		"lines stay":                          {"line1\nline2\n", "line1\nline2\n"},
		"single quotes come off":              {" '{a: 1}' ", "{a: 1}"},
		"all single quotes come off":          {"''a''", "a"},
		"one quote is both ends":              {"'", ""},
		"double quotes stay":                  {`"a"`, `"a"`},
		"a list":                              {"[a, 1]", []any{"a", 1}},
		"a map":                               {"a: {b: 1.5}", map[any]any{"a": map[any]any{"b": 1.5}}},
		"a colon makes a map, Kalypso's trap": {"Title: foo", map[any]any{"Title": "foo"}},
		"yes and no are booleans in a map":    {"y: 2\nno: on", map[any]any{true: 2, false: true}},
		"JSON":                                {`{"a": [1]}`, map[any]any{"a": []any{1}}},
		"only the first document counts":      {"a: 1\n---\nb: 2", map[any]any{"a": 1}},
		"broken YAML is a text":               {"a: [", "a: ["},
		"a template is a text":                {"{{ .Workload }}", "{{ .Workload }}"},
		"a URL is a text":                     {"mysql://west:8806/mysql2", "mysql://west:8806/mysql2"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.value, yamlvalue.Parse(c.text)) })
	}
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct{ earlier, later, merged string }{
		"the later text wins":                              {"a", "b", "b"},
		"the later type wins":                              {"[a]", "x: 1", "x: 1"},
		"maps merge deeply":                                {"{a: {x: 1, y: 1}, b: 1}", "{a: {y: 2}, c: 3}", "{a: {x: 1, y: 2}, b: 1, c: 3}"},
		"lists are appended, repeats and all":              {"[a, b]", "[b, c]", "[a, b, b, c]"},
		"maps in lists merge by name":                      {"[{name: p, v: 1}, {name: q, v: 2}]", "[{name: q, w: 5}, {name: r}]", "[{name: p, v: 1}, {name: q, v: 2, w: 5}, {name: r}]"},
		"maps without name merge into all such":            {"[{v: 1}, {v: 2}]", "[{w: 9}]", "[{v: 1, w: 9}, {v: 2, w: 9}]"},
		"a name that is a list is compared, not a panic":   {"[{name: [1], v: 1}]", "[{name: [1], w: 1}, {name: [2]}]", "[{name: [1, 1], v: 1, w: 1}, {name: [2]}]"},
		"texts beside maps stay":                           {"[a, {name: p}]", "[{name: p, v: 1}, a]", "[a, {name: p, v: 1}, a]"},
		"names of one later list merge with one another":   {"[]", "[{name: p, v: 1}, {name: p, w: 1}]", "[{name: p, v: 1, w: 1}]"},
		"lists within maps are appended":                   {"l: [1]", "l: [2]", "l: [1, 2]"},
		"a scalar in a map is replaced by a list and back": {"{a: 1, b: [1]}", "{a: [1], b: 1}", "{a: [1], b: 1}"},
	} {
		t.Run(name, func(t *testing.T) {
			earlier, later := yamlvalue.Parse(c.earlier), yamlvalue.Parse(c.later)
			kept := yamlvalue.Clone(later)
			require.Equal(t, yamlvalue.Parse(c.merged), yamlvalue.Merge(yamlvalue.Clone(earlier), yamlvalue.Clone(later)))
			require.Equal(t, kept, later)
		})
	}
}

func TestComposingChangesNoLayer(t *testing.T) {
	value := yamlvalue.Parse("[{name: p, l: [1]}]")
	layers := []layer{{entries: []entry{{key: "K", value: value}}}, {entries: []entry{{key: "K", value: value}}}}
	require.Equal(t, yamlvalue.Parse("[{name: p, l: [1, 1]}]"), composeAlone(layers).data()["K"])
	require.Equal(t, yamlvalue.Parse("[{name: p, l: [1]}]"), value)
}

// composed is the configuration of app-t1 on edge.
func composed(t *testing.T, configMaps string) Assignment {
	t.Helper()
	return only(t, render(t, basics+configMaps, oneTarget))
}

func labelled(name, labels, data string) string {
	return strings.Replace(configMapYAML(name, data), `"true"`, `"true"`+labels, 1)
}

func TestConfigurationKnowsWhereItComesFrom(t *testing.T) {
	a := composed(t, labelled("z", "", "  K: z")+labelled("a", "", "  K: a\n  L: a")+labelled("other", ", region: south", "  K: none"))
	require.Equal(t, "K: z\nL: a", content(a, "platform-config.yaml"))
	require.Equal(t, []ConfigSource{
		{"a", finding.Position{File: "platform.yaml", Line: 38}}, {"z", finding.Position{File: "platform.yaml", Line: 32}},
	}, a.Config)
	require.Equal(t, a.ConfigDigest, composed(t, labelled("x", "", "  L: a\n  K: z")).ConfigDigest, "the digest is of the content")
	require.NotEqual(t, a.ConfigDigest, composed(t, labelled("x", "", "  L: b\n  K: z")).ConfigDigest)
	require.Empty(t, composed(t, "").ConfigDigest)
}

func TestWhereAConfigMapApplies(t *testing.T) {
	for labels, applies := range map[string]bool{
		"":                            true,
		", region: north":             true,
		", region: south":             false,
		", purpose: x":                true,
		", purpose: x, region: north": true,
		", purpose: z, region: north": false,
		", type: application":         true,
		", workspace: team":           true,
		", cluster-type: edge":        true,
		", cluster-type: app":         false,
		", deployment-target: app-t1": true,
		", deployment-target: t1":     false,
		", workload: app":             true,
		", workload: edge":            false,
		", environment: dev":          false,
		", nolabel: ''":               true,
		", region: ''":                true, // the target has no such label
		", cluster-type: ''":          false,
		", nolabel: x":                false,
		", kustomize.toolkit.fluxcd.io/name: x, kustomize.toolkit.fluxcd.io/namespace: z": true,
	} {
		t.Run(labels, func(t *testing.T) {
			require.Equal(t, applies, strings.Contains(content(composed(t, labelled("c", labels, "  K: v")), "platform-config.yaml"), "K: v"))
		})
	}
}

func TestAzureAppConfig(t *testing.T) {
	const azure = `apiVersion: v1
kind: ConfigMap
metadata: {name: azure-app-config-1}
data:
  A: plain
  region.north.A: north
  region.south.A: south
  region.north.workload.app.A: longest
  workload.app.B: app
  odd.B2: short
  one.two.three.C: three is no label
  LIST: "[1]"
  workload.app.LIST: "[2]"
---
`
	a := composed(t, azure+configMapYAML("zzz", "  A: loses\n  KEPT: x"))
	require.Equal(t, "A: longest\nB: app\nB2: short\nKEPT: x\nLIST:\n    - 1\n    - 2", content(a, "platform-config.yaml"))
	require.Equal(t, []string{"zzz", "azure-app-config-1"}, []string{a.Config[0].Name, a.Config[1].Name})
	require.Len(t, a.Config, 2)
}

func TestBuiltInConfiguration(t *testing.T) {
	const data = "  B: 'say \"x\"'\n  A: |-\n    {\"x\": 1}\n  C: '{{ .Workload }}'\n  D: \"'[1]'\""
	for configType, file := range map[string][2]string{
		"":                        {"platform-config.yaml", "apiVersion: v1\ndata:\n  A: '{\"x\": 1}'\n  B: say \"x\"\n  C: app\n  D: '[1]'\n  L: |-\n    - 1\n    - 2\nkind: ConfigMap\nmetadata:\n  name: platform-config\n  namespace: dev-edge-app-t1\n"},
		", configType: configMap": {"platform-config.yaml", "apiVersion: v1\ndata:\n  A: '{\"x\": 1}'\n  B: say \"x\"\n  C: app\n  D: '[1]'\n  L: |-\n    - 1\n    - 2\nkind: ConfigMap\nmetadata:\n  name: platform-config\n  namespace: dev-edge-app-t1\n"},
		", configType: envFile":   {"platform-config.sh", "export A=\"{\"x\": 1}\"\nexport B=\"say \"x\"\"\nexport C=\"app\"\nexport D=\"[1]\"\nexport L=\"- 1\n- 2\"\n"},
	} {
		t.Run(configType, func(t *testing.T) {
			platform := strings.Replace(basics, ", configType: cfg", configType, 1)
			a := only(t, render(t, platform+configMapYAML("c", data+"\n  L: '[1]'")+configMapYAML("d", "  L: '[2]'"), oneTarget))
			require.Len(t, a.Files, 3)
			require.Equal(t, file[1], content(a, file[0]))
		})
	}
	t.Run("a Template of that name wins", func(t *testing.T) {
		platform := strings.Replace(basics, "configType: cfg", "configType: envFile", 1) + templateYAML("envFile", "mine")
		_, err := NewModel("dev"), load(NewModel("dev"), "", "platform.yaml", platform)
		require.ErrorContains(t, err, "cannot be called", "no Template can have it")
	})
	t.Run("a value that fails names itself", func(t *testing.T) {
		platform := strings.Replace(basics, ", configType: cfg", "", 1) + configMapYAML("c", "  A: '{{ .Nope }}'")
		require.Contains(t, failure(t, render(t, platform, oneTarget)), "configuration value A: value of A: platform.yaml:36: at <.Nope>: there is no field Nope")
	})
}

func TestSchemas(t *testing.T) {
	schema := func(labels, text string) string {
		return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ConfigSchema\nmetadata: {name: s, labels: {" + labels + "}}\nspec:\n  schema: |\n    " + text + "\n---\n"
	}
	for name, c := range map[string]struct{ schema, data, says string }{
		"a number":                                 {`{"properties": {"K": {"type": "integer", "minimum": 5}}}`, `  K: "80"`, ""},
		"a number that is too small":               {`{"properties": {"K": {"type": "integer", "minimum": 5}}}`, `  K: "4"`, `platform.yaml:36: configuration: K: minimum: got 4, want 5, says ConfigSchema "s" at platform.yaml:42`},
		"a text that is not a number":              {`{"properties": {"K": {"type": "integer"}}}`, `  K: "4x"`, `K: got string, want integer`},
		"a number for a text":                      {`{"properties": {"K": {"type": "string"}}}`, `  K: "80"`, ""},
		"a boolean":                                {`{"properties": {"K": {"type": "boolean"}}}`, `  K: "true"`, ""},
		"a text that is not a boolean":             {`{"properties": {"K": {"type": "boolean"}}}`, `  K: "yes"`, "K: got string, want boolean"},
		"infinity is not a number":                 {`{"properties": {"K": {"type": "number"}}}`, `  K: Infinity`, "K: got string, want number"},
		"null":                                     {`{"properties": {"K": {"type": "null"}}}`, `  K: "null"`, ""},
		"one of several types":                     {`{"properties": {"K": {"type": ["string", "integer"]}}}`, `  K: "5"`, ""},
		"one of several numbers":                   {`{"properties": {"K": {"enum": [80, 443]}}}`, `  K: "443"`, ""},
		"none of several numbers":                  {`{"properties": {"K": {"enum": [80, 443]}}}`, `  K: "8"`, "K: value must be one of 80, 443"},
		"one of several texts":                     {`{"properties": {"K": {"enum": ["1", "2"]}}}`, `  K: "1"`, ""},
		"a constant":                               {`{"properties": {"K": {"const": true}}}`, `  K: "true"`, ""},
		"a bound without a type":                   {`{"properties": {"K": {"maximum": 3}}}`, `  K: "4"`, "K: maximum: got 4, want 3"},
		"a type behind a reference":                {`{"properties": {"K": {"$ref": "#/definitions/port"}}, "definitions": {"port": {"type": "integer"}}}`, `  K: "80"`, ""},
		"a type by pattern":                        {`{"patternProperties": {"^K": {"type": "integer"}}}`, `  K: "80"`, ""},
		"a type for all the rest":                  {`{"additionalProperties": {"type": "integer"}}`, `  K: "80"`, ""},
		"a type within anyOf":                      {`{"anyOf": [{"properties": {"K": {"type": "integer"}}}, {"required": ["X"]}]}`, `  K: "80"`, ""},
		"the later of several types":               {`{"properties": {"K": {"oneOf": [{"type": "integer"}, {"type": "string", "pattern": "^a"}]}}}`, `  K: "80"`, ""},
		"a type in one of two cases":               {`{"oneOf": [{"properties": {"K": {"type": "integer"}}, "required": ["L"]}, {"properties": {"K": {"type": "string", "minLength": 3}}}]}`, "  K: \"80\"\n  L: x", ""},
		"none of several types":                    {`{"properties": {"K": {"oneOf": [{"type": "integer"}, {"type": "string", "pattern": "^a"}]}}}`, `  K: "b"`, "K: 'b' does not match pattern '^a'"},
		"no type and a number":                     {`{"properties": {"K": {"not": {"type": "string"}}}}`, `  K: "80"`, ""},
		"no type and no number":                    {`{"properties": {"K": {"not": {"type": "string"}}}}`, `  K: "x"`, "K: 'not' failed"},
		"a format in a later draft":                {`{"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"K": {"format": "ipv4"}}}`, `  K: x`, "K: 'x' is not valid ipv4"},
		"a key that is missing":                    {`{"required": ["PORT"]}`, `  K: x`, `platform.yaml:42: configuration: missing property 'PORT', says ConfigSchema "s"`},
		"a key too many":                           {`{"additionalProperties": false}`, `  K: x`, `platform.yaml:36: configuration: K: not allowed, says ConfigSchema "s" at platform.yaml:42`},
		"a value in a structure":                   {`{"properties": {"K": {"items": {"properties": {"p": {"type": "integer"}}}}}}`, `  K: "[{p: 1}, {p: x}]"`, `platform.yaml:36: configuration: K.1.p: got string, want integer`},
		"odd values in a structure":                {`{"properties": {"K": {"required": ["1", "true"]}}}`, `  K: "{1: .inf, yes: [.nan, 1.5, ~]}"`, ""},
		"everything that is wrong":                 {`{"required": ["A"], "properties": {"K": {"type": "integer"}}}`, `  K: x`, "missing property 'A'"},
		"draft 4 without saying so":                {`{"properties": {"K": {"type": "integer", "minimum": 5, "exclusiveMinimum": true}}}`, `  K: "5"`, "K: exclusiveMinimum: got 5, want 5"},
		"draft 6":                                  {`{"$schema": "http://json-schema.org/draft-06/schema#", "properties": {"K": {"exclusiveMinimum": 5}}}`, `  K: "5"`, "K: exclusiveMinimum: got 5, want 5"},
		"draft 2019-09":                            {`{"$schema": "https://json-schema.org/draft/2019-09/schema", "dependentRequired": {"K": ["L"]}}`, `  K: x`, "properties 'L' required, if 'K' exists"},
		"draft 2020-12":                            {`{"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"K": {"prefixItems": [{"type": "integer"}]}}}`, `  K: "[x]"`, "K.0: got string, want integer"},
		"no JSON":                                  {`{"type": `, `  K: x`, `platform.yaml:42: ConfigSchema "s" cannot be used: no JSON: `},
		"no schema":                                {`{"type": "numbr"}`, `  K: x`, `platform.yaml:42: ConfigSchema "s" cannot be used: `},
		"a reference to the network":               {`{"$ref": "http://127.0.0.1:1/s.json"}`, `  K: x`, `http://127.0.0.1:1/s.json is not part of the schema, and only references within it are followed`},
		"a reference to a file":                    {`{"$ref": "file:///etc/hostname"}`, `  K: x`, `file:///etc/hostname is not part of the schema`},
		"a reference to a neighbour":               {`{"$ref": "other.json"}`, `  K: x`, `is not part of the schema`},
		"a dialect from the network":               {`{"$schema": "http://example.com/mine"}`, `  K: x`, `http://example.com/mine is not part of the schema`},
		"a schema that refers to itself":           {`{"properties": {"K": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/definitions/a"}}]}}}`, `  K: "[1, [2]]"`, ""},
		"a schema that is nothing but itself":      {`{"$ref": "#"}`, `  K: x`, `ConfigSchema "s"`},
		"a number with a very large exponent":      {`{"properties": {"K": {"maximum": 1e99999999}}}`, `  K: "5"`, `ConfigSchema "s" cannot be used: the number 1e99999999 is out of range`},
		"a value with a very large exponent":       {`{"properties": {"K": {"type": "number"}}}`, `  K: "1e99999999"`, "K: got string, want number"},
		"a schema that applies elsewhere":          {"", `  K: x`, ""},
		"a schema that is not an object but true":  {`true`, `  K: x`, ""},
		"a schema that is not an object but false": {`false`, `  K: x`, "false schema"},
	} {
		t.Run(name, func(t *testing.T) {
			labels := "region: north"
			if c.schema == "" {
				labels, c.schema = "region: south", "{}}"
			}
			result := render(t, basics+configMapYAML("c", c.data)+schema(labels, c.schema), oneTarget)
			if c.says == "" {
				only(t, result)
			} else {
				require.Contains(t, failure(t, result), c.says)
			}
		})
	}
}

func TestAppTeamsSchemas(t *testing.T) {
	workload := strings.Replace(oneTarget, "spec:\n", "spec:\n  configSchemas: ['{\"required\": [\"A\"]}']\n", 1) + "      configSchemas: ['{\"required\": [\"B\"]}']\n"
	said := failure(t, render(t, basics+configMapYAML("c", "  C: x"), workload))
	require.Equal(t, `app.yaml:5: configuration: missing property 'A', says a schema of workload "app"
app.yaml:11: configuration: missing property 'B', says a schema of workload "app"`, said)
	only(t, render(t, basics+configMapYAML("c", "  A: x\n  B: x"), workload))
}
