//go:build e2e && pods && linux

package ansible_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/ansible"
)

// A disk of its own is root's to mount, as pods that run are.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", 0, "size=32k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(root, 0)) })
	r := open(t, root)
	a := files(t, "app", map[string]string{
		"site.yaml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - ping:\n", "data": strings.Repeat("x", 100<<10),
	})
	res := r.Apply(t.Context(), a)
	require.Equal(t, []any{bundle.Pending, ansible.DiskFull}, []any{res.State, res.Reason}, res.Message)
	require.Equal(t, ansible.NotApplied, r.Observe(t.Context(), a).Reason)

	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	res = r.Apply(t.Context(), a)
	require.Equal(t, []any{bundle.Failed, ansible.NotWritable}, []any{res.State, res.Reason}, res.Message)

	require.NoError(t, syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_REMOUNT, "size=16m"))
	require.Equal(t, bundle.Compliant, bring(t, r, a).State)
}
