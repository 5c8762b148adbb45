package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAWorkerLeavesNothingToTheNextCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(dir, 0o755))
	start := func(t *testing.T, deadline time.Time) *worker {
		w, err := startWorker(filepath.Join(programs, program), append(os.Environ(), workerVariable+"=misbehaving"), deadline)
		require.NoError(t, err)
		return w
	}
	for _, tc := range []struct {
		name  string
		code  int
		alive bool
	}{
		{"nothing", 3, true},
		{"environment", 3, true},
		{"goroutine", 3, false},
		{"file", 3, false},
		{"panic", 2, false},
		{"exit", 7, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := start(t, time.Time{})
			for range 2 {
				stdout, stderr, code, alive, err := w.run(request{Args: []string{tc.name, "it"}, Dir: dir, Env: []string{"WORD=one"}})
				require.NoError(t, err)
				require.Equal(t, tc.name+" it in folder: one \n", stdout)
				require.Contains(t, stderr, "and more\n")
				require.Equal(t, tc.code, code)
				require.Equal(t, tc.alive, alive)
				if !alive {
					return
				}
			}
			_, err := w.end()
			require.NoError(t, err)
		})
	}
	t.Run("hang", func(t *testing.T) {
		_, _, _, alive, err := start(t, time.Now().Add(500*time.Millisecond)).run(request{Args: []string{"hang"}, Dir: dir})
		require.ErrorContains(t, err, "had not ended")
		require.False(t, alive)
	})
}
