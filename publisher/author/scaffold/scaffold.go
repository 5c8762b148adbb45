// Package scaffold writes the first text of a platform and of each of its objects, with comments for the people who go on
// from there.
//
// Begin with [Init] for a platform in a folder, and with [New] for one object of it. Both return an [author.Plan], which has
// been checked and writes nothing until it is applied, and no plan replaces a file. An object goes where objects of its kind
// lie already.
package scaffold

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	"github.com/wherry-dev/wherry/bundle/yamltext"
	"github.com/wherry-dev/wherry/publisher/author"
)

//go:embed kinds templates
var texts embed.FS

// Pair is a key with its value.
type Pair struct{ Key, Value string }

// Pairs returns a map as a sorted list.
func Pairs(m map[string]string) []Pair {
	var all []Pair
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, Pair{key, m[key]})
	}
	return all
}

// object is what the texts of kinds can say. Each uses some of it.
type object struct {
	Name         string
	Environments []string

	Labels, TargetLabels, TypeLabels, Manifests, Data []Pair
	// Unset are manifests that templates read and nobody gave.
	Unset                     []string
	Rings, Required, Chain    []string
	ObjectKinds               []string
	Expression, Plan, Message string
	Warning                   bool

	Repo, Branch, Folder, Commit             string
	Reconciler, NamespaceService, ConfigType string
	Workspace                                string
	ClusterType, UID, Ring                   string
	Values                                   []Pair
	SiteKeys                                 []SiteKey
}

// SiteKey is a key of a declaration of site values.
type SiteKey struct {
	Key        string
	SiteMaySet bool
}

// write returns a text with the values of an object.
func write(name string, o object) ([]byte, error) {
	source, err := textOf(name)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(path.Base(name)).Delims("[[", "]]").Option("missingkey=error").Funcs(template.FuncMap{
		"q": func(s string) string { return yamltext.Scalar(s, 0, true) },
		"json": func(v any) (string, error) {
			data, err := json.Marshal(v)
			return string(data), err
		},
	}).Parse(string(source))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, o)
	return out.Bytes(), err
}

// namespaceService is the file name of the Template that platforms begin with, with an example that is tested on clusters.
const namespaceService = "templates/" + NamespaceServiceName + ".yaml"

func textOf(name string) ([]byte, error) {
	if name == namespaceService {
		const given, asked = "\n  name: " + NamespaceServiceName + "\n", "\n  name: [[ q .Name ]]\n"
		return bytes.Replace(NamespaceService, []byte(given), []byte(asked), 1), nil
	}
	return texts.ReadFile(name)
}

// Templates returns the names of the Templates that New and Init can write, sorted.
func Templates() []string {
	entries, _ := texts.ReadDir("templates")
	names := []string{NamespaceServiceName}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

func wrong(hint, format string, args ...any) error {
	return &author.Error{Err: fmt.Errorf(format, args...), Hint: hint}
}
