//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// cluster and registry serve all tests of this package.
var (
	cluster  *harness.Cluster
	registry *harness.Registry
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if registry, err = harness.StartRegistry(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "start a registry for the tests:", err)
		return 1
	}
	code := harness.Main(m, &cluster)
	if err := registry.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the registry of the tests:", err)
		return 1
	}
	return code
}
