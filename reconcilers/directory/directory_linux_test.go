package directory_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/directory"
)

func TestAFullAndAReadOnlyFileSystemKeepTheLastGoodState(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a user who may mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, 0)) })
	r := directory.New(root, directory.Options{})
	require.Equal(t, bundle.Compliant, r.Apply(t.Context(), assignment(t, "drone", map[string]string{"a": "1"})).State)

	big := assignment(t, "drone", map[string]string{"a": "2", "big": string(make([]byte, 1<<20))})
	res := r.Apply(t.Context(), big)
	require.Equal(t, bundle.Pending, res.State)
	require.Equal(t, directory.DiskFull, res.Reason)
	require.Equal(t, map[string]string{"drone/a": "1"}, contents(t, root), "nothing half-written stays")

	require.NoError(t, syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	res = r.Apply(t.Context(), big)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, directory.NotWritable, res.Reason)
	require.Equal(t, map[string]string{"drone/a": "1"}, contents(t, root))
}
