// Package child runs work of this program in a process of its own, whose memory, processor time and rights have bounds.
//
// A parent starts the process with [Command], talks to it over pipes, and judges its end with [Verdict]. The child calls
// [Bound] and [Confine] before it reads anything that it does not trust. It has no variable of its parent's environment, a
// process group of its own, and is killed with its parent: by the kernel on Linux, and on other systems than Windows by [Bound].
//
// [Run] runs another program, and ends with it what it has started.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"
)

// Errors to test for, by which [Verdict] tells the ends of a child apart.
var (
	// ErrMemory is wrapped if the child needed more memory than [Bound] allows.
	ErrMemory = errors.New("too much memory")
	// ErrCPU is wrapped if a piece of work took more processor time than [Bound] allows.
	ErrCPU = errors.New("too much processor time")
	// ErrKilled is wrapped if a signal ended the child, such as that of a kernel without memory. It says nothing about the work.
	ErrKilled = errors.New("killed")
)

// The exit codes of a child that exceeds a bound.
const (
	exitMemory = 81
	exitCPU    = 82
	exitOrphan = 83
)

// Self returns the program that runs, and the argument that makes it a child of that name; nil if the program does not know
// where it lies.
func Self(name string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, name}
}

// Command returns a command that starts a child, for one processor. Self is the program and the arguments that make it one.
// Runtime are variables of Go's runtime, such as GOGC=20. The child is killed when ctx ends.
func Command(ctx context.Context, self []string, runtime ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self[0], self[1:]...)
	cmd.Env = append([]string{"GOMAXPROCS=1"}, runtime...)
	OwnGroup(cmd)
	return cmd
}

// Verdict returns how a child ended by itself, with the first line that it wrote to stderr; nil for the exit code 0.
func Verdict(state *os.ProcessState, stderr string) error {
	first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	switch code := state.ExitCode(); {
	case code == 0:
		return nil
	case code == exitCPU:
		return fmt.Errorf("%w: %s", ErrCPU, first)
	case code == exitMemory:
		return fmt.Errorf("%w: %s", ErrMemory, first)
	case code == 2 && outOfMemory(stderr):
		return fmt.Errorf("%w: more was asked for at once than there was left", ErrMemory) // how much, the runtime does not tell
	case code < 0:
		return fmt.Errorf("%w: %s", ErrKilled, state)
	}
	return fmt.Errorf("%s: %s", state, first)
}

// outOfMemory reports whether Go's runtime ended a process for lack of memory, of the heap or of a stack.
func outOfMemory(stderr string) bool {
	for _, words := range []string{"out of memory", "cannot allocate memory", "stack overflow"} {
		if strings.Contains(stderr, words) {
			return true
		}
	}
	return false
}

// Meter counts the processor time of pieces of work.
type Meter struct {
	limit time.Duration
	// began is the processor time at the begin of the work, plus one; 0 between two of them.
	began atomic.Int64
}

// watched is the time between two looks at what the process has used.
const watched = 20 * time.Millisecond

// Bound bounds this process: its memory to what it holds now and memory bytes more, and each piece of work that the Meter
// counts to cpu. The process ends when it exceeds one, or when its parent has ended.
func Bound(memory int64, cpu time.Duration) *Meter {
	held := inUse()
	debug.SetMemoryLimit(held + memory*3/4)
	debug.SetMaxStack(int(memory / 4))
	limitData(memory)
	m, parent := &Meter{limit: cpu}, os.Getppid()
	go func() {
		for range time.Tick(watched) {
			if os.Getppid() != parent {
				os.Exit(exitOrphan)
			}
			began := m.began.Load()
			if began == 0 {
				continue
			}
			if used := ProcessorTime() - time.Duration(began-1); used > m.limit {
				end(exitCPU, "%.1f s used", used.Seconds())
			}
			if now := inUse(); now > held+memory {
				end(exitMemory, "%d MiB in use", now>>20)
			}
		}
	}()
	return m
}

// Begin begins a piece of work.
func (m *Meter) Begin() { m.began.Store(int64(ProcessorTime()) + 1) }

// End ends it.
func (m *Meter) End() { m.began.Store(0) }

func end(code int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(code)
}

// inUse returns the bytes that Go's runtime has of the system.
func inUse() int64 {
	of := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(of)
	return int64(of[0].Value.Uint64() - of[1].Value.Uint64())
}

// Head is a writer that keeps the first Left bytes in W and drops the others, so that a full pipe does not block a program, and
// its output does not fill the memory.
type Head struct {
	W    io.Writer
	Left int
}

// Write writes as many bytes of p as there is room for, and reports all as written.
func (h *Head) Write(p []byte) (int, error) {
	kept := p[:min(len(p), h.Left)]
	h.Left -= len(kept)
	if _, err := h.W.Write(kept); err != nil {
		return 0, err
	}
	return len(p), nil
}
