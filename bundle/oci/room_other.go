//go:build !linux

package oci

// RoomIn returns false: free space is known on Linux only.
func RoomIn(string) (int64, bool) { return 0, false }

// SpaceIn returns false, as RoomIn does.
func SpaceIn(string) (free, size int64, known bool) { return 0, 0, false }
