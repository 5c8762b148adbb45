package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Main brings a cluster up, has m run its tests, and ends the cluster. It returns the exit code. Tests
// reach the cluster through the pointer that target points to. Logs of a run that failed are kept in the
// folder that WHERRY_E2E_ARTIFACTS names, else in wherry-e2e-artifacts of the system's temporary folder.
func Main(m *testing.M, target **Cluster) int {
	log.SetLogger(logr.Discard()) // else clients of controller-runtime complain that nobody has chosen
	cluster, err := Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a cluster for the tests:", err)
		return 1
	}
	*target = cluster
	code, artifacts := m.Run(), ""
	if code != 0 && len(cluster.processes) > 0 {
		artifacts = Artifacts()
		fmt.Fprintln(os.Stderr, "logs of the cluster are in", artifacts)
	}
	if err := cluster.Stop(artifacts); err != nil {
		fmt.Fprintln(os.Stderr, "stop the cluster of the tests:", err)
		return 1
	}
	return code
}

// MainWithGit is Main with a git server beside the cluster.
func MainWithGit(m *testing.M, target **Cluster, git **Git) int {
	var err error
	if *git, err = StartGit(); err != nil {
		fmt.Fprintln(os.Stderr, "start a git server for the tests:", err)
		return 1
	}
	code := Main(m, target)
	if err := (*git).Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the git server of the tests:", err)
		return 1
	}
	return code
}

// Artifacts is the folder for what helps to understand a run that failed.
func Artifacts() string {
	if dir := os.Getenv(ArtifactsEnv); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "wherry-e2e-artifacts")
}
