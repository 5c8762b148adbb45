package zarf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/doubles/zarftest"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

func prebuilt(ref string) map[string]string {
	return map[string]string{"reconciler.yaml": "apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: '" + ref + "'}\n"}
}

// blobs lists the blobs of a layout, the largest last.
func blobs(t *testing.T, layout string) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(layout, "blobs", "sha256"))
	require.NoError(t, err)
	for _, e := range entries {
		paths = append(paths, filepath.Join(layout, "blobs", "sha256", e.Name()))
	}
	return paths
}

// holding returns the blob that contains some text.
func holding(t *testing.T, layout, text string) string {
	t.Helper()
	for _, path := range blobs(t, layout) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.HasPrefix(string(data), text) {
			return path
		}
	}
	require.Fail(t, "no blob begins with "+text)
	return ""
}

func TestACarriedPackageIsDeployedWithoutItsRegistry(t *testing.T) {
	private, public := keys(t)
	store := t.TempDir()
	s := newSite(t)
	inDefault := but(shop, "reconciler.yaml", "namespace: $NS, ", "")
	ref := s.program.Carry(t, store, inDefault, private, "secret")
	a := s.Assign(t, "shop-live", prebuilt(ref))

	s.reopen(t, func(o *zarf.Options) { o.Keys = []string{public} })
	res := zarftest.Settle(t, s.r, a, true)
	require.Equal(t, bundle.Failed, res.State, "its registry is gone, and there is no store")

	other := filepath.Join(s.Dir, "signing", "cosign.pub")
	s.reopen(t, func(o *zarf.Options) { o.Store = store })
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.VerificationError, "give one with --zarf-key")
	s.reopen(t, func(o *zarf.Options) { o.Store, o.Keys = store, []string{other} })
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Failed, zarf.VerificationError, ref, "signature verification failed")
	unsigned := s.program.Carry(t, store, inDefault, "", "")
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", prebuilt(unsigned)), true), bundle.Failed, zarf.VerificationError, "the package is not signed")
	require.Zero(t, s.calls(t, "package deploy"))

	before := blobs(t, store)
	s.reopen(t, func(o *zarf.Options) { o.Store, o.Keys = store, []string{other, public} })
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Compliant, "")
	require.Equal(t, 1, s.calls(t, "package deploy oci://127.0.0.1:"))
	require.NoDirExists(t, filepath.Join(s.Dir, "assignments", "shop-live", "mounted"), "its copy of the cache and the password are gone")
	require.Equal(t, before, blobs(t, store))

	require.NoError(t, os.RemoveAll(store), "neither a look nor the removal needs it")
	requireResult(t, s.r.Observe(t.Context(), a), bundle.Compliant, "")
	requireResult(t, zarftest.Gone(t, s.r, a.Name), bundle.Removed, "")
}

func TestWhatTheStoreHasOnlyInPartComesFromTheRegistry(t *testing.T) {
	private, public := keys(t)
	store := t.TempDir()
	s := newSite(t)
	inDefault := but(shop, "reconciler.yaml", "namespace: $NS, ", "")
	ref := s.program.Carry(t, store, inDefault, private, "secret")
	s.reopen(t, func(o *zarf.Options) { o.Store, o.Keys = store, []string{public} })
	a := s.Assign(t, "shop-live", prebuilt(ref))

	part := holding(t, store, "apiVersion: v1")
	whole, err := os.ReadFile(part)
	require.NoError(t, err)
	for name, damage := range map[string]func() error{
		"a missing part": func() error { return os.Remove(part) },
		"a short part":   func() error { return os.WriteFile(part, whole[:10], 0o600) },
	} {
		require.NoError(t, damage(), name)
		require.Equal(t, bundle.Failed, zarftest.Settle(t, s.r, a, true).State, name)
		require.Zero(t, s.calls(t, "package inspect definition oci://127.0.0.1:"), name)
	}

	flipped := append([]byte(nil), whole...)
	flipped[0] ^= 1
	require.NoError(t, os.WriteFile(part, flipped, 0o600))
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Failed, zarf.DeployFailed, "mismatched digest")
	require.Nil(t, s.ConfigMap(t, "menu"))

	require.NoError(t, os.WriteFile(part, whole, 0o600))
	requireResult(t, zarftest.Settle(t, s.r, a, false), bundle.Compliant, "")
}

func TestACarriedPackageWithoutAClusterIsRemovedWithoutTheStore(t *testing.T) {
	private, public := keys(t)
	s := newSite(t)
	store, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	ref := s.program.Carry(t, store, map[string]string{"reconciler.yaml": "kind: ZarfPackageConfig\nmetadata: {name: tools}\ncomponents:\n- name: mark\n  required: true\n" +
		"  actions: {onDeploy: {before: [{cmd: 'echo yes > " + mark + "'}]}, onRemove: {before: [{cmd: 'rm " + mark + "'}]}}\n"}, private, "secret")
	other := filepath.Join(s.Dir, "signing", "cosign.pub")
	r, err := zarf.New(nil, zarf.Options{Program: s.program.Path, Dir: t.TempDir(), Store: store, Keys: []string{other, public}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	a := s.Assign(t, "tools", prebuilt(ref))
	requireResult(t, zarftest.Settle(t, r, a, true), bundle.Compliant, "")
	require.FileExists(t, mark)
	require.NoError(t, os.RemoveAll(store))
	requireResult(t, zarftest.Gone(t, r, a.Name), bundle.Removed, "")
	require.NoFileExists(t, mark)
	require.Equal(t, reconcilers.Result{State: bundle.Removed}, r.Remove(t.Context(), a))
}
