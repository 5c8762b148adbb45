package oci

import "syscall"

// RoomIn returns the number of bytes that this user may still write to the file system of dir. It returns false if the
// file system does not tell.
func RoomIn(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
