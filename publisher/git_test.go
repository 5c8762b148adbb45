package publisher

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh/agent"

	"github.com/wherry-dev/wherry/publisher/gittest"
)

// writeFiles writes files, by path, below a new folder, or below dir if there is one.
func writeFiles(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	for name, data := range files {
		full := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(data), 0o644))
	}
	return dir
}

func commit(t *testing.T, repo, branch string, files map[string]string) string {
	t.Helper()
	hash, err := gittest.Commit(repo, branch, writeFiles(t, "", files))
	require.NoError(t, err)
	return hash
}

// history is a repository with two commits on main and one on dev.
type history struct{ repo, first, second, dev string }

func newHistory(t *testing.T) history {
	h := history{repo: filepath.Join(t.TempDir(), "platform.git")}
	h.first = commit(t, h.repo, "main", map[string]string{"a/one.yaml": "1"})
	h.second = commit(t, h.repo, "main", map[string]string{"a/one.yaml": "2"})
	h.dev = commit(t, h.repo, "dev", map[string]string{"dev.yaml": "d"})
	return h
}

// fullServer is the git program's own side of smart HTTP.
func fullServer(repo string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		args := []string{"-c", "uploadpack.allowReachableSHA1InWant=true", "-c", "safe.directory=*", "upload-pack", "--stateless-rpc"}
		if r.Method == http.MethodGet {
			args = append(args, "--advertise-refs")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
		}
		cmd := exec.CommandContext(r.Context(), "git", append(args, repo)...)
		cmd.Stdin, cmd.Stdout = r.Body, w
		_ = cmd.Run() // the client sees what is missing
	})
}

// plainServer knows neither shallow fetches nor commits by name, as old and simple servers do.
func plainServer(repo string) http.Handler {
	store := filesystem.NewStorage(osfs.New(repo), cache.NewObjectLRUDefault())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, err := server.NewServer(server.MapLoader{"file:///r": store}).
			NewUploadPackSession(&transport.Endpoint{Protocol: "file", Path: "/r"}, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if r.Method == http.MethodGet {
			if refs, err := session.AdvertisedReferencesContext(r.Context()); err == nil {
				refs.Prefix = [][]byte{[]byte("# service=git-upload-pack"), {}}
				_ = refs.Encode(w)
			}
			return
		}
		request := packp.NewUploadPackRequest()
		if err := request.UploadRequest.Decode(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := session.UploadPack(r.Context(), request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = answer.Encode(w)
	})
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/platform"
}

func reader(t *testing.T, timeout time.Duration) *gitReader {
	g := newGitReader(timeout)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func TestAStateIsReadTheSameWayFromEveryKindOfRepository(t *testing.T) {
	h := newHistory(t)
	for kind, url := range map[string]string{
		"path": h.repo, "file URL": "file://" + h.repo,
		"server": serve(t, fullServer(h.repo)), "simple server": serve(t, plainServer(h.repo)),
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
				tree, err := reader(t, time.Minute).Tree(t.Context(), gitRef{URL: url, Branch: test.branch, Commit: test.commit})
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
	for kind, url := range map[string]string{"path": h.repo, "simple server": serve(t, plainServer(h.repo))} {
		for _, test := range []struct {
			name string
			ref  gitRef
			want string
		}{
			{"branch", gitRef{URL: url, Branch: "prod"}, `branch "prod": not in the repository`},
			{"commit", gitRef{URL: url, Branch: "main", Commit: absent}, "commit " + absent + " of branch main: not in the repository"},
			{"short commit", gitRef{URL: url, Commit: "5523a85"}, `commit "5523a85", which has not 40 hexadecimal digits: not in the repository`},
		} {
			t.Run(kind+", "+test.name, func(t *testing.T) {
				_, err := reader(t, time.Minute).Tree(t.Context(), test.ref)
				require.ErrorIs(t, err, errNoSuchRef)
				require.ErrorContains(t, err, test.want)
			})
		}
	}
	_, err := reader(t, time.Minute).Tree(t.Context(), gitRef{URL: serve(t, fullServer(h.repo)), Commit: absent})
	require.ErrorContains(t, err, "not our ref")
}

func TestALocalWorkTreeIsReadByItsCommitsNotItsFiles(t *testing.T) {
	h := newHistory(t)
	clone := filepath.Join(t.TempDir(), "clone")
	require.NoError(t, exec.Command("git", "clone", "-q", h.repo, clone).Run())
	writeFiles(t, clone, map[string]string{"a/one.yaml": "edited"})
	for _, branch := range []string{"main", "dev"} { // dev is only origin's
		place, err := parseLocation(clone + "#" + branch)
		require.NoError(t, err)
		tree, err := reader(t, time.Minute).Tree(t.Context(), place.repo)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"main": h.second, "dev": h.dev}[branch], tree.Commit)
	}
	require.Equal(t, h.second, headOf(clone, false))
	require.Empty(t, headOf(filepath.Join(clone, "a"), false))
	require.Equal(t, h.second, headOf(filepath.Join(clone, "a"), true))
}

func TestAServerThatHangsIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	require.NoError(t, err)
	defer silent.Close()
	startSSHAgent(t)
	for _, url := range []string{"http://", "https://", "ssh://git@"} {
		_, err := reader(t, 50*time.Millisecond).Tree(t.Context(), gitRef{URL: url + silent.Addr().String() + "/x", Branch: "main"})
		require.EqualError(t, err, "no complete answer within 50ms", url)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = reader(t, time.Minute).Tree(canceled, gitRef{URL: "http://" + silent.Addr().String()})
	require.ErrorIs(t, err, context.Canceled)
}

// startSSHAgent gives go-git what it wants to have before it dials.
func startSSHAgent(t *testing.T) {
	dir := writeFiles(t, "", map[string]string{"known_hosts": ""})
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

func TestNoMessageRepeatsCredentials(t *testing.T) {
	nobody := httptest.NewServer(nil)
	nobody.Close()
	host := strings.TrimPrefix(nobody.URL, "http://")
	for _, url := range []string{
		"http://s3cret@" + host + "/r", "http://user:s3cret@" + host + "/r", "https://user:s3cret@" + host + "/r?token=s3cret",
		"http://user:s3 cret@" + host, "http://user:s3/cret@" + host, "http://s3cret:s3cret@",
	} {
		place, err := parseLocation(url + "#main")
		text := place.String()
		if err == nil {
			_, err = reader(t, time.Minute).Tree(t.Context(), place.repo)
		}
		require.Error(t, err, url)
		require.NotContains(t, err.Error()+text, "cret", url)
	}
}

func TestCredentialsComeFromTheURLOrNetrc(t *testing.T) {
	h := newHistory(t)
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:pa55"))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != login {
			http.Error(w, "\x1b[31mgo away\n<html>", http.StatusUnauthorized)
			return
		}
		plainServer(h.repo).ServeHTTP(w, r)
	}))
	netrc := filepath.Join(writeFiles(t, "", map[string]string{
		"netrc": "machine other login x password y\nmachine 127.0.0.1\n\tlogin robot\n\tpassword pa55\n",
	}), "netrc")
	t.Setenv("NETRC", os.DevNull)
	_, err := reader(t, time.Minute).Tree(t.Context(), gitRef{URL: url})
	require.EqualError(t, err, "authentication required (a login for this host in ~/.netrc would be used)")
	_, err = reader(t, time.Minute).Tree(t.Context(), gitRef{URL: strings.Replace(url, "://", "://robot:pa55@", 1)})
	require.NoError(t, err)
	t.Setenv("NETRC", netrc)
	_, err = reader(t, time.Minute).Tree(t.Context(), gitRef{URL: url})
	require.NoError(t, err)
}

func TestAServersOwnWordsAreOnePrintableLine(t *testing.T) {
	for body, want := range map[string]string{
		"500":                                 "status code: 500",
		"0010ERR \x1b[2Jgone":                 "gone",
		strings.Repeat("long ", 1000):         "",
		"001e# service=git-upload-pack\n0000": "",
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if body == "500" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, body)
		}))
		_, err := reader(t, time.Minute).Tree(t.Context(), gitRef{URL: url})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\x1b")
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 400)
	}
}

func TestTheTreeOfACommitIsAFileSystem(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "r.git")
	files := map[string]string{"a.yaml": "a", "a/b/c.yaml": "c", "a/b-c": "", "z": "last"}
	dir := writeFiles(t, "", files)
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")))
	_, err := gittest.Commit(repo, "main", dir)
	require.NoError(t, err)
	tree, err := reader(t, time.Minute).Tree(t.Context(), gitRef{URL: repo})
	require.NoError(t, err)
	_, err = fs.ReadFile(tree.FS, "link.yaml")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = fs.ReadFile(tree.FS, "a/none.yaml")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Remove(filepath.Join(dir, "link.yaml")))
	_, err = gittest.Commit(repo, "main", dir)
	require.NoError(t, err)
	tree, err = reader(t, time.Minute).Tree(t.Context(), gitRef{URL: repo})
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(tree.FS, "a.yaml", "a/b/c.yaml", "a/b-c", "z"))
}
