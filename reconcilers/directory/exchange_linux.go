package directory

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// exchange swaps two entries of root in one step. The error is errors.ErrUnsupported where the kernel or
// the file system cannot, and fs.ErrNotExist where one of them is absent.
func exchange(root *os.Root, a, b string) error {
	from, err := root.Open(path.Dir(a))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.Open(path.Dir(b))
	if err != nil {
		return err
	}
	defer to.Close()
	err = unix.Renameat2(int(from.Fd()), path.Base(a), int(to.Fd()), path.Base(b), unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("exchange %s and %s: %w", a, b, err)
	}
	return nil
}
