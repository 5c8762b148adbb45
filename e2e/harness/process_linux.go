package harness

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setLock takes a lock that belongs to one call of freePorts: other calls in this process do not get the same port.
const setLock = unix.F_OFD_SETLK

// ownGroup puts a child into a process group of its own and has the kernel end it with its parent, so
// that a test that is killed leaves no server behind.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
