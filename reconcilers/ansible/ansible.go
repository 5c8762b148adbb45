// Package ansible runs the playbooks of an assignment on the agent's own host with ansible-playbook, the
// program: users, files, cron jobs, packages, whatever runs without a cluster.
//
// Apply starts a run and returns; Observe names the task at work, and once a run has ended well looks
// for drift in check mode. A run is a success only if Ansible's own figures say so: exit code 0 is also that
// of a play that matches no host. The last run and its result are on disk in a folder for each
// assignment, with a copy of the files, so that their tasks for the removal can still be run when the bundle is gone.
//
// Playbooks run one at a time, as most use the host's one package database. It must be safe to run them again from
// the top: a run that was cut off is repeated. docs/engines/ansible.md has advice for writing them.
package ansible

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// ownDir is the folder in the root with what all assignments share. No assignment has its name.
const ownDir = ".wherry"

// Options are optional. The zero value works.
type Options struct {
	// Program is ansible-playbook, by name or path; empty is that name.
	Program string
	// Deadline bounds the time of one assignment's playbooks and their syntax check. A longer run is ended and has
	// failed. Zero means no bound.
	Deadline time.Duration
	// Grace is the time between SIGTERM and SIGKILL; zero means program.DefaultGrace.
	Grace time.Duration
	Log   *slog.Logger // nil is silent
}

// Reconciler is the engine of one host. It has to be closed.
type Reconciler struct {
	root  func() (string, error) // absolute, since Ansible runs in a folder of its own
	opts  Options
	log   *slog.Logger
	slot  chan struct{} // held by the job that runs playbooks
	check chan struct{} // held by the check that runs

	sweeping sync.Mutex
	swept    bool

	jobs program.Group[*job]
}

// New returns a reconciler that keeps its files in the folder root, which Apply creates where it is absent.
// No other process may use it.
func New(root string, opts Options) *Reconciler {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	absolute := sync.OnceValues(func() (string, error) { return filepath.Abs(root) })
	return &Reconciler{root: absolute, opts: opts, log: log, slot: make(chan struct{}, 1), check: make(chan struct{}, 1)}
}

var (
	_ reconcilers.Reconciler = (*Reconciler)(nil)
	_ reconcilers.Releaser   = (*Reconciler)(nil)
	_ reconcilers.Runner     = (*Reconciler)(nil)
	_ io.Closer              = (*Reconciler)(nil)
)

// Working reports whether playbooks are at work or wait for their turn.
func (r *Reconciler) Working() bool { return r.jobs.Working() }

// Close ends the running playbooks, and returns when they have ended. The next Reconciler starts them again.
func (r *Reconciler) Close() error {
	r.jobs.Close()
	return nil
}

// enter begins a call for an assignment, and returns its folder and its newest job, if there was any.
func (r *Reconciler) enter(ctx context.Context, a reconcilers.Assignment) (place, *job, error) {
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	if a.Name == "" || strings.HasPrefix(a.Name, ".") || strings.ContainsAny(a.Name, `/\`) || !filepath.IsLocal(a.Name) {
		return "", nil, failure(InvalidAssignment, "assignment name %q is not a folder name", a.Name)
	}
	root, err := r.root()
	if err != nil {
		return "", nil, err
	}
	if r.jobs.Closed() {
		return "", nil, program.ErrClosed
	}
	j, _ := r.jobs.Latest(a.Name)
	return place(filepath.Join(root, a.Name)), j, nil
}

// Apply starts the playbooks, unless they are running, or have applied this very content and no check has found drift
// since.
func (r *Reconciler) Apply(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p, j, err := r.enter(ctx, a)
	if err != nil {
		return failed(err)
	}
	busy := j.busy()
	if busy && j.kind == applying && j.content == a.Files() {
		return j.standing()
	}
	s, err := p.load()
	if err != nil {
		return failed(err)
	}
	if !busy && s.Content == a.Files() && s.Ended && s.State == bundle.Compliant && !s.Drifted {
		j.markReturned()
		return s.result()
	}
	names, err := r.prepare(ctx, p, busy, a)
	if err != nil {
		res := failed(err)
		if res.State == bundle.Failed && !busy {
			err = p.save(standing{Content: a.Files(), Ended: true, State: res.State, Reason: res.Reason, Message: res.Message})
		}
		if res.State == bundle.Failed && err != nil {
			r.log.WarnContext(ctx, "a failure could not be kept", "assignment", a.Name, "err", err)
		}
		return res
	}
	return r.begin(applying, a, p, names, busy)
}

// prepare checks a before anything is started, so that errors show at once.
func (r *Reconciler) prepare(ctx context.Context, p place, busy bool, a reconcilers.Assignment) ([]string, error) {
	if _, err := r.engine(); err != nil {
		return nil, err
	}
	names, err := playbooks(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &reconcilers.Error{Reason: FilesUnreadable, Err: err}
	}
	if err == nil && len(names) == 0 {
		err = failure(NoPlaybook, "no .yaml file at the top of the assignment is a list of plays (- hosts: …)")
	}
	if err == nil && !busy { // else the next folder is in use
		err = p.stage(ctx, a)
	}
	return names, err
}

// Observe returns the task at work or the result of the run. After the run, it also reports whether check mode finds
// anything to change, which takes about as long as a run.
func (r *Reconciler) Observe(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	p, j, err := r.enter(ctx, a)
	if err != nil {
		return failed(err)
	}
	if j.busy() {
		if j.kind == applying && j.content == a.Files() {
			return j.standing()
		}
		return reconcilers.Waiting(NotApplied, errors.New("something else of this assignment is at work"))
	}
	news := j.markReturned()
	s, err := p.load()
	switch {
	case err != nil:
		return failed(err)
	case s.Content == "":
		return reconcilers.Waiting(NotApplied, errors.New("no playbook was run yet"))
	case s.Content != a.Files():
		return reconcilers.Waiting(NotApplied, fmt.Errorf("what was run last is content %s", s.Content))
	case !s.Ended:
		return reconcilers.Waiting(RunCutOff, errors.New("the playbooks were cut off, and begin again"))
	case s.State != bundle.Compliant, news:
		return s.result()
	}
	return r.compare(ctx, p, s)
}

func (s standing) result() reconcilers.Result {
	res := reconcilers.Result{State: s.State, Reason: s.Reason, Message: s.Message}
	switch s.State {
	case bundle.Compliant:
		res.Revision = s.Content.String()
	case bundle.Failed:
		res.Fault = faultOf(s.Reason)
	}
	return res
}

// compare runs the playbooks in check mode. A check that fails tells nothing about drift, and is common: check mode skips
// commands, and a later task may need the output of one.
func (r *Reconciler) compare(ctx context.Context, p place, s standing) reconcilers.Result {
	select {
	case r.check <- struct{}{}:
		defer func() { <-r.check }()
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	names, err := playbooks(p.path(contentDir))
	if errors.Is(err, fs.ErrNotExist) {
		return reconcilers.Waiting(RunCutOff, fmt.Errorf("the copy of the playbooks is gone: %w", err))
	}
	if err != nil {
		return failed(err)
	}
	o := order{place: p, keep: checkDir, dir: p.path(contentDir), playbooks: names, extra: []string{"--check"}, deadline: r.opts.Deadline}
	if end, ok := ctx.Deadline(); ok { // the check ends before the call has to
		const share = 0.9
		if left := time.Duration(share * float64(time.Until(end))); o.deadline == 0 || left < o.deadline {
			o.deadline = max(left, 1)
		}
	}
	out := r.perform(ctx, o, nil)
	if ctx.Err() != nil {
		return failed(ctx.Err())
	}
	res, verdict := s.result(), out.judge(len(names), o.deadline)
	if verdict.State != bundle.Compliant && verdict.Reason != NothingDone {
		res.Reason, res.Message = DriftUnknown, reconcilers.Clip("check mode: "+verdict.Message)
		return res
	}
	drifted := out.story.total().Changed > 0
	if drifted != s.Drifted {
		s.Drifted = drifted
		if err := p.save(s); err != nil {
			return failed(err)
		}
	}
	if drifted {
		return reconcilers.Result{State: bundle.Drifted, Reason: Differs, Message: reconcilers.Clip("check mode finds something to change: " + out.story.changes())}
	}
	return res
}

// Remove runs the tasks with the tag wherry-remove of the playbooks that were applied last. Without such tasks it undoes
// nothing, since playbooks do not describe how to.
func (r *Reconciler) Remove(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return r.leave(ctx, removing, a)
}

// Release ends running work and forgets the assignment.
func (r *Reconciler) Release(ctx context.Context, a reconcilers.Assignment) reconcilers.Result {
	return r.leave(ctx, releasing, a)
}

func (r *Reconciler) leave(ctx context.Context, how kind, a reconcilers.Assignment) reconcilers.Result {
	p, j, err := r.enter(ctx, a)
	if err != nil {
		return failed(err)
	}
	busy := j.busy()
	if j != nil && j.kind == how {
		if !busy {
			r.jobs.Forget(a.Name, j)
		}
		return j.standing()
	}
	if _, err := os.Stat(string(p)); errors.Is(err, fs.ErrNotExist) && !busy {
		r.jobs.Forget(a.Name, j)
		return reconcilers.Result{State: bundle.Removed}
	}
	return r.begin(how, a, p, nil, busy)
}

// sweep ends, once, the programs that a killed agent has left running.
func (r *Reconciler) sweep() error {
	r.sweeping.Lock()
	defer r.sweeping.Unlock()
	if r.swept {
		return nil
	}
	root, err := r.root()
	if err != nil {
		return err
	}
	folders, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if base := filepath.Base(folder); base != runDir && base != checkDir {
			continue
		}
		found, err := program.EndLeftover(folder, r.opts.Grace)
		if err != nil {
			return err
		}
		if found {
			r.log.Warn("ended playbooks that an earlier agent had left running", "assignment", filepath.Base(filepath.Dir(folder)))
		}
	}
	r.swept = true
	return nil
}
