//go:build unix

package diskfile

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const childVariable = "WHERRY_SCRATCH_TEST_CHILD"

// TestMain is, in a child, a process that makes a folder and waits to be killed.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	f, err := NewScratch()
	if err != nil {
		os.Exit(1)
	}
	if err := os.WriteFile(filepath.Join(f.Path, "pack"), []byte("left"), 0o600); err != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString(f.Path + "\n")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
}

// Whoever makes a folder while others sweep gets one that stays: a sweep may meet it before it is locked.
func TestASweepOfThisMomentCostsNobodyItsFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var makers errgroup.Group
	for range 8 {
		makers.Go(func() error {
			for range 200 {
				f, err := NewScratch()
				if err != nil {
					return err
				}
				if err := errors.Join(os.WriteFile(filepath.Join(f.Path, "x"), nil, 0o600), f.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, makers.Wait())
}

// What a killed process leaves goes with the next folder that anybody makes, and what a living one has stays.
func TestWhatAKilledProcessLeavesIsSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	start := func() (*exec.Cmd, string) {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"=1")
		in, err := child.StdinPipe()
		require.NoError(t, err)
		t.Cleanup(func() { _ = in.Close() })
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		path, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		return child, strings.TrimSpace(path)
	}
	living, kept := start()
	killed, left := start()
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	require.FileExists(t, filepath.Join(left, "pack"))

	f, err := NewScratch()
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Dir(left))
	require.FileExists(t, filepath.Join(kept, "pack"))
	other, err := NewScratch()
	require.NoError(t, err)
	require.DirExists(t, f.Path, "it is this process's own")
	require.NoError(t, other.Close())
	require.NoError(t, f.Close())
	require.NoDirExists(t, filepath.Dir(f.Path))

	require.NoError(t, living.Process.Kill())
	_ = living.Wait()
	sweepScratch(os.TempDir())
	entries, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, entries)
}
