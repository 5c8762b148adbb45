package medium

import (
	"os"
	"syscall"

	"github.com/wherry-dev/wherry/bundle/diskfile"
)

// msdos is the type that Linux gives FAT12 to FAT32.
const msdos = 0x4d44

func maxFile(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err == nil && s.Type == msdos {
		return FAT32
	}
	return 0
}

// lock takes the file for this process, if its file system has locks.
func lock(f *os.File) error {
	if free, err := diskfile.TryLock(f); !free && err == nil {
		return ErrBusy
	}
	return nil
}
