// Package directory makes a folder hold an assignment's files: the manifests that k3s or k0s deploys, a
// compose project, models, anything that another program reads from disk.
//
// The folder <root>/<assignment> belongs to its assignment entirely, and is replaced as a whole: on
// Linux by exchanging two folders in one step, so that a reader finds either all of the old or all of
// the new content. If the kernel or the file system cannot exchange, two renames follow one another, and after a crash
// between them the next call repairs the folder. Everything else in the root except .wherry is left alone, even a folder
// with the assignment's name that somebody else has filled: .wherry records which folders are ours, even if the agent's
// state is lost. docs/engines/directory.md explains what a program that reads the folder has to expect.
//
// The folder is not a symbolic link to a version, because readers treat links differently: k3s follows a link to a folder only at
// the top of its manifests and only in recent versions, many directory walks follow none, and a reader that resolves a
// link once, as a bind mount does, keeps reading a version that is about to be deleted.
package directory

import (
	"cmp"
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
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// Options are optional. The zero value works.
type Options struct {
	Log *slog.Logger // nil is silent
	// Fetch opens the repository, HOST/NAME, of an artifact. It makes no request. If it is nil, assignments with
	// artifacts fail.
	Fetch func(repository string) (bundle.Source, error)
	// Ledger keeps notes about fetched files. Nil keeps them in memory: then more has to be read again after a restart.
	Ledger reconcilers.Ledger
	// MaxBytes bounds the files of one assignment's artifacts. Zero is DefaultMaxBytes.
	MaxBytes int64
}

// Reconciler is the engine for one root. Its calls run one at a time; only fetching goes on between them. The caller
// closes it.
type Reconciler struct {
	root       string
	log        *slog.Logger
	repository func(string) (bundle.Source, error)
	limit      int64
	slots      chan struct{} // holds a token for each assignment that something is fetched for

	turn    sync.Mutex // held while folders are read or changed
	entries entries

	fetches program.Group[*fetching]

	owned owned
}

// New returns a reconciler for the assignments' folders in root, which Apply creates if it is absent.
func New(root string, opts Options) *Reconciler {
	log, ledger := opts.Log, opts.Ledger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if ledger == nil {
		ledger = noLedger{}
	}
	return &Reconciler{
		root: root, log: log, repository: opts.Fetch, limit: cmp.Or(opts.MaxBytes, DefaultMaxBytes),
		slots: make(chan struct{}, fetchesAtOnce), entries: entries{ledger: ledger, log: log, byName: map[string]*entry{}},
	}
}

// noLedger keeps nothing.
type noLedger struct{}

func (noLedger) Load(string) ([]byte, error) { return nil, nil }
func (noLedger) Save(string, []byte) error   { return nil }

var _ reconcilers.Reconciler = (*Reconciler)(nil)

// Apply replaces the folder if its content differs from the assignment's. If artifacts have to be fetched first, Apply
// begins to fetch them and returns the state Pulling; the folder is replaced once all of them are here.
func (r *Reconciler) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	if f := r.underway(a); f != nil && ctx.Err() == nil && !f.again(time.Now()) {
		return f.status()
	}
	r.fetches.Stop(a.Name)
	changes, err := r.place(ctx, a)
	if errors.Is(err, errAbsent) {
		return r.begin(a)
	}
	if err != nil {
		return r.failed(fmt.Errorf("apply %s: %w", a.Name, err))
	}
	r.logChanges(ctx, a, changes)
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Desired().String(), Changes: changes}
}

// errAbsent is the error of content that has to be fetched first.
var errAbsent = errors.New("not all of it is here")

// open makes the root if need be, and repairs what a crash has left in an assignment's place.
func (r *Reconciler) open(name string) (*site, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.root, 0o755); err != nil {
		return nil, err
	}
	s, err := openSite(r.root, name)
	if err != nil {
		return nil, err
	}
	if err := s.repair(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// place replaces the folder, if all that is to be in it is on this machine.
func (r *Reconciler) place(ctx context.Context, a reconcilers.Assignment) ([]reconcilers.Change, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := r.open(a.Name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	e := r.entries.load(ctx, a.Name)
	v, err := look(ctx, s, a, e, r.limit)
	if err == nil {
		err = r.owned.check(s, r.root, v)
	}
	if err != nil {
		return nil, err
	}
	if !v.complete() {
		return nil, errAbsent
	}
	changes := compare(a.Name, v.have, v.want)
	replace := len(changes) > 0 || v.missing
	if replace {
		if err := v.checkRoom(s, r.root); err != nil {
			return nil, err
		}
		if err := s.stage(ctx, a.Dir, v); err != nil {
			return nil, err
		}
	}
	if err := r.owned.take(s); err != nil {
		return nil, errors.Join(err, s.clear())
	}
	if replace {
		if err := s.swap(); err != nil {
			return nil, err
		}
	}
	return changes, r.placed(ctx, s, a, e)
}

// placed notes the folder's new content, and deletes the fetched copies: their files are in the folder now.
func (r *Reconciler) placed(ctx context.Context, s *site, a reconcilers.Assignment, e *entry) error {
	if len(a.Fetched) == 0 {
		r.entries.forget(ctx, a.Name)
	} else if e.Applied != a.Desired() {
		e.applied(a)
		r.entries.save(ctx, a.Name, e)
	}
	return s.discardFetched()
}

// Observe compares the folder with the assignment's content: rendered files byte for byte, fetched files by their
// metadata since they were last read.
func (r *Reconciler) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	if f := r.underway(a); f != nil && ctx.Err() == nil {
		return f.status()
	}
	changes, err := r.observe(ctx, a)
	switch {
	case errors.Is(err, errMissing):
		return reconcilers.Result{State: bundle.Drifted, Reason: Missing, Message: filepath.Join(r.root, a.Name) + " does not exist"}
	case errors.Is(err, errAbsent):
		return reconcilers.Result{State: bundle.Pending, Reason: NotFetched, Message: reconcilers.Clip(a.Fetched[0].Reference + " was not fetched yet")}
	case err != nil:
		return r.failed(fmt.Errorf("observe %s: %w", a.Name, err))
	case len(changes) > 0:
		return reconcilers.Result{State: bundle.Drifted, Reason: Differs, Message: reconcilers.Clip(describe(changes))}
	}
	return reconcilers.Result{State: bundle.Compliant, Revision: a.Desired().String()}
}

// errMissing is the error of an assignment's folder that does not exist.
var errMissing = errors.New("no such folder")

func (r *Reconciler) observe(ctx context.Context, a reconcilers.Assignment) ([]reconcilers.Change, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if err := checkName(a.Name); err != nil {
		return nil, err
	}
	s, err := openSite(r.root, a.Name)
	if err == nil {
		defer s.close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	e := r.entries.load(ctx, a.Name)
	v, err := look(ctx, s, a, e, r.limit)
	if err == nil {
		err = r.owned.check(s, r.root, v)
	}
	switch {
	case err != nil:
		return nil, err
	case len(a.Fetched) > 0 && e.Applied != a.Desired():
		return nil, errAbsent
	case v.missing:
		return nil, errMissing
	}
	if len(a.Fetched) > 0 && e.learn(v, time.Now()) {
		r.entries.save(ctx, a.Name, e)
	}
	return compare(a.Name, v.have, v.want), nil
}

// describe returns how a folder differs, given the changes that would repair it.
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
	want, _, err := readTree(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	for name, f := range want {
		if !f.regular() {
			return nil, reconcilers.ReleaseError(InvalidAssignment, "%s is not a regular file", path.Join(a.Name, name))
		}
	}
	return want, nil
}

// checkName refuses names that are not one visible folder of the root.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) || !filepath.IsLocal(name) {
		return reconcilers.ReleaseError(InvalidAssignment, "assignment name %q is not a folder name", name)
	}
	return nil
}
