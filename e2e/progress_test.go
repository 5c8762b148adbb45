//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

func TestADeploymentCountsWhenItsPodsAreReady(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.edit("workloads/shop/workload.yaml", "image: registry.invalid/shop/web:1\n        replicas: \"0\"", "image: registry.invalid/shop/web:1\n        replicas: \"1\"")
	s.publish()
	// The other one is compliant as soon as its controller has seen it.
	r := s.until(map[string]bundle.State{"shop-web": bundle.Progressing, "shop-batch": bundle.Compliant}, "--wait", "1s")
	require.Equal(t, 5, r.code)
	require.Equal(t, bundle.Progressing, s.status().State)

	s.podsBecomeReady("shop-web", 1)
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
}

// podsBecomeReady waits until a target has that many pods and says of each what a kubelet
// would. No node takes it: its node selector fits none.
func (s *site) podsBecomeReady(target string, count int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.pods(target)) == count }, patience, 100*time.Millisecond)
	for _, pod := range s.pods(target) {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes there too
			if err := s.Get(s.t.Context(), client.ObjectKeyFromObject(&pod), &pod); err != nil {
				return err
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			return s.Status().Update(s.t.Context(), &pod)
		})
		require.NoError(s.t, client.IgnoreNotFound(err), "an old one goes once the new one is ready")
	}
}
