//go:build e2e && zarf

package zarf_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/doubles/zarftest"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// The stand-in shows the same without a real zarf; see TestACarriedPackageIsDeployedWithoutItsRegistry.
func TestARealZarfDeploysACarriedPackageWithoutItsRegistry(t *testing.T) {
	program := os.Getenv(realZarf)
	require.NotEmpty(t, program, realZarf+` has to name a zarf, as "make e2e-zarf" does`)
	provide(t)
	s := zarftest.NewEngine(t, program, cluster.Kubeconfig)
	private, public := keys(t)
	store, model := t.TempDir(), filepath.Join(t.TempDir(), "model.bin")
	ref := publishAndCarry(t, program, private, store, map[string]string{
		"zarf.yaml": `kind: ZarfPackageConfig
metadata: {name: shop, version: 1.0.0}
components:
- name: menu
  required: true
  manifests:
  - {name: menu, namespace: ` + s.Name + `, files: [menu.yaml]}
- name: model
  required: true
  files:
  - {source: model.bin, target: ` + model + `}
`,
		"menu.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: menu}\ndata: {tea: \"2\"}\n",
		"model.bin": "\x7fELF" + strings.Repeat("\x00\xff", 4<<20), // no text: zarf looks for variables in texts, line by line
	})
	a := s.Assign(t, "shop-live", prebuilt(ref))
	open := func(keys ...string) *zarf.Reconciler {
		r, err := zarf.New(s.Config, zarf.Options{Program: program, Dir: s.Dir, Store: store, Keys: keys})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		return r
	}
	settle := func(r *zarf.Reconciler, once bool) reconcilers.Result {
		res := r.Apply(t.Context(), a)
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && (res.State == bundle.Progressing || !once && res.State == bundle.Pending); time.Sleep(100 * time.Millisecond) {
			if res = r.Observe(t.Context(), a); res.State == bundle.Pending {
				res = r.Apply(t.Context(), a)
			}
		}
		return res
	}
	t.Cleanup(func() {
		if said, err := os.ReadFile(filepath.Join(s.Dir, "assignments", "shop-live", "program.log")); err == nil && t.Failed() {
			t.Logf("zarf said last:\n%s", said)
		}
	})
	other := filepath.Join(s.Dir, "signing", "cosign.pub")
	requireResult(t, settle(open(other), true), bundle.Failed, zarf.VerificationError, "signature verification failed")
	r := open(other, public)
	requireResult(t, settle(r, false), bundle.Compliant, "")
	require.Equal(t, "2", s.ConfigMap(t, "menu").Data["tea"])
	require.FileExists(t, model)
	for _, dir := range []string{"mounted", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(s.Dir, "assignments", "shop-live", dir))
		require.True(t, err != nil || len(entries) == 0, "%s: %v", dir, entries)
	}
	entries, _ := os.ReadDir(filepath.Join(s.Dir, "cache", "images", "blobs", "sha256"))
	require.Empty(t, entries, "the cache of all assignments has no copy")
	requireResult(t, zarftest.Gone(t, r, a.Name), bundle.Removed, "")
	require.Nil(t, s.ConfigMap(t, "menu"))
}

func TestARealZarfRemovesACarriedPackageOfFilesWithoutTheStore(t *testing.T) {
	program := os.Getenv(realZarf)
	require.NotEmpty(t, program, realZarf+` has to name a zarf, as "make e2e-zarf" does`)
	s := zarftest.NewEngine(t, program, cluster.Kubeconfig)
	private, public := keys(t)
	store, mark := t.TempDir(), filepath.Join(t.TempDir(), "mark")
	ref := publishAndCarry(t, program, private, store, map[string]string{"zarf.yaml": `kind: ZarfPackageConfig
metadata: {name: shop, version: 1.0.0}
components:
- name: mark
  required: true
  actions: {onDeploy: {before: [{cmd: 'echo yes > ` + mark + `'}]}, onRemove: {before: [{cmd: 'rm ` + mark + `'}]}}
`})
	r, err := zarf.New(nil, zarf.Options{Program: program, Dir: t.TempDir(), Store: store, Keys: []string{filepath.Join(s.Dir, "signing", "cosign.pub"), public}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	a := s.Assign(t, "tools", prebuilt(ref))
	requireResult(t, zarftest.Settle(t, r, a, true), bundle.Compliant, "")
	require.FileExists(t, mark)
	require.NoError(t, os.RemoveAll(store))
	requireResult(t, zarftest.Gone(t, r, a.Name), bundle.Removed, "")
	require.NoFileExists(t, mark)
}

// publishAndCarry makes and publishes a package, brings it to a store as an agent does, and ends its registry.
func publishAndCarry(t *testing.T, program, private, store string, files map[string]string) (ref string) {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for path, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644))
	}
	run := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), program, append(args, "--no-color", "--tmpdir", t.TempDir(), "--cache", t.TempDir())...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "ZARF_PACKAGE_CREATE_SIGNING_KEY_PASSWORD=secret")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	run("package", "create", dir, "--confirm", "--skip-sbom", "-o", out, "--signing-key", private)
	made, err := filepath.Glob(filepath.Join(out, "zarf-package-*"))
	require.NoError(t, err)
	require.Len(t, made, 1)
	registry, err := harness.StartRegistry(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, registry.Stop()) }()
	run("package", "publish", made[0], "oci://"+registry.Prefix+"/packages", "--plain-http", "--confirm")

	location, err := oci.Parse("oci://" + registry.Prefix)
	require.NoError(t, err)
	from, err := location.Open(oci.Options{})
	require.NoError(t, err)
	repo, err := from.Repository("packages/shop")
	require.NoError(t, err)
	root, err := repo.Resolve(t.Context(), "1.0.0")
	require.NoError(t, err)
	to, err := oci.NewLayout(store).Repository("carried")
	require.NoError(t, err)
	_, err = oci.Copy(context.WithoutCancel(t.Context()), repo, to, root)
	require.NoError(t, err)
	return "oci://" + registry.Prefix + "/packages/shop:1.0.0@" + root.Digest.String()
}
