package outgit

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

var (
	// ErrNoGit is returned on a machine without the git program.
	ErrNoGit = errors.New("the program git was not found")
	// ErrDenied means that a server did not accept the login, or wants one.
	ErrDenied = errors.New("not allowed")
)

// Bounds on the output of one command that is kept.
const (
	maxOutput = 256 << 20
	maxErrors = 64 << 10
)

// Remote is a repository of others.
type Remote struct {
	// URL is what git is given, without credentials.
	URL string

	user, password string
}

// RemoteOf returns the repository at a URL or path. A login in the URL goes before user and password, which may be empty.
// The error repeats no credentials.
func RemoteOf(place, user, password string) (Remote, error) {
	if err := gitrepo.CheckURL(place); err != nil {
		return Remote{}, err
	}
	if gitrepo.IsLocal(place) && !gitrepo.HasScheme(place) {
		path, err := filepath.Abs(place) // git runs elsewhere
		return Remote{URL: path}, err
	}
	if !gitrepo.HasScheme(place) {
		if strings.HasPrefix(place, "-") || strings.Contains(place, "::") { // an option; a program, as ext:: runs one
			return Remote{}, errors.New("not a git URL")
		}
		return Remote{URL: place}, nil // host:path of ssh, which has no password
	}
	u, err := url.Parse(place)
	if err != nil {
		return Remote{}, errors.New("not a git URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		if u.User != nil { // ssh needs the user; a password there is of no use
			u.User = url.User(u.User.Username())
		}
		return Remote{URL: u.String()}, nil
	}
	if u.User != nil {
		secret, _ := u.User.Password()
		user, password = u.User.Username(), secret
	}
	u.User = nil
	return Remote{URL: u.String(), user: user, password: password}, nil
}

// redact returns text without the login of r, in each form in which it travels, and without that of any URL.
func (r Remote) redact(text string) string {
	text = login.ReplaceAllString(text, "$1")
	pair := base64.StdEncoding.EncodeToString([]byte(r.user + ":" + r.password))
	for _, secret := range []string{pair, r.password, url.QueryEscape(r.password), url.PathEscape(r.password), longUser(r.user)} {
		if secret != "" && r.user+r.password != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

var login = lazyregexp.New(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@'"]*@`)

// longUser is the user's name where it may be a token.
func longUser(user string) string {
	if len(user) < 20 {
		return ""
	}
	return user
}

// Git is a bare repository in a temporary folder, which belongs to one remote repository.
type Git struct {
	Remote Remote
	// Heads are the commits of the remote repository's branches, by name, as [Init] found them.
	Heads map[string]string

	folder  *diskfile.Scratch
	dir     string // its path
	env     []string
	timeout time.Duration
}

// InitGit makes an empty repository, in which r is the remote origin and whose format of hashes is that of r: sha1, or sha256.
// Each command gets timeout. The caller closes it.
func InitGit(ctx context.Context, r Remote, timeout time.Duration) (*Git, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, ErrNoGit
	}
	folder, err := diskfile.NewScratch()
	if err != nil {
		return nil, err
	}
	g := &Git{Remote: r, folder: folder, dir: folder.Path, timeout: timeout}
	g.env = append(environment(), settings(append(kept(ctx), own(r)...))...)
	if strings.HasPrefix(strings.ToLower(r.URL), "http://") { // curl reads ~/.netrc, and whoever is on the way would have the login
		g.env = append(slices.DeleteFunc(g.env, func(e string) bool { return strings.HasPrefix(e, "HOME=") || strings.HasPrefix(e, "NETRC=") }), "HOME="+g.dir)
	}
	out, err := g.Run(ctx, nil, "ls-remote", "--", r.URL, "HEAD", "refs/heads/*")
	if err == nil {
		var format string
		g.Heads, format = headsOf(string(out))
		_, err = g.Run(ctx, nil, "init", "--quiet", "--bare", "--template=", "--object-format="+format)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// headsOf reads the output of ls-remote: the branches, and the format of hashes, which their length tells. A repository
// without branches gets git's default.
func headsOf(listed string) (heads map[string]string, format string) {
	heads, format = map[string]string{}, "sha1"
	for line := range strings.Lines(listed) {
		commit, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if len(commit) == 64 {
			format = "sha256"
		}
		if branch, found := strings.CutPrefix(ref, "refs/heads/"); found {
			heads[branch] = commit
		}
	}
	return heads, format
}

// Close removes the repository.
func (g *Git) Close() error { return g.folder.Close() }

// environment is that of the process, without what would lead git elsewhere.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "GIT_") && !slices.Contains([]string{
			"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_EXEC_PATH",
		}, name) || name == "SSH_ASKPASS"
	})
	env = append(env,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh:file",
		"GIT_OPTIONAL_LOCKS=0", "LC_ALL=C",
	)
	if os.Getenv("GIT_SSH_COMMAND") == "" && os.Getenv("GIT_SSH") == "" {
		env = append(env, "GIT_SSH_COMMAND=ssh -o BatchMode=yes")
	}
	return env
}

// setting is a value of git's configuration.
type setting struct{ key, value string }

// reaching are the settings of a user that are needed to reach a server.
const reaching = `^(credential|http|https)\.|^core\.(sshcommand|gitproxy)$`

// kept reads those settings of the user's and the machine's configuration.
func kept(ctx context.Context) []setting {
	var all []setting
	for _, scope := range []string{"--system", "--global"} {
		cmd := exec.CommandContext(ctx, "git", "config", scope, "--includes", "--null", "--get-regexp", reaching)
		cmd.Dir = os.TempDir()
		out, err := cmd.Output()
		if err != nil {
			continue // there are none
		}
		for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			key, value, _ := strings.Cut(entry, "\n")
			all = append(all, setting{key, value})
		}
	}
	return all
}

// own are our settings, which stand after those of the user.
func own(r Remote) []setting {
	all := []setting{
		{"core.hooksPath", os.DevNull},
		{"gc.auto", "0"},
		{"maintenance.auto", "false"},
		{"core.logAllRefUpdates", "false"},
		{"advice.detachedHead", "false"},
		{"push.gpgSign", "false"},
		{"push.recurseSubmodules", "no"},
		{"fetch.recurseSubmodules", "no"},
		{"protocol.version", "2"},
		{"remote.origin.url", r.URL},
		{"http.followRedirects", "false"}, // a login must not travel elsewhere
	}
	if strings.HasPrefix(strings.ToLower(r.URL), "http://") {
		all = append(all, setting{"credential.helper", ""})
	}
	if r.user != "" || r.password != "" {
		pair := base64.StdEncoding.EncodeToString([]byte(r.user + ":" + r.password))
		// Empty values take back earlier ones, since a server refuses two logins.
		own := "http." + r.URL + ".extraHeader"
		all = append(all, setting{"credential.helper", ""}, setting{"http.extraHeader", ""}, setting{own, ""}, setting{own, "Authorization: Basic " + pair})
	}
	return all
}

// settings passes settings in the environment, since arguments of a process can be read by all users of the machine.
func settings(all []setting) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(all))}
	for i, s := range all {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return env
}

// GitError is a git command that failed.
type GitError struct {
	Command string // such as "git push"
	Text    string // what git said, as one printable line without logins
	err     error
}

func (e *GitError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.err)
	}
	return e.Command + ": " + e.Text
}

// Unwrap returns [ErrDenied] for a login that was not accepted, or the reason why git could not run.
func (e *GitError) Unwrap() error { return e.err }

// Run runs git with args and returns its output. Its error is an [*Error], or of ctx.
func (g *Git) Run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return g.RunAs(ctx, nil, stdin, args...)
}

// RunAs is Run with further environment variables.
func (g *Git) RunAs(ctx context.Context, env []string, stdin io.Reader, args ...string) ([]byte, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, g.timeout, fmt.Errorf("not done within %s", g.timeout))
	defer cancel()
	cmd := exec.Command("git", append([]string{"--git-dir=" + g.dir}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = g.dir, append(slices.Clip(g.env), env...), stdin, &child.Head{W: &stdout, Left: maxOutput}, &child.Head{W: &stderr, Left: maxErrors}
	err := child.Run(bounded, cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, &GitError{Command: "git " + args[0], err: context.Cause(bounded)}
	case err == nil && stdout.Len() == maxOutput:
		return nil, &GitError{Command: "git " + args[0], Text: "the repository is too large", err: gitrepo.ErrTooLarge}
	case err != nil:
		return stdout.Bytes(), g.failure(args[0], stderr.Bytes(), err)
	}
	return stdout.Bytes(), nil
}

// denials are git's and ssh's own words, in the C locale, for a login that is missing or not accepted.
var denials = []string{"Authentication failed", "could not read Username", "Permission denied", "returned error: 401", "returned error: 403", "terminal prompts disabled"}

func (g *Git) failure(command string, stderr []byte, err error) error {
	text := g.Remote.redact(string(stderr))
	if slices.ContainsFunc(denials, func(words string) bool { return strings.Contains(text, words) }) {
		err = ErrDenied
	}
	return &GitError{Command: "git " + command, Text: OneLine(text), err: err}
}

// OneLine makes what git or a server says one printable line of bounded length.
func OneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(line, "")))
		for _, prefix := range []string{"fatal: ", "error: ", "remote: "} {
			line = strings.TrimSpace(strings.TrimPrefix(line, prefix))
		}
		if line != "" && line != "remote:" && !strings.HasPrefix(line, "hint:") && !strings.HasPrefix(line, "warning:") {
			lines = append(lines, line)
		}
	}
	all := []rune(strings.Join(lines, "; "))
	if len(all) > 400 {
		return string(all[:400]) + "…"
	}
	return string(all)
}
