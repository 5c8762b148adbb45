package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// haveWorkers says that a script has one worker process for its commands: a start of wherry costs more than most of them.
const haveWorkers = true

// workerGC is how much a worker allocates between two collections of garbage, in percent of what is in use: a page that the
// kernel has to provide costs more than one that is used again. Scripts turn it off, for the sake of short processes.
const workerGC = 200

// maxRequest bounds a request to a worker, in bytes: arguments and environment, as far as a socket takes them at once.
const maxRequest = 128 << 10

// request is a command for a worker. Its stdout and stderr come beside it, as file descriptors; its stdin is empty.
type request struct {
	Args []string // with the program's name
	Dir  string
	Env  []string
}

// reply is how a command ended.
type reply struct {
	Code int
	// Ends says that the worker ends now, because the command has left goroutines or open files behind.
	Ends bool
}

// worker is the process that runs the commands of a script.
type worker struct {
	process *exec.Cmd
	conn    *net.UnixConn
	fixed   []string // the variables that a process reads once
}

// startWorker starts program as a worker. A command that has not ended at the deadline is ended with a dump of its
// goroutines; zero is no deadline.
func startWorker(program string, env []string, deadline time.Time) (*worker, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "worker")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	w := &worker{conn: conn.(*net.UnixConn), fixed: readOnce(env)}
	if err := w.conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	w.process = exec.Command(program)
	w.process.Env = append([]string{workerVariable + "=wherry"}, env...)
	w.process.Stderr = os.Stderr
	w.process.ExtraFiles = []*os.File{theirs}
	if err := w.process.Start(); err != nil {
		w.conn.Close()
		return nil, err
	}
	return w, nil
}

// readOnce returns those variables of env that a process, or one of its libraries, reads once.
func readOnce(env []string) []string {
	last := map[string]string{}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch upper := strings.ToUpper(name); {
		case strings.HasSuffix(upper, "_PROXY"), strings.HasPrefix(upper, "SSL_CERT_"), upper == "TZ", strings.HasPrefix(upper, "GO"), name == clockVariable:
			last[name] = v
		}
	}
	var found []string
	for _, v := range last {
		found = append(found, v)
	}
	slices.Sort(found)
	return found
}

// run has w run a command, and returns what it printed. The worker has ended if alive is false.
func (w *worker) run(r request) (stdout, stderr string, code int, alive bool, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", "", 0, true, err
	}
	if len(data) > maxRequest {
		return "", "", 0, true, fmt.Errorf("arguments and environment have %d bytes, and a worker takes %d", len(data), maxRequest)
	}
	var (
		readers  sync.WaitGroup
		printed  [2]strings.Builder
		descs    []int
		ours     []*os.File
		closeAll = func() {
			for _, f := range ours {
				f.Close()
			}
		}
	)
	for i := range printed {
		read, write, err := os.Pipe()
		if err != nil {
			closeAll()
			return "", "", 0, true, err
		}
		ours = append(ours, write)
		descs = append(descs, int(write.Fd())) // which makes it block, as a command expects
		readers.Go(func() {
			defer read.Close()
			io.Copy(&printed[i], read)
		})
	}
	_, _, err = w.conn.WriteMsgUnix(data, unix.UnixRights(descs...), nil)
	closeAll()
	if err == nil {
		code, alive, err = w.answer()
	}
	readers.Wait()
	return printed[0].String(), printed[1].String(), code, alive, err
}

// answer waits for the end of a command, or of the worker with it.
func (w *worker) answer() (code int, alive bool, err error) {
	data := make([]byte, 1<<10)
	n, err := w.conn.Read(data)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.process.Process.Signal(unix.SIGQUIT)
		w.end()
		return 0, false, errors.New("the command had not ended when the time of the test was over")
	}
	if n > 0 && err == nil {
		var r reply
		if err := json.Unmarshal(data[:n], &r); err != nil {
			return 0, true, err
		}
		if !r.Ends {
			return r.Code, true, nil
		}
		_, err := w.end()
		return r.Code, false, err
	}
	code, err = w.end() // a panic, or an os.Exit
	return code, false, err
}

// end waits for the end of w's process, which a closed connection brings.
func (w *worker) end() (code int, err error) {
	w.conn.Close()
	var ended *exec.ExitError
	if err := w.process.Wait(); err != nil && !errors.As(err, &ended) {
		return 0, err
	}
	return w.process.ProcessState.ExitCode(), nil
}

// work runs the commands that come over the worker's connection, one at a time, until it is closed.
func work(command func(args ...string) int) {
	os.Unsetenv(workerVariable)
	debug.SetGCPercent(workerGC)
	file := os.NewFile(3, "worker")
	unix.CloseOnExec(3)
	c, err := net.FileConn(file)
	if err != nil {
		panic(err)
	}
	file.Close()
	conn := c.(*net.UnixConn)
	null, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1) // whose goroutine stays from the first use on
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
	data, rights := make([]byte, maxRequest), make([]byte, unix.CmsgSpace(2*4))
	before := inUse()
	for {
		n, m, _, _, err := conn.ReadMsgUnix(data, rights)
		if err != nil || n == 0 {
			return
		}
		var r request
		if err := json.Unmarshal(data[:n], &r); err != nil {
			panic(err)
		}
		if err := become(r, rights[:m]); err != nil {
			panic(err)
		}
		code := command(r.Args...)
		for fd := range 3 {
			if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
				panic(err)
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		ends := !before.again()
		answer, err := json.Marshal(reply{Code: code, Ends: ends})
		if err != nil {
			panic(err)
		}
		if _, err := conn.Write(answer); err != nil || ends {
			return
		}
	}
}

// become gives this process the folder, environment, arguments and descriptors of a command.
func become(r request, rights []byte) error {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d messages with descriptors: %w", len(messages), err)
	}
	descs, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descs) != 2 {
		return fmt.Errorf("%d descriptors: %w", len(descs), err)
	}
	for i, fd := range descs {
		if err := unix.Dup3(fd, 1+i, 0); err != nil {
			return err
		}
		unix.Close(fd)
	}
	if err := os.Chdir(r.Dir); err != nil {
		return err
	}
	os.Clearenv()
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	os.Args = r.Args
	return nil
}

// use is what a command may leave behind in its process.
type use struct{ goroutines, descriptors int }

func inUse() use {
	open, _ := os.ReadDir("/proc/self/fd")
	return use{runtime.NumGoroutine(), len(open)}
}

// spare is the number of open files that a command may leave behind: those that go-git leaves to the collection of garbage. A collection
// after each command would cost more than most commands.
const spare = 32

// again reports whether the process uses no more than u, but for spare files. Goroutines that end on their own get a moment for it, and
// files two collections, since the first one leaves alone what a sync.Pool refers to.
func (u use) again() bool {
	allowed, collected := u.descriptors+spare, 0
	for range 50 {
		now := inUse()
		switch {
		case now.goroutines > u.goroutines:
		case now.descriptors <= allowed:
			return true
		case collected < 2:
			runtime.GC()
			allowed, collected = u.descriptors, collected+1
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// idle are workers that wait for the next script. The oldest ends if there are more than maxIdle: it has variables that no
// other script has.
var (
	idleMu sync.Mutex
	idle   []*worker
)

const maxIdle = 8

// workers keeps the worker of a script from one command to the next.
type workers struct {
	program  string
	deadline time.Time
	w        *worker
}

// command runs a command in dir, in the script's worker: another one for the first command, where the last one ended, or where a
// variable differs that a process reads once.
func (ws *workers) command(dir string, args, env []string) (stdout, stderr string, code int, err error) {
	if ws.w != nil && !slices.Equal(ws.w.fixed, readOnce(env)) {
		ws.close()
	}
	if ws.w == nil {
		ws.w = takeIdle(readOnce(env))
	}
	if ws.w == nil {
		if ws.w, err = startWorker(ws.program, env, ws.deadline); err != nil {
			return "", "", 0, err
		}
	}
	stdout, stderr, code, alive, err := ws.w.run(request{Args: args, Dir: dir, Env: append(slices.Clone(env), "PWD="+dir)})
	if !alive {
		ws.w = nil
	}
	return stdout, stderr, code, err
}

// takeIdle returns a worker for commands with these variables that a process reads once, or nil.
func takeIdle(fixed []string) *worker {
	idleMu.Lock()
	defer idleMu.Unlock()
	i := slices.IndexFunc(idle, func(w *worker) bool { return slices.Equal(w.fixed, fixed) })
	if i < 0 {
		return nil
	}
	w := idle[i]
	idle = slices.Delete(idle, i, i+1)
	return w
}

// close leaves the worker, if there is one, to another script.
func (ws *workers) close() {
	if ws.w == nil {
		return
	}
	idleMu.Lock()
	defer idleMu.Unlock()
	idle = append(idle, ws.w)
	ws.w = nil
	endIdle(maxIdle)
}

// endIdle ends idle workers until no more than most are left.
func endIdle(most int) {
	for len(idle) > most {
		idle[0].end()
		idle = idle[1:]
	}
}

// endWorkers ends all workers, when all scripts have run.
func endWorkers() {
	idleMu.Lock()
	defer idleMu.Unlock()
	endIdle(0)
}
