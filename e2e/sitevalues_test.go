//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Two clusters of one type get one bundle, and different hosts in their Ingress. Both agents work on the API server of the
// tests, one after the other.
func TestTwoClustersOfOneTypeDifferInTheirSiteValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	examples, err := filepath.Abs("../examples/site-values")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.path("platform")))
	require.NoError(t, os.CopyFS(s.path("platform"), os.DirFS(filepath.Join(examples, "platform"))))
	require.NoError(t, os.CopyFS(s.path("factory"), os.DirFS(filepath.Join(examples, "workloads"))))
	prefix := s.prefix + "/factories"
	r := s.wherry("publish", "platform", "--environment", "prod", "--workload", "shop=factory", "--to", "oci://"+prefix, "--key", "cosign.key")
	require.Zero(t, r.code, r.stderr)
	const namespace = "prod-factory-shop-main"
	t.Cleanup(func() {
		_ = s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	})
	places := map[string]string{"plant-7": "plant-7.yaml", "plant-8": "plant-8.yaml"}
	once := func(want int, name, uid string) {
		t.Helper()
		r := s.program("wherry-agent", "once", "--registry", "oci://"+prefix, "--platform", "factories", "--environment", "prod", "--cluster-type", "factory",
			"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--memory", "none", "--state-dir", "agent-"+name, "--cluster-name", name, "--cluster-uid", uid,
			"--site-values", places[name], "--wait", "0s")
		require.Equal(t, want, r.code, "%s\n%s", r.stdout, r.stderr)
	}
	ingress := func() (host, gateway string) {
		t.Helper()
		var i networkingv1.Ingress
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "shop-main"}, &i))
		return i.Spec.Rules[0].Host, i.Annotations["example.com/gateway"]
	}
	data := func() map[string]string {
		t.Helper()
		var c corev1.ConfigMap
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "wherry-site"}, &c))
		return c.Data
	}
	const seven, eight = "7d0c2f0e-5f0b-4c7c-9a3e-0d6a0f6d2b11", "0b6a1c44-3b60-4a0f-8f6e-6d8f2f0c9a52"
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(s.path(name+".yaml"), []byte(text), 0o600))
	}

	write("plant-7", "gateway.address: 10.7.0.2\n")
	once(0, "plant-7", seven)
	host, gateway := ingress()
	require.Equal(t, "shop.plant-7.example.com", host)
	require.Equal(t, "10.7.0.2", gateway)
	require.Equal(t, map[string]string{"cluster_labels_line": "two", "cluster_name": "plant-7", "gateway_address": "10.7.0.2", "shop_host": "shop.plant-7.example.com"}, data())

	write("plant-7", "gateway.address: 10.7.0.3\n")
	once(0, "plant-7", seven)
	_, gateway = ingress()
	require.Equal(t, "10.7.0.3", gateway)
	require.Equal(t, "10.7.0.3", data()["gateway_address"])

	own := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: namespace}, Data: map[string]string{"gateway.address": "10.7.0.4"}}
	require.NoError(t, s.Create(t.Context(), &own))
	places["plant-7"] = "configmap:" + namespace + "/own"
	once(0, "plant-7", seven)
	_, gateway = ingress()
	require.Equal(t, "10.7.0.4", gateway)
	require.NoError(t, s.Delete(t.Context(), &own))
	once(0, "plant-7", seven)
	_, gateway = ingress()
	require.Equal(t, "10.7.0.4", gateway, "the values stay while the ConfigMap is gone")

	once(5, "plant-8", eight) // it lacks the label line, and waits
	host, _ = ingress()
	require.Equal(t, "shop.plant-7.example.com", host)
	s.edit("platform/clusters.yaml", "  uid: "+eight, "  uid: "+eight+"\n  labels: {line: one}")
	r = s.wherry("publish", "platform", "--environment", "prod", "--workload", "shop=factory", "--to", "oci://"+prefix, "--key", "cosign.key")
	require.Zero(t, r.code, r.stderr)
	once(0, "plant-8", eight)
	host, gateway = ingress()
	require.Equal(t, "shop.plant-8.example.com", host)
	require.Equal(t, "10.8.0.1", gateway)
}
