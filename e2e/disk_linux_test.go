//go:build e2e && pods

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// smallDisk is an agent whose state is on a disk of its own, and a registry that counts the bytes that it sends.
type smallDisk struct {
	*shelf
	proxy *wire.Proxy
	place place
	agent *follower
}

const (
	diskSize  = 24 << 20
	diskLayer = 4 << 20
	// chunk is what of a layer is on the disk at a time, and so what may come twice.
	chunk = 1 << 20
	// talk is what requests and small documents take beside layers.
	talk = 64 << 10
	// unread is what the kernel takes for an agent that has no processor just then, and is lost when it gives up.
	unread = 512 << 10
	// diskRate is how much comes in a second: less than the agent reads.
	diskRate = 1 << 20
)

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	f := &smallDisk{shelf: newShelf(t)}
	var err error
	f.proxy, err = wire.Forward("127.0.0.1:0", f.address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.proxy.Close()) })
	f.proxy.Behave(wire.Behaviour{Rate: diskRate})
	f.place = f.shelf.place(fmt.Sprintf("oci://127.0.0.1:%d/edge", f.proxy.Port()))
	require.NoError(t, os.Mkdir(f.place.state, 0o700))
	require.NoError(t, unix.Mount("tmpfs", f.place.state, "tmpfs", 0, "size=24m,mode=0700"), "disks take root: make e2e E2E_TAGS=e2e leaves them out")
	t.Cleanup(func() { require.NoError(t, unix.Unmount(f.place.state, unix.MNT_DETACH)) })
	f.publish("first")
	f.agent = follow(t, f.place)
	f.agent.sync()
	f.requireApplied("first")
	return f
}

// leave fills the disk until so many bytes are left.
func (f *smallDisk) leave(left int64) (free func()) {
	f.t.Helper()
	var disk unix.Statfs_t
	require.NoError(f.t, unix.Statfs(f.place.state, &disk))
	path := filepath.Join(f.place.state, "others")
	require.NoError(f.t, os.WriteFile(path, make([]byte, int64(disk.Bavail)*disk.Bsize-left), 0o600))
	return func() { require.NoError(f.t, os.Remove(path)) }
}

// requireAtFault makes the agent poll, and requires that it blames its machine and keeps its state.
func (f *smallDisk) requireAtFault(says string) {
	f.t.Helper()
	r, err := f.agent.Sync(f.t.Context(), 0)
	require.NoError(f.t, err)
	require.Equal(f.t, agent.Broken, r.Verdict)
	require.Contains(f.t, r.Error, says)
	status, err := f.agent.Status(f.t.Context())
	require.NoError(f.t, err)
	require.Equal(f.t, "LocalFailure", status.Reason)
	require.EqualValues(f.t, 1, status.Release.Running.Sequence)
	require.Equal(f.t, bundle.Compliant, status.Items[0].State)
	f.requireApplied("first")
}

// requireGoesOn has the agent look once more, when all is well, and take the release.
func (f *smallDisk) requireGoesOn(content string) {
	f.t.Helper()
	f.agent.sync()
	f.requireApplied(content)
}

func (f *smallDisk) down() int64 { return f.proxy.Settle(wireQuiet).Down }

// Others fill the disk in the middle of a layer: when there is room again, the rest of it is fetched.
func TestADiskThatIsFullDuringATransfer(t *testing.T) {
	t.Parallel()
	f := newSmallDisk(t)
	content, before := noise(1, diskLayer), f.down()
	f.publish(content)
	others, filled := filepath.Join(f.place.state, "others"), make(chan error, 1)
	go func() {
		for f.proxy.Count().Down-before < diskLayer/2 {
			time.Sleep(time.Millisecond)
		}
		filled <- os.WriteFile(others, make([]byte, diskSize), 0o600)
	}()
	f.requireAtFault("no space left on device")
	require.ErrorIs(t, <-filled, unix.ENOSPC)
	had := f.down() - before
	require.Less(t, had, int64(diskLayer))
	f.requireAtFault("no space left on device")
	require.Less(t, f.down()-before-had, int64(talk), "nothing is fetched that there is no room for")
	require.NoError(t, os.Remove(others))
	f.requireGoesOn(content)
	t.Logf("%d bytes came down, %d of them before there was room", f.down()-before, had)
	require.Less(t, f.down()-before, int64(diskLayer+chunk+unread+talk))
}

// It is full when the layer is there and is unpacked: nothing is fetched again.
func TestADiskThatIsFullAfterATransfer(t *testing.T) {
	t.Parallel()
	f := newSmallDisk(t)
	content, before := noise(2, diskLayer), f.down()
	f.publish(content)
	free := f.leave(diskLayer * 3 / 2)
	f.requireAtFault("no space left on device")
	had := f.down() - before
	require.Greater(t, had, int64(diskLayer))
	f.requireAtFault("no space left on device")
	free()
	f.requireGoesOn(content)
	require.Less(t, f.down()-before-had, int64(talk))
}

// A file system that is remounted read-only, as kernels do when a disk fails, is taken into use when it is well again.
func TestADiskThatIsReadOnly(t *testing.T) {
	t.Parallel()
	f := newSmallDisk(t)
	// The store alone: nobody can take the file of the state away from an agent that has it open.
	store := filepath.Join(f.place.state, "store")
	require.NoError(t, unix.Mount(store, store, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(store, unix.MNT_DETACH)) })
	readOnly := func(flag uintptr) {
		require.NoError(t, unix.Mount("", store, "", unix.MS_REMOUNT|unix.MS_BIND|flag, ""))
	}
	content := noise(3, diskLayer)
	f.publish(content)
	readOnly(unix.MS_RDONLY)
	before := f.down()
	f.requireAtFault("read-only file system")
	require.Less(t, f.down()-before, int64(chunk+unread+talk), "nothing is fetched that there is no place for")
	readOnly(0)
	f.requireGoesOn(content)
}

// With the whole of its state on such a disk an agent does not start, and says why.
func TestAStateThatIsReadOnly(t *testing.T) {
	t.Parallel()
	f := newSmallDisk(t)
	f.agent.stop()
	f.publish("second")
	remount := func(flag uintptr) {
		require.NoError(t, unix.Mount("", f.place.state, "", unix.MS_REMOUNT|flag, "size=24m"))
	}
	remount(unix.MS_RDONLY)
	r := program(t, f.dir, "wherry-agent", append([]string{"once"}, f.place.flags()...)...)
	require.Equal(t, 3, r.code)
	require.Contains(t, r.stderr, "read-only file system")
	f.requireApplied("first")
	remount(0)
	require.Zero(t, program(t, f.dir, "wherry-agent", append([]string{"once"}, f.place.flags()...)...).code)
	f.requireApplied("second")
}
