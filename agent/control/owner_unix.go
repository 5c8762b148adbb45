//go:build unix

package control

import (
	"fmt"
	"os"
	"os/user"
	"syscall"
)

// ownerOf returns the name, or else the number, of the user that a file or folder belongs to; empty if that cannot be seen.
func ownerOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	uid := fmt.Sprint(s.Uid)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return "user " + uid
}
