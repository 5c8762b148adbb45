package kinds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// declaration reads a ConfigMap as the scheduler does.
func declaration(t testing.TB, text string) *kinds.ConfigMap {
	t.Helper()
	var n yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &n))
	cm := &kinds.ConfigMap{}
	require.Empty(t, kinds.Decode("factory.yaml", n.Content[0], cm, false).Errs)
	cm.At = finding.Position{File: "factory.yaml", Line: 1}
	return cm
}

const head = `apiVersion: v1
kind: ConfigMap
metadata: {name: factory, labels: {wherry.dev/site-values: "true"}}
data:
`

func TestParse(t *testing.T) {
	s, err := kinds.ParseSiteSchema(declaration(t, head+`  schema: |
    $schema: https://json-schema.org/draft/2020-12/schema
    type: object
    additionalProperties: false
    required: [dns]
    properties:
      dns:
        type: string
        format: hostname
        siteMaySet: true
        default: "{{ .cluster.name }}.example.com"
      port: &port {type: integer, minimum: 1, maximum: 65535, default: 8443}
      port2: *port
`))
	require.NoError(t, err)
	one, most := 1.0, 65535.0
	port := sitevalues.Property{Type: sitevalues.Integer, Minimum: &one, Maximum: &most, Default: int64(8443)}
	require.Equal(t, &sitevalues.Document{
		Name: "factory", Required: []string{"dns"}, Properties: map[string]sitevalues.Property{
			"dns":  {Type: sitevalues.String, Format: "hostname", SiteMaySet: true, Default: "{{ .cluster.name }}.example.com"},
			"port": port, "port2": port,
		},
	}, s.Document)
	require.Equal(t, "factory.yaml:11", s.Position("dns", "").String())
	require.Equal(t, "factory.yaml:15", s.Position("dns", "default").String())
	require.Equal(t, "factory.yaml:1", s.Position("no", "").String())

	s, err = kinds.ParseSiteSchema(declaration(t, head+`  schema: '{"properties": {"dns": {"type": "string"}}}'`))
	require.NoError(t, err)
	require.Equal(t, "factory.yaml:5", s.Position("dns", "type").String())
}

func TestMistakesHaveTheirLine(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"an unknown keyword", "  schema: |\n    properties:\n      dns:\n        type: string\n        maxLenght: 3\n", `factory.yaml:9: site values "factory": dns: maxLenght: the keyword is not supported (did you mean "maxLength"?)`},
		{"a $ref", "  schema: |\n    properties:\n      dns: {$ref: \"#/x\"}\n", `factory.yaml:7: site values "factory": dns: $ref: the keyword is not supported (known: `},
		{"a nested object", "  schema: |\n    properties:\n      db:\n        type: object\n        properties: {}\n", `factory.yaml:8: site values "factory": db: type: a site value cannot be an object (take it apart into keys such as db.host and db.port)`},
		{"a keyword at the top", "  schema: |\n    properties:\n      a: {type: string}\n    allOf: []\n", `factory.yaml:8: site values "factory": the keyword allOf is not supported here`},
		{"additional properties", "  schema: |\n    additionalProperties: true\n", `factory.yaml:6: site values "factory": additionalProperties can only be false`},
		{"a default beyond the maximum", "  schema: |\n    properties:\n      a:\n        type: integer\n        maximum: 3\n        default: 4\n", `factory.yaml:10: site values "factory": a: default: it is above the maximum 3`},
		{"a required key that is misspelt", "  schema: |\n    required: [dsn]\n    properties:\n      dns: {type: string}\n", `factory.yaml:6: site values "factory": required: "dsn" is not one of the keys (did you mean "dns"?)`},
		{"a cycle", "  schema: |\n    properties:\n      a: {type: string, default: \"{{ .values.a }}\"}\n", `factory.yaml:7: site values "factory": a: default: it refers to itself: a → a`},
		{"another key of the data", "  scheme: |\n    properties: {}\n", `factory.yaml:5: site values "factory": data.scheme is not read: the declaration is in data.schema (did you mean "schema"?)`},
		{"no YAML", "  schema: |\n    {\n", `factory.yaml:6: site values "factory": data.schema: `},
		{"nothing", "  schema: ''\n", `factory.yaml:5: site values "factory": data.schema: must not be empty`},
		{"two documents", "  schema: |\n    properties: {}\n    ---\n    {}\n", `there is more than one document`},
		{"a list for a key", "  schema: |\n    properties:\n      a: [string]\n", `factory.yaml:7: site values "factory": a must be a mapping, not a list`},
		{"a length that is not whole", "  schema: |\n    properties:\n      a: {type: string, minLength: 1.5}\n", `a: minLength must be a whole number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kinds.ParseSiteSchema(declaration(t, head+c.data))
			require.Error(t, err)
			var lines []string
			for _, f := range finding.In(err) {
				require.Equal(t, finding.CodeSiteSchema, f.Code)
				lines = append(lines, f.String())
			}
			require.Contains(t, strings.Join(lines, "\n"), c.want)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("properties:\n  dns: {type: string, default: \"{{ .cluster.name }}\"}\nrequired: [dns]\n")
	f.Add(`{"properties": {"a": {"type": "integer", "enum": [1, 2], "minimum": 0.5}}}`)
	f.Add("properties: {a: &a {type: string, default: *a}}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := kinds.ParseSiteSchema(&kinds.ConfigMap{Data: map[string]kinds.Text{"schema": {Value: text, Line: 1, First: 1}}})
		if err != nil {
			return
		}
		data, err := s.Document.Marshal()
		require.NoError(t, err)
		again, err := sitevalues.ParseDocument(data)
		require.NoError(t, err)
		require.Equal(t, s.Document, again)
	})
}
