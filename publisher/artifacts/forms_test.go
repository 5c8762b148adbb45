package artifacts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// forms are ways to write the image of a container that has only that one, in YAML. AT stands for what pinning adds.
var forms = map[string]struct{ container, want string }{
	"plain":                        {"image: nginx:1 # c", "image: nginx:1AT # c"},
	"in double quotes":             {`"image": "nginx:1"`, `"image": "nginx:1AT"`},
	"in single quotes":             {"'image': 'nginx:1'", "'image': 'nginx:1AT'"},
	"with escapes":                 {`"im\u0061ge": "n\x67inx:1"`, `"im\u0061ge": "nginx:1AT"`},
	"quotes over two lines":        {"image: \"ngi\\\n      nx:1\" # c", "image: \"nginx:1AT\" # c"},
	"on the next line":             {"image:\n      nginx:1", "image:\n      nginx:1AT"},
	"an anchor":                    {"image: &i nginx:1", "image: &i nginx:1AT"},
	"an anchor before quotes":      {"image: &i 'nginx:1'", "image: &i 'nginx:1AT'"},
	"an anchor on its own line":    {"image: &i # c\n      nginx:1", "image: &i # c\n      nginx:1AT"},
	"a tag":                        {"image: !!str nginx:1", "image: !!str nginx:1AT"},
	"a tag in full, and an anchor": {"image: !<tag:yaml.org,2002:str> &i \"nginx:1\"", "image: !<tag:yaml.org,2002:str> &i \"nginx:1AT\""},
	"folded":                       {"image: >-\n      nginx:1\n    name: c", "image: \"nginx:1AT\"\n    name: c"},
	"literal, with an anchor":      {"image: &i |-\n      nginx:1\n\n    name: c", "image: &i \"nginx:1AT\"\n\n    name: c"},
	"folded, with all about it":    {"image: &i >2- # c\n      nginx:1\n    # d", "image: &i \"nginx:1AT\" # c\n    # d"},
	"folded with CRLF":             {"image: >-\r\n      nginx:1\r\n    name: c\r", "image: \"nginx:1AT\"\r\n    name: c\r"},
	"a key with a mark":            {"? image\n    : nginx:1", "? image\n    : nginx:1AT"},
	"in flow style":                {"{image: &i nginx:1, name: c}", "{image: &i nginx:1AT, name: c}"},
	"behind a line of Unicode":     {"name: \"a\u2028b\" # \u0085\n    image: nginx:1", "name: \"a\u2028b\" # \u0085\n    image: nginx:1AT"},
	"behind characters of Unicode": {"{name: \"\u00e9\U0001F680\", image: nginx:1}", "{name: \"\u00e9\U0001F680\", image: nginx:1AT}"},
	"an alias of another field":    {"name: &n nginx\n    image: *n", "name: &n nginx\n    image: \"nginxAT\""},
	"an alias in flow style":       {"{name: &n nginx, image: *n }", "{name: &n nginx, image: \"nginxAT\" }"},
	"merged":                       {"<<: {image: nginx:1, name: c}", "<<: {image: nginx:1AT, name: c}"},
	"merged from several":          {"<<: [{name: c}, {image: nginx:1}, {image: 'no such image'}]", "<<: [{name: c}, {image: nginx:1AT}, {image: 'no such image'}]"},
	"merged and overridden":        {"<<: {image: 'no image'}\n    image: nginx:1", "<<: {image: 'no image'}\n    image: nginx:1AT"},
	"two that are one":             {"image: &i nginx:1\n  - image: *i", "image: &i nginx:1AT\n  - image: \"nginx:1AT\""},
	"a container that is an alias": {"&c {image: nginx:1}\n  - *c", "&c {image: nginx:1AT}\n  - *c"},
}

func TestPinFindsImagesInAnyFormOfYAML(t *testing.T) {
	t.Parallel()
	const head, at = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - ", "@" + someDigest
	for name, form := range forms {
		for mark, where := range map[string]string{"": "", "\ufeff": " behind a byte order mark"} {
			a := rendered(mark + head + form.container + "\n")
			require.NoError(t, pinAll(&a), name+where)
			want := mark + head + strings.ReplaceAll(form.want, "AT", at) + "\n"
			require.Equal(t, want, string(a.Files[1].Data), name+where)
			for _, artifact := range Of([]scheduler.Assignment{a}) {
				require.Equal(t, someDigest, artifact.Digest, name+where)
			}
			require.NotEmpty(t, a.Pinned, name+where)

			files := []scheduler.File{{Path: "pod.yaml", Data: []byte(mark + head + form.container + "\n")}}
			places, _, missed := ImagePlaces(files)
			require.Empty(t, missed, name+where)
			found := map[sources.Source]*sources.Resolution{}
			for _, p := range places {
				found[p.Source] = &sources.Resolution{Revision: someDigest}
			}
			files, _ = WriteDigests(files, places, found)
			require.Equal(t, want, string(files[0].Data), name+where)
			require.NoError(t, yaml.Unmarshal(files[0].Data, new(any)), name+where)
		}
	}
}

func TestPinNamesTheImagesThatItCannotPin(t *testing.T) {
	t.Parallel()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - "
	for name, c := range map[string]struct{ file, want string }{
		"a variable":          {pod + "image: ${IMAGE}\n", `pod.yaml:6: Pod "p": image "${IMAGE}": `},
		"a line break":        {pod + "image: |\n      nginx\n", `pod.yaml:6: Pod "p": image "nginx\n": `},
		"another tag":         {pod + "image: !mine nginx\n", `pod.yaml:6: Pod "p": the reference to docker.io/library/nginx:latest is not written in a way that can be replaced in place`},
		"a custom resource":   {"apiVersion: example.com/v1\nkind: App\nmetadata: {name: a}\nspec: {image: nginx}\n", `pod.yaml:4: App "a": image "nginx" cannot be told from another text`},
		"one with a variable": {"apiVersion: example.com/v1\nkind: App\nmetadata: {name: a}\nspec: {image: '${X}/nginx:1'}\n", `pod.yaml:4: App "a": image "${X}/nginx:1" cannot be told from another text`},
	} {
		_, _, missed := ImagePlaces([]scheduler.File{{Path: "pod.yaml", Data: []byte(c.file)}})
		require.Len(t, missed, 1, name)
		require.Contains(t, missed[0], c.want, name)
	}
}

func TestAnchorsInACircleEnd(t *testing.T) {
	t.Parallel()
	file := "apiVersion: v1\nkind: Pod\nspec: &s\n  a: *s\n  <<: [*s, &m {<<: *m, b: *s}]\n  containers: &c [*c, {image: nginx:1, <<: *s}]\nx0: &x0 {a: *s}\n"
	for i := range 40 { // 2^40 uses
		file += fmt.Sprintf("x%d: &x%d {a: *x%d, b: *x%d, <<: [*x%d, *x%d]}\n", i+1, i+1, i, i, i, i)
	}
	places, _, missed := ImagePlaces([]scheduler.File{{Path: "pod.yaml", Data: []byte(file)}})
	require.Empty(t, missed)
	require.Equal(t, places[:1], slices.Compact(places))
}
