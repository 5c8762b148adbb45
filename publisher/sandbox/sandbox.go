// Package sandbox renders charts and builds kustomizations in child processes of this program, away from its keys.
//
// Begin with [New]; [Sandbox.Chart] and [Sandbox.Kustomization] are jobs. The program has to call [Child] when it is started
// with the argument [Name]; only the child needs the engines that do the jobs. One child does the jobs of one registration, one after another, and none of another. It asks for
// every file over a pipe, and the parent answers with the checks of the file system that it was handed.
//
// A child has no environment, no key and, where the kernel grants that, no file, no socket and no other program; see
// [child.Confine]. It ends when a job exceeds the limit on memory or processor time. Limits hold assignments and never change
// bytes: what a job gives depends on its input alone, and a job without a result has an error that wraps [ErrUnfinished].
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-dev/wherry/bundle/child"
	"github.com/wherry-dev/wherry/publisher/embed/chart"
	"github.com/wherry-dev/wherry/publisher/meter"
)

// ErrUnfinished is wrapped if a job has no result, for a reason that may be another one at another time: it exceeded a limit,
// or its process failed. Such an outcome is not to be cached.
var ErrUnfinished = errors.New("the sandbox has no result")

// The default limits of one job.
const (
	DefaultMemory = 512 << 20 // bytes
	DefaultCPU    = 20 * time.Second
)

// jobsInTotal is how many jobs at their limit a registration has the processor time for, unless the options say otherwise.
const jobsInTotal = 30

// Options are the settings of a Sandbox. Command is required.
type Options struct {
	// Command is the program, with its arguments, that calls [Child]; see [child.Self]. Without one, every job fails.
	Command []string
	// Memory and CPU bound one job: the bytes that it may take beside the program's own, and the time of a processor. Zero
	// means DefaultMemory and DefaultCPU.
	Memory int64
	CPU    time.Duration
	// Total bounds the processor time of all jobs of a registration, with the start of its processes. Zero means 30 times CPU. Meters
	// count it; nil ones count nothing, and then there is no such bound.
	Total  time.Duration
	Meters *meter.Set
	// Log may be nil, which is silent.
	Log *slog.Logger

	idle time.Duration // without processor time, after which a job has failed; zero means a minute
}

// Sandbox does jobs. It may be used by several goroutines.
type Sandbox struct {
	opts Options
	mu   sync.Mutex
	of   map[string]*seat // by registration
}

// seat is the place of a registration's child.
type seat struct {
	free    chan struct{} // has an element while a job may begin
	process *process      // the child that waits for a job, or nil
}

// New returns a Sandbox. Close ends its children.
func New(opts Options) *Sandbox {
	if opts.Memory <= 0 {
		opts.Memory = DefaultMemory
	}
	if opts.CPU <= 0 {
		opts.CPU = DefaultCPU
	}
	if opts.Total <= 0 {
		opts.Total = jobsInTotal * opts.CPU
	}
	if opts.idle <= 0 {
		opts.idle = time.Minute
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Sandbox{opts: opts, of: map[string]*seat{}}
}

// Chart reads a chart of a registration, and packs and renders it if that is asked for.
func (s *Sandbox) Chart(ctx context.Context, registration string, from Source, c chart.Job) (*chart.Done, error) {
	ask, err := packJob(c)
	if err != nil {
		return nil, err
	}
	m, err := s.do(ctx, registration, from, ask)
	if err != nil {
		return nil, err
	}
	return unpackResult(m)
}

// Kustomization builds the kustomization in the folder dir of a registration's source. It returns the objects, and the files of the
// source that were read. Argo is the field kustomize of an Application in JSON, or empty.
func (s *Sandbox) Kustomization(ctx context.Context, registration string, from Source, dir string, argo []byte) (yaml []byte, read []string, err error) {
	work := &kustomizationWork{Dir: dir, Remote: from.Remote != nil, Argo: argo}
	m, err := s.do(ctx, registration, from, message{Job: &job{Kustomization: work}})
	if err != nil {
		return nil, nil, err
	}
	if m.Outcome.Kustomization == nil || len(m.blobs) != 1 {
		return nil, nil, errors.New("the result is not whole")
	}
	return m.blobs[0], m.Outcome.Kustomization.Read, nil
}

// Confinement starts a child and returns by which means it is confined: "process", and those of child.Confine.
func (s *Sandbox) Confinement() ([]string, error) {
	p, err := s.start("")
	if err != nil {
		return nil, err
	}
	defer p.end()
	return p.confined, nil
}

// Release ends the child of a registration, if one waits for a job.
func (s *Sandbox) Release(registration string) {
	s.mu.Lock()
	at := s.of[registration]
	delete(s.of, registration)
	s.mu.Unlock()
	if at != nil {
		<-at.free
		at.process.end()
	}
}

// Close ends all children. No job may begin or go on.
func (s *Sandbox) Close() {
	for registration := range s.of {
		s.Release(registration)
	}
}

// maxKilled bounds how often a job is begun again whose child was ended by a signal from outside.
const maxKilled = 3

// do has a child do a job. What a used child cannot do, a fresh one tries once more: jobs before may have left too little.
func (s *Sandbox) do(ctx context.Context, registration string, from Source, ask message) (message, error) {
	s.mu.Lock()
	at := s.of[registration]
	if at == nil {
		at = &seat{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		s.of[registration] = at
	}
	s.mu.Unlock()
	select {
	case <-at.free:
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
	defer func() { at.free <- struct{}{} }()
	for killed := 0; ; {
		if err := s.opts.Meters.Of(registration).CPU(0, s.opts.Total); err != nil {
			return message{}, &limitError{err.Error() + " (divide it, or raise spec.sandbox.cpuSeconds of the Platform)", err}
		}
		used := at.process != nil
		if !used {
			var err error
			if at.process, err = s.start(registration); err != nil {
				return message{}, fmt.Errorf("%w: the process for it does not start: %w", ErrUnfinished, err)
			}
		}
		m, err := at.process.do(ctx, from, ask, s.opts.idle)
		if err == nil {
			return m, at.process.jobError(m.Outcome)
		}
		at.process.end()
		at.process = nil
		if ctx.Err() != nil {
			return message{}, ctx.Err()
		}
		if used {
			continue
		}
		if killed++; errors.Is(err, child.ErrKilled) && killed < maxKilled {
			continue
		}
		return message{}, s.explain(err)
	}
}

// explain returns the error of a job without a result, with what a person can do.
func (s *Sandbox) explain(err error) error {
	amount, advice := "", ""
	switch {
	case errors.Is(err, child.ErrMemory):
		amount, advice = fmt.Sprintf("more than %d MiB of memory", s.opts.Memory>>20), "sandbox.memory"
	case errors.Is(err, child.ErrCPU):
		amount, advice = fmt.Sprintf("more than %s of processor time", s.opts.CPU), "sandbox.cpuSeconds"
	default:
		return fmt.Errorf("%w: the process for it has failed: %w", ErrUnfinished, err)
	}
	_, used, _ := strings.Cut(err.Error(), ": ")
	return &limitError{fmt.Sprintf("rendering takes %s: %s (divide it, or raise spec.%s of the Platform)", amount, used, advice), err}
}

// limitError is the error of a job that exceeds a limit, its own or that of its registration.
type limitError struct {
	message string
	err     error
}

func (e *limitError) Error() string   { return e.message }
func (e *limitError) Unwrap() []error { return []error{ErrUnfinished, e.err} }

// process is a child.
type process struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	conn   *conn
	stdin  io.Closer
	stderr *bytes.Buffer
	errs   []error // those of the answers to the job, by number

	confined []string // by which means

	meter   *meter.Meter
	began   time.Time
	counted time.Duration // by the meter
}

// count counts the processor time of the process, which it tells itself, on one processor, and which the system knows once it
// has ended.
func (p *process) count(told time.Duration) {
	told = min(told, time.Since(p.began))
	if state := p.cmd.ProcessState; state != nil {
		told = state.UserTime() + state.SystemTime()
	}
	_ = p.meter.CPU(max(told-p.counted, 0), math.MaxInt64) // the next job asks
	p.counted = max(told, p.counted)
}

// maxWords bounds what is kept of a child's stderr, in bytes: a dump of goroutines may follow.
const maxWords = 4 << 10

func (s *Sandbox) start(registration string) (*process, error) {
	if len(s.opts.Command) == 0 {
		return nil, errors.New("this program starts none")
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cmd: child.Command(ctx, s.opts.Command, "GOGC=off"), cancel: cancel, stderr: new(bytes.Buffer), meter: s.opts.Meters.Of(registration), began: time.Now()}
	p.cmd.Stderr = &child.Head{W: p.stderr, Left: maxWords}
	p.cmd.WaitDelay = time.Second
	stdin, err := p.cmd.StdinPipe()
	if err == nil {
		var stdout io.ReadCloser
		if stdout, err = p.cmd.StdoutPipe(); err == nil {
			p.conn, p.stdin = newConn(stdout, stdin), stdin
			err = p.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	silent := time.AfterFunc(s.opts.idle, cancel)
	m, err := p.exchange(message{Setup: &setup{s.opts.Memory, int64(s.opts.CPU)}}, func() {})
	if !silent.Stop() {
		p.end()
		return nil, errIdle
	}
	if err != nil {
		return nil, p.verdict(err)
	}
	p.confined = m.Ready
	s.opts.Log.Debug("sandbox started", "registration", registration, "confined", strings.Join(m.Ready, ", "), "after", time.Since(p.began))
	return p, nil
}

// end ends the process, if there is one.
func (p *process) end() {
	if p == nil {
		return
	}
	p.stdin.Close()
	p.cancel()
	_ = p.cmd.Wait() // the state says more
	p.count(0)
}

var errIdle = errors.New("it did nothing for too long")

// do has the process do one job. An error means that it has no use any more.
func (p *process) do(ctx context.Context, from Source, ask message, idle time.Duration) (message, error) {
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	var silent atomic.Bool
	timer := time.AfterFunc(idle, func() { silent.Store(true); p.cancel() })
	defer timer.Stop()
	a := answerer{ctx: ctx, from: from, trees: []fs.FS{from.Files}}
	defer func() { p.errs = a.errs }()
	for {
		m, err := p.exchange(ask, func() { timer.Reset(idle) })
		switch {
		case silent.Load():
			return m, errIdle
		case err != nil:
			return m, p.verdict(err)
		case m.Outcome != nil:
			p.count(time.Duration(m.Outcome.CPU))
			return m, nil
		case m.Question == nil:
			return m, errors.New("it sends what is no question")
		}
		timer.Stop() // the time that answers take is the parent's
		ask = a.answer(*m.Question)
	}
}

// exchange sends a message and returns the next one that is no sign of life. It calls living at each sign of it.
func (p *process) exchange(ask message, living func()) (message, error) {
	living()
	if err := p.conn.send(ask); err != nil {
		return message{}, err
	}
	for {
		living()
		m, err := p.conn.receive()
		if err != nil || !m.Alive {
			return m, err
		}
	}
}

// endTime is the time that a process whose pipe is closed gets to end.
const endTime = 10 * time.Second

// verdict returns how a process ended whose pipe has failed with err.
func (p *process) verdict(err error) error {
	p.stdin.Close()
	defer time.AfterFunc(endTime, p.cancel).Stop()
	_ = p.cmd.Wait()
	p.count(0)
	if v := child.Verdict(p.cmd.ProcessState, p.stderr.String()); v != nil {
		return v
	}
	return err
}

// jobError returns the error of a job that has failed, with the parent's error that it is because of.
func (p *process) jobError(o *outcome) error {
	if !o.Failed {
		return nil
	}
	if o.Cause > 0 && o.Cause <= len(p.errs) {
		return &jobError{o.Err, p.errs[o.Cause-1]}
	}
	return errors.New(o.Err)
}

type jobError struct {
	text  string
	cause error
}

func (e *jobError) Error() string { return e.text }
func (e *jobError) Unwrap() error { return e.cause }
