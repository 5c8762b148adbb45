package medium

import (
	"os"
	"path/filepath"
	"syscall"
)

// mounted reports whether dir is on another file system than the folder it is in.
func mounted(dir string) bool {
	own, parent := statOf(dir), statOf(dir+string(filepath.Separator)+"..") // of what a link leads to
	return own != nil && parent != nil && own.Dev != parent.Dev
}

func statOf(path string) *syscall.Stat_t {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	s, _ := info.Sys().(*syscall.Stat_t)
	return s
}
