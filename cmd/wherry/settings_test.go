package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestANewcomerCompilesEachPackageOnce compares the build settings of README.md's first commands. Go compiles a package again
// wherever they differ in anything that its result depends on: some minutes for all 1,800 packages.
func TestANewcomerCompilesEachPackageOnce(t *testing.T) {
	t.Parallel()
	readme := commandsOf(t, "README.md")
	require.Equal(t, []string{"make demo", "make test"}, readme[:2])
	demo := compiled(t, "demo", "run", "./cmd/wherry", "./cmd/wherry")
	tests := compiled(t, "test", "test", "./...", "./cmd/wherry") // whose test links all of them
	require.Greater(t, len(demo), 1000)

	const program = "github.com/wherry-dev/wherry/cmd/wherry"
	require.NotEqual(t, demo[program], tests[program], "go run has always compiled its own program without debug information")
	delete(demo, program)
	for path, action := range demo {
		require.Equal(t, action, tests[path], "%s is compiled twice", path)
	}
}

// What a newcomer enters is made by the Makefile, and so is what .ci/run runs. CONTRIBUTING.md repeats the settings for people
// who run go by hand.
func TestFirstCommandsHaveTheMakefilesSettings(t *testing.T) {
	const byHand = "go test ./bundle"
	compiles := regexp.MustCompile(`\bgo (build|install|run|test|vet) `)
	var checked []string
	for _, page := range []string{"README.md", "CONTRIBUTING.md"} {
		checked = append(checked, commandsOf(t, page)...)
	}
	checked = append(checked, strings.Split(read(t, ".ci/run"), "\n")...)
	for _, command := range checked {
		if command != byHand {
			require.NotRegexp(t, compiles, command)
		}
	}
	require.Contains(t, checked, byHand)
	require.Contains(t, checked, "export "+strings.Join(settings(t), " "))
}

// settings are the variables with which the Makefile has go run, for somebody who has set none of them.
func settings(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-f", "-")
	cmd.Stdin = strings.NewReader("settings: ; @echo \"CGO_ENABLED=$$CGO_ENABLED\"; echo \"GOFLAGS='$$GOFLAGS'\"\ninclude Makefile\n")
	return strings.Split(strings.TrimSpace(output(t, cmd)), "\n")
}

// compiled returns the packages that the go command of a make target compiles, and of each the ID of that action, which is a
// digest of everything that the result depends on. In the command's arguments, packages are replaced.
func compiled(t *testing.T, target, verb, packages, by string) map[string]string {
	t.Helper()
	recipe := output(t, exec.CommandContext(t.Context(), "make", "-n", target))
	found := regexp.MustCompile(`(?m)\bgo ` + verb + ` ((?:.* )?)` + regexp.QuoteMeta(packages) + `( .*)?$`).FindStringSubmatch(recipe)
	require.NotNil(t, found, recipe)
	graph := filepath.Join(t.TempDir(), "graph.json")
	args := append([]string{verb, "-n", "-debug-actiongraph=" + graph}, strings.Fields(found[1]+by)...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	for _, s := range settings(t) {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(s, "'", ""))
	}
	output(t, cmd)

	data, err := os.ReadFile(graph)
	require.NoError(t, err)
	var listed []struct{ Mode, Package, ActionID string }
	require.NoError(t, json.Unmarshal(data, &listed))
	actions := map[string]string{}
	for _, a := range listed {
		if a.Mode == "build" && a.ActionID != "" {
			actions[a.Package] = a.ActionID
		}
	}
	return actions
}

// output runs a command in the root of the repository, in the environment of somebody who has set nothing of make's and Go's.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Dir = "../.."
	settings := cmd.Env
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "CGO_ENABLED", "GOFLAGS", "GO", "MAKEFLAGS", "MFLAGS", "MAKELEVEL":
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, settings...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(out)
}

// commandsOf returns the commands in a page, without comments.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	for _, block := range fenced.FindAllStringSubmatch(read(t, page), -1) {
		for line := range strings.Lines(block[2]) {
			command, _, _ := strings.Cut(line, " #")
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", path))
	require.NoError(t, err)
	return string(data)
}
