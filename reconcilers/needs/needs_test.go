package needs

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// An assignment that an engine takes from the agent's endpoint needs the objects that the adapter applies, and not those that
// the engine does.
func TestEmbeddedAssignmentsNeedWhatIsAppliedForThem(t *testing.T) {
	const pointer = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: shop, namespace: flux-system}
spec: {url: "https://git.example/shop"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: flux-system}
spec: {sourceRef: {kind: GitRepository, name: shop}, path: ./live}
`
	const application = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: web}\nspec: {source: {repoURL: https://git.example/web}}\n"
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n"
	list, err := bundle.MarshalAssignments([]bundle.Assignment{
		{Name: "files", Adapter: "kubernetes", Delivery: bundle.Embedded, Content: bundle.ContentDigest(nil)},
		{Name: "plain", Adapter: "flux", Delivery: bundle.Embedded, Content: bundle.ContentDigest(nil)},
		{Name: "shop", Adapter: "flux", Delivery: bundle.Embedded, Content: bundle.ContentDigest(nil)},
		{Name: "web", Adapter: "argo", Delivery: bundle.Embedded, Content: bundle.ContentDigest(nil)},
	})
	require.NoError(t, err)
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range []bundle.File{
		{Path: bundle.AssignmentsPath, Data: list},
		{Path: "files/manifests/web.yaml", Data: []byte(deployment)},
		{Path: "plain/manifests/web.yaml", Data: []byte(deployment)},
		{Path: "shop/reconciler.yaml", Data: []byte(pointer)},
		{Path: "shop/manifests/web.yaml", Data: []byte(deployment)},
		{Path: "shop/charts/podinfo-6.7.1.tgz", Data: []byte("chart")},
		{Path: "web/reconciler.yaml", Data: []byte(application)},
		{Path: "web/manifests/web.yaml", Data: []byte(deployment)},
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f.Path, Mode: 0o644, Size: int64(len(f.Data))}))
		_, err := w.Write(f.Data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	n := New()
	require.NoError(t, n.readTree(tar.NewReader(&packed)))
	kinds := func(objects []Object) (names []string) {
		for _, o := range objects {
			names = append(names, o.Kind.Kind+"/"+o.Namespace)
		}
		return names
	}
	require.Equal(t, []string{"Deployment/shop"}, kinds(n.Objects["files"]))
	require.Equal(t, []string{"Deployment/shop"}, kinds(n.Objects["plain"]), "no Kustomization fetches them")
	require.Equal(t, []string{"OCIRepository/flux-system", "Kustomization/flux-system"}, kinds(n.Objects["shop"]))
	require.Equal(t, []string{"Deployment/shop"}, kinds(n.Followed["shop"]))
	require.Equal(t, []string{"Application/"}, kinds(n.Objects["web"]))
	require.Empty(t, n.Followed["web"])
	require.Len(t, n.Shared["shop"], 1)
	require.Equal(t, "wherry-serve-ca", n.Shared["shop"][0].Name)
	require.Equal(t, "flux-system", n.Shared["shop"][0].Namespace)
	require.Equal(t, "wherry-serve", n.Shared["web"][0].Name)
	require.Equal(t, "argocd-tls-certs-cm", n.Shared["web"][1].Name)
	require.Empty(t, n.Shared["web"][1].Namespace, "Argo CD's own, which the agent's settings name")
}
