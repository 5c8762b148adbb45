package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fenced are the blocks of a page that a person enters, and those that show what appears then.
var fenced = regexp.MustCompile("(?ms)^```(sh|text)(?: not run here: [^\n]*)?\n(.*?)^```$")

// TestTheQuickstartDoesWhatItSays runs the commands of docs/quickstart.md in one shell, in an empty folder. After each block of
// commands, the lines of the next block of text have to be shown, in any order and perhaps with others between; … stands
// for anything.
func TestTheQuickstartDoesWhatItSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/quickstart.md")
	require.NoError(t, err)
	const end = "end of block"
	var script strings.Builder
	var texts []string // what has to be shown after each block of commands
	for _, found := range fenced.FindAllStringSubmatch(string(page), -1) {
		if found[1] == "text" {
			texts[len(texts)-1] += found[2]
			continue
		}
		fmt.Fprintf(&script, "%secho '%s'\n", found[2], end)
		texts = append(texts, "")
	}
	require.Len(t, texts, 8)

	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
	for _, of := range []string{"AUTHOR", "COMMITTER"} {
		cmd.Env = append(cmd.Env, "GIT_"+of+"_NAME=anna", "GIT_"+of+"_EMAIL=anna@example.com")
	}
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	blocks := strings.Split(string(out), end+"\n")
	for i, text := range texts {
		shown := map[string]bool{}
		for line := range strings.Lines(blocks[i]) {
			shown[oneSpaced(line)] = true
		}
		for line := range strings.Lines(text) {
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(oneSpaced(line)), "…", ".*") + "$")
			found := false
			for s := range shown {
				found = found || pattern.MatchString(s)
			}
			require.True(t, found, "%q is not shown in\n%s", oneSpaced(line), blocks[i])
		}
	}
}

func oneSpaced(line string) string { return strings.Join(strings.Fields(line), " ") }
