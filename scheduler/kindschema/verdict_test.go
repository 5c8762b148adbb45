package kindschema

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// compiled returns the schemas, by name.
func compiled(t testing.TB) map[string]*jsonschema.Schema {
	all := map[string]*jsonschema.Schema{}
	for _, s := range All() {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(s.Text))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource("schema:///"+s.File, document))
		all[s.Name], err = c.Compile("schema:///" + s.File)
		require.NoError(t, err)
	}
	return all
}

// asJSON returns a document as an editor gives it to a schema, with the types that Kubernetes sees.
func asJSON(n *yaml.Node) any {
	switch n.Kind {
	case yaml.AliasNode:
		return asJSON(n.Alias)
	case yaml.MappingNode:
		all := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].ShortTag() == "!!merge" {
				merged, _ := asJSON(n.Content[i+1]).(map[string]any)
				for key, value := range merged {
					if _, own := all[key]; !own {
						all[key] = value
					}
				}
				continue
			}
			all[n.Content[i].Value] = asJSON(n.Content[i+1])
		}
		return all
	case yaml.SequenceNode:
		all := make([]any, len(n.Content))
		for i, item := range n.Content {
			all[i] = asJSON(item)
		}
		return all
	}
	switch kinds.ShortTag(n) {
	case "!!null":
		return nil
	case "!!bool":
		if n.ShortTag() != "!!bool" {
			return 0.5 // yes and on: no field takes them, neither for a text nor for a boolean
		}
		return true
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return i
		}
		return 0.5
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && f != math.Trunc(f) && !math.IsInf(f, 0) {
			return f
		}
		return 0.5 // a schema takes 1.0 for a whole number, which decoding does not
	default:
		return n.Value
	}
}

// documentsIn returns the documents of a file.
func documentsIn(t *testing.T, path string) []*yaml.Node {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var all []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return nil // not every file of the cases is YAML
		}
		if len(n.Content) == 1 {
			all = append(all, n.Content[0])
		}
	}
}

// decoded reports whether decoding accepts a document, and the object's kind; "" if it is not part of a platform.
func decoded(n *yaml.Node) (kind string, accepted bool) {
	into := kinds.New(kinds.StringField(n, "apiVersion"), kinds.StringField(n, "kind"))
	if into == nil {
		return "", true
	}
	d := kinds.Decode("f.yaml", n, into, false)
	return kinds.StringField(n, "kind"), len(d.Errs) == 0 && len(d.Findings) == 0
}

// TestSchemasAcceptWhatDecodingAccepts reads every object of the examples and of all cases.
func TestSchemasAcceptWhatDecodingAccepts(t *testing.T) {
	roots := []string{filepath.Join("..", "..", "examples")}
	if cases := os.Getenv("WHERRY_CASES"); cases != "" {
		roots = append(roots, filepath.Join(cases, "kalypso")) // those of bug reports are no platforms: a key given twice is nothing that a schema sees
	} else {
		t.Log("WHERRY_CASES is not set: the examples alone are read")
	}
	schemas := compiled(t)
	seen, refused := map[string]int{}, 0
	for _, root := range roots {
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			ext := filepath.Ext(path)
			if err != nil || e.IsDir() || ext != ".yaml" && ext != ".yml" || slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "expected") {
				return err
			}
			for _, n := range documentsIn(t, path) {
				name, accepted := decoded(n)
				violation := schemas[Combined].Validate(asJSON(n))
				if name == "" {
					continue
				}
				seen[name]++
				if !accepted {
					refused++
					require.Error(t, violation, "%s:%d: %s", path, n.Line, name)
					require.Error(t, schemas[name].Validate(asJSON(n)))
					continue
				}
				require.NoError(t, violation, "%s:%d", path, n.Line)
				require.NoError(t, schemas[name].Validate(asJSON(n)), "%s:%d", path, n.Line)
			}
			return nil
		}))
	}
	t.Logf("%v, of which decoding refuses or warns about %d", seen, refused)
	require.GreaterOrEqual(t, len(seen), 8)
}

// TestForeignObjectsAreAccepted by the schema for a folder, but not misspelt ones of ours.
func TestForeignObjectsAreAccepted(t *testing.T) {
	all := compiled(t)[Combined]
	for text, accepted := range map[string]bool{
		"apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 1}": true,
		"apiVersion: v1\nkind: Secret\ndata: {a: b}":                 true,
		"": true,
		"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterTyp":           false,
		"apiVersion: scheduler.kalypso.io/v1beta1\nkind: ClusterType":           false,
		"apiVersion: wherry.dev/v1alpha1\nkind: Workload\nmetadata: {name: a}":  false,
		"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: a}":  true,
		"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: A}":  false,
		"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {nam: a}":   false,
		"apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: ''}": false,
	} {
		var n yaml.Node
		require.NoError(t, yaml.Unmarshal([]byte(text), &n))
		var value any
		if len(n.Content) == 1 {
			value = asJSON(n.Content[0])
		}
		require.Equal(t, accepted, all.Validate(value) == nil, text)
	}
}

func TestAnnotations(t *testing.T) {
	schemas := compiled(t)
	for _, c := range []struct {
		kind, annotation string
		accepted         bool
	}{
		{"ClusterType", "wherry.dev/adapter: flux", true},
		{"ClusterType", "wherry.dev/adapter: fluxx", false},
		{"ClusterType", "wherry.dev/wave: '1'", false},
		{"ClusterType", "a.wherry.dev/adapter: flux", false},
		{"ClusterType", "example.com/a: b", true},
		{"Workload", "wherry.dev/wave: '1'", true},
		{"Workload", "wherry.dev/wave: 1", false},
		{"Workload", "wherry.dev/wave: one", false},
		{"Workload", "live.wherry.dev/wave: '-1'", true},
		{"Workload", "live.wherry.dev/wave: one", false},
		{"Workload", "live.wherry.dev/waves: '1'", false},
		{"Workload", "notwherry.dev/waves: '1'", true},
		{"Template", "wherry.dev/missing-keys: kalypso", true},
		{"Template", "wherry.dev/missing-keys: yes", false},
	} {
		var n yaml.Node
		text := "apiVersion: " + kinds.KalypsoAPI + "\nkind: " + c.kind + "\nmetadata:\n  name: a\n  annotations:\n    " + c.annotation
		require.NoError(t, yaml.Unmarshal([]byte(text), &n))
		require.Equal(t, c.accepted, schemas[c.kind].Validate(asJSON(n.Content[0])) == nil, "%s %s", c.kind, c.annotation)
	}
}

// TestSchemasJudgeAsDecodingDoes changes complete objects in a few places, and compares the verdicts.
func TestSchemasJudgeAsDecodingDoes(t *testing.T) {
	schemas := compiled(t)
	verdict := func(name string, n *yaml.Node) bool {
		if name == kinds.SettingsFile {
			_, err := kinds.DecodeSettings("f.yaml", n)
			return err == nil
		}
		_, accepted := decoded(n)
		return accepted
	}
	samples := map[string]*yaml.Node{}
	for name, schema := range schemas {
		if name == Combined {
			continue
		}
		samples[name] = sample(name)
		require.NoError(t, schema.Validate(asJSON(samples[name])), name)
		require.True(t, verdict(name, samples[name]), name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(samples))).Draw(t, "kind")
		n := clone(samples[name])
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			mutate(t, n)
		}
		accepted := verdict(name, n)
		text, _ := yaml.Marshal(n)
		for _, schema := range []string{name, Combined} {
			if schema == Combined && name == kinds.SettingsFile {
				continue // which has no kind
			}
			err := schemas[schema].Validate(asJSON(n))
			if !accepted {
				require.Error(t, err, "%s\n%s", schema, text)
			} else if err != nil {
				require.True(t, onlyStricter(err), "%s: %v\n%s", schema, err, text)
			}
		}
	})
}

// onlyStricter reports whether a schema refuses what decoding leaves to later checks alone: names, required fields, and
// fields with known values.
func onlyStricter(err error) bool {
	var violation *jsonschema.ValidationError
	if !errors.As(err, &violation) {
		return false
	}
	for _, cause := range violation.Causes {
		if !onlyStricter(cause) {
			return false
		}
	}
	switch k := violation.ErrorKind.(type) {
	case *kind.Type:
		scalar := slices.Equal(slices.Sorted(slices.Values(k.Want)), []string{"boolean", "number", "string"})
		return k.Got == "null" || scalar // of a required field, or of a Scalar, which later checks read
	case *kind.AdditionalProperties, *kind.FalseSchema:
		return false
	default:
		return true
	}
}

// sample returns an object with every field of a kind.
func sample(name string) *yaml.Node {
	if name == kinds.SettingsFile {
		n := &yaml.Node{Kind: yaml.MappingNode}
		fill(n, reflect.TypeFor[kinds.Settings]())
		return n
	}
	for _, api := range []string{kinds.KalypsoAPI, kinds.WherryAPI, kinds.CoreAPI} {
		if o := kinds.New(api, name); o != nil {
			n := &yaml.Node{Kind: yaml.MappingNode}
			fill(n, reflect.TypeOf(o).Elem())
			kinds.Field(n, "apiVersion").Value, kinds.Field(n, "kind").Value = api, name
			return n
		}
	}
	panic("no kind " + name)
}

func fill(n *yaml.Node, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		switch {
		case inline:
			fill(n, f.Type)
		case name != "" && f.Type.Name() != "localOnly":
			value := valueOf(f.Type)
			if _, list, found := strings.Cut(f.Tag.Get("schema"), "enum="); found {
				value.Value, _, _ = strings.Cut(list, "|")
			}
			n.Content = append(n.Content, text(name), value)
		}
	}
}

func valueOf(typ reflect.Type) *yaml.Node {
	switch {
	case typ.Name() == "Text" || typ.Name() == "Scalar" || typ.Name() == "TextOrObject" || typ.Name() == "ignored" || typ.Kind() == reflect.String:
		return text("a")
	case typ.Kind() == reflect.Bool || typ.Name() == "Flag":
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
	case typ.Kind() == reflect.Int64 || typ.Name() == "Whole" || typ.Name() == "Number":
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "7"}
	case typ.Kind() == reflect.Map:
		return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("k"), valueOf(typ.Elem())}}
	case typ.Kind() == reflect.Slice:
		return &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{valueOf(typ.Elem())}}
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	fill(n, typ)
	return n
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = nil
	for _, inner := range n.Content {
		c.Content = append(c.Content, clone(inner))
	}
	return &c
}

// mutate changes one value or key below the root, other than apiVersion and kind.
func mutate(t *rapid.T, root *yaml.Node) {
	var values, keys, mappings []*yaml.Node
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			mappings = append(mappings, n)
		}
		for i, inner := range n.Content {
			switch isKey := n.Kind == yaml.MappingNode && i%2 == 0; {
			case n == root && n.Content[i-i%2].Value == "apiVersion", n == root && n.Content[i-i%2].Value == "kind":
				continue
			case isKey:
				keys = append(keys, inner)
			default:
				values = append(values, inner)
			}
			walk(inner)
		}
	}
	walk(root)
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0:
		if len(keys) == 0 {
			return
		}
		key := rapid.SampledFrom(keys).Draw(t, "key")
		key.Value += "x"
	case 1:
		n := rapid.SampledFrom(mappings).Draw(t, "map")
		n.Content = append(n.Content, text("added"+strconv.Itoa(len(n.Content))), text("x")) // twice one key would be no news to an editor
	case 2:
		n := rapid.SampledFrom(mappings).Draw(t, "map")
		if len(n.Content) == 0 {
			return
		}
		if at := rapid.IntRange(0, len(n.Content)/2-1).Draw(t, "removed") * 2; n != root || n.Content[at].Value != "apiVersion" && n.Content[at].Value != "kind" {
			n.Content = slices.Delete(n.Content, at, at+2)
		}
	default:
		if len(values) == 0 {
			return
		}
		n := rapid.SampledFrom(values).Draw(t, "value")
		*n = *rapid.SampledFrom([]*yaml.Node{
			text("other"), text(""),
			{Kind: yaml.ScalarNode, Value: "yes"},
			{Kind: yaml.ScalarNode, Value: "true"},
			{Kind: yaml.ScalarNode, Value: "12"},
			{Kind: yaml.ScalarNode, Value: "1.5"},
			{Kind: yaml.ScalarNode, Value: "null"},
			{Kind: yaml.ScalarNode, Value: "2024-01-01"},
			{Kind: yaml.SequenceNode},
			{Kind: yaml.SequenceNode, Content: []*yaml.Node{text("a")}},
			{Kind: yaml.SequenceNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}},
			{Kind: yaml.MappingNode},
			{Kind: yaml.MappingNode, Content: []*yaml.Node{text("name"), text("a")}},
			{Kind: yaml.MappingNode, Content: []*yaml.Node{text("a"), {Kind: yaml.ScalarNode, Value: "1"}}},
		}).Draw(t, "new")
	}
}

// TestFindIgnoresCase, as people type.
func TestFindIgnoresCase(t *testing.T) {
	s, ok := Find("clusterType")
	require.True(t, ok)
	require.Equal(t, "clustertype.json", s.File)
	_, ok = Find("CLUSTERTYPE.json")
	require.True(t, ok)
	_, ok = Find("ClusterTyp")
	require.False(t, ok)
	require.Equal(t, "ClusterType", Near("clustertyp"))
	require.Equal(t, Combined, Names()[0])
}

func TestWithModeline(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"it becomes the first line", "kind: a\n", "# yaml-language-server: $schema=s.json\nkind: a\n"},
		{"an old one is replaced", "# ours\n# yaml-language-server: $schema=old.json\nkind: a\n", "# ours\n# yaml-language-server: $schema=s.json\nkind: a\n"},
		{"ends of lines stay", "kind: a\r\nb: c\r\n", "# yaml-language-server: $schema=s.json\r\nkind: a\r\nb: c\r\n"},
		{"a mark of Windows stays first", "\uFEFFkind: a\n", "\uFEFF# yaml-language-server: $schema=s.json\nkind: a\n"},
		{"a text that mentions one is no modeline", "a: |\n  # yaml-language-server: $schema=x\n", "# yaml-language-server: $schema=s.json\na: |\n  # yaml-language-server: $schema=x\n"},
		{"an empty file", "", "# yaml-language-server: $schema=s.json\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.after, string(WithModeline([]byte(c.before), "s.json")))
		})
	}
}
