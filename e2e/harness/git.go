package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The account that a Git server lets in.
const (
	GitUser     = "wherry"
	GitPassword = "of the repositories of a test"
)

// Git is a server of Git repositories over plain HTTP on loopback. It asks for GitUser and GitPassword.
type Git struct {
	// URL is that of the folder with all repositories, without a slash at its end.
	URL string

	dir     string
	handler http.Handler
	server  *http.Server
}

// StartGit runs a server until Stop. It needs the program git.
func StartGit() (*Git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wherry-e2e-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	backend := &cgi.Handler{
		Path: program, Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir},
	}
	handler := authenticated(backend)
	g := &Git{URL: "http://" + l.Addr().String(), dir: dir, handler: handler, server: &http.Server{Handler: handler}}
	go func() { _ = g.server.Serve(l) }() // ends with Stop
	return g, nil
}

func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != GitUser || password != GitPassword {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Handler answers as the server does, for those who want to serve it in another way.
func (g *Git) Handler() http.Handler { return g.handler }

// Folder is the one with all repositories on the disk.
func (g *Git) Folder() string { return g.dir }

// Stop ends the server and deletes the repositories.
func (g *Git) Stop() error { return errors.Join(g.server.Close(), os.RemoveAll(g.dir)) }

// Create makes an empty repository, which can be pushed to, unless it is there.
func (g *Git) Create(ctx context.Context, repository string) error {
	bare := filepath.Join(g.dir, repository)
	if _, err := g.git(ctx, g.dir, "init", "--quiet", "--bare", "--initial-branch=main", bare); err != nil {
		return err
	}
	_, err := g.git(ctx, bare, "config", "http.receivepack", "true")
	return err
}

// Commit makes files, given by their paths, the whole content of a branch of a repository, both of which it
// creates where they are missing, and returns the new commit.
func (g *Git) Commit(ctx context.Context, repository, branch string, files map[string]string) (commit string, err error) {
	bare := filepath.Join(g.dir, repository)
	if err := g.Create(ctx, repository); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(g.dir, "work-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for name, text := range files {
		path := filepath.Join(work, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return "", err
		}
	}
	within := []string{"--git-dir=" + bare, "--work-tree=" + work, "-c", "user.name=application team", "-c", "user.email=team@example.com"}
	if _, err := g.git(ctx, work, append(within, "add", "--all", ".")...); err != nil {
		return "", err
	}
	tree, err := g.git(ctx, work, append(within, "write-tree")...)
	if err != nil {
		return "", err
	}
	args := append(within, "commit-tree", tree, "-m", "a change")
	if parent, err := g.git(ctx, work, append(within, "rev-parse", "--quiet", "--verify", branch)...); err == nil {
		args = append(args, "-p", parent)
	}
	if commit, err = g.git(ctx, work, args...); err != nil {
		return "", err
	}
	_, err = g.git(ctx, work, append(within, "update-ref", "refs/heads/"+branch, commit)...)
	return commit, err
}

func (g *Git) git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+g.dir)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
