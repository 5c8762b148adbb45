//go:build e2e

// Package pages runs the commands of the guides, block by block, with the programs themselves.
package pages

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhere are the pages that other tests run, in cmd/wherry and e2e, and those that are for whoever changes wherry.
var elsewhere = map[string]bool{
	"quickstart.md": true, "ask.md": true, "disaster-recovery.md": true, "tutorial.md": true, "development.md": true,
	"install.md": true, // its charts and packages have tests of their own
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// A block of commands has the language sh and is run, unless "not run here: REASON" follows. A block of the language console shows
// commands with what they print.
func TestTheGuidesDoWhatTheySay(t *testing.T) {
	pages := []string{"../../README.md"}
	for _, pattern := range []string{"*.md", "engines/*.md", "sites/*.md"} {
		found, err := filepath.Glob("../../docs/" + pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	require.NotEmpty(t, programs, "run make e2e E2E_PACKAGES=./e2e/pages, which builds the programs")
	run, shown := 0, 0
	for _, file := range pages {
		name, err := filepath.Rel("../../docs", file)
		require.NoError(t, err)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var blocks []string
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			info, block := m[1], m[2]
			lang, mark, _ := strings.Cut(info, " ")
			reason, marked := strings.CutPrefix(mark, "not run here: ")
			switch {
			case lang == "sh" && mark == "":
				blocks = append(blocks, block)
			case lang == "sh" && marked && reason != "":
				shown++
			case lang == "console":
				shown++
			case lang == "" && regexp.MustCompile(`(?m)^(\$ )?wherry(-agent)? `).MatchString(block):
				t.Errorf("%s: a block of commands is sh, sh not run here: REASON, or console:\n%s", name, block)
			case lang != "" && lang != "text" && lang != "yaml" && lang != "json" && lang != "toml":
				t.Errorf("%s: unknown kind of block %q", name, info)
			}
		}
		if elsewhere[name] || len(blocks) == 0 {
			continue
		}
		run += len(blocks)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runPage(t, programs, strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(name, "../"), "/", "-"), ".md"), blocks)
		})
	}
	t.Logf("%d blocks are run here, %d are shown and not run", run, shown)
	require.Greater(t, run, 40)
}

// runPage runs the blocks of a page in one shell, after testdata/fleet.sh and the file of the page in testdata.
func runPage(t *testing.T, programs, name string, blocks []string) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	env := []string{
		"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + dir + "/home", "TMPDIR=" + dir, "W=" + dir, "COSIGN_PASSWORD=change-me", "EDITOR=true",
		"GIT_AUTHOR_NAME=anna", "GIT_AUTHOR_EMAIL=anna@example.com", "GIT_COMMITTER_NAME=anna", "GIT_COMMITTER_EMAIL=anna@example.com",
	}
	for _, folder := range []string{"home", "media", "etc", "work", "backups"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")))
	setup, err := filepath.Abs("testdata")
	require.NoError(t, err)
	keys := exec.CommandContext(t.Context(), filepath.Join(programs, "wherry"), "keys", "generate")
	keys.Dir, keys.Env = filepath.Join(dir, "work"), env
	said, err := keys.CombinedOutput()
	require.NoError(t, err, "%s", said)
	registry := start(t, programs, dir, env, "registry", "serve", "registry", "--addr", "127.0.0.1:0")
	hub := start(t, programs, dir, env, "hub", "serve", "--data", "hub", "--addr", "127.0.0.1:0", "--watch", registry+"/edge", "--watch-interval", "1s", "--trust-key", "work/cosign.pub")
	names := strings.NewReplacer(
		"oci://registry.example.com/edge", registry+"/edge", "oci://registry.example/edge", registry+"/edge", "oci://127.0.0.1:5000/edge", registry+"/edge",
		"oci://registry.plant-7:5000/edge", registry+"/plant-7", "oci://registry.site-7:5000/edge", registry+"/site-7",
		"https://hub.example.com", hub, "http://127.0.0.1:8080", hub,
		"/media/stick", dir+"/media", "/media/wherry", dir+"/media", "/media/other", dir+"/media",
		"/etc/wherry", dir+"/etc", "/var/lib/wherry-agent", dir+"/state", "/var/lib/wherry-hub", dir+"/hub", "/var/backups", dir+"/backups", "/srv/site", dir+"/site",
		"examples/", dir+"/examples/",
	)
	var script strings.Builder
	fmt.Fprintf(&script, "set -eu\nREGISTRY=%[1]s/edge PLANT=%[1]s/plant-7 HUB=%[2]s\ncd work\n. %[3]s/fleet.sh\n", registry, hub, setup)
	if own := filepath.Join(setup, name+".sh"); exists(own) {
		fmt.Fprintf(&script, ". %s\n", own)
	}
	for i, block := range blocks {
		fmt.Fprintf(&script, "echo '=== block %d'\n%s\n", i+1, names.Replace(block))
	}
	file := filepath.Join(dir, "script.sh")
	require.NoError(t, os.WriteFile(file, []byte(script.String()), 0o644))
	cmd := exec.CommandContext(t.Context(), "bash", file)
	cmd.Dir, cmd.Env = dir, append(env, "WHERRY_HUB_DATA="+dir+"/hub")
	said, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// start starts wherry until the test ends, and returns the first line that it prints.
func start(t *testing.T, programs, dir string, env []string, args ...string) string {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "wherry"), args...)
	cmd.Dir, cmd.Env = dir, env
	log, err := os.Create(filepath.Join(dir, args[0]+".log"))
	require.NoError(t, err)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	said, _ := os.ReadFile(log.Name())
	require.NoError(t, err, "%s", said)
	go io.Copy(io.Discard, lines) //nolint:errcheck // until it ends
	return strings.TrimSpace(line)
}
