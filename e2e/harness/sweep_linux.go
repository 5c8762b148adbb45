package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// traces are the folders that kubelet, containerd and the CNI plugins use whatever their configuration.
var traces = [...]string{"/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"}

const (
	cgroups   = "/sys/fs/cgroup"
	addedFile = "added" // in the folder of a node: the folders that the machine did not have before
	leaveOut  = `"make e2e E2E_TAGS=e2e" leaves the tests with real pods out`

	// claimTimeout is what another run of the tests gets to end those that need the machine.
	claimTimeout = 30 * time.Minute

	// vanishTimeout is what processes that were killed get to leave their control group.
	vanishTimeout = time.Minute
)

// claimMachine reserves this machine as the one node of the tests. It first removes the leftovers of killed tests. The
// caller calls release, which ends the reservation and removes the leftovers of the kubelet with its state in dir.
func claimMachine(ctx context.Context, dir string) (release func() error, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a machine becomes a node by root alone: " + leaveOut)
	}
	lock, err := lockMachine(ctx)
	if err != nil {
		return nil, err
	}
	stale, err := filepath.Glob(filepath.Join(os.TempDir(), "wherry-e2e-*", addedFile))
	for _, file := range stale {
		err = errors.Join(err, sweep(filepath.Dir(file)), os.RemoveAll(filepath.Dir(file)))
	}
	groups, err1 := podGroups()
	err = errors.Join(err, err1)
	for _, group := range groups {
		err = errors.Join(err, requireUnused(group))
	}
	if err == nil {
		err = noteAdded(dir, append(groups, traces[:]...))
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() error { return errors.Join(sweep(dir), lock.Close()) }, nil
}

// lockMachine waits until no other test has this machine.
func lockMachine(ctx context.Context) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "wherry-e2e-node.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another test has made this machine a node: lock %s: %w", lock.Name(), err), lock.Close())
		case <-time.After(pollInterval):
		}
	}
}

// podGroups are the control groups in which a kubelet puts its pods, there or not: one, or one for each of
// version 1's hierarchies.
func podGroups() ([]string, error) {
	groups := []string{cgroups + "/kubepods"}
	hierarchies, err := os.ReadDir(cgroups)
	for _, hierarchy := range hierarchies {
		if hierarchy.IsDir() {
			groups = append(groups, filepath.Join(cgroups, hierarchy.Name(), "kubepods"))
		}
	}
	return groups, err
}

// requireUnused refuses a group with processes: the kubelet of the tests would take the pods of another
// one for forgotten ones of its own, and kill them.
func requireUnused(group string) error {
	return filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && entry.Name() != "cgroup.procs" {
			return nil
		}
		if err != nil {
			return err
		}
		processes, err := os.ReadFile(path)
		if err == nil && len(processes) > 0 {
			err = fmt.Errorf("this machine is a node already, with pods in %s: %s", group, leaveOut)
		}
		return err
	})
}

// noteAdded writes down which of the places that a kubelet uses are not there yet.
func noteAdded(dir string, places []string) error {
	var added strings.Builder
	for _, place := range places {
		if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(&added, place)
		}
	}
	return os.WriteFile(filepath.Join(dir, addedFile), []byte(added.String()), 0o600)
}

// sweep kills the processes in the pods of the node with its state in dir, and their shims, and
// removes its mounts, control groups and folders.
func sweep(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, addedFile))
	if err != nil {
		return err
	}
	errs := []error{killShims(dir)}
	added := strings.Fields(string(data))
	for _, place := range added {
		if strings.HasPrefix(place, cgroups) {
			errs = append(errs, removeCgroup(place))
		}
	}
	errs = append(errs, unmountBelow(dir))
	for _, place := range added {
		if !strings.HasPrefix(place, cgroups) {
			errs = append(errs, unmountBelow(place), os.RemoveAll(place))
		}
	}
	return errors.Join(errs...)
}

// killShims kills what containerd has left behind, which has its socket in the command line, and the
// processes of pods, which are their children.
func killShims(dir string) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		data, _ := os.ReadFile(line) // it may have ended
		if !bytes.Contains(data, []byte(filepath.Join(dir, "containerd.sock"))) {
			continue
		}
		shim := filepath.Base(filepath.Dir(line))
		lists, _ := filepath.Glob("/proc/" + shim + "/task/*/children")
		for _, list := range lists {
			children, _ := os.ReadFile(list)
			for _, child := range strings.Fields(string(children)) {
				err = errors.Join(err, kill(child))
			}
		}
		err = errors.Join(err, kill(shim))
	}
	return err
}

func kill(process string) error {
	pid, err := strconv.Atoi(process)
	if err != nil || pid <= 1 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}

// removeCgroup removes a group with all below it: its files are the kernel's. It stays busy for a moment
// after its last process was killed.
func removeCgroup(group string) error {
	deadline := time.Now().Add(vanishTimeout)
	for {
		err := tryRemoveCgroup(group)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollInterval)
	}
}

func tryRemoveCgroup(group string) error {
	if _, err := os.Lstat(group); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	for _, path := range slices.Backward(groups) {
		err = errors.Join(err, syscall.Rmdir(path))
	}
	return err
}

// unmountBelow unmounts everything in dir, and dir itself, last mounted first.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			points = append(points, fields[4])
		}
	}
	for _, point := range slices.Backward(points) {
		if e := syscall.Unmount(point, syscall.MNT_DETACH); e != nil {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", point, e))
		}
	}
	return err
}
