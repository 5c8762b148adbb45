package zarf_test

import (
	"crypto/elliptic"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/doubles/zarftest"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/zarf"
)

// site is a stand-in, a small API server, and a reconciler for both. A test with one runs beside others.
type site struct {
	*zarftest.Engine
	program zarftest.Program
	r       *zarf.Reconciler
}

func newSite(t *testing.T, change ...func(*zarf.Options)) *site {
	t.Helper()
	t.Parallel()
	p := zarftest.NewProgram(t)
	s := &site{Engine: zarftest.NewEngine(t, p.Path, zarftest.StartAPIServer(t)), program: p}
	s.reopen(t, change...)
	return s
}

// reopen is a restart of the agent.
func (s *site) reopen(t *testing.T, change ...func(*zarf.Options)) {
	t.Helper()
	opts := zarf.Options{Program: s.program.Path, Dir: s.Dir}
	for _, f := range change {
		f(&opts)
	}
	r, err := zarf.New(s.Config, opts)
	require.NoError(t, err)
	s.r = r
	t.Cleanup(func() { require.NoError(t, r.Close()) })
}

// shop is a package of two ConfigMaps.
var shop = map[string]string{
	"reconciler.yaml": `kind: ZarfPackageConfig
metadata: {name: shop}
components:
- name: menu
  required: true
  manifests:
  - {name: menu, namespace: $NS, files: [menu.yaml, hours.yaml]}
`,
	"menu.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: menu}\ndata: {tea: \"2\"}\n",
	"hours.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hours}\ndata: {open: \"8\"}\n",
}

// but returns files with one of them changed.
func but(files map[string]string, path, old, next string) map[string]string {
	out := map[string]string{}
	for p, text := range files {
		out[p] = text
	}
	out[path] = strings.Replace(out[path], old, next, 1)
	return out
}

func requireResult(t *testing.T, res reconcilers.Result, state bundle.State, reason string, words ...string) {
	t.Helper()
	require.Equal(t, state, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
	for _, w := range words {
		require.Contains(t, res.Message, w)
	}
}

func (s *site) calls(t *testing.T, verb string) (n int) {
	t.Helper()
	for _, call := range s.program.Calls(t) {
		if strings.HasPrefix(call, verb) {
			n++
		}
	}
	return n
}

func TestTheProgramIsMissingOrTooOld(t *testing.T) {
	s := newSite(t, func(o *zarf.Options) { o.Program = "/nowhere/zarf" })
	a := s.Assign(t, "shop-live", shop)
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.ZarfNotFound, "/nowhere/zarf cannot be run", "install zarf 0.81.0 or newer, and name it with --zarf")

	s.reopen(t)
	s.program.Order(t, zarftest.Version, "v0.70.1")
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.ZarfTooOld, "is zarf v0.70.1: install 0.81.0 or newer")
	require.Zero(t, s.calls(t, "package"))

	s.reopen(t)
	s.program.Order(t, zarftest.Version, "unset-development-only")
	requireResult(t, zarftest.Settle(t, s.r, a, false), bundle.Compliant, "")
}

func TestWhatZarfWouldWaitForInVainIsSaidAtOnce(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", shop)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	require.NoError(t, s.Client.Delete(t.Context(), pod))
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Pending, zarf.NoNodeOrPod, "no pod of the cluster is Running or Succeeded", "start any pod")
	require.NoError(t, s.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}))
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Pending, zarf.NoNodeOrPod, "the cluster has no node", "let a node join")
	require.Zero(t, s.calls(t, "package"))
}

func TestANamespaceThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	s := newSite(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace()}}
	require.NoError(t, s.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	ns.Finalizers = []string{"example.com/busy"}
	require.NoError(t, s.Update(t.Context(), ns))
	require.NoError(t, s.Client.Delete(t.Context(), ns))
	requireResult(t, s.r.Apply(t.Context(), s.Assign(t, "shop-live", shop)), bundle.Pending, zarf.NamespaceTerminating, "namespace "+s.Namespace()+" is being deleted")
	require.Zero(t, s.calls(t, "package"))
}

func TestImagesNeedAClusterThatIsInitialized(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", but(shop, "reconciler.yaml", "  manifests:", "  images: [nginx:1.29]\n  manifests:"))
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.NotInitialized, `run "zarf init" on it`)

	require.NoError(t, s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "zarf"}}))
	require.NoError(t, s.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "zarf", Name: "zarf-state"}}))
	requireResult(t, zarftest.Settle(t, s.r, a, false), bundle.Compliant, "")
	last := s.program.Calls(t)
	require.NotContains(t, last[len(last)-1], "--connected", "images are to be mirrored")
}

func TestTheAPIServerIsGone(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", shop)
	s.Config.Host = "http://127.0.0.1:1"
	s.reopen(t)
	for _, res := range []reconcilers.Result{s.r.Apply(t.Context(), a), s.r.Observe(t.Context(), a), zarftest.Gone(t, s.r, a.Name)} {
		requireResult(t, res, bundle.Pending, zarf.APIServerUnreachable)
	}
}

// The agent's own view of the API server ends while zarf is at work, and so does zarf's.
func TestTheAPIServerGoesHalfWay(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", but(shop, "menu.yaml", "kind: ConfigMap", "kind: Gadget"))
	res := zarftest.Settle(t, s.r, a, true)
	requireResult(t, res, bundle.Failed, zarf.DeployFailed, `no matches for kind "Gadget"`)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	stalled := s.Assign(t, "shop-live", shop)
	_, finish := s.Stall(t, s.Engine.Assign(t, "other", map[string]string{"reconciler.yaml": "  manifests:\n"}))
	defer finish()
	s.program.Order(t, zarftest.Hang, "")
	res = s.r.Apply(t.Context(), stalled)
	require.Equal(t, bundle.Progressing, res.State)
	require.Eventually(t, func() bool { return s.ConfigMap(t, "menu") != nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.Client.Delete(t.Context(), pod))
	require.NoError(t, s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "hours"}}))
	s.program.Countermand(t, zarftest.Hang)
	for res.State == bundle.Progressing {
		res = s.r.Observe(t.Context(), stalled)
	}
	requireResult(t, res, bundle.Pending, zarf.NoNodeOrPod, "zarf exited with 1")
}

func TestAHungZarfIsKilledAtTheDeadline(t *testing.T) {
	s := newSite(t)
	s.program.Order(t, zarftest.Hang, "")
	for deadline := time.Second; ; deadline *= 2 { // until it hangs before
		s.reopen(t, func(o *zarf.Options) { o.Deadline = deadline })
		res := zarftest.Settle(t, s.r, s.Assign(t, "shop-live", shop), true)
		require.Zero(t, s.Running(t))
		if s.ConfigMap(t, "menu") != nil {
			requireResult(t, res, bundle.Failed, zarf.DeadlineExceeded, fmt.Sprintf("zarf package deploy did not end within %s", deadline), "it said last: ")
			return
		}
		require.Less(t, deadline, 5*time.Minute)
	}
}

func TestAReleaseThatHelmWasCutOffAtIsClearedUp(t *testing.T) {
	s := newSite(t)
	first := s.Assign(t, "shop-live", shop)
	s.program.Order(t, zarftest.Die, "")
	requireResult(t, zarftest.Settle(t, s.r, first, true), bundle.Failed, zarf.DeployFailed, "was ended by a signal")
	require.Equal(t, "pending-install", s.newest(t))
	requireResult(t, s.r.Observe(t.Context(), first), bundle.Failed, zarf.DeployFailed)
	requireResult(t, zarftest.Settle(t, s.r, first, true), bundle.Compliant, "")
	require.Equal(t, "deployed", s.newest(t))

	second := s.Assign(t, "shop-live", but(shop, "menu.yaml", "2", "3"))
	s.program.Order(t, zarftest.Die, "")
	requireResult(t, zarftest.Settle(t, s.r, second, true), bundle.Failed, zarf.DeployFailed)
	require.Equal(t, "pending-upgrade", s.newest(t))
	before := s.calls(t, "package deploy")
	requireResult(t, zarftest.Settle(t, s.r, second, true), bundle.Compliant, "")
	require.Equal(t, 1, s.calls(t, "package deploy")-before)
	require.Equal(t, "3", s.ConfigMap(t, "menu").Data["tea"])
}

// Helm prunes by the revision that was deployed last, and removes the newest: what a revision that was cut
// off between the two has is nothing to it.
func TestWhatACutOffUpgradeHadBroughtGoes(t *testing.T) {
	s := newSite(t)
	with := func(name string) reconcilers.Assignment {
		files := but(shop, "reconciler.yaml", "files: [", "files: ["+name+".yaml, ")
		files[name+".yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
		return s.Assign(t, "shop-live", files)
	}
	cutOff := func(name string) {
		s.program.Order(t, zarftest.Hang, "")
		require.Equal(t, bundle.Progressing, s.r.Apply(t.Context(), with(name)).State)
		require.Eventually(t, func() bool { return s.ConfigMap(t, name) != nil }, time.Minute, 10*time.Millisecond)
		require.NoError(t, s.r.Close())
		require.Equal(t, "failed", s.newest(t))
		s.program.Countermand(t, zarftest.Hang)
		s.reopen(t)
	}
	requireResult(t, zarftest.Settle(t, s.r, with("first"), true), bundle.Compliant, "")
	cutOff("second")
	requireResult(t, zarftest.Settle(t, s.r, with("third"), false), bundle.Compliant, "")
	require.Nil(t, s.ConfigMap(t, "second"))
	require.NotNil(t, s.ConfigMap(t, "third"))
	requireResult(t, zarftest.Settle(t, s.r, with("second"), true), bundle.Compliant, "")
	require.NotNil(t, s.ConfigMap(t, "second"), "which a revision that failed holds too")

	s.program.Order(t, zarftest.DieLast, "")
	requireResult(t, zarftest.Settle(t, s.r, with("third"), true), bundle.Failed, zarf.DeployFailed)
	require.Equal(t, "pending-upgrade", s.newest(t))
	requireResult(t, zarftest.Settle(t, s.r, with("second"), true), bundle.Compliant, "")
	require.Nil(t, s.ConfigMap(t, "third"), "which came with the revision that Helm was cut off at")

	cutOff("fourth")
	requireResult(t, zarftest.Gone(t, s.r, "shop-live"), bundle.Removed, "")
	require.Nil(t, s.ConfigMap(t, "fourth"))
	require.Nil(t, s.ConfigMap(t, "second"))
}

// newest is the status of the newest revision.
func (s *site) newest(t *testing.T) string {
	t.Helper()
	list := &corev1.SecretList{}
	require.NoError(t, s.List(t.Context(), list, client.InNamespace(s.Namespace()), client.MatchingLabels{"owner": "helm"}))
	status, newest := "", ""
	for _, secret := range list.Items {
		if v := secret.Labels["version"]; len(v) > len(newest) || len(v) == len(newest) && v > newest {
			status, newest = secret.Labels["status"], v
		}
	}
	return status
}

func TestWhatACutOffInstallHasLeftIsRemoved(t *testing.T) {
	s := newSite(t)
	s.program.Order(t, zarftest.Die, "")
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", shop), true), bundle.Failed, zarf.DeployFailed)
	require.NotNil(t, s.ConfigMap(t, "menu"))
	requireResult(t, zarftest.Gone(t, s.r, "shop-live"), bundle.Removed, "")
	require.Nil(t, s.ConfigMap(t, "menu"))
	require.Empty(t, s.newest(t))
}

func TestNothingIsTakenFromAnybodyElse(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", shop)
	require.NoError(t, s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "menu"}}))
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Failed, zarf.Conflict, "invalid ownership metadata")
	require.NoError(t, s.Client.Delete(t.Context(), s.ConfigMap(t, "menu")))
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Compliant, "")

	requireResult(t, s.r.Apply(t.Context(), s.Assign(t, "shop-test", shop)), bundle.Failed, zarf.Conflict, "package shop is that of assignment shop-live")

	theirs := client.ApplyConfigurationFromUnstructured(object(s.Namespace(), "menu", "9"))
	require.NoError(t, s.Client.Apply(t.Context(), theirs, client.FieldOwner("till"), client.ForceOwnership))
	for _, res := range []reconcilers.Result{s.r.Observe(t.Context(), a), s.r.Apply(t.Context(), a)} {
		requireResult(t, res, bundle.Failed, zarf.Conflict, `ConfigMap/`+s.Namespace()+`/menu: .data.tea is managed by "till"`)
	}
	require.Equal(t, "9", s.ConfigMap(t, "menu").Data["tea"])
}

func TestNewerContentTakesBackWhatWasOverwrittenByHand(t *testing.T) {
	s := newSite(t)
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", shop), false), bundle.Compliant, "")
	menu := s.ConfigMap(t, "menu")
	menu.Data["tea"] = "7"
	require.NoError(t, s.Update(t.Context(), menu, client.FieldOwner("ann")))

	newer := s.Assign(t, "shop-live", but(shop, "menu.yaml", `"2"`, `"3"`))
	requireResult(t, zarftest.Settle(t, s.r, newer, false), bundle.Compliant, "")
	require.Equal(t, "3", s.ConfigMap(t, "menu").Data["tea"])

	theirs := client.ApplyConfigurationFromUnstructured(object(s.Namespace(), "menu", "9"))
	require.NoError(t, s.Client.Apply(t.Context(), theirs, client.FieldOwner("till"), client.ForceOwnership))
	newest := s.Assign(t, "shop-live", but(shop, "menu.yaml", `"2"`, `"4"`))
	requireResult(t, zarftest.Settle(t, s.r, newest, false), bundle.Failed, zarf.Conflict)
	require.Equal(t, "9", s.ConfigMap(t, "menu").Data["tea"])
}

func TestZarfSaysThatAllIsWellAndItIsNot(t *testing.T) {
	s := newSite(t)
	s.program.Order(t, zarftest.Idle, "")
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", shop), true), bundle.Failed, zarf.DeployFailed, "zarf exited with 0, but ZarfPackage/shop is missing")
}

func TestAnAgentThatEndsLeavesNothingRunningAndSaysSo(t *testing.T) {
	s := newSite(t)
	a := s.Assign(t, "shop-live", shop)
	require.Equal(t, bundle.Progressing, s.r.Apply(t.Context(), a).State)
	require.NoError(t, s.r.Close())
	require.Zero(t, s.Running(t))
	s.reopen(t)
	requireResult(t, s.r.Observe(t.Context(), a), bundle.Pending, reconcilers.ReasonInterrupted, "the agent ended while zarf deployed")
	requireResult(t, zarftest.Settle(t, s.r, a, false), bundle.Compliant, "")
}

func TestAWorkspaceThatIsConfinedIsNotDeployedWithTheAgentsRights(t *testing.T) {
	s := newSite(t, func(o *zarf.Options) { o.Impersonate = true })
	a := s.Assign(t, "shop-live", shop)
	a.Workspace = "coffee"
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.Forbidden, "confined to a ServiceAccount")
	a.Workspace, a.ServiceAccount = "", "shop/deployer"
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.Forbidden)
}

// keys makes a pair as "wherry keys generate" and cosign do.
func keys(t *testing.T) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	locked, open, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	require.NoError(t, err)
	private, public = filepath.Join(dir, "cosign.key"), filepath.Join(dir, "cosign.pub")
	require.NoError(t, os.WriteFile(private, locked, 0o600))
	require.NoError(t, os.WriteFile(public, open, 0o600))
	return private, public
}

func TestAPackageOfARegistryIsDeployedIfItsSignatureIsTrusted(t *testing.T) {
	private, public := keys(t)
	s := newSite(t)
	other := filepath.Join(s.Dir, "signing", "cosign.pub")
	inDefault := but(shop, "reconciler.yaml", "namespace: $NS, ", "")
	signed, unsigned := s.program.Publish(t, inDefault, private, "secret"), s.program.Publish(t, inDefault, "", "")
	assign := func(ref string) reconcilers.Assignment {
		return s.Assign(t, "shop-live", map[string]string{"reconciler.yaml": "apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: '" + ref + "'}\n"})
	}
	a := assign(signed)
	requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.VerificationError, "give one with --zarf-key")

	s.reopen(t, func(o *zarf.Options) { o.Keys = []string{other} })
	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Failed, zarf.VerificationError, "signature verification failed")
	s.reopen(t, func(o *zarf.Options) { o.Keys = []string{other, public} })
	requireResult(t, zarftest.Settle(t, s.r, assign(unsigned), true), bundle.Failed, zarf.VerificationError, "the package is not signed")
	require.Zero(t, s.calls(t, "package deploy"))

	requireResult(t, zarftest.Settle(t, s.r, a, true), bundle.Compliant, "")
	s.reopen(t)
	require.Empty(t, s.r.Apply(t.Context(), a).Changes)
	requireResult(t, s.r.Observe(t.Context(), a), bundle.Compliant, "")
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "assignments")))
	s.reopen(t, func(o *zarf.Options) { o.Keys = []string{public} })
	requireResult(t, zarftest.Settle(t, s.r, a, false), bundle.Compliant, "")
	requireResult(t, zarftest.Gone(t, s.r, a.Name), bundle.Removed, "")
	require.NotEmpty(t, s.calls(t, "package remove shop --confirm"))

	requireResult(t, s.r.Apply(t.Context(), assign("oci://registry.example/shop:1")), bundle.Failed, zarf.InvalidPackage, "expected a digest")
}

func TestWhatAPackageNoLongerHasIsRemoved(t *testing.T) {
	s := newSite(t)
	split := but(shop, "reconciler.yaml", "files: [menu.yaml, hours.yaml]}", "files: [menu.yaml]}\n- name: hours\n  required: true\n  manifests:\n  - {name: hours, namespace: $NS, files: [hours.yaml]}")
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", split), true), bundle.Compliant, "")
	require.NotNil(t, s.ConfigMap(t, "hours"))
	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", but(shop, "reconciler.yaml", ", hours.yaml", "")), true), bundle.Compliant, "")
	require.Nil(t, s.ConfigMap(t, "hours"), "a component that is gone")

	requireResult(t, zarftest.Settle(t, s.r, s.Assign(t, "shop-live", but(shop, "reconciler.yaml", "name: shop", "name: store")), true), bundle.Compliant, "")
	require.NotNil(t, s.ConfigMap(t, "menu"))
	require.Equal(t, 1, s.calls(t, "package remove shop --confirm --log"), "a package that has another name now")
}

func TestFilesAndActionsNeedNoCluster(t *testing.T) {
	s := newSite(t)
	mark := filepath.Join(t.TempDir(), "mark")
	dir := t.TempDir()
	r, err := zarf.New(nil, zarf.Options{Program: s.program.Path, Dir: dir})
	require.NoError(t, err)
	a := s.Assign(t, "tools", map[string]string{"reconciler.yaml": "kind: ZarfPackageConfig\nmetadata: {name: tools}\ncomponents:\n- name: mark\n  required: true\n" +
		"  actions: {onDeploy: {before: [{cmd: 'echo yes > " + mark + "'}]}, onRemove: {before: [{cmd: 'rm " + mark + "'}]}}\n"})
	requireResult(t, r.Observe(t.Context(), a), bundle.Pending, zarf.NotApplied)
	requireResult(t, zarftest.Settle(t, r, a, true), bundle.Compliant, "")
	require.FileExists(t, mark)
	require.FileExists(t, filepath.Join(dir, "signing", "cosign.pub"), "an agent's first package has it make a key")
	require.Empty(t, r.Apply(t.Context(), a).Changes)
	requireResult(t, zarftest.Gone(t, r, a.Name), bundle.Removed, "")
	require.NoFileExists(t, mark)
	requireResult(t, r.Apply(t.Context(), s.Assign(t, "shop-live", shop)), bundle.Failed, zarf.NoCluster, "give --kubeconfig")
}

func TestFilesThatAreNoPackage(t *testing.T) {
	s := newSite(t)
	for name, c := range map[string]struct{ file, words string }{
		"nothing of Zarf's":         {"kind: ConfigMap\n", "no file at the top of the assignment holds a ZarfPackageConfig"},
		"two packages":              {shop["reconciler.yaml"] + "---\n" + shop["reconciler.yaml"], "it holds two packages"},
		"a name that Zarf refuses":  {"kind: ZarfPackageConfig\nmetadata: {name: Shop}\n", `metadata.name "Shop"`},
		"nothing that is deployed":  {"kind: ZarfPackageConfig\nmetadata: {name: shop}\ncomponents: [{name: a}]\n", "no component that is required or default"},
		"a package from elsewhere":  {"apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: ./shop.tar.zst}\n", "is not oci://HOST/REPOSITORY[:TAG]@sha256:…"},
		"a package of another kind": {"kind: ZarfPackageConfig\nmetadata: [\n", "shop-live/reconciler.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.Assign(t, "shop-live", map[string]string{"reconciler.yaml": c.file})
			requireResult(t, s.r.Apply(t.Context(), a), bundle.Failed, zarf.InvalidPackage, c.words)
		})
	}
	require.Zero(t, s.calls(t, "package"))
}

func object(namespace, name, tea string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(namespace)
	u.SetName(name)
	u.Object["data"] = map[string]any{"tea": tea}
	return u
}
