//go:build !linux

package directory

import (
	"errors"
	"os"
)

// exchange is something that only Linux can do.
func exchange(*os.Root, string, string) error { return errors.ErrUnsupported }
