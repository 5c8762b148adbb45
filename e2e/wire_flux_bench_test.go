//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

// flux prints what source-controller transfers for the bundles that the agent had before, with a signature that it
// verifies by the same key. It looks when it is told to, as with "flux reconcile source oci".
func (f *wireBench) flux() {
	f.b.Helper()
	require.NoError(f.b, cluster.StartFlux(f.b.Context(), fluxNamespace))
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(f.b, err)
	key, err := os.ReadFile(f.path("cosign.pub"))
	require.NoError(f.b, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "wire"}, Data: map[string][]byte{"cosign.pub": key}}
	require.NoError(f.b, c.Create(f.b.Context(), secret))
	source := fluxObject("OCIRepository", "wire")
	source.Object["spec"] = map[string]any{
		"url":      "oci://" + f.host() + "/edge/" + bundle.Stream{Environment: "dev", ClusterType: clusterType}.Repository(),
		"interval": "24h", "ref": map[string]any{"tag": bundle.LatestTag},
		"verify": map[string]any{"provider": "cosign", "secretRef": map[string]any{"name": secret.Name}},
	}
	f.figures("flux-first-sync", true, f.measure(func() {
		require.NoError(f.b, c.Create(f.b.Context(), source))
		f.awaitFlux(c, source, "")
	}))
	poll := f.measure(func() { f.reconcile(c, source) })
	f.figures("flux-poll", true, poll)
	for _, n := range []int{1, 10} {
		f.publish(n)
		f.figures(fmt.Sprintf("flux-update%dof200", n), true, f.measure(func() { f.reconcile(c, source) }))
	}
	require.NoError(f.b, c.Delete(f.b.Context(), source))
	require.NoError(f.b, c.Delete(f.b.Context(), secret))
}

// reconcile has source-controller look at the registry.
func (f *wireBench) reconcile(c client.Client, source *unstructured.Unstructured) {
	f.b.Helper()
	at := time.Now().Format(time.RFC3339Nano)
	patch := client.MergeFrom(source.DeepCopy())
	source.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": at})
	require.NoError(f.b, c.Patch(f.b.Context(), source, patch))
	f.awaitFlux(c, source, at)
}

// awaitFlux waits until source-controller has done what was asked for then, and has what latest names.
func (f *wireBench) awaitFlux(c client.Client, source *unstructured.Unstructured, asked string) {
	f.b.Helper()
	latest, err := f.repository(clusterType).Resolve(f.b.Context(), bundle.LatestTag)
	require.NoError(f.b, err)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		require.NoError(f.b, c.Get(f.b.Context(), client.ObjectKeyFromObject(source), source))
		handled, _, _ := unstructured.NestedString(source.Object, "status", "lastHandledReconcileAt")
		revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "revision")
		if handled == asked && strings.HasSuffix(revision, latest.Digest.String()) && verified(source) {
			return
		}
		require.True(f.b, time.Now().Before(end), conditions(source))
	}
}

// verified says whether source-controller calls a source ready, and its signature good.
func verified(source *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(source.Object, "status", "conditions")
	good := 0
	for _, item := range list {
		if c, _ := item.(map[string]any); c["status"] == "True" && (c["type"] == "Ready" || c["type"] == "SourceVerified") {
			good++
		}
	}
	return good == 2
}
