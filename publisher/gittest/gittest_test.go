package gittest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

// Those who fetch meanwhile read a HEAD that stays, and a branch that is always at a commit.
func TestACommitIsSeenWholeByThoseWhoFetch(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{"a": "0"})
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(repo, name))
		require.NoError(t, err)
		return strings.TrimSpace(string(data))
	}
	dirs := []string{gittest.WriteFiles(t, "", map[string]string{"a": "1"}), gittest.WriteFiles(t, "", map[string]string{"a": "2"})}
	done := make(chan error, 1)
	go func() {
		for i := range 100 {
			if _, err := gittest.Commit(repo, []string{"main", "dev"}[i%2], dirs[i/2%2]); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		require.Equal(t, "ref: refs/heads/main", read("HEAD"))
		require.Len(t, read("refs/heads/main"), 40)
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
	}
}
