package zarf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// MinVersion is the oldest supported Zarf: the first with --verify=always. Older versions have no way to refuse an
// unsigned package.
const MinVersion = "0.81.0"

const (
	// tmpDir is zarf's folder for unpacking. Each assignment has its own, so that the leftovers of a killed run can be
	// deleted.
	tmpDir = "tmp"
	// quickTime bounds a run of zarf that only queries something.
	quickTime = 30 * time.Second
	// tailBytes is the length of the end of zarf's log that is searched for its last messages.
	tailBytes = 64 << 10
	// retries is the number of times that zarf tries to push an image or a repository.
	retries = "3"
	// ownEnd is the time before the deadline at which zarf's own timeout ends, so that it can exit with a message
	// before it is killed.
	ownEnd = 15 * time.Second
)

// passed lists the agent's variables that zarf gets: only those for reaching registries.
var passed = []string{
	"PATH", "DOCKER_CONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// command is one run of zarf.
type command struct {
	folder   string // of the run
	args     []string
	env      []string
	deadline time.Duration
	secret   string // does not reach any message
	cache    string // a cache of its own; empty for the one of all assignments
	helm     bool   // a command of Helm, which has none of Zarf's flags
}

// runError is the error of a failed run of zarf, with its last error line.
type runError struct {
	exit program.Exit
	last string
}

func (e *runError) Error() string {
	how := e.exit.String()
	if e.exit.Cause == nil && e.exit.Err == nil && e.exit.Code < 0 {
		how = "was ended by a signal"
	}
	if e.last == "" {
		return "zarf " + how
	}
	return "zarf " + how + ": " + e.last
}

// run runs zarf until it ends, and stops it when ctx ends.
func (r *Reconciler) run(ctx context.Context, c command) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dirs := map[string]string{}
	for name, in := range map[string]string{"home": r.opts.Dir, cacheDir: r.opts.Dir, tmpDir: c.folder} {
		dirs[name] = filepath.Join(in, name)
		if name == cacheDir && c.cache != "" {
			dirs[name] = c.cache
		}
		if err := os.MkdirAll(dirs[name], 0o700); err != nil {
			return local(err)
		}
	}
	env := []string{"HOME=" + dirs["home"], "TMPDIR=" + dirs[tmpDir], "KUBECONFIG=" + r.kubeconfig()}
	for _, name := range passed {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, c.env...) // the last one of a name counts
	args := c.args
	if !c.helm {
		args = append(args, "--log-format", "json", "--no-color", "--tmpdir", dirs[tmpDir], "--cache", dirs[cacheDir])
	}
	started, err := program.Start(c.folder, program.Command{Path: r.opts.Program, Args: args, Env: env, Deadline: c.deadline})
	if err != nil {
		return startError(r.opts.Program, err)
	}
	exit, ended := started.Wait(ctx)
	if !ended {
		return local(errors.New("zarf was killed and does not end"))
	}
	if exit.Code == 0 && exit.Cause == nil && exit.Err == nil {
		return nil
	}
	if exit.Cause == program.ErrStopped && ctx.Err() != nil {
		return ctx.Err()
	}
	return &runError{exit, lastWords(c.folder, c.secret)}
}

func startError(path string, err error) error {
	if classify(err).Reason == ZarfNotFound || errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
		return failure(ZarfNotFound, "%s cannot be run: %w: install zarf %s or newer, and name it with --zarf", path, err, MinVersion)
	}
	return local(err)
}

// line is one line of zarf's log. Its attributes differ from message to message.
type line struct {
	Level     string `json:"level"`
	Message   string `json:"msg"`
	Name      word   `json:"name"`
	Component word   `json:"component"`
	Chart     word   `json:"chart"`
	Package   word   `json:"package"`
}

// word is an attribute that is a text. One that is something else, such as the parts of a reference, is empty.
type word string

// UnmarshalJSON accepts any value.
func (w *word) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*w = word(s)
	}
	return nil
}

func (l line) String() string {
	for _, about := range []word{l.Name, l.Component, l.Chart, l.Package} {
		if about != "" {
			return l.Message + " " + string(about)
		}
	}
	return l.Message
}

// readLog returns the last line of a log, its last error, and the text in it that is not in the log's format.
func readLog(text string) (last, problem line, rest string) {
	var other strings.Builder
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, tailBytes+1)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Message == "" {
			other.WriteString(lines.Text() + "\n")
			continue
		}
		last = l
		if l.Level == "ERROR" {
			problem = l
		}
	}
	return last, problem, other.String()
}

// lastWords returns zarf's own message about its failure.
func lastWords(folder, secret string) string {
	text, err := program.LogTail(folder, tailBytes)
	if err != nil {
		return ""
	}
	last, problem, rest := readLog(text)
	words := problem.Message
	if words == "" {
		words = last.String()
	}
	if words == "" { // errors before zarf sets up its log are no JSON
		lines := strings.Split(strings.TrimSpace(rest), "\n")
		words = lines[len(lines)-1]
	}
	return withhold(words, secret)
}

var (
	aboutSecret = lazyregexp.New(`(?i)\bsecrets?\b`)
	quotedValue = lazyregexp.New(`(?s)(Invalid value|illegal base64|cannot unmarshal|unknown field|error decoding).*`)
)

// withhold removes the parts of a message that may quote a Secret.
func withhold(words, secret string) string {
	if secret != "" {
		words = strings.ReplaceAll(words, secret, "***")
	}
	if aboutSecret.MatchString(words) {
		words = quotedValue.ReplaceAllString(words, "$1, in words that are withheld as they may quote the Secret")
	}
	return words
}

// progress returns zarf's last message.
func progress(folder string) string {
	text, err := program.LogTail(folder, tailBytes)
	if err != nil {
		return ""
	}
	last, _, _ := readLog(text)
	return withhold(last.String(), "")
}

// version runs the program once for its version, and again only if that failed.
func (r *Reconciler) version(ctx context.Context) error {
	r.versionMu.Lock()
	defer r.versionMu.Unlock()
	if r.known {
		return r.tooOld
	}
	printed, err := askVersion(ctx, r)
	if err != nil {
		return err
	}
	r.tooOld, r.known = checkVersion(r.opts.Program, printed), true
	return r.tooOld
}

func askVersion(ctx context.Context, r *Reconciler) (string, error) {
	folder := filepath.Join(r.opts.Dir, "version")
	if err := r.run(ctx, command{folder: folder, args: []string{"version"}, deadline: quickTime}); err != nil {
		if known := classify(err).Reason; known == ZarfNotFound || known == LocalFailure {
			return "", err
		}
		return "", failure(ZarfNotFound, "%s version: %w: is this zarf?", r.opts.Program, err)
	}
	text, err := program.LogTail(folder, tailBytes)
	if err != nil {
		return "", local(err)
	}
	_, _, printed := readLog(text)
	return strings.TrimSpace(printed), nil
}

// checkVersion returns an error for a version below MinVersion. It accepts a program without a version number, such as a
// developer's build.
func checkVersion(path, printed string) error {
	if printed == "" || strings.Contains(printed, "\n") {
		return failure(ZarfNotFound, "%s version says %q: is this zarf?", path, printed)
	}
	v, err := utilversion.ParseGeneric(printed)
	if err != nil {
		return nil
	}
	if v.LessThan(utilversion.MustParseGeneric(MinVersion)) {
		return failure(ZarfTooOld, "%s is zarf %s: install %s or newer, which can be told to deploy nothing unsigned", path, printed, MinVersion)
	}
	return nil
}

// Version returns the version that the program prints; dir is a folder for the run. The error has advice if the program
// is missing or too old.
func Version(ctx context.Context, path, dir string) (string, error) {
	r := &Reconciler{opts: Options{Program: path, Dir: dir}}
	printed, err := askVersion(ctx, r)
	if err != nil {
		return "", err
	}
	return printed, checkVersion(path, printed)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", max(int(d.Seconds()), 1)) }
