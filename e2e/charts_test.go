//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// helm runs the real one, and kubectl too, on the site's cluster.
func (s *site) helm(args ...string) ran {
	s.t.Helper()
	return s.onCluster("helm", args...)
}

func (s *site) kubectl(args ...string) ran { s.t.Helper(); return s.onCluster("kubectl", args...) }

func (s *site) onCluster(name string, args ...string) ran {
	s.t.Helper()
	path, err := harness.Tool(name)
	require.NoError(s.t, err)
	env := slices.Clone(s.env)
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		env = append(env, name+"="+s.path("helm"))
	}
	r := executeWith(s.t, env, s.dir, path, append(args, "--kubeconfig", cluster.Kubeconfig)...)
	require.Zero(s.t, r.code, r.stderr)
	return r
}

// webhookSecret is that of the promoters that tests install.
const webhookSecret = "0123456789abcdef"

func chartOf(t *testing.T, part string) string {
	t.Helper()
	path, err := filepath.Abs("../deploy/charts/wherry-" + part)
	require.NoError(t, err)
	return path
}

// write writes values, or any other text, to a file of the site.
func (s *site) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), 0o600))
}

// foreignKinds are those of which this API server has no definition.
var foreignKinds = regexp.MustCompile(`(?m)^kind: (ServiceMonitor|PrometheusRule|Certificate)$`)

// What "wherry install" prints is what helm renders, byte for byte, and the API server takes it. It warns of what Pod Security
// "restricted" forbids.
func TestTheChartsRenderAsWithHelm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	namespace := s.environment + "-charts"
	agent := []string{"--registry", "oci://" + s.prefix, "--environment", s.environment, "--cluster-type", clusterType, "--key", "cosign.pub"}
	const more = "networkPolicy: {enabled: true, from: [{podSelector: {}}], egress: [{ports: [{port: 443}]}]}\nserviceMonitor: {enabled: true}\n"
	tests := []struct {
		name, part, values string
		flags              []string
	}{
		{"agent", "agent", "", agent},
		{"agent with all", "agent", more, append(agent, "--serve", ":5001", "--tls-secret", "plant-7", "--site-values", "configmap:"+namespace+"/own", "--rbac", "flux,argo", "--cluster-name", "plant-7")},
		{"agent on OpenShift", "agent", "openshift: true", agent},
		{"agent with folders of the node", "agent", "", append(agent, "--host-path", "/srv/wherry", "--veto-file", "/run/plc/busy")},
		{"hub", "hub", "image: registry.invalid/wherry", nil},
		{"hub with all", "hub", more + "image: registry.invalid/wherry\nreplicas: 3\ndatabase: {secret: db}\nfiles: {trust.json: '{}'}\nargs: [--watch=oci://r/edge]\n" +
			"tls: {certManager: {issuerRef: {name: site}}}\nprometheusRule: {enabled: true}", nil},
		{"promoter", "promoter", "{image: registry.invalid/wherry, platform: https://forge.invalid/p, registry: oci://r/edge}", nil},
		{"promoter with all", "promoter", more + "image: registry.invalid/wherry\nplatform: https://forge.invalid/p\nregistry: oci://r/edge\nhub: https://hub.invalid\nreplicas: 2", nil},
	}
	s.kubectl("create", "namespace", namespace)
	s.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			s.write("given.yaml", test.values)
			args := slices.Concat([]string{"install", test.part, "--namespace", namespace, "-f", "given.yaml"}, test.flags)
			if test.part == "agent" {
				args = append(args, "--image", "registry.invalid/wherry-agent:v1")
			}
			values := s.wherry(append(args, "--values")...)
			require.Zero(t, values.code, values.stderr)
			printed := s.wherry(append(args, "--print")...)
			require.Zero(t, printed.code, printed.stderr)
			s.write("values.yaml", values.stdout)
			release := "wherry-" + test.part
			rendered := s.helm("template", release, chartOf(t, test.part), "--namespace", namespace, "-f", "values.yaml", "--set", "createNamespace=true")
			require.Equal(t, rendered.stdout, printed.stdout)
			s.helm("lint", "--strict", chartOf(t, test.part), "-f", "values.yaml")

			var known []string
			for _, document := range strings.SplitAfter(printed.stdout, "\n---\n") {
				if !foreignKinds.MatchString(document) {
					known = append(known, document)
				}
			}
			s.write("known.yaml", strings.Join(known, ""))
			said := s.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "known.yaml").stderr
			require.Equal(t, slices.Contains(test.flags, "--host-path"), strings.Contains(said, "would violate PodSecurity"), said)
		})
	}
}

// in is the site for a test within its own.
func (s *site) in(t *testing.T) *site {
	inner := *s
	inner.t = t
	return &inner
}
