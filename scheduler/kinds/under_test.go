package kinds

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnderIsParsed(t *testing.T) {
	for text, want := range map[string]Under{
		"europe":                  {"group", "europe"},
		"europe/plant-7":          {"group", "europe/plant-7"},
		"region=europe/plant_7":   {"region", "europe/plant_7"},
		"example.com/site=a/b/C9": {"example.com/site", "a/b/C9"},
	} {
		got, err := ParseUnder(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, want.Key+" under "+want.Path, got.String())
	}
	for text, says := range map[string]string{
		"":                        "the path is empty",
		"group=":                  "the path is empty",
		"/":                       `"/" begins with a slash`,
		"/a":                      `"/a" begins with a slash`,
		"a/":                      `"a/" ends with a slash`,
		"a//b":                    `"a//b" has an empty name between two slashes`,
		"a/../b":                  `".." in "a/../b" is not a name`,
		"./a":                     `"." in "./a" is not a name`,
		"a b":                     `"a b" in "a b" is not a name`,
		"a/b ":                    `"b " in "a/b " is not a name`,
		"-x=a":                    `"-x" is not the name of a label`,
		"=a":                      `"" is not the name of a label`,
		"a=b=c":                   `"b=c" in "b=c" is not a name`,
		"ä/b":                     `"ä" in "ä/b" is not a name`,
		strings.Repeat("a", 64):   "is not a name",
		strings.Repeat("a/", 127): "the path has 254 characters, 253 are permitted",
	} {
		_, err := ParseUnder(text)
		require.ErrorContains(t, err, says, text)
	}
}

func TestUnderHoldsNameByName(t *testing.T) {
	at := Under{"group", "europe/plant-7"}
	for path, want := range map[string]bool{
		"europe/plant-7": true, "europe/plant-7/line-2": true, "europe/plant-7/line-2/cell": true,
		"europe": false, "europe/plant-70": false, "europe/plant": false, "asia/europe/plant-7": false, "": false,
	} {
		require.Equal(t, want, at.HoldsFor(map[string]string{"group": path}), path)
	}
	require.False(t, at.HoldsFor(map[string]string{"region": "europe/plant-7"}))
	require.False(t, at.HoldsFor(nil))
	require.True(t, Under{}.HoldsFor(nil))
}

func TestAncestors(t *testing.T) {
	require.Equal(t, []string{"a", "a/b", "a/b/c"}, slices.Collect(Ancestors("a/b/c")))
	require.Equal(t, []string{"a"}, slices.Collect(Ancestors("a")))
	for range Ancestors("a/b") {
		break
	}
}
