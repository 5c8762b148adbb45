package outgit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
)

// Edit is a change of a few files of a branch.
type Edit struct {
	// Environment is the one that the change is for, and Purpose is a word for it, such as "promote". Together they name the
	// change request: at most one of them is open.
	Environment, Purpose string
	// Content identifies the change. If a person closed a change request with the same content, none is opened.
	Content string
	// Files returns the new content of the files that change, by their paths below the target's folder. Returning none means
	// that there is nothing to do.
	Files func(ctx context.Context, b Branch) (map[string][]byte, error)
	// Title is the subject of the commit and the title of the change request, Message the rest of the commit's message and
	// Text that of the change request, in Markdown. The text of an open request with the same Content is left alone.
	Title, Message, Text string
	// BaseCommit is named by a trailer of the commit's message; empty for none.
	BaseCommit string
	// Promoted gives the change request the label [PromotedLabel].
	Promoted bool
}

// PushEdit commits an edit to a target's branch, which must exist. Nothing is pushed if no file changes.
func PushEdit(ctx context.Context, t Target, e Edit, o Options) (Outcome, error) {
	return push(ctx, t, &edited{Edit: e}, o)
}

// ProposeEdit keeps one change request with an edit, as [Propose] does. The work branch is PURPOSE/ENVIRONMENT unless
// Options name one.
func ProposeEdit(ctx context.Context, f Requests, t Target, e Edit, o Options) (Outcome, error) {
	work := o.WorkBranch
	if work == "" {
		work = e.Purpose + "/" + e.Environment
	}
	return propose(ctx, f, t, &edited{Edit: e}, work, o)
}

// Branch is the newest commit of a target's branch, for reading. It is valid until the function that got it returns.
type Branch struct {
	Commit string

	r     repository
	files map[string]entry
}

// Bounds on what is read of a branch.
const (
	maxBranchFiles = 200_000
	maxFileBytes   = 1 << 20
)

// Names returns the sorted paths of the regular files below the target's folder.
func (b Branch) Names() []string { return sortedNames(b.files) }

// ReadFile returns the content of one of Names. A file of more than 1 MiB is an error that wraps [gitrepo.ErrTooLarge].
func (b Branch) ReadFile(ctx context.Context, name string) ([]byte, error) {
	f, ok := b.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	data, err := b.r.Run(ctx, nil, "cat-file", "blob", f.hash)
	if err == nil && len(data) > maxFileBytes {
		err = gitrepo.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// edited is the job of [PushEdit] and [ProposeEdit].
type edited struct{ Edit }

func (w *edited) environment() string { return w.Environment }
func (w *edited) purpose() string     { return w.Purpose }
func (w *edited) content() string     { return w.Content }
func (w *edited) keepsText() bool     { return true }

func (w *edited) compare(ctx context.Context, r repository, parent string, t Target, _ Options) (changes, error) {
	if parent == "" {
		return changes{}, &MissingBranchError{t}
	}
	c := changes{written: map[string][]byte{}, modes: map[string]string{}}
	tree, err := r.tree(ctx, parent, path.Clean(t.Folder))
	if err == nil && tree == "" {
		err = fmt.Errorf("%s: %w", t, fs.ErrNotExist)
	}
	if err != nil {
		return c, err
	}
	all, err := r.list(ctx, "ls-tree", "-r", "-z", tree)
	if err != nil {
		return c, err
	}
	if len(all) > maxBranchFiles {
		return c, fmt.Errorf("%s has more than %d files: %w", t, maxBranchFiles, gitrepo.ErrTooLarge)
	}
	for name, f := range all {
		if !isRegular(f.mode) {
			delete(all, name)
		}
	}
	b := Branch{Commit: parent, r: r, files: all}
	files, err := w.Files(ctx, b)
	if err != nil {
		return c, err
	}
	for name, data := range files {
		f, ok := all[name]
		if !ok {
			return c, errors.New(name + " is not a file of the branch")
		}
		if old, err := b.ReadFile(ctx, name); err != nil {
			return c, err
		} else if !bytes.Equal(old, data) {
			c.written[name], c.modes[name] = data, f.mode
		}
	}
	c.promoted = w.Promoted
	c.unchanged = len(all) - len(c.written)
	return c, nil
}

func (w *edited) message(_ Target, _ changes, tree string, o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", w.Title)
	if text := strings.TrimSpace(w.Message); text != "" {
		fmt.Fprintf(&b, "%s\n\n", text)
	}
	if w.BaseCommit != "" {
		fmt.Fprintf(&b, "Base-Commit: %s\n", w.BaseCommit)
	}
	if o.EnvironmentCommit != "" {
		fmt.Fprintf(&b, "Environment-Commit: %s\n", o.EnvironmentCommit)
	}
	return b.String() + trailers(w.Environment, tree)
}

func (w *edited) title(Target, string) string { return w.Title }

func (w *edited) body(_ Outcome, branch string) string {
	return forge.Marker(w.Purpose, w.Environment, w.Content) + "\n" + strings.TrimSpace(w.Text) +
		fmt.Sprintf("\n\nwherry keeps this text and the branch `%s` up to date. Close the request to decline this content.\n", branch)
}
