package zarf

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// job is the work on one assignment.
type job struct {
	r          *Reconciler
	assignment string
	content    digest.Digest
	removing   bool
	mounted    *mounted // the package, if it comes from the store; only the job's own goroutine uses it

	mu   sync.Mutex
	step string // the command that zarf runs, such as "deploy"
	over bool
	err  error // the result, once over
}

// job returns the job that works on an assignment, or nil.
func (r *Reconciler) job(assignment string) *job {
	if j, _ := r.jobs.Latest(assignment); j != nil && !j.isOver() {
		return j
	}
	return nil
}

// Working reports whether zarf is at work.
func (r *Reconciler) Working() bool { return r.jobs.Working() }

// begin ends the job of an assignment, if one is running, and starts work.
func (r *Reconciler) begin(assignment string, content digest.Digest, removing bool, work func(context.Context, *job) error) (*job, error) {
	j := &job{r: r, assignment: assignment, content: content, removing: removing}
	deadline := time.Now().Add(r.opts.Deadline)
	err := r.jobs.Start(assignment, j, func(ctx context.Context) {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		err := work(ctx, j)
		if err != nil && r.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			r.opts.Log.Warn("zarf failed", "assignment", assignment, "err", err)
		}
		j.end(err)
	})
	return j, err
}

func (j *job) isOver() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.over
}

func (j *job) end(err error) {
	j.mu.Lock()
	j.over, j.err = true, err
	j.mu.Unlock()
}

func (j *job) at(step string) {
	j.mu.Lock()
	j.step = step
	j.mu.Unlock()
}

// result returns the job's progress, with zarf's last message.
func (j *job) result() reconcilers.Result {
	j.mu.Lock()
	step := j.step
	j.mu.Unlock()
	reason, message := Deploying, "zarf begins"
	if j.removing {
		reason = Removing
	}
	if step != "" {
		message = "zarf package " + step
		if at := progress(j.folder()); at != "" {
			message += ": " + at
		}
	}
	return reconcilers.Result{State: bundle.Progressing, Reason: reason, Message: reconcilers.Clip(message)}
}

func (j *job) folder() string { return j.r.folder(j.assignment) }

// zarf runs "zarf package STEP …".
func (j *job) zarf(ctx context.Context, step string, env []string, secret string, args ...string) error {
	j.at(step)
	deadline := time.Until(deadlineOf(ctx))
	c := command{folder: j.folder(), args: append([]string{"package", step}, args...), env: env, deadline: deadline, secret: secret}
	if j.mounted != nil {
		c.env, c.cache = append(c.env, j.mounted.env...), j.mounted.cache
	}
	err := j.r.run(ctx, c)
	var ended *runError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ended) && ended.exit.Cause == program.ErrDeadline {
		return failure(DeadlineExceeded, "zarf package %s did not end within %s and was ended; it said last: %s", step, j.r.opts.Deadline, progress(j.folder()))
	}
	return err
}

func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

func nameOf(def *definition) string {
	if def.Name != "" {
		return def.Name
	}
	return def.Package
}

// prepare ends the programs that a killed agent has left running, and cleans up after them.
func (j *job) prepare() error {
	_, err := program.EndLeftover(j.folder(), 0)
	if err == nil {
		err = errors.Join(os.RemoveAll(j.path(tmpDir)), j.r.writeKubeconfig())
	}
	if err != nil {
		return local(err)
	}
	return nil
}

func (j *job) path(name string) string { return filepath.Join(j.folder(), name) }
