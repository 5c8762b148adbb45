//go:build unix

package simulation

import (
	"math"
	"syscall"
)

// maxFiles returns how many file descriptors this process may have. The runtime has raised the soft limit to the hard one.
func maxFiles() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Max) > math.MaxInt64 {
		return 0
	}
	return int64(limit.Max)
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
