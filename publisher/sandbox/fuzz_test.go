package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/publisher/embed/chart/render"
)

// fuzzed is a sandbox for inputs without end.
func fuzzed(f *testing.F) *Sandbox {
	s := New(Options{Command: child.Self(Name), Memory: 128 << 20, CPU: time.Second})
	f.Cleanup(s.Close)
	return s
}

// Whatever an archive holds, reading and rendering it ends within the bounds.
func FuzzRead(f *testing.F) {
	for _, files := range []map[string]string{
		{"app/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "app/templates/a.yaml": "a: {{ .Values.a }}", "app/values.yaml": "a: 1"},
		{"app/Chart.yaml": "name: web\nversion: 1\ndependencies: [{name: a, alias: b, version: 1, import-values: [x]}]", "app/charts/a/Chart.yaml": "name: a\nversion: 1.0.0"},
	} {
		c, err := render.ReadFolder(tree(files), "app")
		require.NoError(f, err)
		data, err := c.Pack()
		require.NoError(f, err)
		f.Add(data)
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = s.Chart(t.Context(), "team", Source{}, chart.Job{Archive: data, Render: true, Options: chart.Options{ReleaseName: "a", MaxBytes: 1 << 20}})
	})
}

// Whatever a template says, it renders to the same, or to an error.
func FuzzRender(f *testing.F) {
	cases, err := filepath.Glob("../embed/chart/render/testdata/charts/*.txtar")
	require.NoError(f, err)
	require.NotEmpty(f, cases)
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
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, template, values string) {
		from := Source{Files: tree(map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "app/values.yaml": values, "app/templates/a.yaml": template})}
		job := rendered
		job.Options.KubeVersion, job.Options.MaxBytes = "1.31", 1<<20
		result, err := s.Chart(t.Context(), "team", from, job)
		again, errAgain := s.Chart(t.Context(), "team", from, job)
		if errors.Is(err, ErrUnfinished) || errors.Is(errAgain, ErrUnfinished) {
			return
		}
		require.Equal(t, err == nil, errAgain == nil)
		require.Equal(t, result, again)
	})
}

func FuzzReceive(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, newConn(nil, &b).send(message{Ready: []string{"a"}, blobs: [][]byte{[]byte("b"), nil}}))
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := newConn(bytes.NewReader(data), nil).receive()
		if err != nil {
			return
		}
		var out bytes.Buffer
		require.NoError(t, newConn(nil, &out).send(m))
		again, err := newConn(&out, nil).receive()
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
