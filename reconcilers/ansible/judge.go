package ansible

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/internal/program"
)

// Reasons that this package gives, beside those that every reconciler has.
const (
	NotApplied    = "NotApplied"    // pending: this content was not run yet
	RunCutOff     = "RunCutOff"     // pending: the agent ended in the middle of a run, which begins again
	Queued        = "Queued"        // pending: the playbooks of another assignment are at work
	Running       = "Running"       // progressing: the message names playbook and task
	Stopping      = "Stopping"      // progressing: an earlier run is being ended
	Removing      = "Removing"      // progressing: the playbooks' removal tasks are at work
	Differs       = "Differs"       // drifted: check mode finds something to change
	DriftUnknown  = "DriftUnknown"  // compliant: check mode did not reach its end
	WithFailures  = "WithFailures"  // compliant: failures were ignored or rescued
	NothingToUndo = "NothingToUndo" // removed: the playbooks have no removal tasks, so their changes stay

	InvalidAssignment = "InvalidAssignment" // failed: a name or a file that no folder can be made of
	NoPlaybook        = "NoPlaybook"        // failed: no file is a list of plays
	InvalidPlaybook   = "InvalidPlaybook"   // failed: the message quotes the syntax check
	NoHostsMatched    = "NoHostsMatched"    // failed: a play matches no host
	NothingDone       = "NothingDone"       // failed: no task has done anything
	TaskFailed        = "TaskFailed"        // failed: the message quotes the task
	Unreachable       = "Unreachable"       // failed: a host that a playbook has added
	DeadlineExceeded  = "DeadlineExceeded"  // failed: the message names the task that was at work
	EngineMissing     = "EngineMissing"     // failed: ansible-playbook or Python is missing
	EngineFailed      = "EngineFailed"      // failed: ansible-playbook has ended without a result
	NotWritable       = "NotWritable"       // failed: permissions, or a read-only file system
	FilesUnreadable   = "FilesUnreadable"   // pending: trouble with the agent's own files
	DiskFull          = "DiskFull"          // pending
	DiskError         = "DiskError"         // pending
)

// tailBytes is the length of the end of the program's log that is searched for an error.
const tailBytes = 4 << 10

// faultOf returns the fault of a failure with the reason. A host that cannot be reached is the site's.
func faultOf(reason string) reconcilers.Fault {
	switch reason {
	case EngineMissing, NotWritable, Unreachable:
		return reconcilers.FaultSite
	}
	return reconcilers.FaultRelease
}

// failure is an error after which trying again does not help.
func failure(reason, format string, args ...any) *reconcilers.Error {
	return &reconcilers.Error{Reason: reason, Fault: faultOf(reason), Err: fmt.Errorf(format, args...)}
}

// failed returns the result of an error of this machine, not of Ansible.
func failed(err error) reconcilers.Result {
	known := reconcilers.Known(err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reconcilers.Interrupted(err)
	case known != nil:
		return known.Result()
	case errors.Is(err, errors.ErrUnsupported):
		return failure(EngineMissing, "playbooks are run on Linux only: %w", err).Result()
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return failure(NotWritable, "%w", err).Result()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return reconcilers.Waiting(DiskFull, err)
	}
	return reconcilers.Waiting(DiskError, err)
}

// final turns a pending result into a failed one, if nobody waits for its cause to pass.
func final(res reconcilers.Result) reconcilers.Result {
	if res.State == bundle.Pending {
		res.State, res.Fault = bundle.Failed, faultOf(res.Reason)
	}
	return res
}

// judge returns the result of a run of n playbooks. Exit code 0 is not enough: a play that matches no host has it.
func judge(s *story, exit program.Exit, n int, deadline time.Duration, log string) reconcilers.Result {
	total := s.total()
	fail := func(reason, format string, args ...any) reconcilers.Result {
		return failure(reason, format, args...).Result()
	}
	switch {
	case errors.Is(exit.Cause, program.ErrDeadline):
		return fail(DeadlineExceeded, "%s: %s, was not done after %s and has been ended", s.file(), s.where(), deadline)
	case s.failed != nil && (total.Failures > 0 || total.Unreachable > 0 || exit.Code != 0):
		return fail(reasonOf(s.failed), "%s: task %q: %s%s", s.failedIn, s.failed.Task, s.failed.Words, rights())
	case exit.Code != 0 || exit.Err != nil:
		return fail(EngineFailed, "ansible-playbook %s: %s", exit, lastWords(log))
	case s.noHosts != "":
		return fail(NoHostsMatched, "%s is for no host: the inventory has localhost alone", s.noHosts)
	case s.finished != n:
		return fail(EngineFailed, "ansible-playbook has told of %d of %d playbooks: %s", s.finished, n, lastWords(log))
	case total.OK == 0:
		return fail(NothingDone, "no task has done anything: each play was empty, or its conditions were not met")
	}
	res := reconcilers.Result{State: bundle.Compliant}
	if tolerated := total.Rescued + total.Ignored; tolerated > 0 {
		res.Reason, res.Message = WithFailures, fmt.Sprintf("%d failed tasks were ignored or rescued", tolerated)
		if s.tolerated != "" {
			res.Message += "; the first ignored is " + s.tolerated
		}
		res.Message = reconcilers.Clip(res.Message)
	}
	return res
}

func reasonOf(e *event) string {
	if e.Event == "unreachable" {
		return Unreachable
	}
	return TaskFailed
}

func (s *story) file() string {
	if s.playbook == "" {
		return "ansible-playbook"
	}
	return s.playbook
}

// rights returns a hint for the failures of an agent that does not run as root, as most playbooks require.
func rights() string {
	if os.Geteuid() != 0 {
		return " (the agent does not run as root)"
	}
	return ""
}

// judgeSyntax returns the result of the syntax check. Its State is empty if nothing is wrong.
func judgeSyntax(exit program.Exit, deadline time.Duration, log string) reconcilers.Result {
	switch {
	case errors.Is(exit.Cause, program.ErrDeadline):
		return failure(DeadlineExceeded, "the syntax check was not done after %s and has been ended", deadline).Result()
	case exit.Err != nil:
		return failed(exit.Err)
	case exit.Code == 0:
		return reconcilers.Result{}
	}
	_, mistake, found := strings.Cut(log, "ERROR! ")
	if !found {
		return failure(EngineFailed, "ansible-playbook %s: %s", exit, lastWords(log)).Result()
	}
	if strings.Contains(mistake, "couldn't resolve module/action") {
		mistake = "collections are not fetched: put the module's into the assignment's folder collections. " + mistake
	}
	return failure(InvalidPlaybook, "%s", oneLine(mistake)).Result()
}

// lastWords returns the end of a log: Ansible's last error, or else the last line, as a crashed Python program writes it.
// It returns no more, since the log also holds the output of tasks.
func lastWords(log string) string {
	log = strings.TrimSpace(log)
	if i := strings.LastIndex(log, "ERROR! "); i >= 0 {
		return oneLine(log[i+len("ERROR! "):])
	}
	if log = oneLine(log[strings.LastIndexByte(log, '\n')+1:]); log != "" {
		return log
	}
	return "it has written nothing"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
