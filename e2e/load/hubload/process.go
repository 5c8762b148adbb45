package hubload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Lifted are the arguments by which "wherry hub serve" takes whatever comes: quotas and pace are not what is measured.
var Lifted = []string{"--requests-per-minute", "2000000000", "--reports-per-minute", "2000000000", "--cluster-reports-per-hour", "2000000000", "--cluster-bytes-per-hour", "2000000000"}

// Hub is the process of a hub that serves.
type Hub struct {
	// URL is its address, Dir its folder.
	URL, Dir string
	// Key is its public key in PEM.
	Key []byte

	cmd *exec.Cmd
	log string
}

// Serve begins "wherry hub serve" on a free port of loopback, with the given folder, and returns once it listens. The
// program's log goes to the file FOLDER.log. The caller calls Stop or Kill.
func Serve(program, dir string, args ...string) (*Hub, error) {
	return ServeLog(program, dir+".log", dir, args...)
}

// ServeLog is Serve with another file for the log.
func ServeLog(program, log, dir string, args ...string) (*Hub, error) {
	return begin(exec.Command(program), log, dir, args)
}

// Begin is Serve with a command, which has the program and its environment.
func Begin(program *exec.Cmd, dir string, args ...string) (*Hub, error) {
	return begin(program, dir+".log", dir, args)
}

func begin(program *exec.Cmd, logFile, dir string, args []string) (*Hub, error) {
	h := &Hub{cmd: program, Dir: dir, log: logFile}
	log, err := os.OpenFile(h.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	h.cmd.Args = append(append(h.cmd.Args, "hub", "serve", "--data", dir, "--addr", "127.0.0.1:0"), args...)
	h.cmd.Stderr = log
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		h.URL = strings.TrimSpace(url)
		h.Key, err = os.ReadFile(filepath.Join(dir, "hub.pub"))
	}
	if err != nil {
		h.Kill()
		return nil, fmt.Errorf("hub serve: %w: %s", err, h.Log())
	}
	return h, nil
}

// Kill ends the hub as a crash does, and waits for its end.
func (h *Hub) Kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// Stop ends the hub as a person does. The error says that it did not end well.
func (h *Hub) Stop() error {
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	err := h.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 128+int(syscall.SIGINT) {
		return nil
	}
	return err
}

// CPU returns the processor time that the hub has taken, once it has ended.
func (h *Hub) CPU() time.Duration {
	return h.cmd.ProcessState.UserTime() + h.cmd.ProcessState.SystemTime()
}

// Spent returns the processor time that the hub has taken so far, in steps of 10 ms; zero if the system does not say it.
func (h *Hub) Spent() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(data), ") ") // see proc_pid_stat(5): utime and stime are fields 14 and 15
	var user, system time.Duration
	if fields := strings.Fields(after); len(fields) > 12 {
		_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	}
	return (user + system) * 10 * time.Millisecond
}

// Log returns the end of what the hub has logged.
func (h *Hub) Log() string {
	data, err := os.ReadFile(h.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4<<10):])
}

// Token returns the access token of the hub's administrator; empty if the hub has none.
func (h *Hub) Token() string {
	data, err := os.ReadFile(filepath.Join(h.Dir, "admin.token"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Peak returns the largest resident set that the hub had, in bytes. It works on Linux.
func (h *Hub) Peak() (n int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	if !found {
		return 0, errors.New("the system says nothing of the peak")
	}
	_, err = fmt.Fscan(bytes.NewReader(rest), &n)
	return n << 10, err
}
