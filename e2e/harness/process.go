package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is what a process gets to end by itself before it is killed.
const stopTimeout = 10 * time.Second

// pollInterval is the time between two looks at something that is about to be ready.
const pollInterval = 50 * time.Millisecond

// errPortTaken is a start that failed because somebody else listens on the chosen port.
var errPortTaken = errors.New("port is taken")

// process is a child with its own process group, so that an interrupt at the terminal reaches only the
// tests, which then end it in order.
type process struct {
	name string
	log  string // the file that has its stdout and stderr
	cmd  *exec.Cmd
	// metrics is the URL of its metrics, where it has any.
	metrics string
	done    chan struct{} // closed when it has ended
	err     error         // how it ended; to be read after done is closed
}

// start runs path with its output in a log file of dir, and with env added to its environment.
func start(dir, path string, args []string, env ...string) (*process, error) {
	return startAs(dir, filepath.Base(path), path, args, env...)
}

// startAs is start for a program that is several, each with a name.
func startAs(dir, name, path string, args []string, env ...string) (*process, error) {
	return Place{}.start(dir, name, path, args, env...)
}

// Place is a part of this machine's network that programs run in, such as a network namespace. The zero value is the one of
// the tests themselves.
type Place struct {
	// Start starts a program there; nil is (*exec.Cmd).Start.
	Start func(*exec.Cmd) error
	// Dial connects to one by its address; nil is that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// client returns one for programs of the place.
func (at Place) client() *http.Client {
	return &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DialContext: at.dial}}
}

func (at Place) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if at.Dial != nil {
		return at.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// start is startAs for a program in the place.
func (at Place) start(dir, name, path string, args []string, env ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.log = filepath.Join(dir, p.name+".log")
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = ownGroup()
	started := make(chan error, 1)
	go func() {
		// On Linux the child dies with the thread that started it. The thread is kept for this goroutine
		// until the child has ended, so that only the death of the whole process takes the child along.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		begin := (*exec.Cmd).Start
		if at.Start != nil {
			begin = at.Start
		}
		if err := begin(p.cmd); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// ended is closed when p has ended. A nil process never ends.
func (p *process) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

// reports waits until p has written a line that begins with prefix, and returns the rest of it.
func (p *process) reports(ctx context.Context, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		data, err := os.ReadFile(p.log)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, prefix); ok && strings.HasSuffix(rest, "\n") {
				return strings.TrimSpace(rest), nil
			}
		}
		select {
		case <-p.done:
			return "", p.failure()
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %s to write %q: %w", p.name, prefix, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// failure returns the error of a process that has ended, with the last lines of its log.
func (p *process) failure() error {
	const tail = 2 << 10
	data, _ := os.ReadFile(p.log)
	cause := error(nil)
	if bytes.Contains(data, []byte("address already in use")) {
		cause = errPortTaken
	}
	data = data[max(0, len(data)-tail):]
	return errors.Join(fmt.Errorf("%s ended (%v) before it was ready; its log ends with:\n%s", p.name, p.err, data), cause)
}

// stop ends p and everything that it has started.
func (p *process) stop() error {
	group := -p.cmd.Process.Pid
	if err := syscall.Kill(group, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
	}
	if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// The ports that freePorts chooses from: below those that kernels hand out by themselves, which may go to anybody
// before the server listens that a port is for.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// freePorts returns n different ports of loopback that nobody listened on a moment ago, and that no other test gets while
// this process runs. Else two clusters that start at the same time could choose one port for their etcd, and
// the second one would take the first one's for its own.
func freePorts(n int) (ports []int, err error) {
	const attempts = 1000
	path := filepath.Join(os.TempDir(), "wherry-e2e-ports.lock")
	// It stays open: closing it would end the locks of this process, which the kernel does when the process ends.
	taken, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for range attempts {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			continue
		}
		defer l.Close() // all stay open until all are chosen
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
		if err = syscall.FcntlFlock(uintptr(taken), setLock, &lock); err == nil {
			ports = append(ports, port)
		}
	}
	return nil, fmt.Errorf("no port of loopback is free: %w", err)
}

// FreeAddress is an address of loopback, as HOST:PORT, that nobody listened on a moment ago.
func FreeAddress() (string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}
