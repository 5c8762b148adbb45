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
	examples, err := filepath.Abs("../examples/factory")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.path("platform")))
	require.NoError(t, os.CopyFS(s.path("platform"), os.DirFS(filepath.Join(examples, "platform"))))
	require.NoError(t, os.CopyFS(s.path("quality"), os.DirFS(filepath.Join(examples, "workloads"))))
	s.edit("platform/templates.yaml", `default "1"`, `default "0"`) // there is no node
	s.edit("platform/site-values.yaml", "default: 2", "default: 0")
	s.edit("platform/stations.yaml", "    cameras: 3\n", "")
	s.edit("platform/stations.yaml", "  labels: {side: right}\n", "")
	prefix := s.prefix + "/factories"
	r := s.wherry("publish", "platform", "--environment", "prod", "--workload", "quality=quality", "--to", "oci://"+prefix, "--key", "cosign.key")
	require.Zero(t, r.code, r.stderr)
	const namespace = "prod-plant-7-weld-eye-main"
	for _, name := range []string{namespace, "prod-plant-7-weld-scale-main", "prod-plant-7-weld-clock-main"} {
		t.Cleanup(func() {
			_ = s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		})
	}
	places := map[string]string{"weld-1": "weld-1.yaml", "weld-2": "weld-2.yaml"}
	once := func(want int, name, uid string) {
		t.Helper()
		r := s.program("wherry-agent", "once", "--registry", "oci://"+prefix, "--platform", "factories", "--environment", "prod", "--cluster-type", "plant-7-weld",
			"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--memory", "none", "--state-dir", "agent-"+name, "--cluster-name", name, "--cluster-uid", uid,
			"--site-values", places[name], "--wait", patience.String())
		require.Equal(t, want, r.code, "%s\n%s", r.stdout, r.stderr)
	}
	ingress := func() (host, plc string) {
		t.Helper()
		var i networkingv1.Ingress
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "eye-main"}, &i))
		return i.Spec.Rules[0].Host, i.Annotations["example.com/plc"]
	}
	data := func() map[string]string {
		t.Helper()
		var c corev1.ConfigMap
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "wherry-site"}, &c))
		return c.Data
	}
	const one, two = "7d0c2f0e-5f0b-4c7c-9a3e-0d6a0f6d2b11", "0b6a1c44-3b60-4a0f-8f6e-6d8f2f0c9a52"
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(s.path(name+".yaml"), []byte(text), 0o600))
	}

	write("weld-1", "plc.address: 10.7.1.2\n")
	once(0, "weld-1", one)
	host, plc := ingress()
	require.Equal(t, "eye.weld-1.plant-7.example.com", host)
	require.Equal(t, "10.7.1.2", plc)
	require.Equal(t, map[string]string{"cameras": "0", "cluster_labels_side": "left", "cluster_name": "weld-1", "eye_host": "eye.weld-1.plant-7.example.com", "plc_address": "10.7.1.2"}, data())

	write("weld-1", "plc.address: 10.7.1.3\n")
	once(0, "weld-1", one)
	_, plc = ingress()
	require.Equal(t, "10.7.1.3", plc)
	require.Equal(t, "10.7.1.3", data()["plc_address"])

	own := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: namespace}, Data: map[string]string{"plc.address": "10.7.1.4"}}
	require.NoError(t, s.Create(t.Context(), &own))
	places["weld-1"] = "configmap:" + namespace + "/own"
	once(0, "weld-1", one)
	_, plc = ingress()
	require.Equal(t, "10.7.1.4", plc)
	require.NoError(t, s.Delete(t.Context(), &own))
	once(0, "weld-1", one)
	_, plc = ingress()
	require.Equal(t, "10.7.1.4", plc, "the values stay while the ConfigMap is gone")

	once(5, "weld-2", two) // it lacks the label side, and waits
	host, _ = ingress()
	require.Equal(t, "eye.weld-1.plant-7.example.com", host)
	s.edit("platform/stations.yaml", "  uid: "+two, "  uid: "+two+"\n  labels: {side: right}")
	r = s.wherry("publish", "platform", "--environment", "prod", "--workload", "quality=quality", "--to", "oci://"+prefix, "--key", "cosign.key")
	require.Zero(t, r.code, r.stderr)
	once(0, "weld-2", two)
	host, plc = ingress()
	require.Equal(t, "eye.weld-2.plant-7.example.com", host)
	require.Equal(t, "10.7.2.1", plc)
}
