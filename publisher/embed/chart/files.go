package chart

import (
	"encoding/base64"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gobwas/glob"
	helm "helm.sh/helm/v3/pkg/chart"
)

// files is .Files: what the chart has beside its templates, with the methods that Helm gives it.
type files map[string][]byte

func newFiles(from []*helm.File) files {
	all := make(files, len(from))
	for _, f := range from {
		all[f.Name] = f.Data
	}
	return all
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
	return toYAML(all)
}

// Lines are the lines of a file.
func (f files) Lines(name string) []string {
	if len(f[name]) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(f[name]), "\n"), "\n")
}
