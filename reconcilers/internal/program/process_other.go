//go:build !linux

package program

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Without Linux's /proc, a process cannot be distinguished safely from a later one with the same number.

func ownSession() *syscall.SysProcAttr { return nil }

func newMark() string { return "" }

func identify(int, string) (identity, error) { return identity{}, errors.ErrUnsupported }

func alive(identity) bool { return false }

func endAll(identity, time.Duration) error { return errors.ErrUnsupported }

func free(*os.File, int64) error { return errors.ErrUnsupported }
