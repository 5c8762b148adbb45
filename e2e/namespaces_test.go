//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

// newHarbour makes a site of the example "namespaces", and an agent that has the usual permissions and those that the example
// gives it. There is no node, so workloads have no replicas.
func newHarbour(t *testing.T) (s *site, agent func(args ...string) ran) {
	t.Helper()
	s = newSite(t)
	require.NoError(t, os.CopyFS(s.path("harbour"), os.DirFS("../examples/namespaces")))
	for _, team := range []string{"payments", "shop", "ledger", "vision", "maps"} {
		s.edit("harbour/workloads/"+team+"/workload.yaml", "environment: dev", "environment: "+s.environment)
		s.edit("harbour/workloads/"+team+"/workload.yaml", "        image:", "        replicas: \"0\"\n        image:")
	}
	s.edit("harbour/main/.environments/dev.yaml", "  name: dev\n", "  name: "+s.environment+"\n")
	s.edit("harbour/dev/types.yaml", "  name: site\n", "  name: "+clusterType+"\n")
	s.publishHarbour()

	namespace, objects := s.install("--platform", "harbour")
	s.apply(objects)
	s.edit("harbour/cluster-role.yaml", "namespace: wherry-system", "namespace: "+namespace)
	s.edit("harbour/cluster-role.yaml", "name: wherry-agent-workspaces", "name: "+s.environment)
	data, err := os.ReadFile(s.path("harbour/cluster-role.yaml"))
	require.NoError(t, err)
	s.apply(objectsIn(string(data)))
	return s, s.installed(namespace, find[corev1.ConfigMap](t, objects, "ConfigMap"))
}

func (s *site) publishHarbour() {
	s.t.Helper()
	args := []string{"publish", "harbour/dev", "--environment", s.environment, "--base", "harbour/main", "--to", "oci://" + s.prefix, "--key", "cosign.key"}
	for _, team := range []string{"payments", "shop", "ledger", "vision", "maps"} {
		args = append(args, "--workload", team+"=harbour/workloads/"+team)
	}
	r := s.wherry(args...)
	require.Zero(s.t, r.code, r.stderr)
}

// member is somebody of a group of the identity provider.
type member struct {
	client.Client
	t *testing.T
}

func newMember(t *testing.T, group string) member {
	t.Helper()
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "ann@example.com", Groups: []string{group}}
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return member{c, t}
}

// may asks the API server whether the member may do something in a namespace.
func (m member) may(verb, group, resource, namespace string) bool {
	m.t.Helper()
	asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource},
	}}
	require.NoError(m.t, m.Create(m.t.Context(), asked))
	return asked.Status.Allowed
}

func settingsIn(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// podIn is a pod as Pod Security "restricted" wants it.
func podIn(namespace, name string) *corev1.Pod {
	yes, no := true, false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c:1", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
}

// Two teams share a cluster. What the templates of the example promise is asked of the API server: by the rights of the teams'
// groups, and by its answers to their requests. Nothing enforces network policies here, so it is only seen that they exist.
func TestATeamHasItsNamespaceAndNothingElse(t *testing.T) {
	t.Parallel()
	s, agent := newHarbour(t)
	r := agent("once", "--wait", patience.String())
	require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
	require.Equal(t, map[string]bundle.State{"pay-main": bundle.Compliant, "shop-main": bundle.Compliant}, s.states())
	own, other := s.namespace("pay-main"), s.namespace("shop-main")
	ctx := t.Context()

	dev, onCall, neighbour, stranger := newMember(t, "payments-dev"), newMember(t, "payments-on-call"), newMember(t, "shop-dev"), newMember(t, "nobody")
	require.Eventually(t, func() bool {
		return dev.may("create", "apps", "deployments", own) && neighbour.may("create", "", "configmaps", other)
	}, patience, 50*time.Millisecond)
	for _, right := range []struct {
		verb, group, resource string
		dev, onCall           bool
	}{
		{"get", "", "pods", true, true},
		{"list", "apps", "deployments", true, true},
		{"create", "", "configmaps", true, false},
		{"delete", "apps", "deployments", true, false},
		{"get", "", "resourcequotas", true, true},
		{"patch", "", "resourcequotas", false, false},
		{"delete", "", "limitranges", false, false},
		{"create", "rbac.authorization.k8s.io", "rolebindings", false, false},
		{"delete", "", "namespaces", false, false},
		{"patch", "", "namespaces", false, false},
	} {
		text := fmt.Sprintf("%s %s", right.verb, right.resource)
		require.Equal(t, right.dev, dev.may(right.verb, right.group, right.resource, own), text)
		require.Equal(t, right.onCall, onCall.may(right.verb, right.group, right.resource, own), text)
		require.False(t, neighbour.may(right.verb, right.group, right.resource, own), text)
		require.False(t, stranger.may(right.verb, right.group, right.resource, own), text)
		require.False(t, dev.may(right.verb, right.group, right.resource, other), text)
		require.False(t, dev.may(right.verb, right.group, right.resource, ""), text)
	}
	require.NoError(t, dev.Create(ctx, settingsIn(own, "mine")))
	require.True(t, apierrors.IsForbidden(onCall.Create(ctx, settingsIn(own, "theirs"))))
	require.NoError(t, onCall.Get(ctx, client.ObjectKey{Namespace: own, Name: "mine"}, &corev1.ConfigMap{}))
	require.True(t, apierrors.IsForbidden(dev.Create(ctx, settingsIn(other, "intruder"))))
	require.True(t, apierrors.IsForbidden(dev.Get(ctx, client.ObjectKey{Namespace: other, Name: "platform-config"}, &corev1.ConfigMap{})))
	require.True(t, apierrors.IsForbidden(neighbour.List(ctx, &corev1.PodList{}, client.InNamespace(own))))

	// Pod Security, before the quota: a namespace of the workspace refuses pods that are not restricted.
	privileged := podIn(own, "privileged")
	yes := true
	privileged.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	require.ErrorContains(t, dev.Create(ctx, privileged), `violates PodSecurity "restricted`)
	root := podIn(own, "root")
	root.Spec.SecurityContext = nil
	require.ErrorContains(t, dev.Create(ctx, root), "violates PodSecurity")

	// The quota of this workspace lets five pods in, and the sixth not; their requests come from the LimitRange.
	require.Eventually(t, func() bool {
		var quota corev1.ResourceQuota
		return s.Get(ctx, client.ObjectKey{Namespace: own, Name: "namespace-service"}, &quota) == nil && quota.Status.Hard.Pods().Value() == 5
	}, patience, 50*time.Millisecond)
	for i := range 5 {
		require.NoError(t, dev.Create(ctx, podIn(own, fmt.Sprintf("p%d", i))))
	}
	require.ErrorContains(t, dev.Create(ctx, podIn(own, "p5")), "exceeded quota: namespace-service, requested: pods=1, used: pods=5, limited: pods=5")
	var first corev1.Pod
	s.read(own, "p0", &first)
	require.Equal(t, "50m", first.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Empty(t, first.Spec.Volumes, "it has no token")
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, first.Spec.ImagePullSecrets)

	// The labels of the Platform, and the policies, which this cluster has nobody to enforce.
	var namespace corev1.Namespace
	s.read("", own, &namespace)
	require.Equal(t, "4711", namespace.Labels["cost-centre"])
	require.Equal(t, "payments", namespace.Labels["workspace"])
	var policies networkingv1.NetworkPolicyList
	require.NoError(t, s.List(ctx, &policies, client.InNamespace(own)))
	require.Len(t, policies.Items, 3)

	// The role edit may delete a NetworkPolicy, and the next pass brings it back.
	denial := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "default-deny"}}
	require.NoError(t, dev.Delete(ctx, denial))
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	s.read(own, "default-deny", denial)

	// A group that leaves the Platform loses its rights, and nobody else does.
	s.edit("harbour/main/platform.yaml", "        - name: payments-on-call\n          role: view\n", "")
	s.publishHarbour()
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	require.Eventually(t, func() bool { return !onCall.may("get", "", "pods", own) }, patience, 50*time.Millisecond)
	require.True(t, dev.may("get", "", "pods", own))

	// An assignment that goes takes all of it along: its account, the rights of the account, and the namespace.
	for i := range 5 {
		require.NoError(t, dev.Delete(ctx, podIn(own, fmt.Sprintf("p%d", i)), client.GracePeriodSeconds(0)))
	}
	require.NoError(t, dev.Delete(ctx, settingsIn(own, "mine")))
	require.NoError(t, os.Remove(s.path("harbour/workloads/payments/workload.yaml")))
	s.publishHarbour()
	for end := time.Now().Add(patience); ; {
		r = agent("once", "--wait", "5s")
		if err := s.Get(ctx, client.ObjectKey{Name: own}, &namespace); apierrors.IsNotFound(err) {
			break
		}
		require.True(t, time.Now().Before(end), "%s is still there: %s%s", own, r.stdout, r.stderr)
	}
	require.Equal(t, bundle.Compliant, s.standing("shop-main").State)
}
