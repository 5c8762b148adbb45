package gittest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// CopyKnown copies the folder from, of a git work tree, to the folder to, without what git ignores: what people make there for
// themselves is none of a test's inputs. Outside of git all is copied.
func CopyKnown(to, from string) error {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	list, err := cmd.Output()
	if err != nil {
		return os.CopyFS(to, os.DirFS(from))
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(to, name), filepath.Join(from, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

func copyFile(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}
