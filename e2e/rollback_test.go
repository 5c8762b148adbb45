//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
)

// A release whose Deployment never becomes ready gives way to the one before, of which only what differs is
// applied again.
func TestADeploymentThatNeverBecomesReadyIsGivenUp(t *testing.T) {
	s := newSite(t)
	s.publish()
	s.once(0)
	good := s.status().Release.Running
	var web, before, after appsv1.Deployment
	s.read(s.namespace("shop-batch"), "shop", &before)
	s.edit("workloads/shop/workload.yaml", "image: registry.invalid/shop/web:1\n        replicas: \"0\"", "image: registry.invalid/shop/web:2\n        replicas: \"1\"")
	s.publish()

	s.once(5, "--wait", "0s", "--deadline", "1s")
	var status agent.Status
	require.Eventually(t, func() bool {
		s.pass("--wait", "0s", "--deadline", "1s")
		status = s.status()
		return status.Reason == "Quarantined"
	}, time.Minute, 300*time.Millisecond)

	require.Equal(t, good.Digest, status.Release.Running.Digest)
	require.Equal(t, status.Release.Desired.Digest, status.Release.Quarantined[0].Digest)
	require.Contains(t, status.Message, "AssignmentsFailed: fails again and again: shop-web (DeadlineExceeded: ")
	require.Equal(t, bundle.Failed, status.State)
	require.Contains(t, s.once(1).stderr, "was given up; release ")
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	s.read(s.namespace("shop-web"), "shop", &web)
	require.Zero(t, *web.Spec.Replicas)
	s.read(s.namespace("shop-batch"), "shop", &after)
	require.Equal(t, before.ResourceVersion, after.ResourceVersion)

	s.edit("workloads/shop/workload.yaml", "shop/web:2\n        replicas: \"1\"", "shop/web:3\n        replicas: \"0\"")
	s.publish()
	s.once(0)
	require.Equal(t, bundle.Compliant, s.status().State)
}
