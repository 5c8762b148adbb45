//go:build e2e && pods

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
)

// The same as with agents that are killed, but the file system under the state loses all that was not synced at that
// moment, and comes back as after a power cut: data, names and lengths as the journal has them.
func TestAnAgentThatLosesItsPowerTellsTheTruthAndConverges(t *testing.T) {
	killAgents(t, *powerCuts, func(t *testing.T) disk { return newExt4(t) })
}

// ext4 is a file system in a file, with a loop device.
type ext4 struct {
	t           *testing.T
	device, dir string
}

func newExt4(t *testing.T) *ext4 {
	t.Helper()
	require.Zero(t, os.Getuid(), "file systems are mounted here, which takes root")
	image := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 64<<20))
	output(t, "mkfs.ext4", "-q", "-F", image)
	d := &ext4{t: t, device: output(t, "losetup", "-f", "--show", image), dir: t.TempDir()}
	t.Cleanup(func() {
		_ = syscall.Unmount(d.dir, syscall.MNT_DETACH)
		output(t, "losetup", "-d", d.device)
	})
	d.mount()
	return d
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	return strings.TrimSpace(string(out))
}

func (d *ext4) mounted() string { return d.dir }

func (d *ext4) mount() {
	d.t.Helper()
	require.NoError(d.t, syscall.Mount(d.device, d.dir, "ext4", 0, "errors=remount-ro"))
}

func (d *ext4) again() {
	d.t.Helper()
	d.unmount()
	d.mount()
}

func (d *ext4) unmount() {
	d.t.Helper()
	unmounted := func() bool { return syscall.Unmount(d.dir, 0) == nil }
	require.Eventually(d.t, unmounted, 2*time.Minute, time.Millisecond, "the process of a delta ends some time")
}

// A disk that fails for good, under an agent that runs, and before the next one starts.
func TestADiskThatFailsForGood(t *testing.T) {
	for name, fail := range map[string]func(d *ext4) error{
		"the kernel makes it read-only": func(d *ext4) error {
			return os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error"), []byte("1"), 0)
		},
		"each call fails": func(d *ext4) error { return powerOff(d.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			d, s := newExt4(t), newSite(t)
			s.dir = filepath.Join(d.dir, "state")
			s.publish(s.draft(1, map[string]string{"a-x/f": "1"}))
			require.Equal(t, bundle.Compliant, s.once().Status.State)
			s.publish(s.draft(2, map[string]string{"a-x/f": "2"}))
			s.agent(func(a *Agent) {
				require.NoError(t, fail(d))
				for range 2 {
					r := a.Once(t.Context(), 0)
					require.Equal(t, Broken, r.Verdict)
					requireFile(t, s.host, "a-x/f", "1")
				}
			})
			_, err := OpenState(s.dir, nil)
			require.Error(t, err)
			require.Contains(t, err.Error(), d.dir)
			require.NotErrorIs(t, err, state.ErrDamaged)

			d.unmount()
			_ = exec.Command("fsck.ext4", "-y", d.device).Run() // 1 where it has mended something
			d.mount()
			r := s.once()
			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
			require.EqualValues(t, 2, r.Status.Release.Running.Sequence)
			requireFile(t, s.host, "a-x/f", "2")
		})
	}
}

// However little room is left, the agent reports that it is too little, or completes. The running release stays, and once
// there is room, everything goes on.
func TestADiskThatIsFull(t *testing.T) {
	require.Zero(t, os.Getuid(), "file systems are mounted here, which takes root")
	s := newSite(t)
	disk := t.TempDir()
	require.NoError(t, syscall.Mount("wherry", disk, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	s.dir = filepath.Join(disk, "state")
	files, _ := trees()
	files["a-x/f"] = "0"
	s.publish(s.draft(1, files))
	require.Equal(t, bundle.Compliant, s.once().Status.State)

	const step = 48 << 10
	broken, through := 0, 0
	for n := int64(2); through < 5; n++ {
		free := (n - 2) * step
		filler := filepath.Join(disk, "filler")
		fillDisk(t, disk, filler, free)
		before := files["a-x/f"]
		files["a-x/f"] = fmt.Sprint(n)
		s.publish(s.draft(n, files))
		if r := s.onFullDisk(); r.Verdict == Broken {
			broken++
			require.Contains(t, r.Error, "no space left", "with %d bytes", free)
			have, err := os.ReadFile(filepath.Join(s.host, "a-x/f"))
			require.NoError(t, err)
			require.Contains(t, []string{before, files["a-x/f"]}, string(have))
		} else {
			through++
			require.Equal(t, bundle.Compliant, r.Status.State, r.Error)
		}
		require.NoError(t, os.Remove(filler))
		r := s.once()
		require.Equal(t, bundle.Compliant, r.Status.State, "%d: %s", n, r.Error)
		require.Empty(t, r.Status.Reason)
		requireFile(t, s.host, "a-x/f", files["a-x/f"])
	}
	t.Logf("%d passes got through with little room, and %d did not with less", through, broken)
	require.Greater(t, broken, 5)
	state, err := ReadState(s.dir)
	require.NoError(t, err)
	defer state.Close()
	m := recall(t, state, s.stream)
	for seq := int64(1); seq <= m.seq; seq++ {
		require.Contains(t, m.queue, seq, "no report is lost")
	}
}

// onFullDisk is once, for a state that may not even open.
func (s *site) onFullDisk() Result {
	state, err := OpenState(s.dir, s.opts.Now)
	if err != nil {
		return Result{Verdict: Broken, Error: err.Error()}
	}
	defer state.Close()
	return s.agentOn(state).Once(s.t.Context(), 0)
}

// fillDisk writes a file that leaves so many bytes.
func fillDisk(t *testing.T, disk, filler string, free int64) {
	t.Helper()
	var fs syscall.Statfs_t
	require.NoError(t, syscall.Statfs(disk, &fs))
	size := int64(fs.Bavail)*fs.Bsize - free
	require.Positive(t, size)
	require.NoError(t, os.WriteFile(filler, make([]byte, size), 0o600))
}
