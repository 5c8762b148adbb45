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
	t.Parallel()
	s := newSite(t)
	s.publish()
	s.once(0)
	good := s.status().Release.Running
	before := s.objects()
	s.edit("workloads/shop/workload.yaml", "image: registry.invalid/shop/web:1\n        replicas: \"0\"", "image: registry.invalid/shop/web:2\n        replicas: \"1\"")
	s.publish()

	s.once(5, "--wait", "0s")
	var status agent.Status
	for end := time.Now().Add(patience); status.Reason != "Quarantined"; time.Sleep(300 * time.Millisecond) {
		require.True(t, time.Now().Before(end), status)
		s.pass("--wait", "0s", "--deadline", "3s") // that bounds each call as well
		status = s.status()
	}

	require.Equal(t, good.Digest, status.Release.Running.Digest)
	require.Equal(t, status.Release.Desired.Digest, status.Release.Quarantined[0].Digest)
	require.Contains(t, status.Message, "AssignmentsFailed: fails again and again: shop-web (DeadlineExceeded: ")
	require.Equal(t, bundle.Failed, status.State)
	require.Contains(t, s.once(1).stderr, "was given up; release ")
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	var web appsv1.Deployment
	s.read(s.namespace("shop-web"), "shop", &web)
	require.Zero(t, *web.Spec.Replicas)
	after := s.objects()
	for _, kind := range []string{"Namespace/", "ConfigMap/", "Deployment/"} {
		require.Equal(t, before[kind+"shop-batch"], after[kind+"shop-batch"])
	}

	s.edit("workloads/shop/workload.yaml", "shop/web:2\n        replicas: \"1\"", "shop/web:3\n        replicas: \"0\"")
	s.publish()
	s.once(0)
	require.Equal(t, bundle.Compliant, s.status().State)
}
