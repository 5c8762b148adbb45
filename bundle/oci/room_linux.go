package oci

import "syscall"

// RoomIn returns the number of bytes that this user may still write to the file system of dir. It returns false if the
// file system does not tell.
func RoomIn(dir string) (int64, bool) {
	free, _, known := SpaceIn(dir)
	return free, known
}

// SpaceIn returns the number of bytes that this user may still write to the file system of dir, and the file system's
// size. It returns false if the file system does not tell.
func SpaceIn(dir string) (free, size int64, known bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 0, 0, false
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, true
}
