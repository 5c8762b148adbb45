//go:build e2e && pods

package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// The agent's image, installed as docs/install.md describes, keeps a cluster at the published release: in a
// pod of its own, with its service account and the permissions that come with it.
func TestTheAgentsImageAppliesABundleAsAPod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, node := s.runRealPods()
	s.publish()
	s.pushAgent()
	pod := s.runAgent(node)

	s.sync()
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	s.requireAvailable("shop-web", 2)
	s.requireAvailable("shop-batch", 1)
	require.Equal(t, node.Name, s.status().Cluster.Name, "the agent in the pod answers, which knows its node")

	// From here on nobody tells the agent: it looks every second.
	newer := s.pushImage("2")
	s.edit("workloads/shop/workload.yaml", s.prefix+"/pod:1", newer)
	s.publish()
	s.eventually("the newer image", func(ctx context.Context) bool {
		var d appsv1.Deployment
		return s.Get(ctx, types.NamespacedName{Namespace: s.namespace("shop-web"), Name: "shop"}, &d) == nil &&
			d.Spec.Template.Spec.Containers[0].Image == newer
	})
	s.sync()
	s.requireAvailable("shop-web", 2)
	for _, p := range s.pods("shop-web") {
		if p.DeletionTimestamp == nil {
			require.Contains(t, get(t, "http://"+p.Status.PodIP+":8080/"), "\nTAG=2\n")
		}
	}

	s.dropBatch()
	s.publish()
	s.eventually("the removed target to be gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(s.Get(ctx, types.NamespacedName{Namespace: s.namespace("shop-batch"), Name: "shop"}, &appsv1.Deployment{}))
	})
	s.sync()
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())

	s.read(pod.Namespace, pod.Name, &pod)
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
}

// A file on the node keeps the agent in its pod from changing anything.
func TestAVetoOnTheNodeReachesTheAgentsPod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, node := s.runRealPods()
	busy := s.path("plc/busy")
	s.publish()
	s.pushAgent()
	s.runAgent(node, "--veto-file", busy)
	s.sync()

	require.NoError(t, os.WriteFile(busy, []byte("the line is running\n"), 0o644)) // in the folder that the node has made
	s.edit("platform/config.yaml", "north", "south")
	s.publish()
	r := s.program("wherry-agent", "sync", "--state-dir", "agent", "--wait", "90s")
	require.Equal(t, 5, r.code, r.stderr)
	require.Equal(t, "Vetoed", s.status().Reason)
	require.Contains(t, s.status().Message, "the line is running")
	require.Equal(t, "north", s.settings("shop-web")["REGION"])

	require.NoError(t, os.Remove(busy))
	s.sync()
	require.Equal(t, "south", s.settings("shop-web")["REGION"])
}

// pushAgent puts the image of the agent that is tested where "wherry install agent" expects it.
func (s *site) pushAgent() { s.t.Helper(); s.pushProgram("wherry-agent", "dev") }

// pushProgram pushes the image of a program, as "make image" does, and returns its name.
func (s *site) pushProgram(name, tag string) string {
	s.t.Helper()
	reference := s.prefix + "/" + name + ":" + tag
	image := exec.CommandContext(s.t.Context(), "go", "run", "-C", "../tools", "./image", "-name", name,
		"-o", s.path("image"), "-push", reference, "linux/"+runtime.GOARCH+"="+filepath.Join(os.Getenv(harness.ProgramsEnv), name))
	out, err := image.CombinedOutput()
	require.NoError(s.t, err, string(out))
	return reference
}

// runAgent installs the agent, with its state in the folder that the other helpers expect it in, and
// returns its pod when that is ready. It is gone before the namespaces of the site are.
func (s *site) runAgent(node *harness.Node, more ...string) corev1.Pod {
	s.t.Helper()
	namespace, printed := s.install(append(more, "--interval", "1s")...)
	objects := s.overlay(namespace)
	s.apply(printed)
	if find[corev1.Namespace](s.t, printed, "Namespace").Labels["pod-security.kubernetes.io/enforce"] == "restricted" {
		s.requireRestricted(namespace, find[appsv1.Deployment](s.t, objects, "Deployment"))
	}
	s.provideVolume(node, namespace, "wherry-agent", "agent")
	s.apply(objects)
	var deployment *unstructured.Unstructured
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			deployment = u
		}
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(node.Logs(namespace))
		}
		require.NoError(s.t, s.Delete(context.Background(), deployment, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		s.eventually("the agent's pod to end", func(ctx context.Context) bool {
			var pods corev1.PodList
			return s.List(ctx, &pods, client.InNamespace(namespace)) == nil && len(pods.Items) == 0
		})
	})
	require.NoError(s.t, s.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(deployment.DeepCopy()), client.FieldOwner("e2e")))
	s.eventually("the agent to be available", func(ctx context.Context) bool {
		var d appsv1.Deployment
		return s.Get(ctx, client.ObjectKeyFromObject(deployment), &d) == nil && d.Status.AvailableReplicas == 1
	})
	var running []corev1.Pod
	var pods corev1.PodList
	require.NoError(s.t, s.List(s.t.Context(), &pods, client.InNamespace(namespace)))
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodFailed { // kubelet would not have it, which others on the machine may cause
			s.t.Logf("pod %s: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
			continue
		}
		running = append(running, p)
	}
	require.Len(s.t, running, 1)
	return running[0]
}

// overlay builds testdata/agent-pod.yaml on what "wherry install agent" has printed.
func (s *site) overlay(namespace string) []*unstructured.Unstructured {
	s.t.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(cluster.Config.Host, "https://"))
	require.NoError(s.t, err)
	overlay, err := os.ReadFile(s.path("agent-pod.yaml"))
	require.NoError(s.t, err)
	text := strings.NewReplacer("ENVIRONMENT-agent", namespace, "ENVIRONMENT", s.environment, ": HOST", ": "+host, "PORT\"", port+"\"").Replace(string(overlay))
	require.NoError(s.t, os.WriteFile(s.path("kustomization.yaml"), []byte(text), 0o644))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), s.dir)
	require.NoError(s.t, err)
	manifests, err := built.AsYaml()
	require.NoError(s.t, err)
	return objectsIn(string(manifests))
}

// requireRestricted requires that a pod of the Deployment breaks one rule of Pod Security "restricted",
// which the namespace enforces: that of its node's network, on which its port then is.
func (s *site) requireRestricted(namespace string, deployment appsv1.Deployment) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"},
		Spec:       deployment.Spec.Template.Spec,
	}
	var err error
	s.eventually("Pod Security to refuse the pod", func(ctx context.Context) bool {
		err = s.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		return err == nil || apierrors.IsForbidden(err) // anything else is a busy API server's
	})
	require.Error(s.t, err)
	_, rules, _ := strings.Cut(err.Error(), ` violates PodSecurity "restricted:latest": `)
	require.Equal(s.t, `host namespaces (hostNetwork=true), hostPort (container "agent" uses hostPort 8081)`, rules, "%v", err)
}

// provideVolume is what a provisioner does: a folder for a claim, on the node.
func (s *site) provideVolume(node *harness.Node, namespace, claim, folder string) {
	s.t.Helper()
	require.NoError(s.t, os.Mkdir(s.path(folder), 0o700))
	only := corev1.NodeSelectorRequirement{Key: harness.NodeKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Name}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.environment + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: s.path(folder)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{only}}},
			}},
		},
	}
	require.NoError(s.t, s.Create(s.t.Context(), volume))
	s.t.Cleanup(func() { require.NoError(s.t, s.Delete(context.Background(), volume)) })
}

// sync has the agent in the pod make passes, by its socket in the volume, until everything is compliant. One pass is not
// enough where the machine is so busy that the API server or the registry does not answer in time: the agent gives up
// then, and says so in its exit code.
func (s *site) sync() {
	s.t.Helper()
	s.eventually("a pass after which all is compliant", func(context.Context) bool {
		return s.program("wherry-agent", "sync", "--state-dir", "agent", "--wait", patience.String()).code == 0
	})
}

// eventually waits until the API server says that something has come to pass.
func (s *site) eventually(what string, yes func(context.Context) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programTime) // that of the test may have ended
	defer cancel()
	for !yes(ctx) {
		select {
		case <-ctx.Done():
			require.Fail(s.t, "waited in vain for "+what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
