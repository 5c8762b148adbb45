//go:build unix && !linux

package pgtest

import (
	"errors"
	"syscall"
)

func mountMemory(string, int64, *syscall.Credential) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
