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
	f.tb.Helper()
	require.NoError(f.tb, cluster.StartFlux(f.tb.Context(), fluxNamespace))
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(f.tb, err)
	key, err := os.ReadFile(f.path("cosign.pub"))
	require.NoError(f.tb, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "wire"}, Data: map[string][]byte{"cosign.pub": key}}
	require.NoError(f.tb, c.Create(f.tb.Context(), secret))
	source := fluxObject("OCIRepository", "wire")
	source.Object["spec"] = map[string]any{
		"url":      "oci://" + f.host() + "/edge/" + bundle.Stream{Environment: "dev", ClusterType: clusterType}.Repository(),
		"interval": "24h", "ref": map[string]any{"tag": bundle.LatestTag},
		"verify": map[string]any{"provider": "cosign", "secretRef": map[string]any{"name": secret.Name}},
	}
	f.figures("flux-first-sync", true, f.measure(func() {
		require.NoError(f.tb, c.Create(f.tb.Context(), source))
		f.awaitFlux(c, source, "")
	}))
	poll := f.measure(func() { f.reconcile(c, source) })
	f.figures("flux-poll", true, poll)
	for _, n := range []int{1, 10} {
		f.publish(n)
		f.figures(fmt.Sprintf("flux-update%dof200", n), true, f.measure(func() { f.reconcile(c, source) }))
	}
	require.NoError(f.tb, c.Delete(f.tb.Context(), source))
	require.NoError(f.tb, c.Delete(f.tb.Context(), secret))
}

// reconcile has source-controller look at the registry.
func (f *wireBench) reconcile(c client.Client, source *unstructured.Unstructured) {
	f.tb.Helper()
	at := time.Now().Format(time.RFC3339Nano)
	patch := client.MergeFrom(source.DeepCopy())
	source.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": at})
	require.NoError(f.tb, c.Patch(f.tb.Context(), source, patch))
	f.awaitFlux(c, source, at)
}

// awaitFlux waits until source-controller has handled the request made at asked, and has latest's manifest.
func (f *wireBench) awaitFlux(c client.Client, source *unstructured.Unstructured, asked string) {
	f.tb.Helper()
	latest, err := f.repository(clusterType).Resolve(f.tb.Context(), bundle.LatestTag)
	require.NoError(f.tb, err)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		require.NoError(f.tb, c.Get(f.tb.Context(), client.ObjectKeyFromObject(source), source))
		handled, _, _ := unstructured.NestedString(source.Object, "status", "lastHandledReconcileAt")
		revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "revision")
		if handled == asked && strings.HasSuffix(revision, latest.Digest.String()) && verified(source) {
			return
		}
		require.True(f.tb, time.Now().Before(end), conditions(source))
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
