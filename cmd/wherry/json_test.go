package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// jsonScript runs commands with -o json. What follows the command "shown" is the title of a section and the command.
const jsonScript = `
shown() {
	title=$1; shift
	n=$((n + 1))
	echo "$title" >"$OUT/$n.title"
	"$@" -o json >"$OUT/$n.json" || test $? = 1
}
n=10
wherry init fleet --from empty --registry oci-layout:registry --keys
cd fleet
wherry new workload hello -e dev --manifest image=registry.example/hello:1.0
wherry new config greeting --label workload=hello --data GREETING=hello
shown lint wherry lint
shown schedule wherry schedule
shown plan wherry plan
shown publish wherry publish
shown verify wherry verify oci-layout:../registry/bundles/dev/edge
shown 'bundle ls' wherry bundle ls oci-layout:../registry
shown 'bundle inspect' wherry bundle inspect oci-layout:../registry/bundles/dev/edge
shown 'bundle files' wherry bundle files oci-layout:../registry/bundles/dev/edge
wherry edit config greeting --set data.GREETING=bye
wherry publish
shown diff wherry diff oci-layout:../registry/bundles/dev/edge:1 oci-layout:../registry/bundles/dev/edge:2
shown 'explain TYPE/TARGET' wherry explain edge/hello-dev
shown 'explain TYPE/TARGET KEY' wherry explain edge/hello-dev GREETING
shown 'explain CODE' wherry explain W1203
shown 'explain REASON' wherry explain NotOurs
shown 'config view' wherry config view
shown doctor wherry doctor
shown version wherry version
`

const jsonHead = `# JSON of commands

With ` + "`-o json`" + ` a command prints one object or list for programs, on standard output alone; ` + "`-o yaml`" + ` has the same fields. Fields are added, and never
renamed or removed. An empty field may be absent, and a field that you do not know may appear. Times are RFC 3339, digests ` + "`sha256:…`" + `. Decide by the
[exit code](../authoring.md#exit-codes), not by the text of a message.

The tables list the fields that the most used commands print for a small platform. ` + "`[]`" + ` is each item of a list, ` + "`*`" + ` each key of a map. The hub's answers are in its OpenAPI
document (` + "`/openapi.json`" + `), the agent's status on [its page](agent.md#status). Made by ` + "`go test ./cmd/wherry -run TestTheReferenceOfJSON -update`" + `.
`

// TestTheReferenceOfJSON compares docs/reference/json.md with what commands print.
func TestTheReferenceOfJSON(t *testing.T) {
	t.Parallel()
	const name = "docs/reference/json.md"
	dir, out := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "OUT=" + out, "COSIGN_PASSWORD=secret"}
	cmd.Stdin = strings.NewReader(jsonScript)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)

	var page strings.Builder
	page.WriteString(jsonHead)
	titles, err := filepath.Glob(filepath.Join(out, "*.title"))
	require.NoError(t, err)
	require.NotEmpty(t, titles)
	for _, title := range titles {
		words, err := os.ReadFile(title)
		require.NoError(t, err)
		printed, err := os.ReadFile(strings.TrimSuffix(title, "title") + "json")
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(printed, &value), "%s", words)
		fmt.Fprintf(&page, "\n## wherry %s\n| field | |\n|-|-|\n", words)
		fields := map[string]map[string]bool{}
		fieldsOfJSON(fields, "", value)
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			fmt.Fprintf(&page, "| `%s` | %s |\n", path, strings.Join(slices.Sorted(maps.Keys(fields[path])), " or "))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile("../../"+name, []byte(page.String()), 0o644))
	}
	require.Equal(t, page.String(), read(t, name), "-update writes it anew")
}

// keyed are the fields whose keys people choose.
var keyed = []string{"labels", "annotations", "data", "values"}

// fieldsOfJSON adds the kinds of values at each path.
func fieldsOfJSON(fields map[string]map[string]bool, path string, value any) {
	kind := ""
	switch v := value.(type) {
	case map[string]any:
		for key, sub := range v {
			if slices.Contains(keyed, path[strings.LastIndex(path, ".")+1:]) {
				key = "*"
			}
			fieldsOfJSON(fields, strings.TrimPrefix(path+"."+key, "."), sub)
		}
		return
	case []any:
		for _, sub := range v {
			fieldsOfJSON(fields, path+"[]", sub)
		}
		if len(v) > 0 {
			return
		}
		kind = "list"
	case string:
		kind = "text"
	case bool:
		kind = "true or false"
	case float64:
		kind = "number"
	case nil:
		kind = "null"
	}
	if fields[path] == nil {
		fields[path] = map[string]bool{}
	}
	fields[path][kind] = true
}
