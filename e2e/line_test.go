//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wherry-dev/wherry/bundle"
)

func TestWhatIsPublishedReachesTheCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	s.once(0)

	status := s.status()
	require.Equal(t, bundle.Compliant, status.State)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	for _, item := range status.Items {
		require.Equal(t, "kubernetes", item.Adapter)
		require.Equal(t, "shop", item.Workload)
		require.Equal(t, "retail", item.Workspace)
	}
	latest, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), bundle.MovingTag(""))
	require.NoError(t, err)
	require.Equal(t, latest.Digest, status.Release.Running.Digest)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, s.settings("shop-web"))
	require.Equal(t, map[string]string{"REGION": "north"}, s.settings("shop-batch"))
	var deployment appsv1.Deployment
	s.read(s.namespace("shop-web"), "shop", &deployment)
	require.Equal(t, "registry.invalid/shop/web:1", deployment.Spec.Template.Spec.Containers[0].Image)
}

func TestApplyingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	s.once(0)
	before, objects := s.status(), s.objects()

	s.publish() // equal content is no new release
	s.once(0)
	require.Equal(t, objects, s.objects())
	after := s.status()
	require.Equal(t, before.Release, after.Release)
	require.Equal(t, before.Items, after.Items)
}

func TestAChangedValueReachesWhatItIsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	s.once(0)
	before, objects := s.status(), s.objects()

	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	s.once(0)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "debug"}, s.settings("shop-web"))
	require.Greater(t, s.status().Release.Running.Sequence, before.Release.Running.Sequence)
	changed := s.objects()
	require.NotEqual(t, objects["ConfigMap/shop-web"], changed["ConfigMap/shop-web"])
	changed["ConfigMap/shop-web"] = objects["ConfigMap/shop-web"]
	require.Equal(t, objects, changed, "nothing else was written to")
}

func TestAPrunedAssignmentGoesWithItsNamespace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	s.once(0)

	s.dropBatch()
	s.publish()
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
	s.gone("", s.namespace("shop-batch"), &corev1.Namespace{})
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, s.settings("shop-web"))
}

// dropBatch takes the target batch from the environment.
func (s *site) dropBatch() {
	s.edit("workloads/shop/workload.yaml", "- name: batch\n      labels:\n        purpose: batch\n      environment: "+s.environment,
		"- name: batch\n      labels:\n        purpose: batch\n      environment: elsewhere")
}
