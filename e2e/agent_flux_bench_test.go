//go:build e2e

package e2e

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

// fluxBench is an OCIRepository of the agent's stream and the Kustomization that applies it.
type fluxBench struct {
	*agentBench
	client                client.Client
	source, kustomization *unstructured.Unstructured
}

// flux prints the same figures of source-controller and kustomize-controller together.
func (f *agentBench) flux() {
	f.b.Helper()
	require.NoError(f.b, cluster.StartFlux(f.b.Context(), fluxNamespace))
	controllers := cluster.Flux(fluxNamespace)
	var pids []int
	for _, c := range controllers {
		pids = append(pids, c.PID)
	}
	m := f.meter("flux", func() (sum int64) {
		for _, c := range controllers {
			sum += f.counted(c.Metrics, "rest_client_requests_total")
		}
		return sum
	}, pids...)
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(f.b, err)
	x := &fluxBench{f, c, fluxObject("OCIRepository", "bench"), fluxObject("Kustomization", "bench")}
	x.source.Object["spec"] = map[string]any{
		"url":      "oci://" + f.registry + "/edge/" + bundle.Stream{Environment: "dev", ClusterType: "bench"}.Repository(),
		"interval": benchPoll.String(), "insecure": true, "ref": map[string]any{"tag": bundle.LatestTag},
	}
	x.kustomization.Object["spec"] = map[string]any{
		"interval": benchApply.String(), "path": "./", "prune": true, "sourceRef": map[string]any{"kind": "OCIRepository", "name": "bench"},
	}
	m.converge(func() { f.publish(f.files()) }, func() {
		require.NoError(f.b, c.Create(f.b.Context(), x.source))
		require.NoError(f.b, c.Create(f.b.Context(), x.kustomization))
		x.await()
	})
	m.updates("update1of200", func() { f.value++; f.publish(f.files()) }, func() { x.reconcile(); x.await() })
	m.idle()
	for _, o := range []*unstructured.Unstructured{x.kustomization, x.source} {
		require.NoError(f.b, c.Delete(f.b.Context(), o))
		require.Eventually(f.b, func() bool {
			return apierrors.IsNotFound(c.Get(f.b.Context(), client.ObjectKeyFromObject(o), o))
		}, patience, 200*time.Millisecond)
	}
}

// reconcile has source-controller look at the registry, as "flux reconcile source oci" does.
func (x *fluxBench) reconcile() {
	x.b.Helper()
	require.NoError(x.b, x.client.Get(x.b.Context(), client.ObjectKeyFromObject(x.source), x.source))
	patch := client.MergeFrom(x.source.DeepCopy())
	x.source.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": time.Now().Format(time.RFC3339Nano)})
	require.NoError(x.b, x.client.Patch(x.b.Context(), x.source, patch))
}

// await waits until kustomize-controller is ready with the last release.
func (x *fluxBench) await() {
	x.b.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		require.NoError(x.b, x.client.Get(x.b.Context(), client.ObjectKeyFromObject(x.kustomization), x.kustomization))
		applied, _, _ := unstructured.NestedString(x.kustomization.Object, "status", "lastAppliedRevision")
		if strings.HasSuffix(applied, x.latest.Digest.String()) && ready(x.kustomization) {
			return
		}
		require.True(x.b, time.Now().Before(end), conditions(x.kustomization))
	}
}

// ready says whether an object of Flux has the condition Ready.
func ready(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		if c, _ := item.(map[string]any); c["type"] == "Ready" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// counted is the sum of a counter over all its labels.
func (f *agentBench) counted(metrics, name string) (sum int64) {
	f.b.Helper()
	resp, err := http.Get(metrics)
	require.NoError(f.b, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), name+"{") {
			fields := strings.Fields(lines.Text())
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(f.b, err)
			sum += int64(n)
		}
	}
	require.NoError(f.b, lines.Err())
	return sum
}
