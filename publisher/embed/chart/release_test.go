package chart

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func objectsIn(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for d := yaml.NewDecoder(bytes.NewReader([]byte(text))); ; {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, o)
	}
}

func TestReleasesAreFoundWithTheirCharts(t *testing.T) {
	got := Releases(objectsIn(t, `
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: shop}
spec:
  targetNamespace: front
  install: {crds: Skip}
  chart: {spec: {chart: nginx, version: 1.x, sourceRef: {kind: HelmRepository, name: charts, namespace: flux-system}, valuesFiles: [values-prod.yaml]}}
  valuesFrom:
  - {kind: ConfigMap, name: common}
  - {kind: Secret, name: login}
  - {kind: ConfigMap, name: common, valuesKey: port, targetPath: service.port}
  - {kind: ConfigMap, name: common, valuesKey: text, targetPath: text}
  - {kind: ConfigMap, name: elsewhere}
  values: {image: {tag: "2"}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: cache}
spec:
  releaseName: my-cache
  chartRef: {kind: OCIRepository, name: redis}
  postRenderers: [{kustomize: {}}]
---
apiVersion: helm.toolkit.fluxcd.io/v2beta2
kind: HelmRelease
metadata: {name: by-chart, namespace: shop}
spec:
  chartRef: {kind: HelmChart, name: own}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: lost, namespace: shop}
spec:
  chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: gone}}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: empty, namespace: shop}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: flux-system}
spec: {url: "https://charts.example.com"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: redis}
spec: {url: "oci://registry.example.com/charts/redis", ref: {semver: ">=7", digest: "sha256:0"}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: own, namespace: shop}
spec: {chart: ./charts/own, sourceRef: {kind: GitRepository, name: code}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: code, namespace: shop}
spec: {url: "https://git.example.com/code"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: common, namespace: shop}
data:
  values.yaml: "image: {name: nginx, tag: '1'}\n"
  port: "8080\n"
  text: "'12'"
`))
	require.Len(t, got, 5)
	require.Equal(t, Release{
		Namespace: "shop", Name: "web", ReleaseName: "front-web", TargetNamespace: "front", WithoutCRDs: true,
		Source: Source{Kind: "HelmRepository", Namespace: "flux-system", Name: "charts", URL: "https://charts.example.com", Chart: "nginx", Version: "1.x", ValuesFiles: []string{"values-prod.yaml"}},
		Values: map[string]any{"image": map[string]any{"name": "nginx", "tag": "2"}, "service": map[string]any{"port": int64(8080)}, "text": "12"},
		Notes: []string{
			"the values of Secret login are left out: only the cluster has them",
			"the values of ConfigMap elsewhere are left out: it is not among the target's objects",
		},
	}, got[0])
	require.Equal(t, Release{
		Name: "cache", ReleaseName: "my-cache", TargetNamespace: "default",
		Source: Source{Kind: "OCIRepository", Name: "redis", URL: "oci://registry.example.com/charts/redis", SemVer: ">=7", Digest: "sha256:0"},
		Values: map[string]any{}, Notes: []string{"postRenderers change the objects on the cluster, and are left out here"},
	}, got[1])
	require.Equal(t, Source{Kind: "GitRepository", Namespace: "shop", Name: "code", URL: "https://git.example.com/code", Chart: "./charts/own"}, got[2].Source)
	require.NoError(t, got[2].Err)
	require.ErrorContains(t, got[3].Err, "HelmRelease shop/lost: HelmRepository gone is not among the target's objects (deliver the source with the HelmRelease: the chart travels with it)")
	require.ErrorContains(t, got[4].Err, "it names no chart")

	opts := got[0].Options(Options{KubeVersion: "1.31"})
	require.Equal(t, Options{ReleaseName: "front-web", Namespace: "front", KubeVersion: "1.31", Values: got[0].Values, WithoutCRDs: true}, opts)
}
