//go:build e2e

package kubernetes_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// create creates objects, in somebody else's name.
func (s *site) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, s.Create(t.Context(), o))
	}
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

// account makes a ServiceAccount that may work with ConfigMaps in its namespace, and with nothing else.
func (s *site) account(t *testing.T, namespace, name string) *rbacv1.RoleBinding {
	t.Helper()
	account := types.NamespacedName{Namespace: namespace, Name: name}
	s.Account(t, account)
	return s.Allow(t, account, namespace, configMaps)
}

func (s *site) awaitRights(t *testing.T, namespace, name string, want bool) {
	t.Helper()
	s.AwaitRight(t, types.NamespacedName{Namespace: namespace, Name: name}, namespace, configMaps, want)
}

// of returns the assignment of a workspace, whose namespace is the site's unless another is given.
func (s *site) of(t *testing.T, account, manifests string) reconcilers.Assignment {
	a := s.assignment(t, "shop", manifests)
	a.Workspace, a.ServiceAccount = "retail", account
	if a.ServiceAccount != "" && !strings.Contains(account, "/") {
		a.ServiceAccount = s.Name + "/" + account
	}
	return a
}

func requireOutcome(t *testing.T, res reconcilers.Result, state bundle.State, reason string) {
	t.Helper()
	require.Equal(t, state, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
}

func TestAWorkspaceStaysInItsNamespace(t *testing.T) {
	s, other := newSite(t), newSite(t)
	s.account(t, s.Name, "wherry-retail")
	r, err := kubernetes.New(s.Config, s.ledger, kubernetes.Options{Impersonate: true})
	require.NoError(t, err)
	apply := func(manifests string) reconcilers.Result { return r.Apply(t.Context(), s.of(t, "", manifests)) }
	requireOutcome(t, apply(configMap("mine", "a", "1")), bundle.Compliant, "")

	theirs := strings.Replace(configMap("theirs", "a", "1"), "{name", "{namespace: "+other.Name+", name", 1)
	user := "system:serviceaccount:" + s.Name + ":wherry-retail"
	for _, call := range []func(string) reconcilers.Result{apply, func(manifests string) reconcilers.Result {
		return r.Observe(t.Context(), s.of(t, "", manifests))
	}} {
		res := call(configMap("mine", "a", "2") + theirs)
		requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
		require.Contains(t, res.Message, fmt.Sprintf(`User "%s" cannot get resource "configmaps" in API group "" in the namespace "%s"`, user, other.Name))
		require.Contains(t, res.Message, "if that is to be allowed, bind a Role to this user")
		require.Contains(t, res.Message, "wherry install agent")
	}
	require.Nil(t, s.read(t, "v1", "ConfigMap", other.Name, "theirs"))
	require.Equal(t, map[string]string{"a": "1"}, s.data(t, "mine"), "nothing of it is applied")

	secret := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {key: swordfish}\n"
	res := apply(secret)
	requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
	require.Contains(t, res.Message, `cannot get resource "secrets"`)
	require.NotContains(t, res.Message, "swordfish")

	requireOutcome(t, apply(configMap("mine", "a", "3")), bundle.Compliant, "")
	platforms := s.assignment(t, "shop", "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\n")
	requireOutcome(t, r.Apply(t.Context(), platforms), bundle.Compliant, "")
}

func TestANamespaceComesBeforeItsServiceAccount(t *testing.T) {
	s := newSite(t)
	home := s.Name + "-home"
	t.Cleanup(func() { s.forget("v1", "Namespace", home) })
	a := s.of(t, home+"/wherry-retail", "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"}\n"+configMap("mine", "a", "1"))
	a.Namespace = home
	requireOutcome(t, s.r.Observe(t.Context(), a), bundle.Pending, kubernetes.NotApplied)
	require.Nil(t, s.read(t, "v1", "Namespace", "", home))

	res := s.r.Apply(t.Context(), a)
	requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
	require.Contains(t, res.Message, "ServiceAccount wherry-retail of namespace "+home+", which does not exist")
	require.Contains(t, res.Message, "kubectl -n "+home+" create serviceaccount wherry-retail")
	require.NotNil(t, s.read(t, "v1", "Namespace", "", home), "so that somebody can put it there")

	binding := s.account(t, home, "wherry-retail")
	requireOutcome(t, s.r.Apply(t.Context(), a), bundle.Compliant, "")
	requireOutcome(t, s.r.Observe(t.Context(), a), bundle.Compliant, "")

	var gone reconcilers.Assignment
	gone.Name = "shop"
	require.NoError(t, s.Client.Delete(t.Context(), binding))
	s.awaitRights(t, home, "wherry-retail", false)
	res = s.r.Remove(t.Context(), gone)
	requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
	require.Contains(t, res.Message, "wherry-retail")
	require.NotNil(t, s.read(t, "v1", "ConfigMap", home, "mine"), "it is not removed with the agent's rights")

	s.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "again"}, RoleRef: binding.RoleRef, Subjects: binding.Subjects})
	s.awaitRights(t, home, "wherry-retail", true)
	res = s.r.Remove(t.Context(), gone)
	requireOutcome(t, res, bundle.Removed, kubernetes.NamespaceKept)
	require.Contains(t, res.Message, "ServiceAccount/"+home+"/wherry-retail")
	require.Nil(t, s.read(t, "v1", "ConfigMap", home, "mine"))
}

func TestRightsThatGoWithTheirNamespace(t *testing.T) {
	s := newSite(t)
	s.account(t, s.Name, "wherry-retail")
	requireOutcome(t, s.r.Apply(t.Context(), s.of(t, "wherry-retail", configMap("mine", "a", "1"))), bundle.Compliant, "")
	require.NoError(t, s.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}))
	s.remove(t, "shop")
}

func TestAnotherServiceAccountTakesOver(t *testing.T) {
	s := newSite(t)
	first := s.account(t, s.Name, "first")
	s.account(t, s.Name, "second")
	apply := func(account, manifests string) {
		t.Helper()
		requireOutcome(t, s.r.Apply(t.Context(), s.of(t, account, manifests)), bundle.Compliant, "")
		s.r = s.reconciler(t, s.Config) // nothing is only remembered
	}
	apply("first", configMap("stays", "a", "1")+configMap("goes", "a", "1")+configMap("later", "a", "1"))
	apply("second", configMap("stays", "a", "2")+configMap("later", "a", "1"))
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "goes"))
	apply("first", configMap("stays", "a", "2")+configMap("later", "a", "1"))
	require.NoError(t, s.Client.Delete(t.Context(), first))
	s.awaitRights(t, s.Name, "first", false)
	apply("second", configMap("stays", "a", "3"))
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "later"), "whose rights are gone, but the second has them")
	s.remove(t, "shop")
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, "stays"))
}

func TestWhatIsLeftInPlaceIsLeftInItsName(t *testing.T) {
	s := newSite(t)
	binding := s.account(t, s.Name, "wherry-retail")
	requireOutcome(t, s.r.Apply(t.Context(), s.of(t, "wherry-retail", configMap("mine", "a", "1"))), bundle.Compliant, "")
	require.NoError(t, s.Client.Delete(t.Context(), binding))
	s.awaitRights(t, s.Name, "wherry-retail", false)
	var gone reconcilers.Assignment
	gone.Name = "shop"
	release := s.r.(reconcilers.Releaser).Release
	requireOutcome(t, release(t.Context(), gone), bundle.Failed, kubernetes.Forbidden)

	binding.ResourceVersion = ""
	s.create(t, binding)
	s.awaitRights(t, s.Name, "wherry-retail", true)
	requireOutcome(t, release(t.Context(), gone), bundle.Removed, "")
	require.NotContains(t, s.read(t, "v1", "ConfigMap", s.Name, "mine").GetLabels(), kubernetes.OwnerLabel)
}

func TestAServiceAccountCostsOneRequest(t *testing.T) {
	s := newSite(t)
	s.account(t, s.Name, "wherry-retail")
	config, made := counted(s.Config)
	s.r = s.reconciler(t, config)
	a := s.of(t, "wherry-retail", configMap("one", "a", "1")+configMap("two", "a", "1"))
	requireOutcome(t, s.r.Apply(t.Context(), a), bundle.Compliant, "")
	require.EqualValues(t, 1+2*3, made.take().objects, "the account, and for each object: get, dry run, apply")
	requireOutcome(t, s.r.Observe(t.Context(), a), bundle.Compliant, "")
	require.Equal(t, requests{objects: 1 + 2}, made.take())
}

// TestWhatMayNotBeListedKeepsANamespace has an agent that may do all but list Secrets.
func TestWhatMayNotBeListedKeepsANamespace(t *testing.T) {
	s := newSite(t)
	home := s.Name + "-home"
	t.Cleanup(func() { s.forget("v1", "Namespace", home) })
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "configmaps"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"list"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: s.Name}},
	}
	s.create(t, role, binding)
	t.Cleanup(func() {
		s.forget("rbac.authorization.k8s.io/v1", "ClusterRole", s.Name)
		s.forget("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", s.Name)
	})
	config := rest.CopyConfig(s.Config)
	config.Impersonate.UserName = s.Name
	s.r = s.reconciler(t, config)
	require.Eventually(t, func() bool {
		limited, err := client.New(config, client.Options{})
		return err == nil && limited.List(t.Context(), &corev1.PersistentVolumeClaimList{}) == nil
	}, reconcilertest.Patience, 20*time.Millisecond)
	s.apply(t, "shop", "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: "+home+"}\n", bundle.Compliant, "")
	res, _ := s.remove(t, "shop")
	require.Equal(t, kubernetes.NamespaceKept, res.Reason)
	require.Contains(t, res.Message, "Namespace/"+home+" is kept, as what is in it may not be listed")
	require.Contains(t, res.Message, "cannot list resource")
	kept := s.read(t, "v1", "Namespace", "", home)
	require.NotNil(t, kept)
	require.NotContains(t, kept.GetLabels(), kubernetes.OwnerLabel)
}

func TestANameThatNoServiceAccountHas(t *testing.T) {
	s := newSite(t)
	r, err := kubernetes.New(s.Config, s.ledger, kubernetes.Options{Impersonate: true})
	require.NoError(t, err)
	for _, account := range []string{"a/b/c", "/b", "a/", "A/b", "a/b:c", "a/b\r\nX: y"} {
		res := r.Apply(t.Context(), s.of(t, account, configMap("mine", "a", "1")))
		requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
		require.Contains(t, res.Message, "of a ServiceAccount")
	}
	a := s.of(t, "", configMap("mine", "a", "1"))
	a.Workspace = "Team A"
	requireOutcome(t, r.Apply(t.Context(), a), bundle.Failed, kubernetes.Forbidden)
	require.True(t, apierrors.IsNotFound(s.Get(t.Context(), client.ObjectKey{Namespace: s.Name, Name: "mine"}, &corev1.ConfigMap{})))
}

// bringing are the manifests of an assignment that brings its Namespace, its ServiceAccount and that account's binding.
const bringing = `---
apiVersion: v1
kind: Namespace
metadata: {name: HOME}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: wherry-retail, namespace: HOME}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wherry-retail, namespace: HOME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wherry-workspace}
subjects: [{kind: ServiceAccount, name: wherry-retail, namespace: HOME}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: HOME}
data: {a: "1"}
`

// workspaceRole makes the ClusterRole that the site gives its workspaces.
func (s *site) workspaceRole(t *testing.T) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: kubernetes.WorkspaceRole}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
	}}
	require.NoError(t, client.IgnoreAlreadyExists(s.Create(t.Context(), role)))
	t.Cleanup(func() { _ = s.Delete(context.Background(), role) })
}

func TestAnAssignmentBringsItsServiceAccount(t *testing.T) {
	s := newSite(t)
	s.workspaceRole(t)
	home := s.Name + "-home"
	r, err := kubernetes.New(s.Config, s.ledger, kubernetes.Options{})
	require.NoError(t, err)
	of := func(manifests string) reconcilers.Assignment {
		a := s.of(t, home+"/wherry-retail", strings.ReplaceAll(manifests, "HOME", home))
		a.Namespace = home
		return a
	}
	requireOutcome(t, r.Observe(t.Context(), of(bringing)), bundle.Pending, kubernetes.NotApplied)
	requireOutcome(t, r.Apply(t.Context(), of(bringing)), bundle.Compliant, "")
	settings := s.read(t, "v1", "ConfigMap", home, "settings")
	require.NotNil(t, settings)
	for _, object := range [][2]string{{"v1", "ServiceAccount"}, {"rbac.authorization.k8s.io/v1", "RoleBinding"}} {
		require.NotNil(t, s.read(t, object[0], object[1], home, "wherry-retail"), object)
	}
	requireOutcome(t, r.Observe(t.Context(), of(bringing)), bundle.Compliant, "")
	res := r.Apply(t.Context(), of(bringing))
	requireOutcome(t, res, bundle.Compliant, "")
	require.Empty(t, res.Changes, "again changes nothing")

	// Taken away by hand, both come back.
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "wherry-retail"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "wherry-retail"}},
	} {
		require.NoError(t, s.Delete(t.Context(), o))
	}
	s.AwaitRight(t, types.NamespacedName{Namespace: home, Name: "wherry-retail"}, home, configMaps, false)
	require.NotEqual(t, bundle.Compliant, r.Observe(t.Context(), of(bringing)).State)
	requireOutcome(t, r.Apply(t.Context(), of(bringing)), bundle.Compliant, "")

	// It takes all of it along.
	require.Eventually(t, func() bool { return r.Remove(t.Context(), of(bringing)).State == bundle.Removed }, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool { return s.read(t, "v1", "Namespace", "", home) == nil }, time.Minute, 100*time.Millisecond)
}

// A team's text may have got into the manifests. What gives more than the site's ClusterRole is applied in the account's own
// name, which may not do that, and nothing of it by the agent, which may do everything here.
func TestTheAgentMakesNoOtherRights(t *testing.T) {
	s := newSite(t)
	s.workspaceRole(t)
	r, err := kubernetes.New(s.Config, s.ledger, kubernetes.Options{})
	require.NoError(t, err)
	for name, edit := range map[string][2]string{
		"another ClusterRole":       {"kind: ClusterRole, name: wherry-workspace", "kind: ClusterRole, name: cluster-admin"},
		"a Role":                    {"kind: ClusterRole, name: wherry-workspace", "kind: Role, name: wherry-workspace"},
		"another name":              {"kind: RoleBinding\nmetadata: {name: wherry-retail", "kind: RoleBinding\nmetadata: {name: other"},
		"another subject":           {"subjects: [", "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:authenticated}, "},
		"another account":           {"kind: ServiceAccount, name: wherry-retail", "kind: ServiceAccount, name: default"},
		"an account elsewhere":      {"name: wherry-retail, namespace: HOME}]", "name: wherry-retail, namespace: kube-system}]"},
		"a binding in all":          {"kind: RoleBinding", "kind: ClusterRoleBinding"},
		"a binding elsewhere":       {"kind: RoleBinding\nmetadata: {name: wherry-retail, namespace: HOME}", "kind: RoleBinding\nmetadata: {name: wherry-retail, namespace: kube-system}"},
		"an annotation":             {"kind: RoleBinding\nmetadata: {name: wherry-retail", "kind: RoleBinding\nmetadata: {annotations: {a: b}, name: wherry-retail"},
		"an identity of the cloud":  {"kind: ServiceAccount\nmetadata: {name: wherry-retail", "kind: ServiceAccount\nmetadata: {annotations: {cloud.example/role: admin}, name: wherry-retail"},
		"an account with a Secret":  {"automountServiceAccountToken: false", "automountServiceAccountToken: false\nsecrets: [{name: a}]"},
		"an account of other names": {"kind: ServiceAccount\nmetadata: {name: wherry-retail", "kind: ServiceAccount\nmetadata: {name: wherry-other"},
	} {
		t.Run(name, func(t *testing.T) {
			home := s.Name + "-" + strings.ToLower(rand.Text()[:6])
			manifests := strings.Replace(bringing, edit[0], edit[1], 1)
			require.NotEqual(t, bringing, manifests)
			a := s.of(t, home+"/wherry-retail", strings.ReplaceAll(manifests, "HOME", home))
			a.Name, a.Namespace = "shop-"+home, home
			res := r.Apply(t.Context(), a)
			requireOutcome(t, res, bundle.Failed, kubernetes.Forbidden)
			require.Nil(t, s.read(t, "v1", "ConfigMap", home, "settings"))
			require.Nil(t, s.read(t, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "wherry-retail"))
			require.Nil(t, s.read(t, "rbac.authorization.k8s.io/v1", "RoleBinding", "kube-system", "wherry-retail"))
			for _, binding := range []string{"wherry-retail", "other"} {
				found := s.read(t, "rbac.authorization.k8s.io/v1", "RoleBinding", home, binding)
				if found != nil {
					require.Equal(t, kubernetes.WorkspaceRole, found.Object["roleRef"].(map[string]any)["name"], "what the site gives, and no more")
				}
			}
			require.NoError(t, client.IgnoreNotFound(s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})))
		})
	}
}
