//go:build e2e && pods

package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// A Deployment from a published platform, run by kubelet, containerd and runc.
func TestADeploymentRunsAsRealPods(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	image, _ := s.runRealPods()
	s.publish()
	s.once(0)
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant}, s.states())
	s.requireAvailable("shop-web", 2)
	s.requireAvailable("shop-batch", 1)
	require.Len(t, s.pods("shop-web"), 2)
	for _, pod := range s.pods("shop-web") {
		require.Contains(t, get(t, "http://"+pod.Status.PodIP+":8080/"), "\nREGION=north\n", "the platform's configuration reaches the process")
	}

	s.askForRestarts("web")
	s.edit("platform/config.yaml", "REGION: north", "REGION: south")
	s.publish()
	s.once(0)
	for _, pod := range s.pods("shop-web") {
		if pod.DeletionTimestamp == nil {
			require.Contains(t, get(t, "http://"+pod.Status.PodIP+":8080/"), "\nREGION=south\n", "compliant means that the new value is in use")
		}
	}

	newer := s.pushImage("2")
	s.edit("workloads/shop/workload.yaml", "web\n      environment: "+s.environment+"\n      manifests:\n        image: "+image,
		"web\n      environment: "+s.environment+"\n      manifests:\n        image: "+newer)
	s.publish()
	s.once(0)
	s.requireAvailable("shop-web", 2)

	s.edit("workloads/shop/workload.yaml", newer, s.prefix+"/pod:never-pushed")
	s.publish()
	s.once(5, "--wait", "1s")
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Progressing, "shop-batch": bundle.Compliant}, s.states())
	s.requireWaiting("shop-web", "ErrImagePull", "ImagePullBackOff")
}

// runRealPods makes this machine a node of the site's cluster, and gives its platform's Deployments pods
// there that run image.
func (s *site) runRealPods() (image string, node *harness.Node) {
	s.t.Helper()
	image = s.pushImage("1")
	node, err := cluster.StartKubelet(s.t.Context(), s.environment, image)
	require.NoError(s.t, err)
	s.runPodsOn(node)
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/web:1", image)
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/batch:1", image)
	return image, node
}

// pushImage puts an image into the site's registry that holds one program and nothing else.
func (s *site) pushImage(tag string) string {
	s.t.Helper()
	program := s.path("pod")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./harness/cmd/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(s.t, err, string(out))
	data, err := os.ReadFile(program)
	require.NoError(s.t, err)

	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	require.NoError(s.t, w.WriteHeader(&tar.Header{Name: "pod", Mode: 0o755, Size: int64(len(data))}))
	_, err = w.Write(data)
	require.NoError(s.t, err)
	require.NoError(s.t, w.Close())
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	require.NoError(s.t, err)
	image, err := mutate.AppendLayers(empty.Image, content)
	require.NoError(s.t, err)
	config, err := image.ConfigFile()
	require.NoError(s.t, err)
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint = []string{"/pod"}
	config.Config.Env = []string{"TAG=" + tag}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(s.t, err)

	reference, err := name.ParseReference(s.prefix+"/pod:"+tag, name.Insecure)
	require.NoError(s.t, err)
	require.NoError(s.t, remote.Write(reference, image, remote.WithContext(s.t.Context())))
	return reference.String()
}

// requireWaiting requires that a pod of a target comes to wait for one of reasons.
func (s *site) requireWaiting(target string, reasons ...string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return slices.ContainsFunc(s.pods(target), func(pod corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Waiting != nil && slices.Contains(reasons, c.State.Waiting.Reason)
			})
		})
	}, patience, 100*time.Millisecond)
}

// get returns the body of the answer of a server that may be about to listen.
func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{}} // through no proxy
	var body []byte
	require.Eventually(t, func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return err == nil
	}, patience, 100*time.Millisecond, url)
	return string(body)
}
