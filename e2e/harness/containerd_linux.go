package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// mirrorConfig keeps containerd in a folder of its own, without what kubelet needs of it.
const mirrorConfig = `version = 2
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{{.Dir}}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/opt"
`

// Containerd is a containerd without kubelet, to pull images with.
type Containerd struct {
	// Hosts is the folder with the hosts.toml of each registry, in a folder of the registry's name.
	Hosts string

	dir, ctr string
	mounted  []string
	process  *process
	release  func() error
}

// StartContainerd starts a containerd. It takes root, and the machine while it runs, as StartKubelet does. The caller
// calls Stop.
func StartContainerd(ctx context.Context) (_ *Containerd, err error) {
	program, err := Tool("containerd")
	if err != nil {
		return nil, err
	}
	ctr, err := Tool("ctr")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wherry-e2e-")
	if err != nil {
		return nil, err
	}
	c := &Containerd{Hosts: filepath.Join(dir, "certs.d"), dir: dir, ctr: ctr}
	if c.release, err = claimMachine(ctx, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	config := filepath.Join(dir, "containerd.toml")
	if err := writeTemplate(config, mirrorConfig, map[string]string{"Dir": dir}); err != nil {
		return nil, err
	}
	if c.process, err = start(dir, program, []string{"--config=" + config}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !listens(filepath.Join(dir, "containerd.sock")) {
		select {
		case <-c.process.ended():
			return nil, c.process.failure()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	return c, nil
}

// Pull pulls an image as the hosts.toml of its registry says, and unpacks it.
func (c *Containerd) Pull(ctx context.Context, reference string) error {
	_, err := c.run(ctx, "images", "pull", "--snapshotter=native", "--hosts-dir="+c.Hosts, reference)
	return err
}

// Images lists the images, each as its reference and its digest.
func (c *Containerd) Images(ctx context.Context) (map[string]string, error) {
	out, err := c.run(ctx, "images", "list")
	images := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "sha256:") {
			images[f[0]] = f[2]
		}
	}
	return images, err
}

// Container is what a program is run in: a container with the machine's network and a file system that it may only read, but for an empty
// /tmp.
type Container struct {
	// Root is the file system, as Mount has made it.
	Root string
	// UID is its user, whose group is 0.
	UID uint32
	// Env is its environment, as NAME=VALUE.
	Env []string
	// Mounts are folders of the machine that it may write, by their places in the container.
	Mounts map[string]string
}

// Mount unpacks an image that was pulled, and returns the folder of its file system, which Stop removes.
func (c *Containerd) Mount(ctx context.Context, reference string) (string, error) {
	root, err := os.MkdirTemp(c.dir, "root-")
	if err != nil {
		return "", err
	}
	if _, err := c.run(ctx, "images", "mount", "--snapshotter=native", "--rw", reference, root); err != nil {
		return "", err
	}
	c.mounted = append(c.mounted, root)
	return root, nil
}

// Command returns a command that runs args in a container with a name that no other has.
func (c *Containerd) Command(ctx context.Context, name string, in Container, args ...string) (*exec.Cmd, error) {
	mount := func(at, kind, source string, options ...string) map[string]any {
		return map[string]any{"destination": at, "type": kind, "source": source, "options": options}
	}
	mounts := []any{
		mount("/proc", "proc", "proc"), mount("/dev", "tmpfs", "tmpfs", "nosuid", "mode=755"), mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
	}
	for at, folder := range in.Mounts {
		mounts = append(mounts, mount(at, "bind", folder, "rbind", "rw"))
	}
	var namespaces []any
	for _, kind := range []string{"pid", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, map[string]any{"type": kind})
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process":    map[string]any{"user": map[string]any{"uid": in.UID, "gid": 0}, "args": args, "env": in.Env, "cwd": "/", "noNewPrivileges": true},
		"root":       map[string]any{"path": in.Root, "readonly": true},
		"mounts":     mounts,
		"linux":      map[string]any{"namespaces": namespaces},
	})
	if err != nil {
		return nil, err
	}
	config := filepath.Join(c.dir, name+".json")
	if err := os.WriteFile(config, spec, 0o644); err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, c.ctr, "--address="+filepath.Join(c.dir, "containerd.sock"), "run", "--rm",
		"--runc-binary="+filepath.Join(filepath.Dir(c.ctr), "runc"), "--fifo-dir="+c.dir, "--config="+config, name), nil
}

func (c *Containerd) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.ctr, append([]string{"--address=" + filepath.Join(c.dir, "containerd.sock")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Stop ends it and leaves nothing behind.
func (c *Containerd) Stop() error {
	var errs []error
	for _, root := range c.mounted {
		errs = append(errs, syscall.Unmount(root, 0))
	}
	if c.process != nil {
		errs = append(errs, c.process.stop())
	}
	return errors.Join(append(errs, c.release(), os.RemoveAll(c.dir))...)
}
