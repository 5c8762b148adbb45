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

	s.podsBecomeReady("shop-web", 1)
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
}

// podsBecomeReady waits until a target has that many pods and says of each what a kubelet
// would. No node takes it: its node selector fits none.
func (s *site) podsBecomeReady(target string, count int) {
	s.t.Helper()
	var pods corev1.PodList
	require.Eventually(s.t, func() bool {
		require.NoError(s.t, s.List(s.t.Context(), &pods, client.InNamespace(s.namespace(target))))
		return len(pods.Items) == count
	}, 30*time.Second, 100*time.Millisecond)
	for _, pod := range pods.Items {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		require.NoError(s.t, s.Status().Update(s.t.Context(), &pod))
	}
}
