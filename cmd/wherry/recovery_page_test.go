//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDisastersAreRecoveredFrom runs the blocks of docs/disaster-recovery.md in one shell, on the fleet of testdata/recovery.sh, and
// logs how long each takes.
func TestDisastersAreRecoveredFrom(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/disaster-recovery.md")
	require.NoError(t, err)
	setup, err := filepath.Abs("testdata/recovery.sh")
	require.NoError(t, err)
	var script strings.Builder
	fmt.Fprintf(&script, "set -eu\n. %s\n", setup)
	section, blocks := "", 0
	for part := range strings.SplitSeq(string(page), "\n```") {
		if block, ok := strings.CutPrefix(part, "sh\n"); ok {
			blocks++
			fmt.Fprintf(&script, "began=$(date +%%s%%N)\n%s\necho \"TOOK $(( ($(date +%%s%%N) - began) / 1000000 )) ms: block %d, of %s\"\n", block, blocks, section)
			continue
		}
		for line := range strings.Lines(part) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				section = strings.TrimSpace(title)
			}
		}
	}
	require.Equal(t, 10, blocks)

	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "GOGC=off"}
	cmd.Stdin = strings.NewReader(script.String())
	out, err := os.Create(filepath.Join(dir, "output")) // and no pipe, which what goes on in the background would hold open
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the hub and the registry
	said, readErr := os.ReadFile(out.Name())
	require.NoError(t, readErr)
	require.NoError(t, err, "%s", said)
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "TOOK ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
