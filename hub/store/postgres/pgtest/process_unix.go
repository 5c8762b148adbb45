//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// credential returns the unprivileged user that runs the server, which refuses to be root; nil if the tests are not root.
func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// newFolder makes a folder for the server's user alone. Its path is short, since a socket's is.
func newFolder() (string, error) {
	parent := os.TempDir()
	if len(parent) > 40 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "wherry-pg-")
	if err != nil {
		return "", err
	}
	if c := credential(); c != nil {
		err = os.Chown(dir, int(c.Uid), int(c.Gid))
	}
	return dir, err
}

// command returns a command that runs as the server's user.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = "/"
	// An interrupt at the terminal is for the tests, whose end ends the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(), Setpgid: true}
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	return cmd
}

// keeper is a process that runs a server, and ends it and removes its folder once the process of the tests has ended,
// however that comes: the kernel closes the pipe then.
type keeper struct {
	dir  string
	cmd  *exec.Cmd
	pipe *os.File // a line ends the server, and leaves its folder
}

func keep(dir string, server ...string) (*keeper, error) {
	const script = `dir=$1; shift
if [ $# -gt 0 ]; then "$@" </dev/null >>"$dir/log" 2>&1 & fi
if read -r line; then
	if [ $# -gt 0 ]; then kill -KILL $!; wait $!; fi
	exit
fi
if [ $# -gt 0 ]; then kill -QUIT $!; wait $!; fi
rm -rf "$dir"`
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	k := &keeper{dir: dir, cmd: command("sh", append([]string{"-c", script, "keeper", dir}, server...)...), pipe: w}
	k.cmd.Stdin = r
	return k, k.cmd.Start()
}

// end kills the server, and leaves its folder.
func (k *keeper) end() {
	_, _ = k.pipe.WriteString("\n")
	_ = k.cmd.Wait() // its status is that of a killed server
	_ = k.pipe.Close()
}

// pids returns the processes of the server, the first one before those that it has started.
func (s *Server) pids() (all []int) {
	data, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	first, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return nil
	}
	all = append(all, first)
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		if _, parent, ok := stat(pid); ok && parent == first {
			all = append(all, pid)
		}
	}
	return all
}

// stat returns the state and the parent of a process; false if it has ended, or where there is no /proc.
func stat(pid int) (state string, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// PID (NAME) STATE PARENT …, and a name may hold anything.
	end := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data[end+1:]))
	if end < 0 || len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// stopped stops the server's first process, and then returns all its processes. One that it starts between the look and the
// kill would hold the shared memory for a moment longer, and a server does not start beside that; one that it has reaped is no
// process any more.
func (s *Server) stopped() []int {
	if first := s.pids(); len(first) == 0 || !stop(first[0]) {
		return first
	}
	return s.pids()
}

// stop stops a process, and reports whether it was there. It returns when the process runs no more.
func stop(pid int) bool {
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return false
	}
	for {
		state, _, ok := stat(pid)
		if !ok || state == "T" || state == "Z" {
			return true
		}
		time.Sleep(time.Millisecond)
	}
}

// Kill ends all processes of the server at once, as kill -9 does, and returns when they are gone. A server that has ended
// stays so.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.keeper == nil {
		return
	}
	all := s.stopped()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	s.keeper.end()
	s.keeper = nil
	deadline := time.Now().Add(startTime)
	for _, pid := range all {
		for runs(pid) {
			require.False(t, time.Now().After(deadline), "process %d of PostgreSQL does not end", pid)
			time.Sleep(time.Millisecond)
		}
	}
}

// runs reports whether the process is there, and more than an entry in the table of processes.
func runs(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	state, _, ok := stat(pid)
	return !ok || state != "Z"
}

// Restart starts the server again on the same folder, and returns once it has recovered and answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	require.NoError(t, s.start())
}

// Pause stops all processes of the server, which hold their connections and answer nothing, until resume is called.
func (s *Server) Pause(t testing.TB) (resume func()) {
	t.Helper()
	all := s.stopped()
	for _, pid := range all {
		require.True(t, stop(pid), "process %d of PostgreSQL has ended", pid)
	}
	return func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// SmallDisk returns the URL of a new database whose tables have so many bytes of disk, of which an empty database takes 8 MB. It
// takes root; the test is skipped without.
func (s *Server) SmallDisk(t testing.TB, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small disk is mounted by root")
	}
	dir := filepath.Join(s.dir, "small")
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := mountMemory(dir, size, credential()); err != nil {
		t.Skip("a small disk cannot be mounted here: ", err)
	}
	t.Cleanup(func() {
		s.Kill(t)
		require.NoError(t, unmount(dir))
	})
	require.NoError(t, s.exec("postgres", fmt.Sprintf("CREATE TABLESPACE small LOCATION '%s'", dir)))
	require.NoError(t, s.exec("postgres", "CREATE DATABASE small TABLESPACE small"))
	return s.url("small")
}
