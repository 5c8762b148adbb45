//go:build e2e

package argo_test

import (
	"testing"

	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name: "argo", On: "a real application-controller and repo-server of Argo CD, with git, on a real API server", Start: newEngine,
	})
}
