//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
)

func TestADeploymentIsCompliantWhenItsPodsRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.runPods()
	s.publish()
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	s.requireAvailable("shop-web", 2)
	s.requireAvailable("shop-batch", 1)

	s.edit("workloads/shop/workload.yaml", "shop/web:1", "shop/web:2")
	s.publish()
	s.once(0)
	s.requireAvailable("shop-web", 2)
	for _, pod := range s.pods("shop-web") {
		if pod.DeletionTimestamp == nil {
			require.Equal(t, "registry.invalid/shop/web:2", pod.Spec.Containers[0].Image, "compliant means that the new pods run")
		}
	}
}

func TestADeploymentWhosePodsCrashIsReportedAndRecovers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.runPods()
	const workload = "workloads/shop/workload.yaml"
	runs, crashes := "shop/batch:1\n        replicas: \"1\"\n        deadline: \"600\"", "shop/crash:1\n        replicas: \"1\"\n        deadline: \"3\""
	s.edit(workload, runs, crashes)
	s.publish()
	s.once(1)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Failed}, s.states())
	for _, item := range s.status().Items {
		if item.Assignment == "shop-batch" {
			require.Equal(t, "Unhealthy", item.Reason)
			require.Equal(t, "Deployment/"+s.namespace("shop-batch")+"/shop: Progress deadline exceeded", item.Message)
		}
	}

	s.edit(workload, crashes, runs)
	s.publish()
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	s.requireAvailable("shop-batch", 1)
}

func TestAChangedConfigurationRestartsPodsWhereAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.runPods()
	s.askForRestarts("web")
	s.publish()
	s.once(0)
	before := map[string]string{"shop-web": s.template("shop-web"), "shop-batch": s.template("shop-batch")}
	objects := s.objects()
	s.once(0)
	require.Equal(t, objects, s.objects(), "the digest on the template is no difference")

	s.edit("platform/config.yaml", "REGION: north", "REGION: south")
	s.publish()
	s.once(0)
	require.NotEqual(t, before["shop-web"], s.template("shop-web"))
	require.Equal(t, before["shop-batch"], s.template("shop-batch"), "which does not ask for it")
	require.Equal(t, "south", s.settings("shop-batch")["REGION"])
	for _, item := range s.status().Items {
		var deployment appsv1.Deployment
		s.read(s.namespace(item.Assignment), "shop", &deployment)
		digest := deployment.Spec.Template.Annotations[kubernetes.ConfigDigestAnnotation]
		if item.Assignment == "shop-web" {
			require.Equal(t, item.ConfigDigest.String(), digest)
		} else {
			require.Empty(t, digest)
		}
	}

	// Asking alone changes no file of the assignment, and reaches the cluster all the same.
	s.askForRestarts("batch")
	s.publish()
	s.once(0)
	require.NotEqual(t, before["shop-batch"], s.template("shop-batch"))
}

// askForRestarts has a target restarted when its configuration changes.
func (s *site) askForRestarts(target string) {
	s.t.Helper()
	const workload, none = "workloads/shop/workload.yaml", "  name: shop\nspec:"
	data, err := os.ReadFile(s.path(workload))
	require.NoError(s.t, err)
	if strings.Contains(string(data), none) {
		s.edit(workload, none, "  name: shop\n  annotations:\nspec:")
	}
	s.edit(workload, "  annotations:\n", "  annotations:\n    "+target+".wherry.dev/restart-on-config: \"true\"\n")
}

// template names the pod template that all running pods of a target are made by.
func (s *site) template(target string) string {
	s.t.Helper()
	name := ""
	for _, pod := range s.pods(target) {
		if pod.DeletionTimestamp == nil {
			hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
			require.Contains(s.t, []string{"", hash}, name)
			name = hash
		}
	}
	require.NotEmpty(s.t, name)
	return name
}

// runPods gives the site's cluster a node without a machine, and its platform's Deployments pods there.
func (s *site) runPods() {
	s.t.Helper()
	stages, err := filepath.Abs("testdata/stages.yaml")
	require.NoError(s.t, err)
	node, err := cluster.StartNode(s.t.Context(), s.environment, stages)
	require.NoError(s.t, err)
	s.runPodsOn(node)
}

// runPodsOn gives the platform's Deployments pods that go to node, two of web and one of batch, and ends
// both with the test.
func (s *site) runPodsOn(node *harness.Node) {
	s.t.Helper()
	s.t.Cleanup(func() {
		s.clear()
		artifacts := ""
		if s.t.Failed() {
			artifacts = harness.Artifacts()
		}
		require.NoError(s.t, node.Stop(artifacts))
	})
	const templates, workload = "platform/templates.yaml", "workloads/shop/workload.yaml"
	s.edit(templates, "nodeSelector: # fits no node: pods stay pending on every cluster",
		"terminationGracePeriodSeconds: 1\n            tolerations: [{operator: Exists}]\n            nodeSelector:")
	s.edit(templates, harness.NodeKey+": none", harness.NodeKey+": "+node.Name)
	s.edit(templates, "envFrom:", "env: [{name: PORT, value: \"8080\"}]\n                envFrom:")
	s.edit(templates, "replicas: {{ .Manifests.replicas }}", "replicas: {{ .Manifests.replicas }}\n        progressDeadlineSeconds: {{ .Manifests.deadline }}")
	s.edit(workload, "web:1\n        replicas: \"0\"", "web:1\n        replicas: \"2\"\n        deadline: \"600\"")
	s.edit(workload, "batch:1\n        replicas: \"0\"", "batch:1\n        replicas: \"1\"\n        deadline: \"600\"")
}

// requireAvailable requires that a target's Deployment says that its pods run.
func (s *site) requireAvailable(target string, replicas int32) {
	s.t.Helper()
	var deployment appsv1.Deployment
	s.read(s.namespace(target), "shop", &deployment)
	require.Equal(s.t, replicas, deployment.Status.AvailableReplicas)
	require.Equal(s.t, replicas, deployment.Status.UpdatedReplicas)
}

func (s *site) pods(target string) []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.List(s.t.Context(), &pods, client.InNamespace(s.namespace(target))))
	return pods.Items
}
