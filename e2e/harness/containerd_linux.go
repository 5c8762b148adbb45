package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	if c.process != nil {
		errs = append(errs, c.process.stop())
	}
	return errors.Join(append(errs, c.release(), os.RemoveAll(c.dir))...)
}
