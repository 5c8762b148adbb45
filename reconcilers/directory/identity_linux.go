package directory

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

// identity is how a file looks without reading it. Whatever writes to a file sets its change time, which
// programs cannot set at will; so a file that looks the same holds the same, but for damage to the disk.
type identity struct {
	Inode             uint64
	Size              int64
	Modified, Changed int64 // in nanoseconds
}

func identify(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{s.Ino, info.Size(), s.Mtim.Nano(), s.Ctim.Nano()}
}

// certain is false where the system does not say enough.
func (i identity) certain() bool { return i != identity{} }

// settled is false where another change could still leave the same times behind.
func (i identity) settled(now time.Time) bool { return now.UnixNano()-i.Changed >= int64(racyTime) }

// ownAlone reports whether a file has one name only, is this process's own, and nobody else may write to it: a
// second name for it then gives nobody a hand in it.
func ownAlone(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 1 && int(s.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

// readOnly is statfs' flag of a file system that is mounted read-only.
const readOnly = 1

// freeBytes is the room on root's file system for this process, and the size of the file system; ok is false where it is
// not known, or nothing can be written anyway.
func freeBytes(root *os.Root) (free, all int64, ok bool) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, 0, false
	}
	defer dir.Close()
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(dir.Fd()), &s); err != nil || s.Flags&readOnly != 0 {
		return 0, 0, false
	}
	blocks := s.Bavail
	if os.Geteuid() == 0 {
		blocks = s.Bfree
	}
	return int64(blocks) * s.Bsize, int64(s.Blocks) * s.Bsize, true
}
