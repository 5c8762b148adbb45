package manifests

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/json"
)

func TestParseReadsWhatStringWrites(t *testing.T) {
	for line, want := range map[string]HealthCondition{
		".status.phase == Running":                                         {Path: ".status.phase", Value: "Running"},
		"  {$.status.phase} == 'is running' ":                              {Path: "$.status.phase", Value: "is running"},
		`GitRepo: .status.conditions[?(@.type == "Ready")].status == True`: {Kind: "GitRepo", Path: `.status.conditions[?(@.type == "Ready")].status`, Value: "True"},
		`GitRepo/shop.web-1: .status.readyClusters == "1"`:                 {Kind: "GitRepo", Name: "shop.web-1", Path: ".status.readyClusters", Value: "1"},
		`.metadata.annotations.example\.com/a: b == c`:                     {Path: `.metadata.annotations.example\.com/a: b`, Value: "c"},
	} {
		got, err := ParseHealth(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
		again, err := ParseHealth(got.String())
		require.NoError(t, err, line)
		require.Equal(t, got, again, line)
	}
	for line, want := range map[string]string{
		"Running":               "is not a condition",
		".a == ":                "is not a condition",
		`.a == ""`:              "is not a condition",
		"{.a == b":              "is not a condition",
		"a == b":                "does not begin with a path",
		"gitrepo: .a == b":      "does not begin with a path",
		"GitRepo/: .a == b":     "does not begin with a path",
		"GitRepo/Shop: .a == b": "does not begin with a path",
		".a[ == b":              "JSONPath .a[: ",
		"{.a}{.b} == c":         "has more than one path",
		".a}{range .b[*] == c":  "has more than one path",
		".a}text{.b == c":       "has more than one path",
	} {
		_, err := ParseHealth(line)
		require.ErrorContains(t, err, want, line)
	}
}

const gitRepo = `{
	"metadata": {"generation": 3},
	"spec": {"paused": false},
	"status": {
		"observedGeneration": 3, "commit": "abc", "readyClusters": 1, "ratio": 0.5, "nothing": null, "summary": {"ready": 1},
		"conditions": [
			{"type": "Ready", "status": "True"},
			{"type": "Accepted", "status": "True", "observedGeneration": 2},
			{"type": "Stalled", "status": "False", "observedGeneration": 3}
		]
	}
}`

func TestCheckSaysWhatIsThereInstead(t *testing.T) {
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(gitRepo), &object))
	for line, want := range map[string]string{
		`.status.conditions[?(@.type=="Ready")].status == True`:    "",
		`.status.conditions[?(@.type=="Ready")].status == False`:   "True",
		`.status.conditions[?(@.type=="Stalled")].status == False`: "",
		`.status.conditions[?(@.type=="Accepted")].status == True`: "absent", // it is about generation 2
		`.status.conditions[*].status == True`:                     "False",
		`.status.conditions[*].type == Ready`:                      "Stalled",
		`.status.conditions[*].reason == Good`:                     "absent",
		`.status.readyClusters == 1`:                               "",
		`.status.readyClusters == 01`:                              "1",
		`.status.ratio == 0.5`:                                     "",
		`.spec.paused == false`:                                    "",
		`.status.nothing == null`:                                  "",
		`.status.summary == 1`:                                     "an object",
		`.status.conditions == True`:                               "a list",
		`.status.summary.waiting == 1`:                             "absent",
		`.nowhere.at.all == 1`:                                     "absent",
		`.status.conditions[7].status == True`:                     "array index out of bounds: index 7, length 2",
		`.status.commit[?(@.type=="Ready")] == True`:               "abc is not array or slice and cannot be filtered",
	} {
		t.Run(line, func(t *testing.T) {
			c, err := ParseHealth(line)
			require.NoError(t, err)
			for range 2 { // a path is not worn by its use
				found, ok := c.Check(object)
				require.Equal(t, want, found)
				require.Equal(t, want == "", ok)
			}
		})
	}
	require.Len(t, object["status"].(map[string]any)["conditions"], 3, "the object is left as it is")
	_, ok := HealthCondition{Path: ".status.phase", Value: "Running"}.Check(nil)
	require.False(t, ok)
}

func TestWhatIsQuotedIsShort(t *testing.T) {
	found, ok := HealthCondition{Path: ".a", Value: "b"}.Check(map[string]any{"a": strings.Repeat("ö", 500) + "\xff"})
	require.False(t, ok)
	require.True(t, utf8.ValidString(found))
	require.LessOrEqual(t, len(found), maxFound+len("…"))
}

// FuzzConditions looks for conditions that are accepted, and then cannot be used or do not read back.
func FuzzConditions(f *testing.F) {
	for _, line := range []string{
		".status.phase == Running", `GitRepo/shop: .status.conditions[?(@.type == "Ready")].status == True`, "..a[0:2:1] == 1", "$['a','b'].* == 'x'",
		".a[?(@.b<1)] == 2", ".a[-1:] == x", ".a range == b", ".a[?(@.b==@.c)] == d",
	} {
		f.Add(line, gitRepo)
	}
	f.Fuzz(func(t *testing.T, line, content string) {
		c, err := ParseHealth(line)
		if err != nil {
			return
		}
		again, err := ParseHealth(c.String())
		require.NoError(t, err)
		require.Equal(t, c, again)
		var object map[string]any
		if json.Unmarshal([]byte(content), &object) == nil {
			found, _ := c.Check(object)
			require.LessOrEqual(t, len(found), maxFound+len("…"))
		}
	})
}
