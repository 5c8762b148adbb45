//go:build unix

package diskfile

import (
	"errors"
	"os"
	"syscall"
)

// hold reports whether f is locked by this process from now on, until it is closed or the process ends.
func hold(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
