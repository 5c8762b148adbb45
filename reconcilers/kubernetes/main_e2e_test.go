//go:build e2e

package kubernetes_test

import (
	"os"
	"testing"

	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

var cluster *harness.Cluster

func TestMain(m *testing.M) { os.Exit(harness.Main(m, &cluster)) }

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, kubernetestest.Harness(cluster.Config))
}
