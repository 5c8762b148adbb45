// Package program runs the external programs of adapters: for minutes, as root, under an agent that may
// be killed at any moment.
//
// Begin with Start. A folder has one program at a time. The program runs in a session and a process group of its own. Its
// identity is on disk before it begins, so that a killed agent finds it again at the next start (by EndLeftover, which
// Start calls too) and spares a later process with the same number. A program ends by itself, at its deadline or by Stop.
// The deadline and Stop also end the processes that the program has started, except daemons. When a program ends by
// itself, those processes go on, as an installed service must.
//
// It works on Linux. Elsewhere Start returns errors.ErrUnsupported.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL: enough for a package manager to close its database.
	DefaultGrace = 30 * time.Second
	// DefaultLogBytes bounds the log, in bytes: enough for a person, and too little to fill an edge machine's disk.
	DefaultLogBytes = 1 << 20

	recordFile = "program.json"
	logFile    = "program.log"

	// killTime bounds the wait for a killed process to vanish: a process that hangs in the kernel, as on a dead
	// network file system, never does.
	killTime = 10 * time.Second
	// logPoll is the time between two looks at the size of a log.
	logPoll = 250 * time.Millisecond
)

// Causes of the end of a program that did not end by itself.
var (
	ErrDeadline = errors.New("not finished at its deadline")
	ErrStopped  = errors.New("stopped")
)

// Command is a program with its arguments and limits.
type Command struct {
	// Path is the program's path; without a slash it is looked up in the agent's PATH.
	Path string
	Args []string // without the program's name
	// Env is the whole environment: nothing is inherited, as the agent's may hold secrets.
	Env []string
	Dir string // working directory; empty is the program's folder
	// Deadline bounds the time of the run. Zero means no bound.
	Deadline time.Duration
	Grace    time.Duration // zero is DefaultGrace
	// LogBytes bounds the log, of which the end is kept; for moments it may be longer. Zero is
	// DefaultLogBytes.
	LogBytes int64
}

// Exit describes the end of a program.
type Exit struct {
	// Code is its exit code, or -1 if a signal ended it.
	Code int
	// Cause is ErrDeadline or ErrStopped, or nil if the program ended by itself.
	Cause error
	// Err is a further error: the program could not be waited for, or not be ended.
	Err error
}

// String returns the end of a sentence, such as "exited with 2".
func (e Exit) String() string {
	switch {
	case e.Cause != nil:
		return e.Cause.Error()
	case e.Err != nil:
		return e.Err.Error()
	}
	return fmt.Sprintf("exited with %d", e.Code)
}

// Run is a program that was started. Its methods may be called by several goroutines.
type Run struct {
	folder   string
	grace    time.Duration
	cmd      *exec.Cmd
	id       identity
	log      *os.File
	logBytes int64

	ending sync.Mutex // held while the program is being ended
	mu     sync.Mutex // guards exit, and what is done to the log
	exit   Exit
	done   chan struct{}
}

// Start ends the program that an earlier agent has left running in folder, which is created if it is absent, and
// starts c. The error wraps exec.ErrNotFound if there is no such program. Ending a leftover may take
// the grace, so call Start in a goroutine.
func Start(folder string, c Command) (*Run, error) {
	path, err := exec.LookPath(c.Path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if _, err := EndLeftover(folder, c.Grace); err != nil {
		return nil, err
	}
	log, err := openLog(folder)
	if err != nil {
		return nil, err
	}
	if c.Dir == "" {
		c.Dir = folder
	}
	r := &Run{folder: folder, grace: orDefault(c.Grace, DefaultGrace), log: log, logBytes: orDefault(c.LogBytes, DefaultLogBytes), done: make(chan struct{})}
	if err := r.begin(path, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Path, err), log.Close())
	}
	go r.wait()
	go r.watch(c.Deadline)
	return r, nil
}

// begin starts a shell that waits for a line before it becomes the program, and writes that line once
// the shell's number and start time are on the disk. If the agent is killed before, the shell reads the
// end of the file and exits.
func (r *Run) begin(path string, c Command) error {
	const gate = `read -r _ <&3 || exit 125; exec 3<&-; exec "$@"`
	hold, release, err := os.Pipe()
	if err != nil {
		return err
	}
	defer release.Close()
	id, mark := identity{}, newMark()
	r.cmd = exec.Command("/bin/sh", append([]string{"-c", gate, "sh", path}, c.Args...)...)
	r.cmd.Dir, r.cmd.Env = c.Dir, append(append([]string{}, c.Env...), mark)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	r.cmd.ExtraFiles, r.cmd.SysProcAttr = []*os.File{hold}, ownSession()
	err = r.cmd.Start()
	hold.Close()
	if err != nil {
		return err
	}
	if id, err = identify(r.cmd.Process.Pid, mark); err == nil {
		err = save(r.folder, record{identity: id, Program: path, Begun: time.Now().UTC()})
	}
	if err == nil {
		_, err = release.WriteString("\n")
	}
	if err != nil {
		release.Close()
		_ = r.cmd.Wait() // the shell's exit code says nothing more
		return errors.Join(err, forget(r.folder))
	}
	r.id = id
	return nil
}

// wait records the program's exit, after a running Stop or deadline has ended all of its processes.
func (r *Run) wait() {
	err := r.cmd.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) {
		err = nil
	}
	r.ending.Lock()
	defer r.ending.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exit.Code = r.cmd.ProcessState.ExitCode()
	_ = cut(r.log, r.logBytes) // a log that cannot be cut stays as long as it is
	r.exit.Err = errors.Join(r.exit.Err, err, r.log.Close())
	if r.exit.Err == nil { // otherwise the next Start looks for remaining processes
		r.exit.Err = forget(r.folder)
	}
	close(r.done)
}

// watch enforces the program's deadline and the bound of its log until it has ended.
func (r *Run) watch(deadline time.Duration) {
	var late <-chan time.Time
	if deadline > 0 {
		timer := time.NewTimer(deadline)
		defer timer.Stop()
		late = timer.C
	}
	ticks := time.NewTicker(logPoll)
	defer ticks.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-late:
			r.end(ErrDeadline)
		case <-ticks.C:
			r.mu.Lock()
			_ = trim(r.log, r.logBytes) // a log that cannot be cut is cut at the next look, or never
			r.mu.Unlock()
		}
	}
}

// Done is closed when the program has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits until the program has ended, or has it stopped when ctx ends. Ended is false for a program that was
// killed and hangs in the kernel: the next Start in its folder looks for it again.
func (r *Run) Wait(ctx context.Context) (exit Exit, ended bool) {
	select {
	case <-r.done:
	case <-ctx.Done():
		r.Stop()
	}
	select {
	case <-r.done:
		return r.exit, true
	default:
		return Exit{}, false
	}
}

// Exit waits until the program has ended, and returns how.
func (r *Run) Exit() Exit {
	<-r.done
	return r.exit
}

// Stop ends the program and the processes that it has started, by SIGTERM and after the grace by SIGKILL, and
// returns when they have ended. It does nothing if the program has ended.
func (r *Run) Stop() { r.end(ErrStopped) }

func (r *Run) end(cause error) {
	r.ending.Lock()
	select {
	case <-r.done:
		r.ending.Unlock()
		return
	default:
	}
	r.mu.Lock()
	if r.exit.Cause == nil {
		r.exit.Cause = cause
	}
	r.mu.Unlock()
	err := endAll(r.id, r.grace)
	r.mu.Lock()
	r.exit.Err = errors.Join(r.exit.Err, err)
	r.mu.Unlock()
	r.ending.Unlock()
	if err == nil {
		<-r.done
	}
}

// EndLeftover ends the program that a killed agent has left running in folder, and reports whether there was one. A grace
// of zero means DefaultGrace. There must be no Run in folder.
func EndLeftover(folder string, grace time.Duration) (found bool, err error) {
	rec, err := load(folder)
	if err != nil || rec == nil {
		return false, err
	}
	if found = alive(rec.identity); found {
		if err := endAll(rec.identity, orDefault(grace, DefaultGrace)); err != nil {
			return true, fmt.Errorf("end %s, which an earlier agent has left running: %w", rec.Program, err)
		}
	}
	return found, forget(folder)
}

func orDefault[T int64 | time.Duration](value, standard T) T {
	if value == 0 {
		return standard
	}
	return value
}
