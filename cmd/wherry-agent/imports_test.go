package main

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/modules.txt")

const self = "github.com/wherry-dev/wherry/"

// The agent is small, and runs for years on machines that nobody visits. Another module is a decision: to
// make it, run the test with -update and give in the commit the module's benefit and its own dependencies.
func TestTheAgentLinksNoMoreModulesThanListed(t *testing.T) {
	var modules []string
	for _, line := range deps(t, "{{with .Module}}{{.Path}}{{end}}", ".") {
		if line != "" && line+"/" != self {
			modules = append(modules, line)
		}
	}
	slices.Sort(modules)
	got := strings.Join(slices.Compact(modules), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/modules.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/modules.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestTheAgentKnowsNothingOfItsPublisherOrHub(t *testing.T) {
	// A package stands for all below it.
	for _, tc := range []struct {
		of        string
		forbidden []string
	}{
		{".", []string{
			self + "publisher", self + "scheduler", self + "hub", self + "airgap/registry",
			"github.com/sigstore/cosign", "github.com/go-git", "github.com/distribution/distribution", "modernc.org/sqlite",
			"github.com/Masterminds/sprig", "github.com/google/go-containerregistry/pkg/registry",
		}},
		{self + "agent", []string{
			self + "publisher", self + "scheduler", self + "hub", self + "cmd", self + "airgap/registry",
			self + "reconcilers/kubernetes", self + "reconcilers/directory", "k8s.io", "github.com/spf13/cobra",
			self + "agent/config", self + "agent/doctor", // which know the adapters
		}},
		{self + "agent/config", []string{self + "publisher", self + "scheduler", self + "hub", self + "cmd", self + "airgap/registry"}},
		{self + "agent/doctor", []string{self + "agent/config", self + "publisher", self + "scheduler", self + "hub", self + "cmd", self + "airgap/registry"}},
		{self + "reconcilers/...", []string{self + "agent", self + "publisher", self + "scheduler", self + "hub", self + "airgap", self + "deploy", self + "cmd"}},
		{self + "deploy/...", []string{self + "agent", self + "publisher", self + "scheduler", self + "hub", self + "airgap", self + "cmd"}},
	} {
		for _, path := range deps(t, "{{.ImportPath}}", tc.of) {
			for _, f := range tc.forbidden {
				require.False(t, path == f || strings.HasPrefix(path, f+"/"), "%s links %s", tc.of, path)
			}
		}
	}
}

// deps lists, by format, the packages that pkg links on the commonest edge machine.
func deps(t *testing.T, format, pkg string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", format, pkg)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
