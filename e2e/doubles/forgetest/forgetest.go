// Package forgetest is a forge in a test's own process: GitHub, GitLab, Gitea or Azure DevOps with one repository.
//
// Begin with [New]. A [Server] keeps change requests, comments, labels and statuses, and serves the repository to git over
// smart HTTP beside its API. It is strict: a route, query parameter or field that the documentation does not have, a token
// in another forge's form, a permission that the token lacks, a branch or commit that the repository does not have: each is
// refused as the real one refuses it, and the first two fail the test. Branches are those of the git repository alone.
package forgetest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/child/childtest"
	"github.com/wherry-dev/wherry/publisher/gittest"
)

// The repository that every server has.
const (
	Owner      = "contoso"
	Repository = "gitops"
)

// Tokens that a server knows.
const (
	Writer = "writer-token-0123456789" // may do everything
	Reader = "reader-token-0123456789" // may read
)

// Change is a change request of the server.
type Change struct {
	Number         int
	Source, Target string
	Title, Body    string
	State          string // open, closed, merged
	Labels         []string
	Comments       []Comment
	Fork           bool // its source is in another repository
}

// Comment is a comment on a Change.
type Comment struct {
	ID   int
	Body string
	// Author is the id of the account; zero is a stranger's. Robot is that of Writer and Reader.
	Author int
}

// Robot is the account of the tokens.
const Robot = 7

// Status is a status of a commit, in the forge's own words.
type Status struct{ Context, State, Description, URL string }

// Fault is a wrong answer. The zero Fault is none.
type Fault struct {
	// Route is the begin of the requests that it is for, such as "POST /api/v3/"; empty for all of the API. One of git's
	// is named in full, such as "git POST git-receive-pack".
	Route string
	// Status is answered in place of the result, and nothing is done.
	Status int
	Header http.Header
	Body   string
	// Half carries the request out, and breaks the connection in the middle of the answer.
	Half bool
	// Before is called before the request is looked at.
	Before func()
}

// Server is a forge. Its exported fields may be read and set between requests.
type Server struct {
	// URL is that of the repository, as git and people use it.
	URL string
	// Git is the folder of the bare repository.
	Git string

	kind     string
	path     string // of the repository
	t        *testing.T
	mu       sync.Mutex
	changes  []*Change
	statuses map[string][]Status // by commit, the newest first
	labels   []string
	faults   []Fault
	heads    map[string]string // commits of the branches, as this call sees them
	calls    []string
	nextID   int
	app      bool // the tokens are those of an app
}

// OfApp makes the tokens those of a GitHub App, which have no user.
func (s *Server) OfApp() { s.app = true }

// New starts a forge of a kind: github, gitlab, gitea or azure. Its repository has a branch dev with one file.
func New(t *testing.T, kind string) *Server {
	t.Helper()
	root := t.TempDir()
	s := &Server{kind: kind, t: t, statuses: map[string][]Status{}, Git: filepath.Join(root, Owner, Repository+".git")}
	mux := http.NewServeMux()
	path := "/" + Owner + "/" + Repository
	switch kind {
	case "github":
		s.github(mux)
	case "gitlab":
		s.gitlab(mux)
	case "gitea":
		s.gitea(mux)
	case "azure":
		s.azure(mux)
		path = "/org/" + Owner + "/_git/" + Repository
		s.Git = filepath.Join(root, path)
	default:
		t.Fatalf("forgetest: no forge is called %s", kind)
	}
	s.path = path
	s.initGit()
	mux.Handle(path+"/", s.git(root))
	mux.Handle(path+".git/", s.git(root))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("forgetest: %s does not know %s %s", kind, r.Method, r.URL.Path)
		http.Error(w, `{"message":"404 Not Found"}`, http.StatusNotFound)
	})
	server := httptest.NewServer(s.faulty(mux))
	server.Config.SetKeepAlivesEnabled(false) // virtual time would not go on while a client keeps a connection open
	t.Cleanup(server.Close)
	s.URL = server.URL + path
	return s
}

// Fail makes the next request of the API that fits a Fault's Route go wrong. Each Fault is used once, in order.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Calls returns the routes that were asked for, as the documentation writes them, and forgets them.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Changes returns copies of all change requests.
func (s *Server) Changes() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Change
	for _, c := range s.changes {
		c := *c
		c.Labels, c.Comments = slices.Clone(c.Labels), slices.Clone(c.Comments)
		all = append(all, c)
	}
	return all
}

// Add adds a change request, as a person would, and returns its number.
func (s *Server) Add(c Change) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Number = len(s.changes) + 1
	if c.State == "" {
		c.State = "open"
	}
	s.changes = append(s.changes, &c)
	return c.Number
}

// Edit changes a change request, as a person would.
func (s *Server) Edit(number int, edit func(*Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.changes[number-1])
}

// Merge merges a change request by moving its target to its source.
func (s *Server) Merge(number int) {
	s.t.Helper()
	s.Edit(number, func(c *Change) {
		s.RunGit("update-ref", "refs/heads/"+c.Target, "refs/heads/"+c.Source)
		c.State = "merged"
	})
}

// ofCommit returns the change requests whose source is at a commit.
func (s *Server) ofCommit(commit string) []*Change {
	return s.list(func(c *Change) bool {
		head, is := s.branch(c.Source)
		return is && head == commit
	})
}

// Statuses returns the statuses of a commit, the newest first.
func (s *Server) Statuses(commit string) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses[commit])
}

// RunGit runs git in the repository and returns its output.
func (s *Server) RunGit(args ...string) string {
	s.t.Helper()
	out, err := s.runGit(args...)
	require.NoError(s.t, err, out)
	return out
}

func (s *Server) runGit(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"--git-dir=" + s.Git}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(s.Git), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_AUTHOR_DATE=@1700000000 +0000",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com", "GIT_COMMITTER_DATE=@1700000000 +0000",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Commit adds a commit with one file to a branch, which it makes from dev if need be, as a person would.
func (s *Server) Commit(branch, file, text string) (commit string) {
	s.t.Helper()
	heads := s.readHeads()
	parent, ok := heads[branch]
	if !ok {
		parent = heads["dev"]
	}
	// One process: with an index and plumbing commands it takes eight.
	cmd := exec.Command("git", "--git-dir="+s.Git, "fast-import", "--quiet", "--done")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		"commit refs/heads/%s\nmark :1\ncommitter Ann <ann@example.com> 1700000000 +0000\ndata 8\nBy hand\n\nfrom %s\nM 100644 inline %s\ndata %d\n%s\nget-mark :1\ndone\n",
		branch, parent, file, len(text), text))
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, string(out))
	return strings.TrimSpace(string(out))
}

// Protect has the server refuse pushes to a branch, as a protected branch does.
func (s *Server) Protect(branch string) {
	s.t.Helper()
	script := "#!/bin/sh\nwhile read old new ref; do\n  if test \"$ref\" = refs/heads/" + branch +
		"; then echo 'GH006: Protected branch update failed.' >&2; exit 1; fi\ndone\n"
	childtest.WriteProgram(s.t, filepath.Join(s.Git, "hooks", "pre-receive"), script)
}

func (s *Server) initGit() {
	gittest.CommitFiles(s.t, s.Git, "dev", map[string]string{"README.md": "Contoso\n"})
	config, err := os.OpenFile(filepath.Join(s.Git, "config"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = config.WriteString("[http]\nreceivepack = true\n[uploadpack]\nallowFilter = true\nallowAnySHA1InWant = true\n[receive]\nautogc = false\n")
	require.NoError(s.t, errors.Join(err, config.Close()))
	require.NoError(s.t, os.MkdirAll(filepath.Join(s.Git, "hooks"), 0o755))
}

// backend returns the path of the program git-http-backend; the program git would only start it.
var backend = sync.OnceValues(func() (string, error) {
	folder, err := exec.Command("git", "--exec-path").Output()
	return filepath.Join(strings.TrimSpace(string(folder)), "git-http-backend"), err
})

// git serves the repository by git's own program, to those whose password is a token.
func (s *Server) git(root string) http.Handler {
	program, err := backend()
	require.NoError(s.t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		writes := strings.HasSuffix(r.URL.Path, "/git-receive-pack") || r.URL.Query().Get("service") == "git-receive-pack"
		switch {
		case password != Writer && password != Reader:
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		case writes && password != Writer:
			http.Error(w, "you may not write here", http.StatusForbidden)
			return
		}
		r.URL.Path = strings.Replace(r.URL.Path, "/"+Repository+"/", "/"+filepath.Base(s.Git)+"/", 1)
		backend := &cgi.Handler{
			Path: program, Stderr: io.Discard,
			Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + root, "REMOTE_USER=robot"},
		}
		backend.ServeHTTP(w, r)
	})
}

// faulty answers as a Fault says, if one is for the request.
func (s *Server) faulty(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := s.takeFault(r)
		if fault.Before != nil {
			fault.Before()
		}
		switch {
		case fault.Status != 0:
			for name, values := range fault.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(fault.Status)
			_, _ = io.WriteString(w, fault.Body)
		case fault.Half:
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			w.Header().Set("Content-Length", fmt.Sprint(recorder.Body.Len()+1))
			w.WriteHeader(recorder.Code)
			_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Server) takeFault(r *http.Request) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	ofGit := strings.HasPrefix(r.URL.EscapedPath(), s.path+"/") || strings.HasPrefix(r.URL.EscapedPath(), s.path+".git/")
	i := slices.IndexFunc(s.faults, func(f Fault) bool {
		if ofGit {
			return f.Route == "git "+r.Method+" "+filepath.Base(r.URL.Path)
		}
		return strings.HasPrefix(r.Method+" "+r.URL.EscapedPath(), f.Route)
	})
	if i < 0 {
		return Fault{}
	}
	fault := s.faults[i]
	s.faults = slices.Delete(s.faults, i, i+1)
	return fault
}

// token returns the token of a request, in the one form in which the kind of forge takes it.
func (s *Server) token(r *http.Request) string {
	value := r.Header.Get("Authorization")
	switch s.kind {
	case "gitlab":
		return r.Header.Get("PRIVATE-TOKEN")
	case "gitea":
		token, _ := strings.CutPrefix(value, "token ")
		return token
	case "azure":
		encoded, _ := strings.CutPrefix(value, "Basic ")
		pair, _ := base64.StdEncoding.DecodeString(encoded)
		_, token, _ := strings.Cut(string(pair), ":")
		return token
	}
	token, _ := strings.CutPrefix(value, "Bearer ")
	return token
}

// call is one request of an API.
type call struct {
	*http.Request
	s      *Server
	in     map[string]any // the body
	change *Change        // that the path names
}

// answer is the answer to a call.
type answer struct {
	status int
	body   any
}

// route is one documented operation: who may call it, and with which query and body.
type route struct {
	pattern string // of http.ServeMux, with the documentation's names in braces
	writes  bool
	query   string // the names that may be given, and with "!" those that must be
	body    string // the same for the fields of the body
	do      func(c *call) answer
}

// serve adds routes below prefix to mux.
func (s *Server) serve(mux *http.ServeMux, prefix string, routes []route) {
	ours := strings.NewReplacer("{owner}", Owner, "{repo}", Repository, "{project}", Owner, "{repositoryId}", Repository, "projects/{id}", "projects/"+Owner+"%2F"+Repository)
	for _, r := range routes {
		method, path, _ := strings.Cut(r.pattern, " ")
		mux.HandleFunc(method+" "+prefix+ours.Replace(path), func(w http.ResponseWriter, req *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.calls = append(s.calls, r.pattern)
			a := s.answer(r, req)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.status)
			_ = json.NewEncoder(w).Encode(a.body)
		})
	}
}

func (s *Server) answer(r route, req *http.Request) answer {
	token := s.token(req)
	switch {
	case token != Writer && token != Reader:
		return s.refuse(http.StatusUnauthorized, "Bad credentials")
	case r.writes && token != Writer:
		return s.refuse(http.StatusForbidden, "Resource not accessible by this token")
	}
	s.heads = s.readHeads() // once for each call, since a list needs many of them
	c := &call{Request: req, s: s}
	if problem := check(r.query, req.URL.Query()); problem != "" {
		s.t.Errorf("forgetest: %s: query %s", r.pattern, problem)
		return s.refuse(http.StatusBadRequest, problem)
	}
	body, _ := io.ReadAll(req.Body)
	if len(body) > 0 {
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&c.in); err != nil {
			return s.refuse(http.StatusBadRequest, "Problems parsing JSON")
		}
	}
	if problem := check(r.body, c.in); problem != "" {
		s.t.Errorf("forgetest: %s: field %s", r.pattern, problem)
		return s.refuse(http.StatusUnprocessableEntity, "Invalid request: "+problem)
	}
	if number := pathValue(req, "pull_number", "issue_number", "index", "merge_request_iid", "pullRequestId"); number != "" {
		i := slices.IndexFunc(s.changes, func(change *Change) bool { return fmt.Sprint(change.Number) == number })
		if i < 0 {
			return s.refuse(http.StatusNotFound, "Not Found")
		}
		c.change = s.changes[i]
	}
	if commit := pathValue(req, "ref", "sha", "commitId"); commit != "" && !s.hasCommit(commit) {
		status := map[string]int{"github": http.StatusUnprocessableEntity}[s.kind]
		return s.refuse(cmp.Or(status, http.StatusNotFound), "No commit found for SHA: "+commit)
	}
	return r.do(c)
}

// pathValue returns the value of the name that the path has.
func pathValue(req *http.Request, names ...string) string {
	for _, name := range names {
		if value := req.PathValue(name); value != "" {
			return value
		}
	}
	return ""
}

// check holds the names of a map against a list such as "title! body".
func check[V any](list string, given map[string]V) string {
	var known []string
	for _, name := range strings.Fields(list) {
		plain := strings.TrimSuffix(name, "!")
		if _, ok := given[plain]; !ok && plain != name {
			return fmt.Sprintf("%q is missing", plain)
		}
		known = append(known, plain)
	}
	for name := range given {
		if !slices.Contains(known, name) {
			return fmt.Sprintf("%q is not a permitted key", name)
		}
	}
	return ""
}

// refuse is an error in the form of the forge.
func (s *Server) refuse(status int, text string) answer {
	switch s.kind {
	case "gitlab":
		return answer{status, map[string]any{"message": fmt.Sprintf("%d %s", status, text)}}
	case "azure":
		return answer{status, map[string]any{"$id": "1", "message": "TF400813: " + text, "typeKey": "AnException", "errorCode": 0}}
	}
	return answer{status, map[string]any{"message": text, "documentation_url": "https://docs.example.com"}}
}

func (c *call) text(field string) string {
	text, _ := c.in[field].(string)
	return text
}

// readHeads reads the commits of the branches, each of which has a file: nothing packs them here.
func (s *Server) readHeads() map[string]string {
	heads := map[string]string{}
	root := filepath.Join(s.Git, "refs", "heads")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || strings.HasSuffix(path, ".lock")) {
			return nil // deleted meanwhile, or being written
		}
		commit, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		name, relErr := filepath.Rel(root, path)
		heads[filepath.ToSlash(name)] = strings.TrimSpace(string(commit))
		return errors.Join(err, relErr)
	})
	if err != nil {
		s.t.Errorf("forgetest: read the branches: %v", err)
	}
	return heads
}

func (s *Server) branch(name string) (commit string, ok bool) {
	commit, ok = s.heads[name]
	return commit, ok
}

func (s *Server) hasCommit(id string) bool {
	_, err := s.runGit("cat-file", "-e", id+"^{commit}")
	return err == nil
}

// add makes a change request; the text is empty, or why not.
func (s *Server) add(source, target, title, body string) (*Change, string) {
	head, has := s.branch(source)
	base, hasBase := s.branch(target)
	switch {
	case !has:
		return nil, "source branch does not exist"
	case !hasBase:
		return nil, "target branch does not exist"
	case head == base:
		return nil, fmt.Sprintf("No commits between %s and %s", target, source)
	}
	c := &Change{Number: len(s.changes) + 1, Source: source, Target: target, Title: title, Body: body, State: "open"}
	s.changes = append(s.changes, c)
	return c, ""
}

// open returns the open change request between two branches.
func (s *Server) open(source, target string) *Change {
	for _, c := range s.changes {
		if c.State == "open" && c.Source == source && c.Target == target && !c.Fork {
			return c
		}
	}
	return nil
}

// list returns the change requests that keep returns true for, the newest first.
func (s *Server) list(keep func(*Change) bool) []*Change {
	var found []*Change
	for _, c := range slices.Backward(s.changes) {
		if keep(c) {
			found = append(found, c)
		}
	}
	return found
}

func (s *Server) comment(c *Change, body string) Comment {
	s.nextID++
	comment := Comment{ID: s.nextID, Body: body, Author: Robot}
	c.Comments = append(c.Comments, comment)
	return comment
}

// editComment replaces a comment, wherever it is.
func (s *Server) editComment(id, body string) Comment {
	for _, c := range s.changes {
		for i := range c.Comments {
			if fmt.Sprint(c.Comments[i].ID) == id {
				c.Comments[i].Body = body
				return c.Comments[i]
			}
		}
	}
	s.t.Errorf("forgetest: there is no comment %s", id)
	return Comment{}
}

func (s *Server) mark(commit string, status Status) {
	s.statuses[commit] = append([]Status{status}, s.statuses[commit]...)
}

func (s *Server) addLabel(c *Change, name string) {
	if !slices.Contains(s.labels, name) {
		s.labels = append(s.labels, name)
	}
	if !slices.Contains(c.Labels, name) {
		c.Labels = append(c.Labels, name)
	}
}

// page returns the part of a list that a query asks for.
func page[T any](all []T, size, number int) []T {
	from := min(max(number-1, 0)*size, len(all))
	return all[from:min(from+size, len(all))]
}
