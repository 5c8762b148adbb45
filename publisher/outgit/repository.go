package outgit

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha1" // git's
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/scheduler"
)

// repository is the part of a remote repository that is worked with: the newest commits of one or two branches with their
// folders, and the files that were asked for. Neither history nor files are fetched otherwise, so that the cost follows the
// change and not the repository.
type repository struct {
	*Git
	// known are the branches that were read just before; nil if they have to be read again.
	known map[string]string
}

func ref(branch string) string { return "refs/heads/" + branch }

// heads returns the commits of branches to begin with; one that is missing has none.
func (r repository) heads(ctx context.Context, branches ...string) (map[string]string, error) {
	if r.known == nil {
		return r.readHeads(ctx, branches...)
	}
	heads := map[string]string{}
	for _, b := range branches {
		if commit, found := r.known[b]; found {
			heads[b] = commit
		}
	}
	return heads, nil
}

// readHeads asks the server for the commits of branches.
func (r repository) readHeads(ctx context.Context, branches ...string) (map[string]string, error) {
	args := []string{"ls-remote", "--", r.Remote.URL}
	for _, b := range branches {
		args = append(args, ref(b))
	}
	out, err := r.Run(ctx, nil, args...)
	if err != nil {
		return nil, err
	}
	heads := map[string]string{}
	for line := range strings.Lines(string(out)) {
		commit, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		for _, b := range branches {
			if name == ref(b) { // a pattern fits the ends of other names too
				heads[b] = commit
			}
		}
	}
	return heads, nil
}

// fetch brings the newest commit of branches, with its folders, and returns errMoved if one of them is not the one that
// heads has.
func (r repository) fetch(ctx context.Context, heads map[string]string) error {
	args := []string{"fetch", "--quiet", "--depth=1", "--filter=blob:none", "--no-tags", "--no-write-fetch-head", "origin"}
	for _, b := range sortedNames(heads) {
		args = append(args, "+"+ref(b)+":refs/read/"+b)
	}
	if len(heads) == 0 {
		return nil
	}
	if _, err := r.Run(ctx, nil, args...); err != nil {
		return err
	}
	parse, want := []string{"rev-parse"}, ""
	for _, b := range sortedNames(heads) {
		parse = append(parse, "refs/read/"+b)
		want += heads[b] + "\n"
	}
	out, err := r.Run(ctx, nil, parse...)
	if err == nil && string(out) != want {
		err = errMoved
	}
	return err
}

// hashOf returns git's hash of a file's content.
func hashOf(commit string) func(data []byte) string {
	return func(data []byte) string {
		var h hash.Hash = sha1.New()
		if len(commit) == sha256.Size*2 {
			h = sha256.New()
		}
		fmt.Fprintf(h, "blob %d\x00", len(data))
		h.Write(data)
		return hex.EncodeToString(h.Sum(nil))
	}
}

// look reads what a commit has in a folder: the top of it, and all below the folders of types and below those that were
// folders of types.
func (r repository) look(ctx context.Context, commit, folder string, types []string) (existing, error) {
	e := existing{top: map[string]entry{}, files: map[string]entry{}}
	e.read = func(f entry) ([]byte, error) { return r.Run(ctx, nil, "cat-file", "blob", f.hash) }
	if commit == "" {
		return e, nil
	}
	root, err := r.tree(ctx, commit, folder)
	if err != nil || root == "" {
		return e, err
	}
	if e.top, err = r.list(ctx, "ls-tree", "-z", root); err != nil {
		return e, err
	}
	var inside []string
	for _, name := range sortedNames(e.top) {
		if e.top[name].mode == folderMode && !strings.HasPrefix(name, ".") {
			inside = append(inside, path.Join(name, scheduler.ReadmeFile))
		}
	}
	readmes, err := r.list(ctx, append([]string{"ls-tree", "-z", root, scheduler.TrackingFile}, inside...)...)
	if err != nil {
		return e, err
	}
	e.files = readmes
	owned, err := ownedFolders(e, types, true, hashOf(commit))
	if err != nil || len(owned) == 0 {
		return e, err
	}
	all, err := r.list(ctx, append([]string{"ls-tree", "-r", "-z", root, scheduler.TrackingFile}, owned...)...)
	for name, f := range all {
		e.files[name] = f
	}
	return e, err
}

// tree returns the tree of a folder of a commit; empty if there is none.
func (r repository) tree(ctx context.Context, commit, folder string) (string, error) {
	if folder == "." {
		return commit, nil
	}
	found, err := r.list(ctx, "ls-tree", "-z", commit, folder)
	if err != nil || len(found) == 0 {
		return "", err
	}
	if found[folder].mode != folderMode {
		return "", fmt.Errorf("%s is in the way: not a folder", folder)
	}
	return found[folder].hash, nil
}

// list reads the output of ls-tree, in which paths are literal.
func (r repository) list(ctx context.Context, args ...string) (map[string]entry, error) {
	out, err := r.RunAs(ctx, []string{"GIT_LITERAL_PATHSPECS=1"}, nil, args...)
	if err != nil {
		return nil, err
	}
	all := map[string]entry{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		head, name, found := strings.Cut(line, "\t")
		if words := strings.Fields(head); found && len(words) == 3 {
			all[name] = entry{words[0], words[2]}
		}
	}
	return all, nil
}

// write makes the tree that a commit has after changes below a folder, and returns it.
func (r repository) write(ctx context.Context, parent, folder string, c changes) (tree string, err error) {
	in, out := io.Pipe() // git reads while it is written, so that a large tree is not in memory twice
	go func() { _ = out.CloseWithError(stream(out, parent, folder, c)) }()
	_, err = r.Run(ctx, in, "fast-import", "--quiet", "--force", "--done")
	_ = in.Close() // ends the goroutine if git has not read to the end
	if err != nil {
		return "", err
	}
	made, err := r.Run(ctx, nil, "rev-parse", "refs/made^{tree}")
	return strings.TrimSpace(string(made)), err
}

// stream writes changes as fast-import reads them.
func stream(to io.Writer, parent, folder string, c changes) error {
	in := bufio.NewWriter(to)
	fmt.Fprint(in, "commit refs/made\ncommitter wherry <wherry> 0 +0000\ndata 0\n")
	if parent != "" {
		fmt.Fprintf(in, "from %s\n", parent)
	}
	for _, name := range c.removed {
		fmt.Fprintf(in, "D %s\n", quoted(path.Join(folder, name)))
	}
	for _, name := range sortedNames(c.written) {
		data := c.written[name]
		fmt.Fprintf(in, "M %s inline %s\ndata %d\n", cmp.Or(c.modes[name], fileMode), quoted(path.Join(folder, name)), len(data))
		_, _ = in.Write(data) // its error is that of Flush
		_ = in.WriteByte('\n')
	}
	_, _ = in.WriteString("done\n")
	return in.Flush()
}

// quoted is a path as fast-import reads it, whatever characters it has.
func quoted(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name) + `"`
}

// commit makes a commit of a tree. The same arguments give the same commit.
func (r repository) commit(ctx context.Context, tree, parent, message string, o Options, when time.Time) (string, error) {
	date := fmt.Sprintf("@%d +0000", when.Unix())
	env := []string{
		"GIT_AUTHOR_NAME=" + o.Author.Name, "GIT_AUTHOR_EMAIL=" + o.Author.Email, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + o.Committer.Name, "GIT_COMMITTER_EMAIL=" + o.Committer.Email, "GIT_COMMITTER_DATE=" + date,
	}
	args := []string{"commit-tree", tree}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	out, err := r.RunAs(ctx, env, strings.NewReader(message), args...)
	return strings.TrimSpace(string(out)), err
}

// commitInfo is what a commit says about itself.
type commitInfo struct {
	tree, parent, author, subject string
	when                          time.Time
	trailers                      map[string]string
}

func (r repository) info(ctx context.Context, commit string) (commitInfo, error) {
	out, err := r.Run(ctx, nil, "cat-file", "commit", commit)
	if err != nil {
		return commitInfo{}, err
	}
	info := commitInfo{trailers: map[string]string{}}
	head, message, _ := strings.Cut(string(out), "\n\n")
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "tree":
			info.tree = value
		case "parent":
			info.parent = value
		case "author":
			info.author, _, _ = strings.Cut(value, " <")
		case "committer":
			var seconds int64
			_, dates, _ := strings.Cut(value, "> ")
			if _, err := fmt.Sscan(dates, &seconds); err == nil {
				info.when = time.Unix(seconds, 0).UTC()
			}
		}
	}
	info.subject, _, _ = strings.Cut(message, "\n")
	for line := range strings.Lines(message) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), ": "); found {
			info.trailers[key] = value
		}
	}
	return info, nil
}

// errMoved means that a branch is not where it was read: read again.
var errMoved = errors.New("the branch moved")

// push makes commit the head of a branch if that is still old, which is empty for a new branch. It believes what the
// server's list of branches says afterwards, and not what git printed.
func (r repository) push(ctx context.Context, commit, branch, old string) error {
	_, pushErr := r.Run(ctx, nil, "push", "--quiet", "--porcelain", "--atomic", "--no-thin",
		"--force-with-lease="+ref(branch)+":"+old, "--", "origin", commit+":"+ref(branch))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	heads, err := r.readHeads(ctx, branch)
	switch {
	case err != nil:
		return errors.Join(pushErr, err)
	case heads[branch] == commit:
		return nil
	case heads[branch] != old || pushErr == nil:
		return errMoved
	case errors.Is(pushErr, ErrDenied):
		return pushErr
	}
	return &RefusedError{Branch: branch, Err: pushErr}
}

// RefusedError means that the server does not let this branch be pushed to, as a protected branch does.
type RefusedError struct {
	Branch string
	Err    error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server refuses a push to %s: %v", e.Branch, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// contentOf identifies what a result has, whatever branch it is written to.
func contentOf(result *scheduler.Result) string {
	h := sha256.New()
	files := scheduler.Tree(result)
	slices.SortFunc(files, func(a, b scheduler.File) int { return strings.Compare(a.Path, b.Path) })
	for _, f := range files {
		sum := sha256.Sum256(f.Data)
		fmt.Fprintf(h, "%s\x00%x\n", f.Path, sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}
