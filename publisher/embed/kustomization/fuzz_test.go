package kustomization_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
)

// alarm fails a test that reaches for the network, or for git.
type alarm struct {
	t      testing.TB
	marker string
}

func (a alarm) RoundTrip(request *http.Request) (*http.Response, error) {
	a.t.Errorf("kustomize asks %s", request.URL)
	return nil, errors.New("no network")
}

// withAlarm has the default transport, which kustomize uses, and the program git raise an alarm.
func withAlarm(t testing.TB) alarm {
	bin := t.TempDir()
	a := alarm{t, filepath.Join(bin, "called")}
	require.NoError(t, os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\n>"+a.marker+"\nexit 1\n"), 0o755))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	before := http.DefaultTransport
	http.DefaultTransport = a
	t.Cleanup(func() { http.DefaultTransport = before })
	return a
}

func (a alarm) check(t testing.TB) {
	require.NoFileExists(t, a.marker, "kustomize calls git")
}

// Whatever a kustomization says, it is built from the tree alone, or it is an error.
func FuzzBuild(f *testing.F) {
	cases, err := filepath.Glob("testdata/build/*.txtar")
	require.NoError(f, err)
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		require.NoError(f, err)
		for _, file := range archive.Files {
			if filepath.Dir(file.Name) == "app" && filepath.Ext(file.Name) == ".yaml" {
				f.Add(string(file.Data), object)
			}
		}
	}
	f.Add("transformers: [other.yaml]\nresources: [one.yaml]", "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: a}\nPATH: http://example.com/p\n")
	f.Add("generators: [other.yaml]", "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles: ['https://example.com/x']\n")
	f.Add("resources: ['git::https://example.com/a/b', github.com/a/b, 'file:///etc']", "a: b")
	f.Add("components: [../base]\nopenapi: {path: 'https://example.com/'}", "a: b")
	a := withAlarm(f)
	f.Fuzz(func(t *testing.T, text, other string) {
		a.t = t
		source := tree(map[string]string{
			"app/kustomization.yaml": text, "app/other.yaml": other, "app/one.yaml": object, "base/kustomization.yaml": other, "base/deployment.yaml": object,
		})
		opts := kustomization.Options{Remote: func(string, string) (fs.FS, error) { return source, nil }}
		built, err := kustomization.Build(source, "app", opts)
		a.check(t)
		again, errAgain := kustomization.Build(source, "app", opts)
		require.Equal(t, err == nil, errAgain == nil)
		require.Equal(t, built, again)
	})
}
