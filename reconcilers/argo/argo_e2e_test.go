//go:build e2e

package argo_test

import (
	"testing"

	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestConformance(t *testing.T) { reconcilertest.Run(t, newEngine) }
