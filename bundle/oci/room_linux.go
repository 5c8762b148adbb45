package oci

import "syscall"

// RoomIn is how many bytes this user may still write to the disk of dir; false where its file system does not say.
func RoomIn(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
