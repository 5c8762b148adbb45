package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/manifests"
)

func check(t *testing.T, text string) []string {
	t.Helper()
	found, err := manifests.Parse("a.yaml", []byte(text))
	require.NoError(t, err)
	var all []string
	for _, o := range found {
		for _, m := range Check(o.Object) {
			all = append(all, fmt.Sprintf("%s %s", o.GetName(), m))
		}
	}
	return all
}

func head(apiVersion, kind string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n", apiVersion, kind)
}

func pod(spec string) string { return head("v1", "Pod") + "spec: " + spec + "\n" }

func container(fields string) string {
	return head("apps/v1", "Deployment") + "spec: {template: {spec: {containers: [{name: c, " + fields + "}]}}}\n"
}

func TestWhatAnAPIServerRefusesIsAMistake(t *testing.T) {
	const c = "x spec.template.spec.containers[0]."
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a number as a text", head("apps/v1", "Deployment") + "spec: {replicas: '3'}\n", []string{"x spec.replicas must be a whole number, and is a text"}},
		{"a fraction", head("apps/v1", "Deployment") + "spec: {replicas: 1.5}\n", []string{"x spec.replicas must be a whole number, and is a number"}},
		{"a number that is too large", head("apps/v1", "Deployment") + "spec: {replicas: 5000000000}\n", []string{"x spec.replicas is too large a number"}},
		{"a text as a boolean", head("v1", "ConfigMap") + "immutable: 'true'\n", []string{"x immutable must be a boolean, and is a text"}},
		{"a boolean as a text", pod("{nodeName: yes}"), []string{"x spec.nodeName must be a text, and is a boolean"}},
		{"a number as an environment variable", container("env: [{name: A, value: 1}]"), []string{c + "env[0].value must be a text, and is a number"}},
		{"a mapping in the data of a ConfigMap", head("v1", "ConfigMap") + "data: {a: {b: c}}\n", []string{"x data.a must be a text, and is a mapping"}},
		{"a list for a mapping", head("v1", "ConfigMap") + "data: [a]\n", []string{"x data must be a mapping, and is a list"}},
		{"a mapping for a list", pod("{containers: {name: a}}"), []string{"x spec.containers must be a list, and is a mapping"}},
		{"data that is not base64", head("v1", "Secret") + "data: {password: not base64!}\n", []string{"x data.password must be in base64, and is not"}},
		{"a number as data", head("v1", "Secret") + "data: {password: 12345678}\n", []string{"x data.password must be a text in base64, and is a number"}},
		{"a quantity", container("resources: {limits: {cpu: much}}"), []string{c + "resources.limits.cpu cannot be a quantity, such as 100m or 1Gi"}},
		{"a request above its limit", container("resources: {limits: {cpu: 1}, requests: {cpu: 1500m}}"), []string{c + "resources.requests.cpu is more than the limit"}},
		{"a port of a probe", container("livenessProbe: {httpGet: {port: true}}"), []string{c + "livenessProbe.httpGet.port cannot be a whole number or a text"}},
		{"a time", head("v1", "ConfigMap") + "metadata: {name: x, creationTimestamp: today}\n", nil},
		{"two variables of one name", container("env: [{name: A, value: a}, {name: A, value: b}]"), []string{`x spec.template.spec.containers[name="c"].env has two entries with name="A", which server-side apply refuses`}},
		{"two ports of one number", container("ports: [{containerPort: 80}, {containerPort: 80, name: http}]"), []string{`x spec.template.spec.containers[name="c"].ports has two entries with containerPort=80,protocol="TCP", which server-side apply refuses`}},
		{"two containers of one name", pod("{containers: [{name: a}, {name: a}]}"), []string{`x spec.containers has two entries with name="a", which server-side apply refuses`, "x spec.containers[1].name is also the name of another container"}},
		{"a container and an init container of one name", pod("{containers: [{name: a}], initContainers: [{name: a}]}"), []string{"x spec.containers[0].name is also the name of another container"}},
		{"a variable without a name", container("env: [{value: a}]"), []string{c + "env[0] has no name"}},
		{"two volumes of one name", pod("{volumes: [{name: a}, {name: a}]}"), []string{`x spec.volumes has two entries with name="a", which server-side apply refuses`}},
		{"two mounts at one path", pod("{volumes: [{name: a}, {name: b}], containers: [{name: c, volumeMounts: [{name: a, mountPath: /d}, {name: b, mountPath: /d}]}]}"), []string{`x spec.containers[name="c"].volumeMounts has two entries with mountPath="/d", which server-side apply refuses`, "x spec.containers[0].volumeMounts[1].mountPath is also the path of another mount"}},
		{"a mount of no volume", container("volumeMounts: [{name: a, mountPath: /a}]"), []string{c + `volumeMounts[0].name names the volume "a", which the pod does not have`}},
		{"a variable with both values", container("env: [{name: A, value: a, valueFrom: {fieldRef: {fieldPath: a}}}]"), []string{c + "env[0] has both value and valueFrom"}},
		{"ports without a name", head("v1", "Service") + "spec: {ports: [{port: 80}, {port: 81, name: b}]}\n", []string{"x spec.ports[0] has no name, which a Service with several ports requires"}},
		{"ports of one name", head("v1", "Service") + "spec: {ports: [{port: 80, name: b}, {port: 81, name: b}]}\n", []string{"x spec.ports[1].name is also the name of another port"}},
		{"ports of one number", head("v1", "Service") + "spec: {ports: [{port: 80, name: a}, {port: 80, name: b}]}\n", []string{`x spec.ports has two entries with port=80,protocol="TCP", which server-side apply refuses`}},
		{"no port", head("v1", "Service") + "spec: {ports: [{port: 70000}]}\n", []string{"x spec.ports[0].port must be a port, from 1 to 65535, and is 70000"}},
		{"a word that is none", head("v1", "Service") + "spec: {type: Loadbalancer}\n", []string{`x spec.type cannot be "Loadbalancer" (known: ClusterIP, NodePort, LoadBalancer, ExternalName)`}},
		{"a selector for other pods", head("apps/v1", "Deployment") + "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: c}}}}\n", []string{"x spec.selector does not match the labels of spec.template"}},
		{"a key of a ConfigMap", head("v1", "ConfigMap") + "data: {'a b': c}\n", []string{`x data cannot have the key "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`}},
		{"a key in both parts of a ConfigMap", head("v1", "ConfigMap") + "data: {a: b}\nbinaryData: {a: Yg==}\n", []string{"x data.a is in binaryData, too"}},
		{"a ConfigMap above 1 MiB", head("v1", "ConfigMap") + "data: {a: " + strings.Repeat("x", 1<<20) + ", b: z}\n", []string{"x data has 1048577 bytes, at most 1048576 are permitted"}},
		{"a Secret above 1 MiB", head("v1", "Secret") + "stringData: {a: " + strings.Repeat("x", 1<<20+1) + "}\n", []string{"x data has 1048577 bytes, at most 1048576 are permitted"}},
		{"annotations above 256 KiB, of any kind", "apiVersion: example.com/v1\nkind: A\nmetadata: {name: x, annotations: {a: " + strings.Repeat("x", 256<<10) + "}}\n", []string{"x metadata.annotations have 262145 bytes, at most 262144 are permitted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "a time" {
				tc.text = strings.Replace(head("v1", "ConfigMap"), "name: x", "name: x, creationTimestamp: today", 1)
				tc.want = []string{"x metadata.creationTimestamp cannot be a time, such as 2006-01-02T15:04:05Z"}
			}
			require.Equal(t, tc.want, check(t, tc.text))
		})
	}
}

func TestWhatAnAPIServerMayTakeIsNoMistake(t *testing.T) {
	for name, text := range map[string]string{
		"unknown fields":              head("v1", "Service") + "spec: {newer: {a: b}, ports: [{port: 80, newer: 1}]}\nnewer: 1\n",
		"unknown kinds":               "apiVersion: apps/v9\nkind: Deployment\nmetadata: {name: x}\nspec: [a]\n",
		"custom resources":            "apiVersion: example.com/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: '3'}\n",
		"missing fields":              head("apps/v1", "Deployment"),
		"nulls":                       head("apps/v1", "Deployment") + "spec: {replicas: null, template: {spec: {containers: [{name: c, env: null, resources: null, ports: [{containerPort: 80, name: null}]}]}}}\n",
		"numbers as quantities":       container("resources: {limits: {cpu: 1, memory: 1.5}}"),
		"names and numbers as ports":  container("livenessProbe: {httpGet: {port: http}}, readinessProbe: {httpGet: {port: 80}}"),
		"one port without a name":     head("v1", "Service") + "spec: {ports: [{port: 80}]}\n",
		"one number of two protocols": head("v1", "Service") + "spec: {ports: [{port: 53, name: a, protocol: UDP}, {port: 53, name: b, protocol: TCP}]}\n",
		"a ConfigMap of 1 MiB":        head("v1", "ConfigMap") + "data: {a: " + strings.Repeat("x", 1<<20) + "}\n",
		"base64 in several lines":     head("v1", "Secret") + "data:\n  a: |\n    YWJj\n    ZGVm\n",
		"a whole number as a float":   head("apps/v1", "Deployment") + "spec: {replicas: 3.0}\n",
		"an alpha version":            "apiVersion: storage.k8s.io/v1alpha1\nkind: VolumeAttachment\nmetadata: {name: x}\nspec: 1\n",
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, check(t, text)) })
	}
}

// The files of a public bug report.
func TestTheObjectsOfAReport(t *testing.T) {
	root := os.Getenv("WHERRY_CASES")
	if root == "" {
		t.Log("WHERRY_CASES is not set: its files are not read")
		return
	}
	for file, want := range map[string][]string{
		"env/d.yaml":    {`web spec.template.spec.containers[name="web"].env has two entries with name="OPTS", which server-side apply refuses`, `web spec.template.spec.containers[name="web"].ports has two entries with containerPort=8080,protocol="TCP", which server-side apply refuses`},
		"secret/s.yaml": {"s data.password must be in base64, and is not"},
		"port/svc.yaml": {"s spec.ports[0].port must be a whole number, and is a text", "s spec.ports[0] has no name, which a Service with several ports requires", "s spec.ports[1] has no name, which a Service with several ports requires"},
	} {
		data, err := os.ReadFile(filepath.Join(root, "reports/36-what-an-api-server-refuses/work", file))
		require.NoError(t, err)
		require.Equal(t, want, check(t, string(data)), file)
	}
}
