// Package programtest holds what a program links, and what it does before main, in tests of the program's own package.
package programtest

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const self = "github.com/wherry-dev/wherry"

// Links fails t unless testdata/packages.txt lists the packages of other modules that the program in the current folder
// links: each module, with its packages indented. With update it rewrites the file. The program is that of the commonest edge
// machine; Go's own packages are not listed.
func Links(t *testing.T, update bool) {
	t.Helper()
	packages := map[string][]string{}
	for _, line := range Deps(t, "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", ".") {
		if module, path, _ := strings.Cut(line, " "); module != "" && module != self {
			packages[module] = append(packages[module], path)
		}
	}
	var got strings.Builder
	for _, module := range slices.Sorted(maps.Keys(packages)) {
		fmt.Fprintln(&got, module)
		slices.Sort(packages[module])
		for _, path := range packages[module] {
			fmt.Fprintln(&got, "\t."+strings.TrimPrefix(path, module))
		}
	}
	const list = "testdata/packages.txt"
	if update {
		require.NoError(t, os.WriteFile(list, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// Deps lists, by the format of "go list", the packages that pkg links on the commonest edge machine.
func Deps(t *testing.T, format, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// initialised matches a line of GODEBUG=inittrace=1.
var initialised = regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) allocs$`)

// Starts fails t if the program in the current folder allocates more often than ceiling before main. Every command pays for
// that. Go's own packages do not count, as they differ from version to version.
func Starts(t *testing.T, ceiling int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "env GODEBUG=inittrace=1", ".", "version")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	type cost struct {
		path   string
		allocs int
	}
	var costs []cost
	sum := 0
	for _, found := range initialised.FindAllStringSubmatch(string(out), -1) {
		if first, _, _ := strings.Cut(found[1], "/"); strings.Contains(first, ".") {
			allocs, err := strconv.Atoi(found[2])
			require.NoError(t, err)
			costs, sum = append(costs, cost{found[1], allocs}), sum+allocs
		}
	}
	slices.SortFunc(costs, func(a, b cost) int { return cmp.Compare(b.allocs, a.allocs) })
	t.Logf("%d allocations", sum)
	require.Greater(t, len(costs), 100)
	require.LessOrEqual(t, sum, ceiling, "allocations before main, most of them in %v: make tables and expressions on first use, or raise the ceiling and give the reason in the commit", costs[:10])
}
