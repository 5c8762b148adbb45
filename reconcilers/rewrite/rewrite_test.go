package rewrite

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/reconcilers"
)

const (
	sum   = digest.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	chart = digest.Digest("sha256:2222222222222222222222222222222222222222222222222222222222222222")
)

// arcFlux is the template arc-flux of Kalypso as it is rendered.
const arcFlux = `apiVersion: source.toolkit.fluxcd.io/v1beta2
kind: GitRepository
metadata: {name: shop, namespace: flux-system, labels: {team: shop}}
spec:
  interval: 30s
  url: https://git.example/shop
  ref: {branch: dev}
  secretRef: {name: repo-secret}
  verify: {mode: HEAD, secretRef: {name: keys}}
  ignore: "*.md"
  recurseSubmodules: true
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata: {name: shop, namespace: flux-system}
spec:
  interval: 30s
  targetNamespace: dev-shop
  sourceRef: {kind: GitRepository, name: shop}
  path: ./functional-test
  prune: true
  dependsOn: [{name: infra}]
`

func served() *reconcilers.Served {
	artifact := reconcilers.ServedArtifact{Repository: "default/assignments/shop-dev", Digest: sum}
	return &reconcilers.Served{
		Host: "10.0.0.1:5001", CA: []byte("certificate"), Manifests: artifact,
		Charts: map[string]reconcilers.ServedArtifact{"podinfo-6.7.1.tgz": {Repository: artifact.Repository, Digest: chart}},
	}
}

func input(t *testing.T, text string, files fstest.MapFS) Input {
	t.Helper()
	objects, err := manifests.Decode("a.yaml", []byte(text))
	require.NoError(t, err)
	if files == nil {
		files = fstest.MapFS{}
	}
	return Input{
		Assignment: bundle.Assignment{Name: "shop-dev", Namespace: "dev-shop", Delivery: bundle.Embedded},
		Files:      files, Objects: objects, Served: served(),
		Manifests: func() ([]*unstructured.Unstructured, error) {
			_, all, err := parseAll(files)
			return all, err
		},
	}
}

func print(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	out, err := printed(objects)
	require.NoError(t, err)
	return string(out)
}

func lines(changes []Change) (out []string) {
	for _, c := range changes {
		out = append(out, c.String())
	}
	return out
}

func TestTheSourceOfAKustomizationBecomesTheEndpoint(t *testing.T) {
	in := input(t, arcFlux, nil)
	res, err := Flux(in)
	require.NoError(t, err)
	require.Equal(t, `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata:
  annotations:
    wherry.dev/served: "true"
  labels:
    team: shop
  name: shop
  namespace: flux-system
spec:
  certSecretRef:
    name: wherry-serve-ca
  interval: 30s
  ref:
    digest: `+sum.String()+`
  url: oci://10.0.0.1:5001/default/assignments/shop-dev
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata:
  name: shop
  namespace: flux-system
spec:
  dependsOn:
  - name: infra
  interval: 30s
  path: ./
  prune: true
  sourceRef:
    kind: OCIRepository
    name: shop
  targetNamespace: dev-shop
`, print(t, res.Objects))
	require.Len(t, res.Shared, 1)
	require.Equal(t, "Secret/flux-system/wherry-serve-ca", subject(res.Shared[0].Unstructured))
	require.Equal(t, []string{
		"GitRepository/flux-system/shop: kind becomes OCIRepository (was GitRepository)",
		"GitRepository/flux-system/shop: spec.url becomes oci://10.0.0.1:5001/default/assignments/shop-dev (was https://git.example/shop)",
		"GitRepository/flux-system/shop: spec.ref.digest becomes " + sum.String(),
		"GitRepository/flux-system/shop: spec.ignore is dropped",
		"GitRepository/flux-system/shop: spec.recurseSubmodules is dropped",
		"GitRepository/flux-system/shop: spec.secretRef is dropped",
		"GitRepository/flux-system/shop: spec.verify is dropped",
		"OCIRepository/flux-system/shop: spec.certSecretRef.name becomes wherry-serve-ca",
		"Secret/flux-system/wherry-serve-ca becomes the agent's own, with the CA of its endpoint",
		"Kustomization/flux-system/shop: spec.sourceRef.kind becomes OCIRepository (was GitRepository)",
		"Kustomization/flux-system/shop: spec.path becomes ./ (was ./functional-test)",
	}, lines(res.Changes))
	require.Equal(t, "GitRepository", in.Objects[0].GetKind(), "the input stays as it is")

	again, err := Flux(in)
	require.NoError(t, err)
	require.Equal(t, res, again)
}

func TestWhatFluxCannotTakeFromTheEndpointFails(t *testing.T) {
	second := strings.NewReplacer("name: shop,", "name: shop-two,", "./functional-test", "./infra").Replace(arcFlux[strings.Index(arcFlux, "---"):])
	for _, tc := range []struct {
		name, text string
		served     *reconcilers.Served
		reason     string
		fault      reconcilers.Fault
		words      string
	}{
		{"no endpoint", arcFlux, nil, NoEndpoint, reconcilers.FaultSite, "--serve ADDRESS"},
		{"a source of somebody else", arcFlux[strings.Index(arcFlux, "---"):], served(), SourceNotServed, reconcilers.FaultRelease, "Kustomization/flux-system/shop takes its content from GitRepository/flux-system/shop"},
		{"a source of another namespace than the one that is here", strings.Replace(arcFlux, "{kind: GitRepository, name: shop}", "{kind: GitRepository, name: shop, namespace: other}", 1), served(), SourceNotServed, reconcilers.FaultRelease, "GitRepository/other/shop"},
		{"two sources", arcFlux + strings.ReplaceAll(second, "GitRepository, name: shop", "GitRepository, name: other"), served(), SourceNotServed, reconcilers.FaultRelease, "two sources, GitRepository/flux-system/shop and GitRepository/flux-system/other"},
		{"a folder that is not embedded", arcFlux + second, served(), SourceNotServed, reconcilers.FaultRelease, `folder "./functional-test"`},
		{"a HelmRelease without its chart", "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\nspec: {chart: {spec: {chart: nginx, sourceRef: {kind: HelmRepository, name: charts}}}}\n", served(), ChartNotEmbedded, reconcilers.FaultRelease, `chart "nginx" is not among the embedded ones`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.text, nil)
			in.Served = tc.served
			_, err := Flux(in)
			var known *reconcilers.Error
			require.True(t, errors.As(err, &known), "%v", err)
			require.Equal(t, tc.reason, known.Reason)
			require.Equal(t, tc.fault, known.Fault)
			require.ErrorContains(t, err, tc.words)
		})
	}
}

func TestSeveralKustomizationsShareOneSource(t *testing.T) {
	second := arcFlux[strings.Index(arcFlux, "---"):]
	second = strings.NewReplacer("name: shop,", "name: shop-two,", "./functional-test", "deploy/apps").Replace(second)
	first := strings.Replace(arcFlux, "./functional-test", "./deploy/infra/", 1)
	res, err := Flux(input(t, first+second, fstest.MapFS{
		"manifests/infra/a.yaml": {}, "manifests/apps/b.yaml": {},
	}))
	require.NoError(t, err)
	require.Equal(t, "./infra", text(res.Objects[1], "spec", "path"))
	require.Equal(t, "./apps", text(res.Objects[2], "spec", "path"))

	same := strings.Replace(second, "deploy/apps", "functional-test", 1)
	res, err = Flux(input(t, arcFlux+same, nil))
	require.NoError(t, err)
	require.Equal(t, "./", text(res.Objects[1], "spec", "path"))
	require.Equal(t, "./", text(res.Objects[2], "spec", "path"))
}

func TestASourceStaysInItsNamespace(t *testing.T) {
	text := strings.Replace(arcFlux, "{name: shop, namespace: flux-system, labels: {team: shop}}", "{name: shop, namespace: sources}", 1)
	text = strings.Replace(text, "{kind: GitRepository, name: shop}", "{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: GitRepository, name: shop, namespace: sources}", 1)
	res, err := Flux(input(t, text, nil))
	require.NoError(t, err)
	require.Equal(t, "OCIRepository/sources/shop", subject(res.Objects[0]))
	require.Equal(t, map[string]any{"kind": "OCIRepository", "name": "shop", "namespace": "sources"}, specOf(res.Objects[1])["sourceRef"])
	require.Equal(t, "sources", res.Shared[0].GetNamespace())
}

func TestOtherSourcesAreReplacedAsWell(t *testing.T) {
	for _, source := range []string{
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: shop, namespace: flux-system}\nspec: {interval: 5m, timeout: 30s, url: oci://registry.example/shop, ref: {tag: latest}, insecure: true, layerSelector: {operation: extract}, certSecretRef: {name: theirs}}\n",
		"apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata: {name: shop, namespace: flux-system}\nspec: {interval: 5m, timeout: 30s, endpoint: s3.example, bucketName: shop, secretRef: {name: keys}}\n",
	} {
		kustomization := arcFlux[strings.Index(arcFlux, "---"):]
		kind := "OCIRepository"
		if strings.Contains(source, "kind: Bucket") {
			kind = "Bucket"
		}
		in := input(t, source+strings.Replace(kustomization, "kind: GitRepository", "kind: "+kind, 1), nil)
		in.Served.CA = nil
		res, err := Flux(in)
		require.NoError(t, err)
		require.Equal(t, map[string]any{
			"interval": "5m", "timeout": "30s", "url": "oci://10.0.0.1:5001/default/assignments/shop-dev", "ref": map[string]any{"digest": sum.String()},
		}, specOf(res.Objects[0]))
		require.Empty(t, res.Shared, "the system's certificates are enough")
	}
}

func TestWithoutAKustomizationTheManifestsAreApplied(t *testing.T) {
	const plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: dev-shop}\n"
	in := input(t, plain, fstest.MapFS{"manifests/web.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")}})
	in.Served = nil
	for _, rewrite := range []func(Input) (Result, error){Flux, func(in Input) (Result, error) { return Argo(in, "argocd") }} {
		res, err := rewrite(in)
		require.NoError(t, err)
		require.Empty(t, res.Changes)
		require.Equal(t, []string{"Namespace/dev-shop", "ConfigMap/web"}, []string{subject(res.Objects[0]), subject(res.Objects[1])})
	}
}

const release = `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: dev-shop}
spec:
  interval: 5m
  chart: {spec: {chart: podinfo, version: 6.x, sourceRef: {kind: HelmRepository, name: charts}}}
  values: {replicas: 2}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: dev-shop}
spec: {interval: 5m, url: https://charts.example}
`

func TestAHelmReleaseTakesItsChartFromTheEndpoint(t *testing.T) {
	res, err := Flux(input(t, release, fstest.MapFS{"charts/podinfo-6.7.1.tgz": {}}))
	require.NoError(t, err)
	require.Equal(t, `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: web
  namespace: dev-shop
spec:
  chartRef:
    kind: OCIRepository
    name: shop-dev-podinfo-6.7.1
    namespace: dev-shop
  interval: 5m
  values:
    replicas: 2
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata:
  annotations:
    wherry.dev/served: "true"
  name: shop-dev-podinfo-6.7.1
  namespace: dev-shop
spec:
  certSecretRef:
    name: wherry-serve-ca
  interval: 10m
  layerSelector:
    mediaType: application/vnd.cncf.helm.chart.content.v1.tar+gzip
    operation: copy
  ref:
    digest: `+chart.String()+`
  url: oci://10.0.0.1:5001/default/assignments/shop-dev
`, print(t, res.Objects))
	require.Contains(t, lines(res.Changes), "HelmRelease/dev-shop/web: spec.chartRef becomes OCIRepository shop-dev-podinfo-6.7.1 (was chart podinfo 6.x)")
	require.Contains(t, lines(res.Changes), "HelmRepository/dev-shop/charts is dropped")
}

// A HelmRelease among the embedded manifests is rewritten in the artifact, and takes its chart from the namespace of the
// Kustomization that brings it.
func TestAHelmReleaseInTheArtifactTakesItsChartFromTheEndpoint(t *testing.T) {
	files := fstest.MapFS{
		"reconciler.yaml":            {Data: []byte(arcFlux)},
		"charts/podinfo-6.7.1.tgz":   {},
		"manifests/web/release.yaml": {Data: []byte("# ours\n" + release)},
		"manifests/other.yaml":       {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")},
	}
	in := input(t, arcFlux, files)
	changed, err := Manifests(in.Assignment, files)
	require.NoError(t, err)
	require.Len(t, changed, 1, "other files stay as they are")
	require.Equal(t, `apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: web
  namespace: dev-shop
spec:
  chartRef:
    kind: OCIRepository
    name: shop-dev-podinfo-6.7.1
    namespace: flux-system
  interval: 5m
  values:
    replicas: 2
`, string(changed["web/release.yaml"]))

	res, err := Flux(in)
	require.NoError(t, err)
	require.Equal(t, "OCIRepository/flux-system/shop-dev-podinfo-6.7.1", subject(res.Objects[2]))

	delete(files, "charts/podinfo-6.7.1.tgz")
	changed, err = Manifests(in.Assignment, files)
	require.NoError(t, err)
	require.Empty(t, changed)
}

func TestTheChartOfAReleaseIsFoundByNameAndVersion(t *testing.T) {
	h := &helm{assignment: "shop", charts: []string{"web-1.0.0.tgz", "web-2.0.0.tgz", "web-ui-v0.1.0.tgz"}}
	for _, tc := range []struct{ name, version, want, wrong string }{
		{"web", "1.0.0", "web-1.0.0.tgz", ""},
		{"web", "v2.0.0", "web-2.0.0.tgz", ""},
		{"web-ui", ">=0.1", "web-ui-v0.1.0.tgz", ""},
		{"web", "2.x", "", "2 versions of chart"},
		{"ui", "", "", "is not among the embedded ones"},
	} {
		got, err := h.match(tc.name, tc.version, true)
		if tc.wrong != "" {
			require.ErrorContains(t, err, tc.wrong)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.want, got)
	}
	one := &helm{charts: []string{"shop-web-1.0.0+a.tgz"}}
	for _, name := range []string{"web", "shop-web"} {
		got, err := one.match(name, "v1.0.0_a", false)
		require.NoError(t, err)
		require.Equal(t, one.charts[0], got)
	}
	_, err := one.match("web", "", true)
	require.Error(t, err)
	long := &helm{assignment: strings.Repeat("a", 60)}
	require.LessOrEqual(t, len(long.name("web-1.0.0.tgz")), maxName)
	require.NotEqual(t, long.name("web-1.0.0.tgz"), long.name("web-1.0.1.tgz"))
	require.Equal(t, "shop-web-1.0.0-build.1", h.name("web-1.0.0+build.1.tgz"))
}

const application = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  project: shops
  source:
    repoURL: https://user:secret@git.example/shop
    targetRevision: main
    path: deploy
    directory: {include: "*.yaml"}
    helm: {values: "a: 1"}
    kustomize: {namePrefix: a-}
    plugin: {name: x}
  destination: {server: https://kubernetes.default.svc, namespace: dev-shop}
  syncPolicy: {automated: {prune: true}}
`

func TestTheSourceOfAnApplicationBecomesTheEndpoint(t *testing.T) {
	res, err := Argo(input(t, application, nil), "argocd")
	require.NoError(t, err)
	require.Equal(t, `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  annotations:
    wherry.dev/served: "true"
  name: shop
spec:
  destination:
    namespace: dev-shop
    server: https://kubernetes.default.svc
  project: shops
  source:
    directory:
      include: '*.yaml'
      recurse: true
    path: .
    repoURL: oci://10.0.0.1:5001/default/assignments/shop-dev
    targetRevision: `+sum.String()+`
  syncPolicy:
    automated:
      prune: true
`, print(t, res.Objects))
	require.Equal(t, []string{
		"Application/shop: spec.source.directory.recurse becomes true",
		"Application/shop: spec.source.repoURL becomes oci://10.0.0.1:5001/default/assignments/shop-dev (was https://git.example/shop)",
		"Application/shop: spec.source.targetRevision becomes " + sum.String() + " (was main)",
		"Application/shop: spec.source.path becomes . (was deploy)",
		"Application/shop: spec.source.helm is dropped",
		"Application/shop: spec.source.kustomize is dropped",
		"Application/shop: spec.source.plugin is dropped",
		"Secret/argocd/wherry-serve becomes the agent's own, with the address of its endpoint",
		"ConfigMap/argocd/argocd-tls-certs-cm becomes the key 10.0.0.1, with the CA of the agent's endpoint",
	}, lines(res.Changes))
	require.True(t, res.Shared[1].Joins)
	require.Equal(t, map[string]any{"10.0.0.1": "certificate"}, res.Shared[1].Object["data"])
}

func TestSeveralSourcesBecomeOne(t *testing.T) {
	const sources = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  sources:
  - {repoURL: https://charts.example, chart: web, targetRevision: 1.2.3, helm: {valueFiles: [$values/web.yaml]}}
  - {repoURL: https://git.example/values, targetRevision: main, ref: values}
`
	res, err := Argo(input(t, sources, nil), "argocd")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"source": map[string]any{
		"repoURL": "oci://10.0.0.1:5001/default/assignments/shop-dev", "targetRevision": sum.String(), "path": ".", "directory": map[string]any{"recurse": true},
	}}, res.Objects[0].Object["spec"])
	require.Contains(t, lines(res.Changes), "Application/shop: spec.sources is dropped")
}

func TestWhatArgoCannotTakeFromTheEndpointFails(t *testing.T) {
	in := input(t, application, nil)
	in.Served = nil
	_, err := Argo(in, "argocd")
	require.Equal(t, NoEndpoint, reconcilers.Known(err).Reason)
	require.Equal(t, reconcilers.FaultSite, reconcilers.Known(err).Fault)

	_, err = Argo(input(t, application+"---\n"+strings.NewReplacer("name: shop}", "name: two}", "git.example/shop", "git.example/two").Replace(application), nil), "argocd")
	require.ErrorContains(t, err, "two repositories, https://git.example/shop and https://git.example/two")

	_, err = Argo(input(t, strings.Replace(application, "kind: Application", "kind: ApplicationSet", 1), nil), "argocd")
	require.ErrorContains(t, err, "have the template write the Application itself")
}

func TestSourceReposPermitByArgoCDsRules(t *testing.T) {
	const repository = "oci://10.0.0.1:5001/default/assignments/shop-dev"
	for _, tc := range []struct {
		patterns []string
		want     bool
	}{
		{nil, false},
		{[]string{"*"}, true},
		{[]string{"https://git.example/*"}, false},
		{[]string{"oci://10.0.0.1:5001/*"}, false},
		{[]string{"oci://10.0.0.1:5001/**"}, true},
		{[]string{"oci://10.0.0.1:5001/default/assignments/*"}, true},
		{[]string{repository}, true},
		{[]string{"*", "!oci://10.0.0.1:5001/**"}, false},
	} {
		require.Equal(t, tc.want, Permits(tc.patterns, repository), tc.patterns)
	}
}

// The pages of docs/engines say which fields change.
func TestWhatIsRewrittenIsDocumented(t *testing.T) {
	section := func(name string) string {
		page, err := os.ReadFile("../../docs/engines/" + name + ".md")
		require.NoError(t, err)
		_, rest, found := strings.Cut(string(page), "\n## Embedded content\n")
		require.True(t, found)
		rest, _, _ = strings.Cut(rest, "\n## ")
		return rest
	}
	flux, err := Flux(input(t, arcFlux+"---\n"+release, fstest.MapFS{"charts/podinfo-6.7.1.tgz": {}}))
	require.NoError(t, err)
	argo, err := Argo(input(t, application, nil), "argocd")
	require.NoError(t, err)
	for name, changes := range map[string][]Change{"flux": flux.Changes, "argo-cd": argo.Changes} {
		text := section(name)
		for _, c := range changes {
			kind, _, _ := strings.Cut(c.Object, "/")
			require.Contains(t, text, kind, c)
			for _, field := range strings.Split(strings.TrimPrefix(c.Field, "spec."), ".") {
				if field != "kind" && field != "source" && field != "name" && field != "digest" {
					require.Contains(t, text, field, c)
				}
			}
		}
	}
}
