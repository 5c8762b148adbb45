package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

func TestAnErrorSaysWhetherTryingAgainCanHelp(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		state   bundle.State
		reason  string
		message string // as it begins
	}{
		{"no space left", syscall.ENOSPC, bundle.Pending, DiskFull, ""},
		{"quota exceeded", syscall.EDQUOT, bundle.Pending, DiskFull, ""},
		{"a bad sector", syscall.EIO, bundle.Pending, DiskError, ""},
		{"an unknown error", errors.New("odd"), bundle.Pending, DiskError, ""},
		{"no permission", syscall.EACCES, bundle.Failed, NotWritable, "the agent's user may not write in /srv/site: give it the folder with chown: apply drone: "},
		{"a read-only file system", syscall.EROFS, bundle.Failed, NotWritable, "/srv/site is read-only: add ReadWritePaths=/srv/site to the agent's unit, or mount it for writing: apply drone: "},
		{"a bad name", checkName("../x"), bundle.Failed, InvalidAssignment, ""},
		{"a deadline", context.DeadlineExceeded, bundle.Progressing, reconcilers.ReasonInterrupted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := (&Reconciler{root: "/srv/site"}).failed(fmt.Errorf("apply drone: %w", &fs.PathError{Op: "open", Path: os.DevNull, Err: c.err}))
			require.Equal(t, c.state, res.State)
			require.Equal(t, c.reason, res.Reason)
			require.True(t, strings.HasPrefix(res.Message, c.message), res.Message)
		})
	}
}

func TestWithoutAnExchangeTwoRenamesDo(t *testing.T) {
	root := t.TempDir()
	s, err := openSite(root, "drone")
	require.NoError(t, err)
	defer s.close()
	for _, content := range []string{"1", "2"} {
		require.NoError(t, s.root.MkdirAll(s.spare, 0o755))
		require.NoError(t, s.root.WriteFile(s.spare+"/a", []byte(content), 0o644))
		require.NoError(t, s.swapInTwo())
		require.NoError(t, s.clear())
		data, err := s.root.ReadFile("drone/a")
		require.NoError(t, err)
		require.Equal(t, content, string(data))
	}
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the live folder is left")
}
