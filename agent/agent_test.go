package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestAReleaseIsAppliedAndReported(t *testing.T) {
	s := newSite(t)
	d := s.publish(s.draft(1, map[string]string{"shop-main/config.yaml": "a: 1", "radar-main/config.yaml": "b: 2"}))

	r := s.once()

	require.Equal(t, Done, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, d.Digest, r.Status.Release.Running.Digest)
	require.Equal(t, d.Digest, r.Status.Release.Desired.Digest)
	require.Nil(t, r.Status.Release.Refused)
	require.Len(t, r.Status.Items, 2)
	require.Equal(t, 1, r.Status.Queue.Length)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	requireFile(t, s.host, "radar-main/config.yaml", "b: 2")
}

func requireFile(t testing.TB, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}
