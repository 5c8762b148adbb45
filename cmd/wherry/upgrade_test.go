package main

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// fixture names the minor release, such as v1.2, whose fixture -update writes.
var fixture = flag.String("fixture", "", "with -update, keep what this commit writes as that of this minor release, such as v1.2")

// skew is the number of minor versions by which parts may differ; see docs/upgrade.md.
const skew = 2

// minorVersion matches the tag of a release that is no candidate.
var minorVersion = regexp.MustCompile(`^v([0-9]+)\.([0-9]+)\.[0-9]+$`)

// minors returns the newest minor releases of tags that the policy is about, oldest first, as v1.2.
func minors(tags []string) []string {
	var found [][2]int
	for _, tag := range tags {
		if m := minorVersion.FindStringSubmatch(tag); m != nil {
			major, _ := strconv.Atoi(m[1])
			minor, _ := strconv.Atoi(m[2])
			found = append(found, [2]int{major, minor})
		}
	}
	slices.SortFunc(found, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	found = slices.Compact(found)
	var names []string
	for _, v := range found[max(0, len(found)-skew):] {
		names = append(names, "v"+strconv.Itoa(v[0])+"."+strconv.Itoa(v[1]))
	}
	return names
}

// What releases within the skew of docs/upgrade.md have written is read, and so is what this commit writes.
func TestEarlierReleasesAreRead(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "tag", "--list", "v*").Output()
	require.NoError(t, err)
	releases := minors(strings.Fields(string(out)))
	if len(releases) == 0 {
		t.Log("nothing was released yet: there is no fixture but this commit's own")
	}
	made := t.TempDir()
	run := func(t *testing.T, script, dir string) {
		params := scriptParams(t)
		setup := params.Setup
		params.Files = []string{filepath.Join("testdata", "upgrade", script)}
		params.Setup = func(env *testscript.Env) error {
			env.Setenv("MADE", dir)
			return setup(env)
		}
		testscript.Run(t, params)
	}
	t.Run("write", func(t *testing.T) { run(t, "write.txtar", made) })
	t.Run("this commit", func(t *testing.T) { run(t, "read.txtar", made) })
	if *update && *fixture != "" {
		require.Regexp(t, `^v[0-9]+\.[0-9]+$`, *fixture)
		require.NoError(t, os.CopyFS(filepath.Join("testdata", "releases", *fixture), os.DirFS(made)))
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("testdata", "releases", release))
			require.NoError(t, err)
			require.DirExists(t, dir, "the fixture of a release is kept; see docs/upgrade.md")
			run(t, "read.txtar", dir)
		})
	}
}

func TestThePolicyIsAboutTheNewestMinorReleases(t *testing.T) {
	require.Empty(t, minors([]string{"v1", "v1.2.3-rc.1", "other"}))
	require.Equal(t, []string{"v0.9"}, minors([]string{"v0.9.0", "v0.9.11"}))
	require.Equal(t, []string{"v1.9", "v1.10"}, minors([]string{"v1.10.0", "v1.9.3", "v1.9.0", "v1.8.0", "v0.30.0"}))
	require.Equal(t, []string{"v1.10", "v2.0"}, minors([]string{"v2.0.1", "v1.10.0", "v1.9.3"}))
}
