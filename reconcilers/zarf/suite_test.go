//go:build !e2e

package zarf_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/wherry-dev/wherry/e2e/doubles/zarftest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // else clients of controller-runtime complain that nobody has chosen
	zarftest.StandIn()
	reconcilertest.Child(zarftest.Open)
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	program := zarftest.NewProgram(t)
	adapter := zarftest.Adapter("a stand-in of the program and a small API server of the test", "testdata/small.txt", 0, func(t *testing.T) reconcilertest.Engine {
		return zarftest.NewEngine(t, program.Path, zarftest.StartAPIServer(t))
	})
	adapter.Parallel = true
	reconcilertest.Run(t, adapter)
}
