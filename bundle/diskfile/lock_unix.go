//go:build unix

package diskfile

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks f, a file or a folder, for this process until f is closed or the process ends. It reports false if another process has it.
// Two openings of one file are two processes.
func TryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
