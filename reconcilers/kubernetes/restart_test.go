package kubernetes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

func TestPodTemplatesThatUseTheConfigurationGetItsDigest(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: platform-config}\n"
	for _, c := range []struct {
		name, kind, template string
		stamped              bool
	}{
		{"all of it in the environment", "apps/v1 Deployment", "spec: {containers: [{envFrom: [{secretRef: {name: s}}, {configMapRef: {name: platform-config}}]}]}", true},
		{"one value of it", "apps/v1 StatefulSet", "spec: {containers: [{env: [{name: A, value: b}, {name: B, valueFrom: {configMapKeyRef: {name: platform-config, key: b}}}]}]}", true},
		{"in an init container", "apps/v1 DaemonSet", "spec: {initContainers: [{envFrom: [{configMapRef: {name: platform-config}}]}]}", true},
		{"as files", "apps/v1 Deployment", "spec: {volumes: [{emptyDir: {}}, {configMap: {name: platform-config}}]}", true},
		{"as files among others", "apps/v1 Deployment", "spec: {volumes: [{projected: {sources: [{secret: {name: s}}, {configMap: {name: platform-config}}]}}]}", true},
		{"metadata is there", "apps/v1 Deployment", "metadata: {annotations: {a: b}}\n    spec: {volumes: [{configMap: {name: platform-config}}]}", true},
		{"metadata is empty", "apps/v1 Deployment", "metadata: {annotations: }\n    spec: {volumes: [{configMap: {name: platform-config}}]}", true},
		{"the ConfigMap of site values", "apps/v1 Deployment", "spec: {containers: [{envFrom: [{configMapRef: {name: wherry-site}}]}]}", true},
		{"another ConfigMap", "apps/v1 Deployment", "spec: {volumes: [{configMap: {name: own}}]}", false},
		{"a Secret of that name", "apps/v1 Deployment", "spec: {containers: [{envFrom: [{secretRef: {name: platform-config}}]}]}", false},
		{"a template that cannot change", "batch/v1 Job", "spec: {volumes: [{configMap: {name: platform-config}}]}", false},
		{"another kind of that name", "example.com/v1 Deployment", "spec: {volumes: [{configMap: {name: platform-config}}]}", false},
		{"no pod at all", "apps/v1 Deployment", "spec: nonsense", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var apiVersion, kind string
			_, err := fmt.Sscan(c.kind, &apiVersion, &kind)
			require.NoError(t, err)
			for namespace, same := range map[string]bool{"shop": true, "other": false} {
				p := offline(t)
				workload, err := parseManifests("reconciler.yaml", fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nmetadata: {name: web}\nspec:\n  template:\n    %s\n", apiVersion, kind, c.template))
				require.NoError(t, err)
				own, err := parseManifests("reconciler.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n"))
				require.NoError(t, err)
				configs, err := parseManifests("platform-config.yaml", []byte(config))
				require.NoError(t, err)
				p.plan.objects = append(append(configs, own...), workload...)
				for i := range p.plan.objects {
					p.plan.objects[i].SetNamespace("shop")
				}
				workload[0].SetNamespace(namespace)
				before := workload[0].DeepCopy().Object
				p.plan.stamp("sha256:abc", types.NamespacedName{Namespace: "shop", Name: rewrite.SiteConfigMap})
				got, _, _ := unstructured.NestedString(workload[0].Object, "spec", "template", "metadata", "annotations", ConfigDigestAnnotation)
				if c.stamped && same {
					require.Equal(t, "sha256:abc", got)
					continue
				}
				require.Equal(t, before, workload[0].Object)
			}
		})
	}
}
