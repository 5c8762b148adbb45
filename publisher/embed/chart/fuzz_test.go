package chart

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// Whatever an archive holds, reading and rendering it ends within the bounds.
func FuzzRead(f *testing.F) {
	f.Add(archiveOf(f, [2]string{"web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.2.3\n"}, [2]string{"web/templates/a.yaml", "a: {{ .Values.a }}"}, [2]string{"web/values.yaml", "a: 1"}))
	f.Add(archiveOf(f, [2]string{"web/../Chart.yaml", ""}, [2]string{"web/x -> /etc", ""}))
	f.Add(archiveOf(f, [2]string{"web/Chart.yaml", "name: web\nversion: 1\ndependencies: [{name: a, alias: b, version: 1, import-values: [x]}]"}, [2]string{"web/charts/a/Chart.yaml", "name: a\nversion: 1.0.0"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(bytes.NewReader(data))
		if err == nil {
			_, _ = c.Render(Options{ReleaseName: "a", MaxBytes: 1 << 20})
		}
	})
}

// Whatever a template says, it renders to the same within the bounds, or to an error.
func FuzzRender(f *testing.F) {
	cases, err := filepath.Glob("testdata/charts/*.txtar")
	require.NoError(f, err)
	for _, name := range cases {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		for _, file := range txtar.Parse(data).Files {
			if filepath.Dir(file.Name) == "templates" {
				f.Add(string(file.Data), "a: {b: c}")
			}
		}
	}
	f.Add(`{{ define "a" }}{{ include "a" . }}{{ end }}{{ tpl .Values.a . }}{{ lookup "v1" "Pod" "" "" }}{{ now }}{{ range 9 }}{{ uuidv4 }}{{ end }}`, "a: '{{ genCA `x` 1 }}'")
	f.Fuzz(func(t *testing.T, template, values string) {
		source := fstest.MapFS{
			"Chart.yaml": {Data: []byte("apiVersion: v2\nname: web\nversion: 1.2.3\n")}, "values.yaml": {Data: []byte(values)}, "templates/a.yaml": {Data: []byte(template)},
		}
		c, err := ReadFolder(source, ".")
		if err != nil {
			return
		}
		opts := Options{ReleaseName: "a", KubeVersion: "1.31", MaxBytes: 1 << 20}
		result, err := c.Render(opts)
		again, errAgain := c.Render(opts)
		if errors.Is(err, ErrTooSlow) || errors.Is(errAgain, ErrTooSlow) {
			return
		}
		require.Equal(t, err == nil, errAgain == nil)
		require.Equal(t, result, again)
	})
}
