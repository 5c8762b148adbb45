//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/medium"
)

// A site package in parts is copied to a FAT32 file system and from there to a site, in another order and with names in
// capitals, as some systems give them. The kernel need not know FAT: mtools fills and reads the file system.
func TestASitePackageTravelsOnAFAT32Medium(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.grow()
	s.publish()
	r := s.wherry("airgap", "export", "--environment", s.environment, "--from", "oci://"+s.prefix, "--skip-unpinned", "-o", "whole.tar")
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, os.MkdirAll(s.path("home"), 0o755))
	written := s.cut("whole.tar", "home/site.tar", 4096) // smaller parts than --split makes
	require.Greater(t, len(written), 3, "two parts, their manifest and their sums at least")

	stick := s.path("medium.img")
	require.NoError(t, os.WriteFile(stick, nil, 0o600))
	require.NoError(t, os.Truncate(stick, 64<<20))
	s.mtools("mformat", "-F", "-i", stick, "-v", "WHERRY", "::")
	s.mtools("mcopy", append(append([]string{"-i", stick}, written...), "::/")...)
	require.Contains(t, s.mtools("minfo", "-i", stick, "::"), "FAT32")
	listed := strings.Fields(s.mtools("mdir", "-i", stick, "-b", "::/"))
	require.Len(t, listed, len(written))

	require.NoError(t, os.MkdirAll(s.path("site"), 0o755))
	var parts []string
	for _, name := range slices.Backward(listed) {
		copied := s.path("site/" + strings.ToUpper(strings.TrimPrefix(name, "::/")))
		s.mtools("mcopy", "-i", stick, name, copied)
		if !strings.HasSuffix(copied, ".JSON") && !strings.HasSuffix(copied, ".SHA256") {
			parts = append(parts, copied)
		}
	}
	agent := []string{
		"--environment", s.environment, "--cluster-type", clusterType, "--key", "cosign.pub", "--adapter", "directory", "--directory-root", "applied", "--state-dir", "agent",
	}
	missing := s.program("wherry-agent", slices.Concat([]string{"import", parts[0]}, agent)...)
	require.Zero(t, missing.code, "the other parts lie beside it: %s", missing.stderr)
	require.NoError(t, os.RemoveAll(s.path("agent")))
	require.NoError(t, os.RemoveAll(s.path("applied")))

	lost := parts[1]
	require.NoError(t, os.Rename(lost, s.path("lost")))
	r = s.program("wherry-agent", slices.Concat([]string{"import", s.path("site")}, agent)...)
	require.NotZero(t, r.code)
	require.Contains(t, strings.ToUpper(r.stderr), filepath.Base(lost), "a missing part is named")
	require.NoDirExists(t, s.path("applied"))
	require.NoError(t, os.Rename(s.path("lost"), lost))

	r = s.program("wherry-agent", slices.Concat([]string{"import"}, parts, agent)...)
	require.Zero(t, r.code, r.stderr)
	require.DirExists(t, s.path("applied"))
}

// cut writes a file in parts of so many bytes, as an export does, and returns their paths.
func (s *site) cut(name, to string, size int64) []string {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	require.NoError(s.t, err)
	o, err := medium.Create(medium.OS{}, s.path(to), size)
	require.NoError(s.t, err)
	_, err = o.Write(data)
	require.NoError(s.t, err)
	require.NoError(s.t, o.Commit())
	return o.Files()
}

// mtools runs a program of mtools and returns its output.
func (s *site) mtools(name string, args ...string) string {
	s.t.Helper()
	path, _ := s.toolPath(name)
	r := s.execute(path, args...)
	require.Zero(s.t, r.code, "%s: %s", name, r.stderr)
	return r.stdout
}
