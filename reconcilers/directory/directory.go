// Package directory makes a folder hold an assignment's files: the manifests that k3s or k0s deploys, a
// compose project, models, anything that another program reads from disk.
//
// The folder <root>/<assignment> belongs to its assignment entirely, and is replaced as a whole: on
// Linux by exchanging two folders in one step, so that a reader finds either all of the old or all of
// the new content. Where the kernel or the file system cannot exchange, two renames follow one another
// and the next call repairs what a crash between them leaves. Everything else in the root is left
// alone, but for .wherry, which exists only during a call. docs/adapters.md says why the folder is not
// a symbolic link to a version, and what a program that reads it has to expect.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	Differs           = "Differs"           // drifted: files were added, changed or deleted
	Missing           = "Missing"           // drifted: the folder is gone
	InvalidAssignment = "InvalidAssignment" // failed: a name or a file that no folder can be made of
	NotOurs           = "NotOurs"           // failed: something that is no folder has the folder's name
	NotWritable       = "NotWritable"       // failed: permissions, or a read-only file system
	DiskFull          = "DiskFull"          // pending
	DiskError         = "DiskError"         // pending
)

// Options are what a Reconciler can do without. The zero value works.
type Options struct {
	Log *slog.Logger // nil is silent
}

// Reconciler is the engine for one root. Its calls take turns.
type Reconciler struct {
	root string
	log  *slog.Logger
	mu   sync.Mutex
}

// New returns a reconciler for the assignments' folders in root, which Apply creates where it is absent.
func New(root string, opts Options) *Reconciler {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{root: root, log: log}
}

var _ reconcilers.Reconciler = (*Reconciler)(nil)

// Apply replaces the folder if its content differs from the assignment's.
func (r *Reconciler) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	changes, err := r.apply(ctx, a)
	if err != nil {
		return failed(fmt.Errorf("apply %s: %w", a.Name, err))
	}
	r.logChanges(ctx, a, changes)
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Content.String(), Changes: changes}
}

func (r *Reconciler) apply(ctx context.Context, a reconcilers.Assignment) ([]reconcilers.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, err := readAssignment(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.root, 0o755); err != nil {
		return nil, err
	}
	s, err := openSite(r.root, a.Name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.repair(); err != nil {
		return nil, err
	}
	have, err := s.read(ctx)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	changes := compare(a.Name, have, want)
	if len(changes) == 0 && !missing {
		return nil, nil
	}
	if err := s.stage(ctx, a.Dir, want); err != nil {
		return nil, err
	}
	return changes, s.swap()
}

// Observe compares the folder with the assignment's files, byte for byte.
func (r *Reconciler) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	changes, err := r.observe(ctx, a)
	switch {
	case errors.Is(err, errMissing):
		return reconcilers.Result{State: bundle.Drifted, Reason: Missing, Message: filepath.Join(r.root, a.Name) + " does not exist"}
	case err != nil:
		return failed(fmt.Errorf("observe %s: %w", a.Name, err))
	case len(changes) > 0:
		return reconcilers.Result{State: bundle.Drifted, Reason: Differs, Message: reconcilers.Clip(describe(changes))}
	}
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Content.String()}
}

// errMissing says that there is nothing where the assignment's folder belongs.
var errMissing = errors.New("no such folder")

func (r *Reconciler) observe(ctx context.Context, a reconcilers.Assignment) ([]reconcilers.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, err := readAssignment(ctx, a)
	if err != nil {
		return nil, err
	}
	s, err := openSite(r.root, a.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, err
	}
	defer s.close()
	have, err := s.read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, err
	}
	return compare(a.Name, have, want), nil
}

// describe says how a folder differs, given what it would take to repair it.
func describe(changes []reconcilers.Change) string {
	became := map[reconcilers.Action]string{
		reconcilers.Created:    "is missing",
		reconcilers.Configured: "differs",
		reconcilers.Deleted:    "does not belong there",
	}
	var out []string
	for _, c := range changes {
		out = append(out, c.Object+" "+became[c.Action])
	}
	return strings.Join(out, ", ")
}

// Remove deletes the assignment's folder.
func (r *Reconciler) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	changes, err := r.remove(ctx, a)
	if err != nil {
		return failed(fmt.Errorf("remove %s: %w", a.Name, err))
	}
	r.logChanges(ctx, a, changes)
	return reconcilers.Result{State: bundle.Removed, Changes: changes}
}

func (r *Reconciler) remove(ctx context.Context, a reconcilers.Assignment) ([]reconcilers.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkName(a.Name); err != nil {
		return nil, err
	}
	s, err := openSite(r.root, a.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.repair(); err != nil {
		return nil, err
	}
	have, err := s.read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return compare(a.Name, have, nil), s.takeAway()
}

// logChanges logs files one by one; that and how an assignment changed is the agent's to log.
func (r *Reconciler) logChanges(ctx context.Context, a reconcilers.Assignment, changes []reconcilers.Change) {
	for _, c := range changes {
		r.log.DebugContext(ctx, "file changed", "assignment", a.Name, "file", c.Object, "action", c.Action)
	}
}

// readAssignment returns what the folder is to hold.
func readAssignment(ctx context.Context, a reconcilers.Assignment) (tree, error) {
	if err := checkName(a.Name); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(a.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	want, err := readTree(ctx, dir)
	if err != nil {
		return nil, err
	}
	for name, f := range want {
		if !f.regular() {
			return nil, &reasonError{InvalidAssignment, fmt.Errorf("%s is no regular file", path.Join(a.Name, name))}
		}
	}
	return want, nil
}

// checkName refuses names that are not one visible folder of the root.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) || !filepath.IsLocal(name) {
		return &reasonError{InvalidAssignment, fmt.Errorf("assignment name %q is no folder name", name)}
	}
	return nil
}

// reasonError is an error of which the reason, and so the state, is known.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

// failed turns an error into a result. What the next attempt may find mended is pending.
func failed(err error) reconcilers.Result {
	var known *reasonError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reconcilers.Interrupted(err)
	case errors.As(err, &known):
		return reconcilers.Failure(known.reason, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return reconcilers.Failure(NotWritable, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return reconcilers.Waiting(DiskFull, err)
	}
	return reconcilers.Waiting(DiskError, err)
}
