package freeze

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAVetoByAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "busy")
	write := func(text string) func() {
		return func() { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	}
	tests := []struct {
		name string
		make func()
		why  string // empty is no veto
	}{
		{"that is not there", func() {}, ""},
		{"with a reason", write("\n press 4 runs\r\nand 5\n"), "press 4 runs"},
		{"that is empty", write(""), path + " is there"},
		{"with no text", write("\x1b[2J\xff"), "?[2J?"},
		{"without an end", write(strings.Repeat("x", 1<<20)), strings.Repeat("x", maxReasonBytes)},
		{"that is a folder", func() { require.NoError(t, os.Mkdir(path, 0o700)) }, path + " is there"},
		{"that points nowhere", func() { require.NoError(t, os.Symlink("nowhere", path)) }, path + " is there"},
		{"that would hang", func() { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, path + " is there"},
		{"that cannot be looked at", func() { require.NoError(t, os.Symlink(path, path)) }, "the site cannot be asked: stat " + path + ": too many levels of symbolic links"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(path))
			test.make()
			why, veto := Veto{File: path}.byFile()
			require.Equal(t, test.why, why)
			require.Equal(t, test.why != "", veto)
		})
	}
}

func TestAVetoByACommand(t *testing.T) {
	t.Setenv("WHERRY_TEST_SECRET", "x")
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	tests := []struct {
		name    string
		command []string
		why     string // empty is no veto
	}{
		{"none", nil, ""},
		{"that says yes", shell("echo busy"), ""},
		{"that says no", shell("echo; echo press 4 runs; echo and 5; exit 1"), "press 4 runs"},
		{"that says so as an error", shell("echo curl: no route >&2; exit 7"), "curl: no route"},
		{"that says nothing", shell("exit 3"), "sh: exit status 3"},
		{"that says much", shell("head -c 1000000 /dev/zero | tr '\\0' x; exit 1"), strings.Repeat("x", maxReasonBytes)},
		{"that is killed", shell("kill -9 $$"), "sh: signal: killed"},
		{"that is not there", []string{"/nowhere/may-change"}, "the site cannot be asked: fork/exec /nowhere/may-change: no such file or directory"},
		{"that sees no secrets", shell(`test -z "$WHERRY_TEST_SECRET" && test -n "$PATH"`), ""},
		{"that reads", shell("cat"), ""},
		{"whose argument is no shell's", []string{"test", "$(false)", "=", "$(false)"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			why, veto, err := Veto{Command: test.command}.byCommand(context.Background())
			require.NoError(t, err)
			require.Equal(t, test.why, why)
			require.Equal(t, test.why != "", veto)
		})
	}
}

func TestACommandThatDoesNotAnswerIsAVetoAndLeavesNothing(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	command := []string{"sh", "-c", `sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`, pids}
	why, veto, err := Veto{Command: command, Timeout: time.Millisecond}.byCommand(context.Background())
	require.NoError(t, err)
	require.True(t, veto)
	require.Equal(t, "sh has not answered in 1ms", why)

	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for _, err := os.Stat(pids); err != nil && ctx.Err() == nil; _, err = os.Stat(pids) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, _, err = Veto{Command: command, Timeout: time.Minute}.byCommand(ctx)
	require.ErrorIs(t, err, context.Canceled)
	data, err := os.ReadFile(pids)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) }, time.Minute, time.Millisecond)
}

// zombie says of a process that it has ended, and that its parent has not heard of it.
func zombie(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(data), ") Z ")
}
