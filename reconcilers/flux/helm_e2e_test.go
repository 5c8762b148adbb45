//go:build e2e && helm

package flux_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
)

// packedChart is the chart shop with a ConfigMap that has the value version, and a hook.
func packedChart(t *testing.T) string {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	for _, f := range [][2]string{
		{"shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 6.1.0\n"},
		{"shop/templates/settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {version: {{ .Values.version | quote }}}\n"},
		{"shop/templates/hook.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}}\ndata: {revision: \"{{ .Release.Revision }}\"}\n"},
	} {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}))
		_, err := archive.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zip.Close())
	return packed.String()
}

const embeddedRelease = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: $NAME-charts}
spec: {interval: 1h, url: "https://charts.invalid"}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  timeout: 20s
  releaseName: shop
  targetNamespace: $NAME
  storageNamespace: $NAME
  chart: {spec: {chart: shop, version: 6.x, sourceRef: {kind: HelmRepository, name: $NAME-charts}}}
  values: {version: "VERSION"}
`

// TestARealHelmController writes its record for testdata/helm-controller.txt.
func TestARealHelmController(t *testing.T) {
	_, err := os.Stat(os.Getenv("WHERRY_E2E_HELM_CONTROLLER"))
	require.NoError(t, err, "make e2e-helm-controller names the program")
	run := []func(*testing.T){
		func(t *testing.T) {
			s := newSite(t)
			s.commitChart(t)
			require.True(t, s.hasHelm(t), "nobody takes HelmReleases up")
			s.followHelm(t)
		},
		func(t *testing.T) {
			s, e := newSite(t), startEndpoint(t)
			chart := packedChart(t)
			of := func(version string) reconcilers.Assignment {
				return s.embedded(t, e, "shop", strings.Replace(embeddedRelease, "VERSION", version, 1), map[string]string{"charts/shop-6.1.0.tgz": chart})
			}
			s.Settled(t, of("one"), bundle.Compliant)
			require.Equal(t, "one", s.ConfigMap(t, "settings").Data["version"])
			require.Equal(t, "1", s.ConfigMap(t, "hook").Data["revision"])
			a := of("two")
			s.Settled(t, a, bundle.Compliant)
			require.Equal(t, "two", s.ConfigMap(t, "settings").Data["version"])
			require.Equal(t, "2", s.ConfigMap(t, "hook").Data["revision"])
			s.Removed(t, a)
			require.Nil(t, s.ConfigMap(t, "settings"))
		},
		func(t *testing.T) {
			s, e := newSite(t), startEndpoint(t)
			inside := strings.NewReplacer("VERSION", "one", "$NAME-", s.Name+"-", "$NAME", s.Name, "metadata: {name: ", "metadata: {namespace: "+namespace+", name: ").Replace(embeddedRelease)
			a := s.embedded(t, e, "shop", strings.Replace(pointer, "  targetNamespace: $NAME\n", "  wait: true\n  timeout: 1m\n", 1),
				map[string]string{"manifests/release.yaml": inside, "charts/shop-6.1.0.tgz": packedChart(t)})
			s.Settled(t, a, bundle.Compliant)
			require.Equal(t, "one", s.ConfigMap(t, "settings").Data["version"])
			s.Removed(t, a)
			require.Nil(t, s.ConfigMap(t, "settings"))
		},
	}
	require.Len(t, run, len(helmCases))
	for i, name := range helmCases {
		t.Run(name, run[i])
	}
	if t.Failed() {
		return
	}
	kube, source := toolVersions(t)
	version := os.Getenv("WHERRY_E2E_HELM_CONTROLLER_VERSION")
	require.NotEmpty(t, version)
	require.NoError(t, os.MkdirAll(harness.Artifacts(), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(harness.Artifacts(), "helm-controller.txt"), []byte(helmRecord(version, kube, source)), 0o644))
}
