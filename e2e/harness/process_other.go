//go:build unix && !linux

package harness

import "syscall"

// setLock takes a lock that belongs to this process.
const setLock = syscall.F_SETLK

// ownGroup puts a child into a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
