//go:build linux && (amd64 || arm64)

package child

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confine takes rights from this process for good, as far as the kernel allows that without root, and returns by which of
// its means: "seccomp" leaves it what Go's runtime needs and its open pipes. It then opens no file and no socket, and starts
// no program.
func Confine() []string {
	filter := systemCalls()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
		return nil
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 || thread != 0 {
		return nil
	}
	return []string{"seccomp"}
}

// systemCalls returns the filter of the system calls that a process keeps. The others fail with EPERM.
func systemCalls() []unix.SockFilter {
	// The fields of struct seccomp_data; see seccomp(2).
	const number, arch = 0, 4
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// equal skips as many instructions if the loaded value is k, or is not.
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{load(arch), equal(architecture, 1, 0), answer(unix.SECCOMP_RET_KILL_PROCESS), load(number)}
	for _, call := range runtimeCalls() {
		filter = append(filter, equal(call, 0, 1), answer(unix.SECCOMP_RET_ALLOW))
	}
	return append(filter, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)))
}

// runtimeCalls are the system calls of Go's runtime, and those that read and write pipes.
func runtimeCalls() []uint32 {
	return append([]uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_LSEEK,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_PRCTL,
		unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
		unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETRANDOM, unix.SYS_GETRUSAGE, unix.SYS_RESTART_SYSCALL,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID,
		unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_PPOLL,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	}, ownCalls...)
}
