package pack

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/scheduler"
)

// countingCache counts calls of Put.
type countingCache struct {
	*rendercache.Cache
	puts int
}

func (c *countingCache) Put(key string, data []byte) {
	if strings.HasPrefix(key, "bundle-") {
		c.puts++
	}
	c.Cache.Put(key, data)
}

func TestBundlesArePackedOnce(t *testing.T) {
	type content struct {
		assignments []scheduler.Assignment
		held        []Held
	}
	base := func() content {
		pod := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{image: example.com/x:1}]}\n")
		return content{
			[]scheduler.Assignment{{
				Name: "a", Policies: []string{"p"}, Config: []scheduler.ConfigSource{{Name: "c"}}, Manifests: map[string]string{"repo": "https://example.com/x"},
				Files: []scheduler.File{{Path: "namespace.yaml", Data: pod}, {Path: "reconciler.yaml"}},
			}},
			[]Held{{Line: bundle.Assignment{Name: "h"}, Files: []bundle.File{{Path: "x", Data: []byte("1")}}}},
		}
	}
	cache := &countingCache{Cache: openCache(t, t.TempDir(), 0)}
	check := func(c content) {
		t.Helper()
		tree, artifacts, err := Tree(c.assignments, c.held)
		require.NoError(t, err)
		for range 2 {
			got, err := NewPacker(cache, "dev").Once(c.assignments, c.held)
			require.NoError(t, err)
			require.Equal(t, tree, got.Tree)
			require.Equal(t, artifacts, got.Artifacts)
		}
	}
	for _, c := range []struct {
		name   string
		puts   int
		change func(*content)
	}{
		{"the first time", 1, func(*content) {}},
		{"again", 0, func(*content) {}},
		{"a ConfigMap that stands elsewhere", 0, func(c *content) { c.assignments[0].Config[0].Line = 7 }},
		{"a file", 1, func(c *content) { c.assignments[0].Files[1].Data = []byte("kind: X") }},
		{"a file that moves", 1, func(c *content) { c.assignments[0].Files[1].Path = "z" }},
		{"a source", 1, func(c *content) { c.assignments[0].Config[0].Name = "d" }},
		{"a pin", 1, func(c *content) {
			c.assignments[0].Pinned = []scheduler.Pinned{{Type: "image", Reference: "example.com/x:1", Digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}}
		}},
		{"manifests", 1, func(c *content) { c.assignments[0].Manifests["repo"] = "https://example.com/y" }},
		{"what is held", 1, func(c *content) { c.held[0].Files[0].Data = []byte("2") }},
		{"how it is held", 1, func(c *content) { c.held[0].Line.Version = "2" }},
		{"the mode of what is held", 1, func(c *content) { c.held[0].Files[0].Executable = true }},
		{"nothing held", 1, func(c *content) { c.held = nil }},
		{"nothing", 1, func(c *content) { *c = content{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache.puts = 0
			changed := base()
			c.change(&changed)
			check(changed)
			require.Equal(t, c.puts, cache.puts)
		})
	}
	cache.Cache.Put("bundle-"+packKey(base().assignments, base().held), []byte("no tree"))
	check(base())
}

// Every field of an assignment is in the key, as JSON has it.
func TestAllOfAnAssignmentIsPacked(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[scheduler.Assignment](), reflect.TypeFor[scheduler.Settings](), reflect.TypeFor[scheduler.Pinned](), reflect.TypeFor[scheduler.ContentSource]()} {
		for f := range typ.Fields() {
			require.True(t, f.IsExported() && f.Tag.Get("json") == "", f.Name)
		}
	}
}

func openCache(t *testing.T, dir string, maxBytes int64) *rendercache.Cache {
	t.Helper()
	c, err := rendercache.Open(dir, rendercache.Options{MaxBytes: maxBytes})
	require.NoError(t, err)
	return c
}
