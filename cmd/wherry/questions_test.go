package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const askPage = "../../docs/ask.md"

// questions are the commands of the page, each with what it prints.
var questions = regexp.MustCompile("(?ms)^```sh\n(wherry [^\n]*)\n```\n\n```text\n(.*?)^```$")

// negative are the commands of the page whose answer is no, or not yet.
var negative = map[string]int{"wherry drift": 1, "wherry compare": 1, "wherry rollout commit 3f2a9c1 --environment prod": 5}

// normal replaces what differs from one run to the next.
var normal = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d(T| )\d\d:\d\d(:\d\d)?(Z| UTC)`), "TIME"},
	{regexp.MustCompile(`\b(\d+(s|m|h|d)|\d+ (second|minute|hour|day)s?) ago|\bnow\b`), "AGO"},
	{regexp.MustCompile(` · oldest proof \d+ (second|minute|hour|day)s?`), ""}, // none in the first second
	{regexp.MustCompile(`\br\d{9,}-\d+`), "REPORT"},
	{regexp.MustCompile(`(?m)^Agent .*`), "Agent VERSION"},
	{regexp.MustCompile(`\b[0-9a-f]{7,64}\b`), "HEX"},
	{regexp.MustCompile(`the hub (in|at) \S+`), "the hub"},
	{regexp.MustCompile(`[ -]*\n`), "\n"}, // a wide page has other columns than a narrow one
	{regexp.MustCompile(` +`), " "},
}

func normalised(s string) string {
	for _, n := range normal {
		s = n.pattern.ReplaceAllString(s, n.by)
	}
	return s
}

// requireShown fails unless a command has printed what the page shows. The agents' reports may be of one second or of
// several, so changes are compared in any order.
func requireShown(t *testing.T, want, got, command string) {
	t.Helper()
	want, got = normalised(want), normalised(got)
	if strings.HasPrefix(command, "wherry history ") {
		want, got = inOrder(want), inOrder(got)
	}
	require.Equal(t, want, got, command)
}

// inOrder sorts lines.
func inOrder(s string) string { return strings.Join(slices.Sorted(strings.Lines(s)), "") }

// The commands of the page on asking a hub answer as it shows, on the hub's folder and over HTTP, for a fleet whose releases,
// agents and reports are real. With -update, the page gets what they print.
func TestTheQuestionsOfThePageAreAnswered(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	t.Parallel()
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "COSIGN_PASSWORD=secret", "GOGC=off"}
	run := func(command string, more ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Env = dir, append(more, env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			require.NoError(t, err)
		}
		if code := cmd.ProcessState.ExitCode(); code > 1 && code != 5 {
			t.Logf("%s: exit %d\n%s", command, code, stderr.String())
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	setup, err := filepath.Abs("testdata/questions.sh")
	require.NoError(t, err)
	t.Cleanup(func() {
		stop := exec.Command("sh", "-c", "kill $(cat pid)")
		stop.Dir = dir
		_ = stop.Run()
	})
	out, code := run("sh " + setup + " >setup.log 2>&1 || { cat setup.log; exit 3; }")
	require.Equal(t, 0, code, out)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return strings.TrimSpace(string(data))
	}
	// What the page shows stands for what this fleet has.
	real := strings.NewReplacer("3f2a9c1", read("commit")[:7], "2026-11-20T12:00:00Z", read("then"), "island/r1795453640-1", "island/"+read("report"))

	page, err := os.ReadFile(askPage)
	require.NoError(t, err)
	found := questions.FindAllStringSubmatch(string(page), -1)
	require.Len(t, found, 14)
	updated := string(page)
	for _, f := range found {
		want := 0
		for prefix, code := range negative {
			if strings.HasPrefix(f[1], prefix) {
				want = code
			}
		}
		got, code := run(real.Replace(f[1]))
		require.Equal(t, want, code, "%s\n%s", f[1], got)
		if *update {
			shown := strings.NewReplacer(read("commit"), "3f2a9c1e77aa02f4c0b1a5de91f5d8a3b6c7e901", read("commit")[:8], "3f2a9c1e", read("report"), "r1795453640-1").Replace(got)
			updated = strings.Replace(updated, f[0], fmt.Sprintf("```sh\n%s\n```\n\n```text\n%s```", f[1], shown), 1)
			continue
		}
		requireShown(t, f[2], got, f[1])
		if !strings.HasPrefix(f[1], "wherry hub ") {
			got, code = run(real.Replace(f[1]), "WHERRY_HUB="+read("url"))
			require.Equal(t, want, code, "%s over HTTP\n%s", f[1], got)
			requireShown(t, f[2], got, f[1]+" over HTTP")
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(askPage, []byte(updated), 0o644))
	}
}
