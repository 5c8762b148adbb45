//go:build !linux

package medium

// mounted is not known here.
func mounted(string) bool { return false }
