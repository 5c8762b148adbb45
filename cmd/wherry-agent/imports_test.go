package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/cmd/internal/programtest"
)

var update = flag.Bool("update", false, "rewrite testdata/packages.txt")

const self = "github.com/wherry-dev/wherry/"

// The agent is small, and runs for years on machines that nobody visits. Another module is a decision: to
// make it, run the test with -update and give in the commit the module's benefit and its own dependencies.
func TestTheAgentLinksNoMoreThanListed(t *testing.T) { programtest.Links(t, *update) }

func TestTheAgentAllocatesLittleBeforeMain(t *testing.T) { programtest.Starts(t, 28_500) }

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
		for _, path := range programtest.Deps(t, "{{.ImportPath}}", tc.of) {
			for _, f := range tc.forbidden {
				require.False(t, path == f || strings.HasPrefix(path, f+"/"), "%s links %s", tc.of, path)
			}
		}
	}
}
