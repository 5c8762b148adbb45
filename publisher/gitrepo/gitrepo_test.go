package gitrepo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/agent"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/egress"
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

// reader returns a Reader that reaches the servers of this machine, of which those at own are the platform's.
func reader(t *testing.T, timeout time.Duration, own ...string) *Reader {
	access := egress.New(own...)
	access.Allow("127.0.0.1")
	g := NewReader(timeout, nil, access)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func TestAStateIsReadTheSameWayFromEveryKindOfRepository(t *testing.T) {
	h := newHistory(t)
	overSSH, known := gittest.ServeSSH(t, h.repo)
	startSSHAgent(t, known)
	for kind, url := range map[string]string{
		"path": h.repo, "file URL": "file://" + h.repo,
		"server": gittest.Serve(t, gittest.FullServer(h.repo)), "simple server": gittest.Serve(t, gittest.PlainServer(h.repo)),
		"server that wants multi_ack": gittest.Serve(t, gittest.MultiACKServer(h.repo)), "server that wants multi_ack, over ssh": overSSH,
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
	require.EqualError(t, err, "the server refuses: the commit may not be there, or not for this login")
}

func TestAServerThatHangsIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	require.NoError(t, err)
	defer silent.Close()
	startSSHAgent(t, "")
	for _, url := range []string{"http://", "https://", "ssh://git@"} {
		settled := childtest.Settled(t)
		g := reader(t, 50*time.Millisecond)
		_, err := g.Tree(t.Context(), Ref{URL: url + silent.Addr().String() + "/x", Branch: "main"})
		require.EqualError(t, err, "no complete answer within 50ms", url)
		_, err = g.Tags(t.Context(), url+silent.Addr().String()+"/x")
		require.EqualError(t, err, "no complete answer within 50ms", url)
		_, err = Tips(t.Context(), g.access, url+silent.Addr().String()+"/x", []string{"main"}, 50*time.Millisecond)
		require.EqualError(t, err, "no complete answer within 50ms", url)
		settled()
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = reader(t, time.Minute).Tree(canceled, Ref{URL: "http://" + silent.Addr().String()})
	require.ErrorIs(t, err, context.Canceled)
}

// startSSHAgent starts the SSH agent that go-git requires before it dials, with a key. Known are lines of known_hosts.
func startSSHAgent(t *testing.T, known string) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	keys := agent.NewKeyring()
	require.NoError(t, keys.Add(agent.AddedKey{PrivateKey: key}))
	dir := gittest.WriteFiles(t, "", map[string]string{"known_hosts": known + "\n"})
	socket, err := net.Listen("unix", filepath.Join(dir, "agent"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keys, conn) }()
		}
	}()
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(dir, "agent"))
	t.Setenv("SSH_KNOWN_HOSTS", filepath.Join(dir, "known_hosts"))
}

func TestLogins(t *testing.T) {
	h := newHistory(t)
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:pa55"))
	var sent []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != login {
			http.Error(w, "\x1b[31mgo away\n<html>", http.StatusUnauthorized)
			return
		}
		gittest.PlainServer(h.repo).ServeHTTP(w, r)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	usual := http.DefaultTransport
	http.DefaultTransport = secure.Client().Transport // which trusts its certificate
	defer func() { http.DefaultTransport = usual }()
	t.Setenv("NETRC", filepath.Join(gittest.WriteFiles(t, "", map[string]string{"netrc": "machine 127.0.0.1\n\tlogin robot\n\tpassword pa55\n"}), "netrc"))
	inURL := func(s *httptest.Server) string { return strings.Replace(s.URL, "://", "://robot:pa55@", 1) }
	for _, test := range []struct {
		name, url string
		own       []string
		good      bool
	}{
		{"of netrc, for the platform's own repository", secure.URL + "/base", []string{secure.URL}, true},
		{"of netrc, for another", secure.URL, nil, false},
		{"of netrc, without TLS", plain.URL, []string{plain.URL}, false},
		{"in the URL", inURL(secure), nil, true},
		{"in an own URL without TLS", inURL(plain), []string{plain.URL}, true},
		{"in another URL without TLS", inURL(plain), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent = nil
			_, err := reader(t, time.Minute, test.own...).Tree(t.Context(), Ref{URL: test.url})
			if test.good {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "authentication required (a login of ~/.netrc is sent over https, to hosts of the platform's own repositories)")
			require.Equal(t, []string{""}, sent)
		})
	}
}

func TestErrorsHoldNothingThatAServerSent(t *testing.T) {
	for _, test := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a page", "the secret of an internal page", 500, "the server answers 500"},
		{"a refusal", "0014ERR \x1b[2Jsecret..", 200, "the server refuses: the commit may not be there, or not for this login"},
		{"something else", strings.Repeat("secret ", 1000), 200, "its answer cannot be understood"},
		{"nothing", "", 200, "its answer cannot be understood"},
		{"a missing page", "secret", 404, "repository not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := gittest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			_, err := reader(t, time.Minute).Tree(t.Context(), Ref{URL: url})
			require.EqualError(t, err, test.want)
			tips, err := Tips(t.Context(), egress.New(url), url, []string{"main"}, time.Minute)
			require.EqualError(t, err, test.want, tips)
		})
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0") // as something that does not speak HTTP
	require.NoError(t, err)
	defer raw.Close()
	go func() {
		for conn, err := raw.Accept(); err == nil; conn, err = raw.Accept() {
			_, _ = io.WriteString(conn, "SSH-2.0-secret\r\n")
			_ = conn.Close()
		}
	}()
	_, err = reader(t, time.Minute).Tree(t.Context(), Ref{URL: "http://" + raw.Addr().String()})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestServersOfThisMachineAreNotForOthers(t *testing.T) {
	asked := false
	url := gittest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	g := NewReader(time.Minute, nil, nil)
	defer g.Close()
	startSSHAgent(t, "")
	for _, place := range []string{url, strings.Replace(url, "http://", "ssh://git@", 1), strings.Replace(url, "127.0.0.1", "localhost", 1)} {
		_, err := g.Tree(t.Context(), Ref{URL: place})
		require.ErrorAs(t, err, new(*egress.RefusedError), place)
		_, err = g.Tags(t.Context(), place)
		require.ErrorAs(t, err, new(*egress.RefusedError), place)
	}
	require.False(t, asked)
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

func TestTheIDOfAFolder(t *testing.T) {
	t.Parallel()
	files := map[string]string{"base/x.yaml": "a: 1\n", "base/sub/y.yaml": "b: 1\n", "envs/dev/pin.yaml": "c: 1\n", "envs/all.yaml": "d: 1\n", "README": "e"}
	tree := func(change ...string) fs.FS {
		changed := maps.Clone(files)
		for _, name := range change {
			changed[name] += "more: 1\n"
		}
		repo := filepath.Join(t.TempDir(), "x.git")
		gittest.CommitFiles(t, repo, "main", changed)
		g := NewReader(time.Minute, nil, nil)
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		of, err := g.Tree(t.Context(), Ref{URL: repo, Branch: "main"})
		require.NoError(t, err)
		return of.FS
	}
	id := func(files fs.FS, folder string, hidden ...string) string {
		sub, err := fs.Sub(files, folder)
		require.NoError(t, err)
		id, err := ID(sub, hidden...)
		require.NoError(t, err)
		require.NotEmpty(t, id)
		return id
	}
	first := tree()
	for _, c := range []struct {
		folder string
		hidden []string
		change string
		same   bool
	}{
		{"base", nil, "envs/dev/pin.yaml", true},
		{"base", nil, "base/sub/y.yaml", false},
		{".", nil, "envs/dev/pin.yaml", false},
		{".", []string{"envs/dev"}, "envs/dev/pin.yaml", true},
		{".", []string{"envs/dev", "envs/prod"}, "envs/dev/pin.yaml", true},
		{".", []string{"envs/dev"}, "envs/all.yaml", false},
		{".", []string{"envs/dev"}, "base/x.yaml", false},
		{".", []string{"envs"}, "README", false},
	} {
		require.Equal(t, c.same, id(first, c.folder, c.hidden...) == id(tree(c.change), c.folder, c.hidden...), c)
	}
	_, err := ID(os.DirFS("no such folder"))
	require.Error(t, err)
}
