// Package kindschema has the JSON Schemas of all kinds of a platform, for editors and for other programs.
//
// Begin with [All], or [Find] for one kind. The schemas are draft 7, which editors support best. They are made of the
// structs of package kinds, with the structs' comments as descriptions, by
//
//	go generate ./scheduler/kindschema
//
// A schema refuses what decoding refuses (wrong types) or warns about (unknown fields), and wrong values where all values
// are known. It cannot see what lies between objects, such as a name that nobody has: that is what lint is for.
package kindschema

import (
	"embed"
	"io/fs"
	"path"
	"strings"

	"github.com/wherry-dev/wherry/bundle/show"
)

//go:generate go test . -run TestSchemasAreCurrent -update

//go:embed schemas/*.json
var files embed.FS

// Combined is the name of the schema for a folder with objects of all kinds. It finds the kind of each document by
// apiVersion and kind, and accepts objects that are not part of a platform.
const Combined = "all"

// Schema is one schema.
type Schema struct {
	// Name is the kind, such as ClusterType, or Combined, or wherry.yaml for the settings of commands.
	Name string `json:"name"`
	// File is the usual name of the schema's file, such as clustertype.json.
	File string `json:"file"`
	// Text is the schema, in JSON.
	Text []byte `json:"-"`
}

// All returns all schemas, sorted by file, with the combined one first.
func All() []Schema {
	entries, err := fs.ReadDir(files, "schemas")
	if err != nil {
		panic(err) // they are embedded
	}
	var all []Schema
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("schemas", e.Name()))
		if err != nil {
			panic(err)
		}
		all = append(all, Schema{Name: nameIn(text), File: e.Name(), Text: text})
	}
	return all
}

// nameIn returns the title of a schema.
func nameIn(text []byte) string {
	_, rest, _ := strings.Cut(string(text), "\n  \"title\": \"")
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// Find returns the schema of a kind. Case does not matter.
func Find(name string) (Schema, bool) {
	for _, s := range All() {
		if strings.EqualFold(s.Name, name) || strings.EqualFold(s.File, name) {
			return s, true
		}
	}
	return Schema{}, false
}

// Names returns the names of all schemas, in the order of [All].
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Near returns the name that is closest to a mistyped one, or "".
func Near(name string) string {
	lower := map[string]string{}
	var all []string
	for _, n := range Names() {
		lower[strings.ToLower(n)] = n
		all = append(all, strings.ToLower(n))
	}
	return lower[show.Nearest(strings.ToLower(name), all)]
}
