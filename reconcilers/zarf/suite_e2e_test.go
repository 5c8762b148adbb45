//go:build e2e

package zarf_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/e2e/doubles/zarftest"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// realZarf names a program that is to be used instead of the stand-in; "make e2e-zarf" sets it.
const realZarf = "WHERRY_E2E_ZARF"

var cluster *harness.Cluster

func TestMain(m *testing.M) {
	zarftest.StandIn()
	reconcilertest.Child(zarftest.Open)
	os.Exit(harness.Main(m, &cluster))
}

func TestConformance(t *testing.T) {
	provide(t)
	program, on := zarftest.NewProgram(t).Path, "a stand-in of the program, built from what Zarf documents, and a real API server"
	record, patience := "", reconcilertest.Patience // the usual file
	if path := os.Getenv(realZarf); path != "" {
		version, err := zarf.Version(t.Context(), path, t.TempDir())
		require.NoError(t, err)
		program, on = path, "zarf "+version+" and a real API server"
		record, patience = filepath.Join(harness.Artifacts(), "zarf-conformance.txt"), 3*time.Minute
	}
	reconcilertest.Run(t, zarftest.Adapter(on, record, patience, func(t *testing.T) reconcilertest.Engine {
		return zarftest.NewEngine(t, program, cluster.Kubeconfig)
	}))
}

// provide gives a bare API server the node and the pod that Zarf asks for.
func provide(t *testing.T) {
	t.Helper()
	if _, err := zarf.CheckCluster(t.Context(), cluster.Config, false); err == nil {
		return
	}
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "wherry-zarf"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wherry-zarf"},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "one", Image: "registry.invalid/one:1"}}},
	}
	for _, o := range []client.Object{node, pod} {
		require.NoError(t, c.Create(t.Context(), o))
		t.Cleanup(func() { require.NoError(t, c.Delete(context.Background(), o, client.GracePeriodSeconds(0))) })
	}
	pod.Status.Phase = corev1.PodRunning
	require.NoError(t, c.Status().Update(t.Context(), pod))
	_, err = zarf.CheckCluster(t.Context(), cluster.Config, false)
	require.NoError(t, err)
}
