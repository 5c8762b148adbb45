package gittest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/server"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/stretchr/testify/require"
)

// WriteFiles writes files, by path, below a new folder, or below dir if there is one.
func WriteFiles(t testing.TB, dir string, files map[string]string) string {
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

// CommitFiles commits files, by path, to a branch of the bare repository repo as [Commit] does and returns the commit.
func CommitFiles(t *testing.T, repo, branch string, files map[string]string) string {
	t.Helper()
	hash, err := Commit(repo, branch, WriteFiles(t, "", files))
	require.NoError(t, err)
	return hash
}

// FullServer is the git program's own side of smart HTTP.
func FullServer(repo string) http.Handler {
	return gitServer(repo, "-c", "uploadpack.allowReachableSHA1InWant=true")
}

// gitServer runs the git program with settings.
func gitServer(repo string, settings ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		args := append(slices.Clone(settings), "-c", "safe.directory=*", "upload-pack", "--stateless-rpc")
		if r.Method == http.MethodGet {
			args = append(args, "--advertise-refs")
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
		}
		cmd := exec.CommandContext(r.Context(), "git", append(args, repo)...)
		cmd.Stdin, cmd.Stdout = r.Body, w
		_ = cmd.Run() // the client notices an incomplete response
	})
}

// MultiACKServer is [FullServer] for those alone who ask for multi_ack or multi_ack_detailed, as Azure DevOps and CodeCommit are. It gives
// no commits by name that no branch is at.
func MultiACKServer(repo string) http.Handler {
	full := gitServer(repo)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Contains(body, []byte("multi_ack")) {
				http.Error(w, "the request needs multi_ack", http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		full.ServeHTTP(w, r)
	})
}

// PlainServer knows neither shallow fetches nor commits by name, as old and simple servers do.
func PlainServer(repo string) http.Handler {
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

// Serve serves h until the test ends and returns the URL of a repository there.
func Serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/platform"
}

// ReadFiles returns every file below dir; empty folders appear with a slash.
func ReadFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		full := filepath.Join(dir, name)
		if err == nil && e.IsDir() {
			if entries, _ := os.ReadDir(full); len(entries) == 0 && name != "." {
				found[name+"/"] = ""
			}
			return nil
		}
		data, err := os.ReadFile(full)
		found[name] = string(data)
		return err
	}))
	return found
}
