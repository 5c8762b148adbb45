package harness

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAGitServerServesWhatWasCommittedToThoseItKnows(t *testing.T) {
	g, err := StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Stop()) })
	_, err = g.Commit(t.Context(), "app", "main", map[string]string{"old": "1"})
	require.NoError(t, err)
	commit, err := g.Commit(t.Context(), "app", "main", map[string]string{"dev/new": "2"})
	require.NoError(t, err)

	listed, err := g.git(t.Context(), t.TempDir(), "ls-remote", strings.Replace(g.URL, "://", "://"+GitUser+":"+strings.ReplaceAll(GitPassword, " ", "%20")+"@", 1)+"/app", "refs/heads/main")
	require.NoError(t, err)
	require.Equal(t, commit+"\trefs/heads/main", listed)
	files, err := g.git(t.Context(), g.dir, "--git-dir=app", "ls-tree", "-r", "--name-only", "main")
	require.NoError(t, err)
	require.Equal(t, "dev/new", files, "a commit is the whole content")

	cmd := exec.CommandContext(t.Context(), "git", "ls-remote", g.URL+"/app")
	cmd.Env = append(cmd.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true")
	require.Error(t, cmd.Run(), "without the account")
}
