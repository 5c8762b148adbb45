package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/diagnosis"
)

func TestAFullDiskOfTheDirectoryRootIsFound(t *testing.T) {
	f := newFixture(t)
	f.subject.Registry.Bundles = nil // nothing but this machine is asked
	disk := t.TempDir()
	err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m")
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		t.Skipf("needs a user who may mount a small file system: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })

	f.subject.Adapters.DirectoryRoot = filepath.Join(disk, "site") // which the first release makes
	require.Equal(t, diagnosis.OK, f.examine()["directory"].Result)

	require.NoError(t, os.WriteFile(filepath.Join(disk, "logs"), make([]byte, 900<<10), 0o600))
	r, err := Examine(t.Context(), f.subject)
	require.NoError(t, err)
	require.False(t, r.OK)
	found := f.examine()["directory"]
	require.Equal(t, diagnosis.Failed, found.Result)
	require.Contains(t, found.Message, "124 KiB free, at least 256 KiB are needed")
	require.Contains(t, found.Remedy, "make room")
	require.NoDirExists(t, f.subject.Adapters.DirectoryRoot)
}
