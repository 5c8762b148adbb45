package flux_test

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// helmCases are what "make e2e-helm-controller" tests on a real helm-controller, in the order of its record.
var helmCases = []string{
	"a release from git is installed, upgraded, fails, and is mended",
	"an embedded chart is installed from the endpoint, with its hooks, and upgraded",
	"a release among embedded manifests is installed from the endpoint",
}

// helmRecord is the outcome of a run.
func helmRecord(program, kube, source string) string {
	var b strings.Builder
	b.WriteString("program: helm-controller " + program + "\non: kube-apiserver " + kube + ", source-controller " + source + "\n")
	for _, name := range helmCases {
		b.WriteString("ok: " + name + "\n")
	}
	return b.String()
}

// toolVersion returns the version of a module in a file of go.mod or of the Makefile.
func toolVersion(t *testing.T, file, pattern string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	found := regexp.MustCompile(pattern).FindSubmatch(data)
	require.NotNil(t, found, "%s lacks %s", file, pattern)
	return string(found[1])
}

func toolVersions(t *testing.T) (kube, source string) {
	t.Helper()
	return toolVersion(t, "../../Makefile", `(?m)^KUBE += (v\S+)$`),
		toolVersion(t, "../../e2e/tools/flux-source/go.mod", `github.com/fluxcd/source-controller (v\S+)`)
}

// CI has no helm-controller. The record of a run by hand is kept, and docs/tested.md claims no more than it. It is no record any more once
// the suite, or what it runs on, has changed.
func TestTheRecordOfHelmControllerIsOfThisSuite(t *testing.T) {
	page, err := os.ReadFile("../../docs/tested.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Flux: helm-controller \|.*$`).FindString(string(page))
	data, err := os.ReadFile("testdata/helm-controller.txt")
	if errors.Is(err, fs.ErrNotExist) {
		require.Contains(t, row, "| unknown |", "no record is kept")
		return
	}
	require.NoError(t, err)
	program, _, _ := strings.Cut(strings.TrimPrefix(string(data), "program: helm-controller "), "\n")
	kube, source := toolVersions(t)
	require.Equal(t, helmRecord(program, kube, source), string(data), `run "make e2e-helm-controller", keep dist/e2e/helm-controller.txt, and bring docs/tested.md up to date`)
	require.Contains(t, row, "| run, "+program)
}
