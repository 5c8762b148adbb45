package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree has dir and all below it on disk before it returns. One call for the whole file system costs
// less than one for each of some hundred small files.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	return nil
}
