package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func TestRings(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: p}\nspec:\n  environments:\n    - " + spec + "\n"
	}
	platform := "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: coffee}\nspec: {rings: [first, last]}\n"
	for name, c := range map[string]struct {
		files []string
		want  []string
		err   string
	}{
		"none":            {files: []string{}},
		"of the platform": {files: []string{platform}, want: []string{"first", "last"}},
		"of the environment, in the order as named": {files: []string{platform, policy("{name: dev, rings: [wide, broad]}")}, want: []string{"wide", "broad"}},
		"of another environment":                    {files: []string{policy("{name: prod, rings: [a]}")}},
		"with a gate":                               {files: []string{policy("{name: dev, rings: [a], gate: {soak: 1h}}")}, want: []string{"a"}},
		"a ring twice":                              {files: []string{policy("{name: dev, rings: [a, b, a]}")}, err: `ring "a" is named twice`},
		"a ring that is not a tag":                  {files: []string{policy("{name: dev, rings: [a b]}")}, err: `a ring cannot be called "a b"`},
		"too long":                                  {files: []string{policy("{name: dev, rings: [" + strings.Repeat("a", 63) + ", " + strings.Repeat("b", 63) + ", " + strings.Repeat("c", 63) + ", " + strings.Repeat("d", 63) + "]}")}, err: "at most 256 are allowed"},
		"no environment":                            {files: []string{policy("{rings: [a]}")}, err: "has no name"},
		"twice":                                     {files: []string{policy("{name: dev, rings: [a]}\n    - {name: dev, rings: [b]}")}, err: `the rings of environment "dev" are named twice: first at a.yaml:6`},
	} {
		t.Run(name, func(t *testing.T) {
			m, src := NewModel("dev"), fstest.MapFS{}
			for i, f := range c.files {
				src[string(rune('a'+i))+".yaml"] = &fstest.MapFile{Data: []byte(f)}
			}
			err := m.Load(context.Background(), Source{FS: src})
			var result *Result
			if err == nil {
				result, err = m.Render(context.Background(), Options{})
			}
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, "E1018", finding.In(err)[0].Code)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, result.Rings)
		})
	}
}
