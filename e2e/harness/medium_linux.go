package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Medium is a file system that people carry, such as a USB stick: ext4 in a file, mounted through a loop device. Between
// Unmount and Mount nobody reaches its content.
type Medium struct {
	// Dir is the folder that it is mounted at.
	Dir string

	image string
}

// NewMedium makes a medium of that size in bytes, which is not mounted. It belongs to the node: Stop unmounts it and
// deletes it, and so does the next claim of the machine if the test was killed. It takes root and mkfs.ext4.
func (n *Node) NewMedium(ctx context.Context, size int64) (*Medium, error) {
	m := &Medium{Dir: filepath.Join(n.dir, "medium"), image: filepath.Join(n.dir, "medium.ext4")}
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(m.image, size); err != nil {
		return nil, err
	}
	return m, administer(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", m.image)
}

// Mount makes the content reachable at Dir. The kernel lets go of the loop device with Unmount.
func (m *Medium) Mount(ctx context.Context, readOnly bool) error {
	options := "loop,nodev,nosuid,noexec"
	if readOnly {
		options += ",ro"
	}
	return administer(ctx, "mount", "-t", "ext4", "-o", options, m.image, m.Dir)
}

// Unmount writes what is left to write, and makes the content unreachable. It fails while a file is open.
func (m *Medium) Unmount(ctx context.Context) error { return administer(ctx, "umount", m.Dir) }

// administer runs a program that may be in a folder that only administrators have in their PATH.
func administer(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		path = filepath.Join("/usr/sbin", name)
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
