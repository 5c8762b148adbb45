package kindschema

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler/kinds"
)

var update = flag.Bool("update", false, "write the schemas anew")

func TestSchemasAreCurrent(t *testing.T) {
	want := generate(t)
	if *update {
		require.NoError(t, os.RemoveAll("schemas"))
		require.NoError(t, os.Mkdir("schemas", 0o755))
		for name, text := range want {
			require.NoError(t, os.WriteFile(filepath.Join("schemas", name), text, 0o644))
		}
		return
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), embedded(t), "run go generate ./scheduler/kindschema")
	for name, text := range want {
		got, err := files.ReadFile("schemas/" + name)
		require.NoError(t, err)
		require.Equal(t, string(text), string(got), "%s is stale: run go generate ./scheduler/kindschema", name)
	}
}

func embedded(t *testing.T) []string {
	entries, err := fs.ReadDir(files, "schemas")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// object is a JSON object.
type object = map[string]any

const draft = "http://json-schema.org/draft-07/schema#"

// generate makes all schemas, by file.
func generate(t *testing.T) map[string][]byte {
	g := generator{t: t, types: parseKinds(t)}
	made := map[string][]byte{}
	definitions, choices := object{}, []any{}
	for _, apiVersion := range []string{kinds.KalypsoAPI, kinds.WherryAPI, kinds.CoreAPI} {
		var names []string
		for _, kind := range append(kinds.Names(), "ConfigMap") {
			if kinds.New(apiVersion, kind) != nil {
				names = append(names, kind)
			}
		}
		for _, kind := range names {
			schema := g.kind(apiVersion, kind)
			definitions[kind] = maps.Clone(schema)
			schema["$schema"] = draft
			made[strings.ToLower(kind)+".json"] = print(t, schema)
			choices = append(choices, object{
				"if":   object{"type": "object", "required": []string{"apiVersion", "kind"}, "properties": object{"apiVersion": object{"const": apiVersion}, "kind": object{"const": kind}}},
				"then": object{"$ref": "#/definitions/" + kind},
			})
		}
		if group, _, ours := strings.Cut(apiVersion, "/"); ours {
			choices = append(choices, object{ // decoding warns about the rest of our groups
				"if":   object{"type": "object", "required": []string{"apiVersion"}, "properties": object{"apiVersion": object{"pattern": "^" + regexp.QuoteMeta(group) + "/"}}},
				"then": object{"properties": object{"apiVersion": object{"const": apiVersion}, "kind": object{"enum": names}}},
			})
		}
	}
	settings := g.object(reflect.TypeFor[kinds.Settings](), g.types["Settings"])
	settings["$schema"], settings["title"] = draft, kinds.SettingsFile
	made["wherry.json"] = print(t, settings)
	made[Combined+".json"] = print(t, object{
		"$schema": draft, "title": Combined, "type": []string{"object", "null"},
		"description": "Any object of a platform: its apiVersion and kind decide. Other objects are accepted.",
		"properties": object{
			"apiVersion": object{"description": g.comment("Header", "APIVersion"), "type": "string", "examples": []string{kinds.KalypsoAPI, kinds.WherryAPI, kinds.CoreAPI}},
			"kind":       object{"description": g.comment("Header", "Kind"), "type": "string", "examples": append(kinds.Names(), "ConfigMap")},
		},
		"allOf": choices, "definitions": definitions,
	})
	return made
}

func print(t *testing.T, schema object) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(schema))
	return out.Bytes()
}

// generator makes schemas of the structs of package kinds.
type generator struct {
	t     *testing.T
	types map[string]*declared
}

// declared is the declaration of a struct.
type declared struct {
	doc    string
	fields map[string]*field // by their names in Go
}

type field struct {
	doc   string
	inner *declared // of a struct without a name, also in a list
}

// parseKinds reads the source of package kinds.
func parseKinds(t *testing.T) map[string]*declared {
	paths, err := filepath.Glob("../kinds/*.go")
	require.NoError(t, err)
	types := map[string]*declared{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.TypeSpec)
				if st, ok := spec.Type.(*ast.StructType); ok {
					types[spec.Name.Name] = declaration(textOf(g.Doc, spec.Doc), st)
				}
			}
		}
	}
	return types
}

func declaration(doc string, st *ast.StructType) *declared {
	d := &declared{doc: doc, fields: map[string]*field{}}
	for _, f := range st.Fields.List {
		made := &field{doc: textOf(f.Doc, f.Comment)}
		inner := f.Type
		if list, ok := inner.(*ast.ArrayType); ok {
			inner = list.Elt
		}
		if st, ok := inner.(*ast.StructType); ok {
			made.inner = declaration("", st)
		}
		for _, name := range f.Names {
			d.fields[name.Name] = made
		}
	}
	return d
}

// textOf returns the first comment that says something, as one line.
func textOf(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

func (g *generator) comment(typeName, fieldName string) string {
	return g.types[typeName].fields[fieldName].doc
}

// kind makes the schema of a kind.
func (g *generator) kind(apiVersion, kind string) object {
	typ := reflect.TypeOf(kinds.New(apiVersion, kind)).Elem()
	schema := g.object(typ, g.types[typ.Name()])
	schema["title"], schema["type"] = kind, "object"
	properties := schema["properties"].(object)
	properties["apiVersion"].(object)["const"] = apiVersion
	properties["kind"].(object)["const"] = kind
	g.annotations(kind, properties["metadata"].(object)["properties"].(object)["annotations"].(object))
	if kind == "ConfigMap" {
		labels := properties["metadata"].(object)["properties"].(object)["labels"].(object)
		labels["properties"] = object{kinds.PlatformConfig: object{
			"type": []string{"string", "null"}, "default": "true",
			"description": `"true", in quotes, makes the ConfigMap a part of the platform's configuration.`,
		}}
	}
	return schema
}

// object makes the schema of a struct. Objects may be null, as all else that decoding takes.
func (g *generator) object(typ reflect.Type, d *declared) object {
	require.NotNil(g.t, d, "no declaration of %s", typ)
	properties, required := object{}, []string{}
	g.fields(typ, d, properties, &required)
	schema := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if d.doc != "" {
		schema["description"] = d.doc
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

func (g *generator) fields(typ reflect.Type, d *declared, properties object, required *[]string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		switch {
		case inline:
			g.fields(f.Type, g.types[f.Type.Name()], properties, required)
		case name != "":
			declared := d.fields[f.Name]
			schema := g.value(f.Type, declared)
			if declared.doc != "" {
				schema["description"] = forUsers(declared.doc, f.Name, name)
			}
			require.True(g.t, schema["description"] != nil || name == "spec" || f.Type.Name() == "ignored" || f.Type.Name() == "localOnly",
				"%s.%s has no comment: users read it in their editors", typ, f.Name)
			if g.apply(f.Tag.Get("schema"), schema) {
				*required = append(*required, name)
			}
			properties[name] = schema
		}
	}
}

// forUsers returns a comment with the name of the key where it begins with that of the field.
func forUsers(doc, goName, key string) string {
	if rest, ok := strings.CutPrefix(doc, goName+" "); ok {
		return key + " " + rest
	}
	return doc
}

// value makes the schema of a field's type.
func (g *generator) value(typ reflect.Type, f *field) object {
	switch typ.Name() {
	case "ignored":
		return object{"doNotSuggest": true}
	case "localOnly":
		return object{"not": object{}, "doNotSuggest": true, "errorMessage": "not read from a Platform: write it into " + kinds.SettingsFile}
	case "Number":
		return object{"type": []string{"number", "null"}}
	case "Whole":
		return object{"type": []string{"integer", "null"}}
	case "Flag":
		return object{"type": []string{"boolean", "null"}}
	case "Text":
		return object{"type": []string{"string", "null"}}
	case "TextOrObject":
		return object{"type": []string{"string", "object", "null"}}
	case "PromotionContent":
		schema := g.object(typ, g.types[typ.Name()])
		schema["type"] = []string{"string", "object", "null"}
		schema["anyOf"] = []any{object{"type": []string{"object", "null"}}, object{"const": "any"}}
		return schema
	case "Scalar":
		return object{"type": []string{"string", "number", "boolean"}}
	}
	switch typ.Kind() {
	case reflect.String:
		return object{"type": []string{"string", "null"}}
	case reflect.Bool:
		return object{"type": []string{"boolean", "null"}}
	case reflect.Int64:
		return object{"type": []string{"integer", "null"}}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": g.value(typ.Elem(), nil)}
	case reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": g.value(typ.Elem(), f)}
	case reflect.Struct:
		if typ.Name() == "" {
			return g.object(typ, f.inner)
		}
		return g.object(typ, g.types[typ.Name()])
	}
	require.Fail(g.t, "no schema for this type", "%s", typ)
	return nil
}

// apply adds what the tag of a field says, and reports whether the field is required.
func (g *generator) apply(tag string, schema object) (required bool) {
	for tag != "" {
		var part string
		if strings.HasPrefix(tag, "pattern=") { // it may hold commas, and is the last part
			part, tag = tag, ""
		} else {
			part, tag, _ = strings.Cut(tag, ",")
		}
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "required":
			required = true
			if types, ok := schema["type"].([]string); ok {
				schema["type"] = types[0]
			}
		case "enum":
			values := []any{}
			for v := range strings.SplitSeq(value, "|") {
				values = append(values, v)
			}
			if _, nullable := schema["type"].([]string); nullable {
				values = append(values, nil)
			}
			schema["enum"] = values
		case "minimum", "maximum":
			number, err := strconv.Atoi(value)
			require.NoError(g.t, err)
			schema[key] = number
		case "examples":
			schema["examples"] = strings.Split(value, "|")
		case "pattern":
			schema["pattern"] = value
		default:
			require.Fail(g.t, "unknown part of a tag", "%q", part)
		}
	}
	return required
}

// annotations adds the annotations of a kind that are known.
func (g *generator) annotations(kind string, schema object) {
	names, checked := kinds.AnnotationsOf(kind)
	if !checked {
		return
	}
	properties, patterns := object{}, object{}
	for _, name := range names {
		known, ok := kinds.KnownAnnotations[name]
		require.True(g.t, ok, "kinds.KnownAnnotations lacks %q", name)
		one := object{"type": []string{"string", "null"}, "description": known.Text}
		switch {
		case len(known.Values) > 0:
			one["type"], one["enum"] = "string", known.Values
		case known.Pattern != "":
			one["pattern"] = known.Pattern
		}
		properties[kinds.AnnotationPrefix+name] = one
		if kind == "Workload" {
			forTarget := maps.Clone(one)
			forTarget["description"] = "For one deployment target. " + known.Text
			patterns[fmt.Sprintf("^.+\\.%s%s$", regexp.QuoteMeta(kinds.AnnotationPrefix), name)] = forTarget
		}
	}
	ours := regexp.QuoteMeta(kinds.AnnotationPrefix)
	before := "^"
	if kind == "Workload" {
		schema["patternProperties"] = patterns
		before = "^(.+\\.)?"
	}
	schema["properties"] = properties
	schema["propertyNames"] = object{"anyOf": []any{
		object{"not": object{"pattern": "^(.*\\.)?" + ours}},
		object{"pattern": before + ours + "(" + strings.Join(names, "|") + ")$"},
	}}
}

// FuzzWithModeline: a file gets one modeline and loses nothing.
func FuzzWithModeline(f *testing.F) {
	f.Add("kind: a\n")
	f.Add("\uFEFF# x\r\n---\r\nkind: a")
	f.Add("# yaml-language-server: $schema=old.json\n")
	f.Fuzz(func(t *testing.T, text string) {
		once := WithModeline([]byte(text), "a/all.json")
		require.Equal(t, string(once), string(WithModeline(once, "a/all.json")))
		require.Equal(t, len(WithModeline([]byte(text), "b/all.json")), len(once))
	})
}
