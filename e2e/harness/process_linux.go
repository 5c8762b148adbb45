package harness

import "syscall"

// ownGroup puts a child into a process group of its own and has the kernel end it with its parent, so
// that a test that is killed leaves no server behind.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
