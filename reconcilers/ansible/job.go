package ansible

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// removeTag marks the tasks that run when an assignment is removed. With Ansible's tag never beside it, they run at no
// other time.
const removeTag = "wherry-remove"

// kind is the purpose of a job.
type kind int

const (
	applying kind = iota
	removing
	releasing
)

// job is work that goes on between calls. A nil job is none.
type job struct {
	kind    kind
	content digest.Digest

	mu       sync.Mutex
	names    []string           // of the playbooks
	phase    reconcilers.Result // the result while story is nil
	story    *story
	result   *reconcilers.Result // nil while the job runs
	returned bool                // the result has been returned
}

func (j *job) busy() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result == nil
}

func (j *job) end(res reconcilers.Result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result = &res
}

// markReturned marks the job's result as returned, and reports whether it is Compliant and was not returned before.
func (j *job) markReturned() bool {
	if j == nil || j.busy() || j.kind != applying {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	news := !j.returned && j.result.State == bundle.Compliant
	j.returned = true
	return news
}

// standing returns the job's result so far.
func (j *job) standing() reconcilers.Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.result != nil:
		return *j.result
	case j.story == nil:
		return j.phase
	}
	reason := Running
	if j.kind != applying {
		reason = Removing
	}
	if err := j.story.read(); err != nil {
		return reconcilers.Result{State: bundle.Progressing, Reason: reason, Message: reconcilers.Clip(j.list() + ": " + err.Error())}
	}
	file := j.story.file()
	if file == "ansible-playbook" {
		file = j.list()
	}
	message := fmt.Sprintf("%s: %s", file, j.story.where())
	if len(j.names) > 1 {
		message = fmt.Sprintf("%s (%d of %d playbooks)", message, min(j.story.finished+1, len(j.names)), len(j.names))
	}
	return reconcilers.Result{State: bundle.Progressing, Reason: reason, Message: reconcilers.Clip(message)}
}

func (j *job) list() string {
	if len(j.names) == 0 {
		return "removal"
	}
	return strings.Join(j.names, ", ")
}

func (j *job) report(state bundle.State, reason, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase = reconcilers.Result{State: state, Reason: reason, Message: reconcilers.Clip(j.list() + ": " + text)}
}

// begin starts a job. Before is true if the assignment's last job was busy when the call began: it is ended first.
func (r *Reconciler) begin(k kind, a reconcilers.Assignment, p place, names []string, before bool) reconcilers.Result {
	j := &job{kind: k, content: a.Files(), names: names}
	ready := false
	if before {
		j.report(bundle.Progressing, Stopping, "what ran before is being ended")
	} else {
		select {
		case r.slot <- struct{}{}:
			ready = true
			j.report(bundle.Progressing, Running, "about to begin")
		default:
			j.report(bundle.Pending, Queued, "the playbooks of another assignment are at work")
		}
	}
	err := r.jobs.Start(a.Name, j, func(ctx context.Context) {
		res := r.do(ctx, j, a, p, ready, !before)
		j.end(res)
		what := "playbooks have ended"
		if res.Reason == reconcilers.ReasonInterrupted {
			what = "playbooks were cut off"
		}
		r.log.Info(what, "assignment", a.Name, "playbooks", j.list(), "state", res.State, "reason", res.Reason)
	})
	if err != nil {
		if ready {
			<-r.slot
		}
		return failed(err)
	}
	return j.standing()
}

// do waits for its turn and does the job. All errors are final here: the agent decides when to try again.
func (r *Reconciler) do(ctx context.Context, j *job, a reconcilers.Assignment, p place, ready, staged bool) reconcilers.Result {
	if !ready {
		select {
		case r.slot <- struct{}{}:
		case <-ctx.Done():
			return failed(ctx.Err())
		}
	}
	defer func() { <-r.slot }()
	j.report(bundle.Progressing, Running, "about to begin")
	err := r.sweep()
	if err == nil && j.kind == applying && !staged {
		err = p.stage(ctx, a)
	}
	var res reconcilers.Result
	switch {
	case err != nil:
		res = failed(err)
	case j.kind == applying:
		res = r.apply(ctx, j, a, p)
	default:
		res = r.takeAway(ctx, j, p)
	}
	return final(res)
}

// apply checks the staged playbooks, makes them the current ones, and runs them.
func (r *Reconciler) apply(ctx context.Context, j *job, a reconcilers.Assignment, p place) reconcilers.Result {
	begun := time.Now()
	res := r.checkSyntax(ctx, j, a, p)
	if res.State == "" {
		// From here on the host has this content, or part of it.
		if err := errors.Join(p.save(standing{Content: a.Files()}), p.take()); err != nil {
			return failed(err)
		}
		left := r.opts.Deadline
		if left > 0 {
			left = max(left-time.Since(begun), 1)
		}
		o := order{place: p, keep: runDir, dir: p.path(contentDir), playbooks: j.names, deadline: left}
		res = r.perform(ctx, o, j).judge(len(j.names), r.opts.Deadline)
	}
	if res.Reason == reconcilers.ReasonInterrupted {
		return res
	}
	res = final(res)
	s := standing{Content: a.Files(), Ended: true, State: res.State, Reason: res.Reason, Message: res.Message}
	if err := p.save(s); err != nil {
		return failed(err)
	}
	return s.result()
}

func (r *Reconciler) checkSyntax(ctx context.Context, j *job, a reconcilers.Assignment, p place) reconcilers.Result {
	j.report(bundle.Progressing, Running, "the syntax is checked")
	if err := p.saveVars(a); err != nil {
		return failed(err)
	}
	o := order{place: p, keep: runDir, dir: p.path(nextDir), playbooks: j.names, extra: []string{"--syntax-check"}, deadline: r.opts.Deadline}
	out := r.perform(ctx, o, nil)
	if err := out.unheard(); err != nil {
		return failed(err)
	}
	return judgeSyntax(out.exit, r.opts.Deadline, out.log)
}

// takeAway runs the playbooks' removal tasks, last playbook first, unless the job is a release, and forgets the
// assignment.
func (r *Reconciler) takeAway(ctx context.Context, j *job, p place) reconcilers.Result {
	removed := reconcilers.Result{State: bundle.Removed}
	dir, names, err := p.applied()
	if err != nil {
		return failed(err)
	}
	if len(names) > 0 && j.kind == removing {
		slices.Reverse(names)
		j.mu.Lock()
		j.names = names
		j.mu.Unlock()
		o := order{place: p, keep: runDir, dir: dir, playbooks: names, extra: []string{"--tags", removeTag}, deadline: r.opts.Deadline}
		out := r.perform(ctx, o, j)
		res := out.judge(len(names), r.opts.Deadline)
		switch {
		case res.State != bundle.Compliant && res.Reason != NothingDone:
			return res
		case out.story.worked == 0:
			removed.Reason, removed.Message = NothingToUndo, "what the playbooks have brought stays: none of their tasks has the tag "+removeTag
		default:
			removed.Reason, removed.Message = res.Reason, res.Message
		}
	}
	if err := os.RemoveAll(string(p)); err != nil {
		return failed(err)
	}
	return removed
}

// outcome is one run of ansible-playbook that has ended.
type outcome struct {
	story *story
	exit  program.Exit
	log   string // its end
	err   error  // ansible-playbook could not be started, or its events not be read
}

// perform runs ansible-playbook until it or ctx ends. If j is not nil, its standing follows the run.
func (r *Reconciler) perform(ctx context.Context, o order, j *job) (out outcome) {
	run, s, err := r.play(o)
	if err != nil {
		return outcome{err: err}
	}
	if j == nil {
		j = &job{}
	}
	j.mu.Lock()
	j.story = s
	j.mu.Unlock()
	exit, ended := run.Wait(ctx)
	if !ended {
		return outcome{err: errors.New("ansible-playbook was killed and does not end")}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	out = outcome{story: s, exit: exit, err: s.read()}
	if log, err := program.LogTail(o.place.path(o.keep), tailBytes); err == nil { // the log only adds to the message
		out.log = log
	}
	return out
}

// unheard returns an error if the run was stopped, could not be started, or its events could not be read.
func (o outcome) unheard() error {
	if o.err == nil && errors.Is(o.exit.Cause, program.ErrStopped) {
		return fmt.Errorf("the playbooks were ended: %w", context.Canceled)
	}
	return o.err
}

func (o outcome) judge(n int, deadline time.Duration) reconcilers.Result {
	if err := o.unheard(); err != nil {
		return failed(err)
	}
	return judge(o.story, o.exit, n, deadline, o.log)
}
