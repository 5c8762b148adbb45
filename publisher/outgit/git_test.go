package outgit

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

func TestTheLoginOfARemoteIsNotInItsURL(t *testing.T) {
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	for _, test := range []struct{ place, user, password, want string }{
		{"https://example.com/a/b", "robot", "t", "https://example.com/a/b robot:t"},
		{"https://u:p%40x@example.com/a/b", "robot", "t", "https://example.com/a/b u:p@x"},
		{"https://token@example.com/a/b", "", "", "https://example.com/a/b token:"},
		{"ssh://git:secret@example.com/a/b", "robot", "t", "ssh://git@example.com/a/b :"},
		{"git@example.com:a/b", "robot", "t", "git@example.com:a/b :"},
		{"file:///srv/r.git", "robot", "t", "file:///srv/r.git :"},
		{"r.git", "robot", "t", here + "/r.git :"},
		{"", "", "", "no repository is named"},
		{"ext::sh -c id", "", "", "not a git URL"},
		{"-x:y", "", "", "not a git URL"},
		{"ftp://u:secret@example.com/", "", "", `ftp://example.com/: "ftp" is not a way to reach a git repository: use https, http, ssh or file`},
	} {
		r, err := RemoteOf(test.place, test.user, test.password)
		got := r.URL + " " + r.user + ":" + r.password
		if err != nil {
			got = err.Error()
		}
		require.Equal(t, test.want, got, test.place)
	}
}

// The server repeats whatever it was sent, in each form.
func TestNoErrorRepeatsALogin(t *testing.T) {
	const password = "se/cr+et pass"
	url := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	remote, err := RemoteOf(strings.Replace(url, "://", "://robot:se%2Fcr+et%20pass@", 1), "", "")
	require.NoError(t, err)
	require.Equal(t, password, remote.password)
	pair := base64.StdEncoding.EncodeToString([]byte("robot:" + password))
	text := remote.redact("fatal: " + password + " " + pair + " https://robot:se%2Fcr+et%20pass@example.com/ se%2Fcr+et%20pass se%2Fcr%2Bet+pass")
	for _, secret := range []string{password, pair, "se%2Fcr", "robot:"} {
		require.NotContains(t, text, secret)
	}
	_, err = InitGit(t.Context(), remote, time.Minute)
	var failed *GitError
	require.ErrorAs(t, err, &failed)
	require.Contains(t, err.Error(), "git ls-remote: ")
	require.NotContains(t, err.Error(), "cr+et")
}

func TestWhatGitSaysIsOneLine(t *testing.T) {
	require.Equal(t, "no; GH006: Protected", OneLine("warning: x\nfatal: no\nremote: \nremote: GH006: Protected\nhint: try\n"))
	require.NotContains(t, OneLine("a\x1b[2Jb\xffc"), "\x1b")
	require.Len(t, []rune(OneLine(strings.Repeat("é", 1000))), 401)
}

func TestAServerThatDoesNotAnswerEndsTheCommand(t *testing.T) {
	url := gittest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	remote, err := RemoteOf(url, "", "")
	require.NoError(t, err)
	_, err = InitGit(t.Context(), remote, 50*time.Millisecond)
	require.EqualError(t, err, "git ls-remote: not done within 50ms")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = InitGit(ctx, remote, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNothingStaysBehind(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	remote, err := RemoteOf(filepath.Join(temp, "none"), "", "")
	require.NoError(t, err)
	_, err = InitGit(t.Context(), remote, time.Minute)
	require.Error(t, err)
	entries, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, entries)
	t.Setenv("PATH", temp)
	_, err = InitGit(t.Context(), remote, time.Minute)
	require.True(t, errors.Is(err, ErrNoGit))
}
