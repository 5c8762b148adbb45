package render

import (
	"encoding/base64"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/gobwas/glob"
	"helm.sh/helm/v4/pkg/chart/common"
	helm "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"
)

// files is .Files, with the methods that Helm gives it. A chart gets it where two of its files have one name in different
// folders, of which Helm leaves it to chance which one wins.
type files map[string][]byte

// newFiles returns Helm's .Files, a map whose type has no name here, as ours.
func newFiles(from any) files {
	of := reflect.ValueOf(from)
	if to := reflect.TypeFor[files](); of.IsValid() && of.CanConvert(to) {
		return of.Convert(to).Interface().(files)
	}
	return files{}
}

// GetBytes returns a file's content, empty if there is no such file.
func (f files) GetBytes(name string) []byte {
	if data, ok := f[name]; ok {
		return data
	}
	return []byte{}
}

// Get returns a file's content as text.
func (f files) Get(name string) string { return string(f.GetBytes(name)) }

// Glob returns the files whose names match.
func (f files) Glob(pattern string) files {
	g, err := glob.Compile(pattern, '/')
	if err != nil || len(pattern) > 1000 {
		g = glob.MustCompile("**") // as Helm does
	}
	all := files{}
	for name, data := range f {
		if g.Match(name) {
			all[name] = data
		}
	}
	return all
}

// AsConfig is the data of a ConfigMap, as YAML. Of two files with one name in different folders, the later by path wins.
func (f files) AsConfig() string {
	return f.asYAML(func(data []byte) string { return string(data) })
}

// AsSecrets is the data of a Secret, as YAML.
func (f files) AsSecrets() string { return f.asYAML(base64.StdEncoding.EncodeToString) }

func (f files) asYAML(text func([]byte) string) string {
	if f == nil {
		return ""
	}
	all := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		all[path.Base(name)] = text(f[name])
	}
	data, err := yaml.Marshal(all)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

// Lines are the lines of a file.
func (f files) Lines(name string) []string {
	if len(f[name]) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(f[name]), "\n"), "\n")
}

// ambiguous reports whether two of the files have one name in different folders.
func ambiguous(all []*common.File) bool {
	seen := map[string]bool{}
	for _, f := range all {
		if seen[path.Base(f.Name)] {
			return true
		}
		seen[path.Base(f.Name)] = true
	}
	return false
}

// orderFiles gives the templates of the charts whose files are ambiguous our .Files, by a call before all else in them.
func orderFiles(c *helm.Chart, done map[*common.File]bool) {
	for _, t := range c.Templates {
		if ambiguous(c.Files) && !done[t] {
			done[t], t.Data = true, slices.Concat([]byte("{{"+filesFunction+" .}}"), t.Data)
		}
	}
	for _, below := range c.Dependencies() {
		orderFiles(below, done)
	}
}

// filesFunction is the function of that call.
const filesFunction = "wherryFiles"
