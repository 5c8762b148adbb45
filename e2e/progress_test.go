//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

func TestADeploymentCountsWhenItsPodsAreReady(t *testing.T) {
	s := newSite(t)
	s.edit("workloads/shop/workload.yaml", "image: registry.invalid/shop/web:1\n        replicas: \"0\"", "image: registry.invalid/shop/web:1\n        replicas: \"1\"")
	s.publish()
	s.once(5, "--wait", "1s")
	require.Equal(t, bundle.Progressing, s.status().State)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Progressing, "shop-batch": bundle.Compliant}, s.states())

	s.becomeReady(s.namespace("shop-web"))
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
}

// becomeReady says of the namespace's only pod what a kubelet would. No node takes it: its node selector
// fits none.
func (s *site) becomeReady(namespace string) {
	s.t.Helper()
	var pods corev1.PodList
	require.Eventually(s.t, func() bool {
		require.NoError(s.t, s.List(s.t.Context(), &pods, client.InNamespace(namespace)))
		return len(pods.Items) == 1
	}, 30*time.Second, 100*time.Millisecond)
	pod := &pods.Items[0]
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	require.NoError(s.t, s.Status().Update(s.t.Context(), pod))
}
