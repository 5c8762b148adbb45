package pgtest

import (
	"fmt"
	"syscall"
)

// mountMemory mounts a file system in memory that has so many bytes, for a user.
func mountMemory(dir string, size int64, c *syscall.Credential) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700,uid=%d,gid=%d", size, c.Uid, c.Gid))
}

func unmount(dir string) error { return syscall.Unmount(dir, 0) }
