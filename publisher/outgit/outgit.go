// Package outgit commits a rendered environment to a branch of a git repository, laid out as Kalypso does.
//
// Begin with [Push], which moves the branch itself, or with [Propose], which keeps one change request for it, as Kalypso
// does. [PushEdit] and [ProposeEdit] do the same with a change of a few files, such as a promotion. The files are those that package outdir writes, and the same folders are owned completely: stale files go, other
// people's stay. [InitGit] runs the git program in a repository of its own: no hook runs, no password is asked for, and a login
// is never among the arguments of a process.
//
// The same input on the same branch gives the same commit, so a run may be repeated, and one that was cut off at any point
// is completed by the next. Branches are moved only from the commit that was read, and the server's own list of branches is
// asked whether they moved. Only the work branch that wherry made is ever rewritten.
package outgit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/scheduler"
)

// Target is the folder of a branch that a result is written to.
type Target struct {
	URL    string // may hold credentials; messages show the Target as [Target.String]
	Branch string
	Folder string // empty and "." for the root
}

// ParseTarget reads URL#BRANCH and URL#BRANCH:FOLDER. Its error repeats no credentials.
func ParseTarget(s string) (Target, error) {
	repository, fragment, found := strings.Cut(s, "#")
	branch, folder, _ := strings.Cut(fragment, ":")
	if !found || branch == "" {
		return Target{}, fmt.Errorf("%s: no branch is named, as in URL#BRANCH", gitrepo.Redact(repository))
	}
	t := Target{URL: repository, Branch: branch, Folder: folder}
	return t, t.Check()
}

// Check makes t.Folder clean and returns an error for a target that cannot be. The error repeats no credentials.
func (t *Target) Check() error {
	if err := gitrepo.CheckURL(t.URL); err != nil {
		return err
	}
	if err := checkBranch(t.Branch); err != nil {
		return fmt.Errorf("%s: %w", gitrepo.Redact(t.URL), err)
	}
	folder, err := gitrepo.CleanPath(t.Folder)
	if t.Folder = folder; err == nil && strings.HasPrefix(folder, ".git") {
		err = fmt.Errorf("folder %s cannot be written to", folder)
	}
	return err
}

// checkBranch refuses what git does not take as the name of a branch, see git-check-ref-format.
func checkBranch(name string) error {
	bad := name == "" || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".") ||
		strings.ContainsAny(name, " ~^:?*[\\\x7f") || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' })
	for _, words := range []string{"..", "@{", "//"} {
		bad = bad || strings.Contains(name, words)
	}
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad || name == "@" {
		return fmt.Errorf("%q cannot be the name of a branch", name)
	}
	return nil
}

// String returns the target without credentials.
func (t Target) String() string {
	s := gitrepo.Redact(t.URL) + "#" + t.Branch
	if folder := path.Clean("/" + t.Folder); folder != "/" {
		s += ":" + folder[1:]
	}
	return s
}

// Identity is the author or committer of a commit.
type Identity struct{ Name, Email string }

// Options are the options of [Push] and [Propose]. The zero value is ready for use.
type Options struct {
	// Force takes over folders that others wrote. What lies in the folders of cluster types goes.
	Force bool
	// Keep removes no assignment's folder, because which there should be is not known.
	Keep bool
	// AllowEmpty leaves cluster types without assignments that have some on the branch; otherwise that is an [*EmptyError].
	AllowEmpty bool
	// Author and Committer are wherry if they are empty.
	Author, Committer Identity
	// Date is the date of the commit. The zero time stands for that of the commit before it.
	Date time.Time
	// EnvironmentCommit is named in the message of the commit; it may be empty.
	EnvironmentCommit string
	// User and Password reach the repository over HTTP, unless its URL has a login.
	User, Password string
	// Timeout bounds each command of git. Zero means two minutes.
	Timeout time.Duration
	// WorkBranch is the branch that [Propose] uses; empty for the environment's own.
	WorkBranch string
	// Again has [Propose] open a change request although a person closed one with the same content.
	Again bool
}

func (o Options) withDefaults() Options {
	o.Author.Name = cmp.Or(clean(o.Author.Name), "wherry")
	o.Author.Email = cmp.Or(clean(o.Author.Email), "wherry@wherry.invalid")
	o.Committer.Name = cmp.Or(clean(o.Committer.Name), "wherry")
	o.Committer.Email = cmp.Or(clean(o.Committer.Email), "wherry@wherry.invalid")
	o.Timeout = cmp.Or(o.Timeout, 2*time.Minute)
	return o
}

// clean drops what git would drop from the middle of a commit's header.
func clean(s string) string {
	return strings.TrimSpace(strings.NewReplacer("<", "", ">", "", "\n", " ", "\x00", "").Replace(s))
}

// Outcome is what a run did.
type Outcome struct {
	Written, Removed []string // sorted paths below the target's folder
	Unchanged        int
	// Commit has the content; it is the branch's own if there was no change.
	Commit string
	// Branch is the branch that Commit is on.
	Branch string
	// Pushed reports whether the branch was moved.
	Pushed bool
	// Proposal is about the change request; only [Propose] has one.
	Proposal Proposal

	tree string // of Commit, if it is a new one
}

// maxTries bounds how often a branch that others move is read again.
const maxTries = 5

// ErrBusy is returned for a branch that others moved each time before it could be.
var ErrBusy = errors.New("others keep moving the branch")

// MissingBranchError means that the target's branch does not exist.
type MissingBranchError struct{ Target Target }

func (e *MissingBranchError) Error() string {
	return fmt.Sprintf("there is no branch %s in %s", e.Target.Branch, gitrepo.Redact(e.Target.URL))
}

// Push commits a result to a target's branch, which it makes if need be. Nothing is pushed if the branch has the content.
func Push(ctx context.Context, t Target, result *scheduler.Result, o Options) (Outcome, error) {
	return push(ctx, t, &rendered{result}, o)
}

func push(ctx context.Context, t Target, w job, o Options) (Outcome, error) {
	return run(ctx, t, o, func(r repository, o Options) (Outcome, error) {
		heads, err := r.heads(ctx, t.Branch)
		if err != nil {
			return Outcome{}, err
		}
		made, err := r.make(ctx, t, heads, w, o)
		if err != nil || !made.Pushed {
			return made, err
		}
		return made, r.push(ctx, made.Commit, t.Branch, heads[t.Branch])
	})
}

// run calls step with a repository until no branch moves meanwhile.
func run(ctx context.Context, t Target, o Options, step func(repository, Options) (Outcome, error)) (Outcome, error) {
	if err := t.Check(); err != nil {
		return Outcome{}, err
	}
	o = o.withDefaults()
	remote, err := RemoteOf(t.URL, o.User, o.Password)
	if err != nil {
		return Outcome{}, err
	}
	g, err := InitGit(ctx, remote, o.Timeout)
	if err != nil {
		return Outcome{}, err
	}
	defer func() { _ = g.Close() }() // temporary files only
	known := g.Heads
	for range maxTries {
		outcome, err := step(repository{g, known}, o)
		if !errors.Is(err, errMoved) {
			return outcome, err
		}
		known = nil
	}
	return Outcome{}, ErrBusy
}

// job is what a run commits: a rendered environment, or an [Edit].
type job interface {
	// environment names the environment whose work branch and change request it has.
	environment() string
	// purpose is the word of the marker in the text of its change requests, and content identifies what it commits.
	purpose() string
	content() string
	// compare returns what differs from a commit, which is empty for a branch to be made.
	compare(ctx context.Context, r repository, parent string, t Target, o Options) (changes, error)
	message(t Target, c changes, tree string, o Options) string
	title(t Target, branch string) string
	body(o Outcome, branch string) string
	// keepsText reports whether a text for the same content stays as it is.
	keepsText() bool
}

// rendered is the job of [Push] and [Propose].
type rendered struct{ result *scheduler.Result }

func (w *rendered) environment() string { return w.result.Environment }
func (w *rendered) purpose() string     { return "render" }
func (w *rendered) content() string     { return contentOf(w.result) }
func (w *rendered) keepsText() bool     { return false }

func (w *rendered) compare(ctx context.Context, r repository, parent string, t Target, o Options) (changes, error) {
	has, err := r.look(ctx, parent, path.Clean(cmp.Or(t.Folder, ".")), typesOf(w.result))
	if err != nil {
		return changes{}, err
	}
	c, err := compare(has, w.result, rules{force: o.Force, keep: o.Keep, empty: o.AllowEmpty, hash: hashOf(parent)})
	if err != nil {
		err = fmt.Errorf("%s: %w", t, err)
	}
	return c, err
}

// make makes the commit that follows the head of the target's branch. Pushed is true in its outcome if there is a change,
// which remains to be pushed.
func (r repository) make(ctx context.Context, t Target, heads map[string]string, w job, o Options) (Outcome, error) {
	if err := r.fetch(ctx, heads); err != nil {
		return Outcome{}, err
	}
	parent := heads[t.Branch]
	c, err := w.compare(ctx, r, parent, t, o)
	if err != nil {
		return Outcome{}, err
	}
	outcome := Outcome{Written: sortedNames(c.written), Removed: c.removed, Unchanged: c.unchanged, Commit: parent, Branch: t.Branch}
	if c.none() {
		return outcome, nil
	}
	when := o.Date
	if when.IsZero() && parent != "" {
		info, err := r.info(ctx, parent)
		if err != nil {
			return outcome, err
		}
		when = info.when
	}
	if when.IsZero() {
		when = time.Unix(0, 0)
	}
	tree, err := r.write(ctx, parent, path.Clean(cmp.Or(t.Folder, ".")), c)
	if err != nil {
		return outcome, err
	}
	outcome.Proposal.Promoted = c.promoted
	outcome.Commit, err = r.commit(ctx, tree, parent, w.message(t, c, tree, o), o, when)
	outcome.Pushed, outcome.tree = true, tree
	return outcome, err
}

// Trailers of our commits. The tree tells a commit of ours from one that somebody changed.
const (
	environmentTrailer = "Wherry-Environment"
	treeTrailer        = "Wherry-Tree"
)

// message is the message of a commit: what changes, the commits that it was rendered from, and what makes it ours.
func (w *rendered) message(t Target, c changes, tree string, o Options) string {
	result := w.result
	var b strings.Builder
	fmt.Fprintf(&b, "Update manifests in %s\n\n", t.Branch)
	fmt.Fprintf(&b, "%d written, %d removed, %d unchanged.\n\n", len(c.written), len(c.removed), c.unchanged)
	if result.BaseCommit != "" {
		fmt.Fprintf(&b, "Base-Commit: %s\n", result.BaseCommit)
	}
	if o.EnvironmentCommit != "" {
		fmt.Fprintf(&b, "Environment-Commit: %s\n", o.EnvironmentCommit)
	}
	return b.String() + trailers(result.Environment, tree)
}

// trailers make a commit ours.
func trailers(environment, tree string) string {
	return fmt.Sprintf("%s: %s\n%s: %s\n", environmentTrailer, environment, treeTrailer, tree)
}
