package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/examples"
	"github.com/wherry-dev/wherry/publisher/gittest"
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

// What the longer example of README.md makes in examples/coffee is in no test's way, in no program and in no commit.
func TestWhatTheExampleMakesIsIgnored(t *testing.T) {
	made := regexp.MustCompile(`(?:^| )(?:-o|--directory-root|--state-dir) ([a-z.]+)|oci-layout:([a-z]+)|(cosign\.key|cosign\.pub)`)
	names := map[string]bool{}
	for _, command := range commandsOf(t, "README.md") {
		for _, m := range made.FindAllStringSubmatch(command, -1) {
			names[m[1]+m[2]+m[3]] = true
		}
	}
	require.Equal(t, []string{"applied", "cosign.key", "cosign.pub", "rendered", "site", "state"}, slices.Sorted(maps.Keys(names)))
	copied := filepath.Join(t.TempDir(), "top")
	require.NoError(t, os.CopyFS(filepath.Join(copied, "examples", "coffee"), os.DirFS(filepath.Join("..", "..", "examples", "coffee", "dev"))))
	require.NoError(t, os.WriteFile(filepath.Join(copied, ".gitignore"), []byte(read(t, ".gitignore")), 0o600))
	output(t, exec.CommandContext(t.Context(), "git", "init", "-q", copied))
	for name := range names {
		folder := filepath.Join(copied, "examples", "coffee", name)
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), nil, 0o600))
	}
	to := t.TempDir()
	require.NoError(t, gittest.CopyKnown(to, copied))
	for name := range names {
		require.NoDirExists(t, filepath.Join(to, "examples", "coffee", name))
		_, err := examples.FS.Open("coffee/" + name)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.FileExists(t, filepath.Join(to, "examples", "coffee", "base-repo.yaml"))
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
