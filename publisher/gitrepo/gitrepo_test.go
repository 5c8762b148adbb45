package gitrepo

import (
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/agent"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

// history is a repository with two commits on main and one on dev.
type history struct{ repo, first, second, dev string }

func newHistory(t *testing.T) history {
	h := history{repo: filepath.Join(t.TempDir(), "platform.git")}
	h.first = gittest.CommitFiles(t, h.repo, "main", map[string]string{"a/one.yaml": "1"})
	h.second = gittest.CommitFiles(t, h.repo, "main", map[string]string{"a/one.yaml": "2"})
	h.dev = gittest.CommitFiles(t, h.repo, "dev", map[string]string{"dev.yaml": "d"})
	return h
}

func reader(t *testing.T, timeout time.Duration) *Reader {
	g := NewReader(timeout, nil)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func TestAStateIsReadTheSameWayFromEveryKindOfRepository(t *testing.T) {
	h := newHistory(t)
	for kind, url := range map[string]string{
		"path": h.repo, "file URL": "file://" + h.repo,
		"server": gittest.Serve(t, gittest.FullServer(h.repo)), "simple server": gittest.Serve(t, gittest.PlainServer(h.repo)),
	} {
		for _, test := range []struct {
			name, branch, commit, want, file, data string
		}{
			{"default branch", "", "", h.second, "a/one.yaml", "2"},
			{"branch", "dev", "", h.dev, "dev.yaml", "d"},
			{"commit that is the tip", "main", h.second, h.second, "a/one.yaml", "2"},
			{"commit that is not the tip", "main", h.first, h.first, "a/one.yaml", "1"},
			{"commit of the default branch", "", h.first, h.first, "a/one.yaml", "1"},
		} {
			t.Run(kind+", "+test.name, func(t *testing.T) {
				tree, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: url, Branch: test.branch, Commit: test.commit})
				require.NoError(t, err)
				require.Equal(t, test.want, tree.Commit)
				data, err := fs.ReadFile(tree.FS, test.file)
				require.NoError(t, err)
				require.Equal(t, test.data, string(data))
			})
		}
	}
}

func TestWhatARepositoryLacksIsSaid(t *testing.T) {
	h := newHistory(t)
	absent := strings.Repeat("0123", 10)
	for kind, url := range map[string]string{"path": h.repo, "simple server": gittest.Serve(t, gittest.PlainServer(h.repo))} {
		for _, test := range []struct {
			name string
			ref  Ref
			want string
		}{
			{"branch", Ref{URL: url, Branch: "prod"}, `branch "prod": not in the repository`},
			{"commit", Ref{URL: url, Branch: "main", Commit: absent}, "commit " + absent + " of branch main: not in the repository"},
			{"short commit", Ref{URL: url, Commit: "5523a85"}, `commit "5523a85", which has not 40 hexadecimal digits: not in the repository`},
		} {
			t.Run(kind+", "+test.name, func(t *testing.T) {
				_, err := reader(t, time.Minute).Tree(t.Context(), test.ref)
				require.ErrorIs(t, err, ErrNoSuchRef)
				require.ErrorContains(t, err, test.want)
			})
		}
	}
	_, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: gittest.Serve(t, gittest.FullServer(h.repo)), Commit: absent})
	require.ErrorContains(t, err, "not our ref")
}

func TestAServerThatHangsIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	require.NoError(t, err)
	defer silent.Close()
	startSSHAgent(t)
	for _, url := range []string{"http://", "https://", "ssh://git@"} {
		_, err := reader(t, 50*time.Millisecond).Tree(t.Context(), Ref{URL: url + silent.Addr().String() + "/x", Branch: "main"})
		require.EqualError(t, err, "no complete answer within 50ms", url)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = reader(t, time.Minute).Tree(canceled, Ref{URL: "http://" + silent.Addr().String()})
	require.ErrorIs(t, err, context.Canceled)
}

// startSSHAgent starts the SSH agent that go-git requires before it dials.
func startSSHAgent(t *testing.T) {
	dir := gittest.WriteFiles(t, "", map[string]string{"known_hosts": ""})
	socket, err := net.Listen("unix", filepath.Join(dir, "agent"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(agent.NewKeyring(), conn) }()
		}
	}()
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(dir, "agent"))
	t.Setenv("SSH_KNOWN_HOSTS", filepath.Join(dir, "known_hosts"))
}

func TestCredentialsComeFromTheURLOrNetrc(t *testing.T) {
	h := newHistory(t)
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:pa55"))
	url := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != login {
			http.Error(w, "\x1b[31mgo away\n<html>", http.StatusUnauthorized)
			return
		}
		gittest.PlainServer(h.repo).ServeHTTP(w, r)
	}))
	netrc := filepath.Join(gittest.WriteFiles(t, "", map[string]string{
		"netrc": "machine other login x password y\nmachine 127.0.0.1\n\tlogin robot\n\tpassword pa55\n",
	}), "netrc")
	t.Setenv("NETRC", os.DevNull)
	_, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: url})
	require.EqualError(t, err, "authentication required (a login for this host in ~/.netrc would be used)")
	_, err = reader(t, time.Minute).Tree(t.Context(), Ref{URL: strings.Replace(url, "://", "://robot:pa55@", 1)})
	require.NoError(t, err)
	t.Setenv("NETRC", netrc)
	_, err = reader(t, time.Minute).Tree(t.Context(), Ref{URL: url})
	require.NoError(t, err)
}

func TestAServersOwnWordsAreOnePrintableLine(t *testing.T) {
	for body, want := range map[string]string{
		"500":                                 "status code: 500",
		"0010ERR \x1b[2Jgone":                 "gone",
		strings.Repeat("long ", 1000):         "",
		"001e# service=git-upload-pack\n0000": "",
	} {
		url := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if body == "500" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, body)
		}))
		_, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: url})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\x1b")
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 400)
	}
}

func TestTheTreeOfACommitIsAFileSystem(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	files := map[string]string{"a.yaml": "a", "a/b/c.yaml": "c", "a/b-c": "", "z": "last"}
	dir := gittest.WriteFiles(t, "", files)
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")))
	_, err := gittest.Commit(repo, "main", dir)
	require.NoError(t, err)
	tree, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: repo})
	require.NoError(t, err)
	_, err = fs.ReadFile(tree.FS, "link.yaml")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = fs.ReadFile(tree.FS, "a/none.yaml")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Remove(filepath.Join(dir, "link.yaml")))
	_, err = gittest.Commit(repo, "main", dir)
	require.NoError(t, err)
	tree, err = reader(t, time.Minute).Tree(t.Context(), Ref{URL: repo})
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(tree.FS, "a.yaml", "a/b/c.yaml", "a/b-c", "z"))
}

func TestTheLongestMirrorOfWholeNamesStandsInForAURL(t *testing.T) {
	m := Mirrors{"https://example.com/org": "/m", "https://example.com/org/app": "/app", "https://example.com/a/": "../a/"}
	for url, want := range map[string]string{
		"https://example.com/org/x.git": "/m/x.git", "https://example.com/org/app": "/app", "https://example.com/org/app.git": "/app",
		"https://example.com/organ/x": "https://example.com/organ/x", "https://example.com/a/b/c": "../a/b/c", "": "",
	} {
		require.Equal(t, want, m.Of(url), url)
	}
}
