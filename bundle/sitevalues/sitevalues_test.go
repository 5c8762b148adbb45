package sitevalues_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// declared returns a checked document with the given properties, in the form of the tree.
func declared(t testing.TB, properties string, required ...string) *sitevalues.Document {
	t.Helper()
	list, err := json.Marshal(required)
	require.NoError(t, err)
	d, err := sitevalues.ParseDocument(fmt.Appendf(nil, `{"type":"object","additionalProperties":false,"title":"factory","properties":%s,"required":%s}`, properties, list))
	require.NoError(t, err)
	return d
}

var plant7 = sitevalues.Facts{
	Name: "plant-7", UID: "7d0c", Type: "factory", Environment: "prod", Ring: "broad", Labels: map[string]string{"topology.kubernetes.io/zone": "north"},
}

func TestResolve(t *testing.T) {
	const properties = `{
		"dns":             {"type": "string", "format": "hostname", "siteMaySet": true, "default": "{{ .cluster.name }}.example.com"},
		"longhorn":        {"type": "string", "default": "longhorn.{{ .values.dns }}"},
		"backup":          {"type": "string", "default": "s3://{{ .values.longhorn }}/{{ .cluster.labels.topology.kubernetes.io/zone | upper }}"},
		"gateway.address": {"type": "string", "format": "ipv4"},
		"port":            {"type": "integer", "minimum": 1, "maximum": 65535, "default": 8443, "siteMaySet": true},
		"ratio":           {"type": "number", "default": 0.5, "siteMaySet": true},
		"metrics":         {"type": "boolean", "default": false, "siteMaySet": true},
		"line":            {"type": "string", "enum": ["a", "b"], "siteMaySet": true},
		"zone":            {"type": "string", "default": "{{ .cluster.labels.missing | default \"none\" }}"},
		"gate":            {"type": "string", "default": "gate {{ .values.gateway.address }}"}
	}`
	for _, c := range []struct {
		name     string
		row      *sitevalues.Row
		site     map[string]any
		want     map[string]string // source and text
		problems []string
	}{
		{
			name: "the defaults, composed of facts and of each other",
			want: map[string]string{
				"dns": "default plant-7.example.com", "longhorn": "default longhorn.plant-7.example.com", "backup": "default s3://longhorn.plant-7.example.com/NORTH",
				"port": "default 8443", "ratio": "default 0.5", "metrics": "default false", "zone": "default none",
			},
			problems: []string{
				"gate: it refers to gateway.address, which has no value", "gateway.address: it has no value: the platform has not set it for this cluster",
				"line: it has no value: neither the platform nor the site has set it",
			},
		},
		{
			name: "the site's value before the platform's before the default",
			row:  &sitevalues.Row{Values: map[string]any{"dns": "p.example.com", "gateway.address": "10.0.0.1", "port": json.Number("1000"), "line": "a"}},
			site: map[string]any{"dns": "s.example.com", "port": "2000", "ratio": 2.50, "metrics": true},
			want: map[string]string{
				"dns": "site s.example.com", "longhorn": "default longhorn.s.example.com", "backup": "default s3://longhorn.s.example.com/NORTH",
				"gateway.address": "platform 10.0.0.1", "gate": "default gate 10.0.0.1", "port": "site 2000", "ratio": "site 2.5", "metrics": "site true", "line": "platform a", "zone": "default none",
			},
		},
		{
			name: "a value that is not valid does not give way to the next source",
			row:  &sitevalues.Row{Values: map[string]any{"port": json.Number("70000"), "line": "c", "gateway.adress": "10.0.0.1"}},
			site: map[string]any{"gateway.address": "10.0.0.2", "dns": 1.10, "ratio": nil},
			want: map[string]string{"metrics": "default false", "zone": "default none"},
			problems: []string{
				"backup: it refers to longhorn, which has no valid value", "dns: it must be a string, not a number: write it in quotes", "gate: it refers to gateway.address, which has no valid value",
				"gateway.address: the site may not set it", `gateway.adress: the cluster type declares no such key: did you mean "gateway.address"?`,
				"line: it is not one of the values that are listed in enum", "longhorn: it refers to dns, which has no valid value", "port: it is above the maximum 65535", "ratio: it has no value",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			values, problems := sitevalues.Resolve(declared(t, properties), c.row, c.site, plant7)
			got := map[string]string{}
			for key, v := range values {
				if !sitevalues.IsFact(key) {
					got[key] = string(v.Source) + " " + v.Text
				}
			}
			var said []string
			for _, p := range problems {
				said = append(said, p.String())
			}
			require.Equal(t, c.want, got)
			require.Equal(t, c.problems, said)
		})
	}
}

func TestFactsAreThereWithoutADocument(t *testing.T) {
	values, problems := sitevalues.Resolve(nil, &sitevalues.Row{Name: "plant-7", Ring: "canary", Labels: map[string]string{"line": "a"}}, nil, plant7)
	require.Empty(t, problems)
	keys := slices.Sorted(maps.Keys(values))
	require.Equal(t, map[string]string{
		"cluster.environment": "prod", "cluster.labels.line": "a", "cluster.labels.topology.kubernetes.io/zone": "north",
		"cluster.name": "plant-7", "cluster.ring": "canary", "cluster.type": "factory", "cluster.uid": "7d0c",
	}, values.Texts(keys))
	require.Equal(t, []sitevalues.Problem{
		{Key: "cluster.labels.x", Kind: sitevalues.Missing, Message: "the cluster has no such label"},
		{Key: "dns", Kind: sitevalues.Unknown, Message: "the cluster type declares no such key"},
	}, sitevalues.ProblemsOf([]string{"dns", "cluster.name", "cluster.labels.x"}, values, problems))
}

func TestASitesTextIsNeverEvaluated(t *testing.T) {
	d := declared(t, `{"a": {"type": "string", "siteMaySet": true}, "b": {"type": "string", "default": "<{{ .values.a }}>"}, "c": {"type": "string", "default": "{{ .values.b }}"}}`)
	for _, text := range []string{"{{ .cluster.name }}", "{{ .values.b }}", "{{", "{{ nothing }}", "${site.b}", "$${site.b}"} {
		values, problems := sitevalues.Resolve(d, nil, map[string]any{"a": text}, plant7)
		require.Empty(t, problems)
		require.Equal(t, map[string]string{"a": text, "b": "<" + text + ">", "c": "<" + text + ">"}, values.Texts([]string{"a", "b", "c"}))
		require.Equal(t, text, sitevalues.Expand("${site.a}", values.Texts([]string{"a", "b"})))
	}
}

func TestDocumentsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, properties, want string }{
		{"no keys", `{}`, "properties: there must be 1 to 128 keys, and there are 0"},
		{"a key with a capital", `{"Dns":{"type":"string"}}`, "Dns: a key has small letters, digits, '.', '_' and '-', and begins with a letter or digit"},
		{"a key of a fact", `{"cluster.name":{"type":"string"}}`, "cluster.name: keys that begin with cluster are those of the cluster's own facts"},
		{"two keys that are one variable", `{"a.b":{"type":"string"},"a-b":{"type":"string"}}`, `a.b: as a variable it would be called a_b, as "a-b"`},
		{"no type", `{"a":{}}`, `a: type: unknown type ""`},
		{"a pattern of a number", `{"a":{"type":"number","pattern":"1"}}`, "a: pattern: a number cannot have it"},
		{"a pattern that does not compile", `{"a":{"type":"string","pattern":"("}}`, "a: pattern: expected a Go regular expression of at most 512 characters"},
		{"an unknown format", `{"a":{"type":"string","format":"color"}}`, `a: format: unknown format "color"`},
		{"minimum above maximum", `{"a":{"type":"integer","minimum":2,"maximum":1}}`, "a: minimum: it is larger than maximum"},
		{"a default that is not valid", `{"a":{"type":"integer","maximum":1,"default":2}}`, "a: default: it is above the maximum 1"},
		{"a default of another type", `{"a":{"type":"string","default":2}}`, "a: default: it must be a string, not a number: write it in quotes"},
		{"an enum with a value twice", `{"a":{"type":"string","enum":["x","x"]}}`, "a: enum: a value is listed twice"},
		{"a default that refers to an unknown key", `{"dns":{"type":"string","default":"{{ .values.dn }}"}}`, `dns: default: "dn" is not one of the keys`},
		{"a cycle", `{"a":{"type":"string","default":"{{ .values.b }}"},"b":{"type":"string","default":"{{ .values.a }}"}}`, "a: default: it refers to itself: a → b → a"},
		{"three levels", `{"a":{"type":"string","default":"{{ .values.b }}"},"b":{"type":"string","default":"{{ .values.c }}"},"c":{"type":"string","default":"{{ .values.d }}"},"d":{"type":"string","default":"x"}}`, "a: default: it is composed of values that are composed themselves, more than 2 levels deep"},
		{"a template that calls a function", `{"a":{"type":"string","default":"{{ env \"HOME\" }}"}}`, "a: default: unsupported template"},
		{"a template with an unknown fact", `{"a":{"type":"string","default":"{{ .cluster.nmae }}"}}`, "a: default: it refers to .cluster.nmae"},
		{"an open template", `{"a":{"type":"string","default":"{{ .cluster.name"}}`, "a: default: unsupported template"},
		{"a keyword of a later version", `{"a":{"type":"string","const":"x"}}`, "it needs a newer version of wherry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := sitevalues.ParseDocument([]byte(`{"type":"object","additionalProperties":false,"title":"factory","properties":` + c.properties + `}`))
			var refusal *bundle.Refusal
			require.ErrorAs(t, err, &refusal)
			require.Contains(t, refusal.Message, c.want)
		})
	}
}

func TestADocumentIsMarshalledAsItIsParsed(t *testing.T) {
	d := declared(t, `{"b":{"type":"number","enum":[1,2.50,1e30],"default":1.0},"a":{"type":"integer","default":3.0,"minimum":0}}`, "b", "a")
	data, err := d.Marshal()
	require.NoError(t, err)
	again, err := sitevalues.ParseDocument(data)
	require.NoError(t, err)
	require.Equal(t, d, again)
	require.Equal(t, `{
  "type": "object",
  "additionalProperties": false,
  "title": "factory",
  "properties": {
    "a": {
      "type": "integer",
      "minimum": 0,
      "default": 3
    },
    "b": {
      "type": "number",
      "enum": [
        1,
        2.5,
        1e+30
      ],
      "default": 1
    }
  },
  "required": [
    "a",
    "b"
  ]
}
`, string(data))
}

func TestRowsAreSortedAndBounded(t *testing.T) {
	rows := []sitevalues.Row{
		{UID: "b", Name: "two", Values: map[string]any{"port": json.Number("9007199254740993"), "dns": "<x>"}},
		{UID: "a", Name: "one", Labels: map[string]string{"line": "a"}, HeldFrom: &bundle.Held{Sequence: 3, Reason: "SiteValueInvalid"}},
	}
	data, err := sitevalues.MarshalRows(rows)
	require.NoError(t, err)
	require.Equal(t, `{"uid":"a","name":"one","labels":{"line":"a"},"heldFrom":{"sequence":3,"reason":"SiteValueInvalid"}}
{"uid":"b","name":"two","values":{"dns":"<x>","port":9007199254740993}}
`, string(data))
	parsed, err := sitevalues.ParseRows(data)
	require.NoError(t, err)
	require.Equal(t, []sitevalues.Row{rows[1], rows[0]}, parsed)
	row, err := sitevalues.RowOf(data, "b")
	require.NoError(t, err)
	require.Equal(t, &rows[0], row)
	row, err = sitevalues.RowOf(data, "c")
	require.NoError(t, err)
	require.Nil(t, row)

	_, err = sitevalues.MarshalRows([]sitevalues.Row{{UID: "a", Name: "one"}, {UID: "a", Name: "two"}})
	require.EqualError(t, err, "clusters one and two have the same uid")
	_, err = sitevalues.MarshalRows([]sitevalues.Row{{UID: "a", Values: map[string]any{"x": strings.Repeat("y", sitevalues.MaxRowsBytes)}}})
	require.True(t, errors.Is(err, bundle.ErrTooLarge), err)
	for _, bad := range []string{`{"uid":""}`, "{\"uid\":\"a\"}\n{\"uid\":\"a\"}", `{"uid":"a","values":"secret-text"}`, `x`} {
		_, err := sitevalues.ParseRows([]byte(bad))
		var refusal *bundle.Refusal
		require.ErrorAs(t, err, &refusal)
		require.NotContains(t, err.Error(), "secret-text")
	}
}

func TestExpand(t *testing.T) {
	texts := map[string]string{"dns": "a.example.com", "gateway.address": "${site.dns}", "cluster.labels.topology.kubernetes.io/zone": "north"}
	require.Equal(t, "https://a.example.com/ ${site.dns} ${site.dns} north ${site.other} ${dns} $",
		sitevalues.Expand("https://${site.dns}/ $${site.dns} ${site.gateway.address} ${site.cluster.labels.topology.kubernetes.io/zone} ${site.other} ${dns} $", texts))
	require.Equal(t, []string{"dns", "other"}, sitevalues.References("${site.other} ${site.dns} $${site.no} ${site.dns} ${site} ${site.-}"))
}

func TestDigestIsOfKeysAndValues(t *testing.T) {
	require.Empty(t, sitevalues.Digest(nil))
	require.NotEqual(t, sitevalues.Digest(map[string]string{"a": "b"}), sitevalues.Digest(map[string]string{"a": "c"}))
	require.NotEqual(t, sitevalues.Digest(map[string]string{"a": "b"}), sitevalues.Digest(map[string]string{"b": "b"}))
	require.Equal(t, sitevalues.Digest(map[string]string{"a": "b", "c": "d"}), sitevalues.Digest(map[string]string{"c": "d", "a": "b"}))
}

func TestVariable(t *testing.T) {
	for key, want := range map[string]string{"dns": "dns", "gateway.address": "gateway_address", "3d-printer": "_3d_printer", "cluster.labels.example.com/Line": "cluster_labels_example_com_Line"} {
		require.Equal(t, want, sitevalues.Variable(key))
	}
}

// Whatever refers to what, the result is the same however often it is computed, and every key has a value or a problem.
func TestResolveIsAFunctionOfItsInput(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var keys []string
		for i := range 2 + random.IntN(7) {
			keys = append(keys, fmt.Sprintf("k%d", i))
		}
		text := func() string {
			switch random.IntN(4) {
			case 0:
				return "plain"
			case 1:
				return "{{ .cluster.name }}"
			case 2:
				return "{{ .values." + keys[random.IntN(len(keys))] + " }}-{{ .values." + keys[random.IntN(len(keys))] + " }}"
			default:
				return "{{ .values." + keys[random.IntN(len(keys))] + ` | default "d" | upper }}`
			}
		}
		d := &sitevalues.Document{Name: "x", Properties: map[string]sitevalues.Property{}}
		row, site := &sitevalues.Row{Values: map[string]any{}}, map[string]any{}
		for _, key := range keys {
			p := sitevalues.Property{Type: sitevalues.String, SiteMaySet: random.IntN(2) == 0}
			if random.IntN(2) == 0 {
				p.Default = text()
			}
			if random.IntN(3) == 0 {
				row.Values[key] = text()
			}
			if random.IntN(4) == 0 {
				site[key] = text()
			}
			d.Properties[key] = p
		}
		values, problems := sitevalues.Resolve(d, row, site, plant7)
		for range 5 {
			v, p := sitevalues.Resolve(d, row, site, plant7)
			require.Equal(t, values, v)
			require.Equal(t, problems, p)
		}
		for _, key := range keys {
			v, has := values[key]
			failed := slices.ContainsFunc(problems, func(p sitevalues.Problem) bool { return p.Key == key })
			require.NotEqual(t, has, failed, key)
			if has && v.Source == sitevalues.FromSite {
				require.Equal(t, site[key], v.Text)
			}
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("{{ .cluster.name }}.example.com", "{{ .values.a | lower }}", "{{ .values.b }}", `{"a": {"type": "string"}}`)
	f.Add(`{{ "{{" }}`, `{{ .cluster.labels.x | default "\n" }}`, "$${site.a}", "")
	f.Fuzz(func(t *testing.T, a, b, site, document string) {
		if d, err := sitevalues.ParseDocument([]byte(document)); err == nil {
			data, err := d.Marshal()
			require.NoError(t, err)
			again, err := sitevalues.ParseDocument(data)
			require.NoError(t, err)
			require.Equal(t, d, again)
			sitevalues.Resolve(d, nil, map[string]any{"a": site}, plant7)
		}
		d := &sitevalues.Document{Name: "x", Properties: map[string]sitevalues.Property{
			"a": {Type: sitevalues.String, Default: a}, "b": {Type: sitevalues.String}, "c": {Type: sitevalues.String, SiteMaySet: true},
		}}
		values, _ := sitevalues.Resolve(d, &sitevalues.Row{Values: map[string]any{"b": b}}, map[string]any{"c": site}, plant7)
		for _, v := range values {
			require.LessOrEqual(t, len(v.Text), sitevalues.MaxValueBytes)
		}
		if c, ok := values["c"]; ok {
			require.Equal(t, site, c.Text)
			require.Equal(t, site, sitevalues.Expand("${site.c}", map[string]string{"c": c.Text, "a": "no", "b": "no"}))
		}
	})
}
