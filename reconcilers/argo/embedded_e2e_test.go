//go:build e2e

package argo_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// pointer names a repository that nobody can reach.
const pointer = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: $NAME-shop}
spec:
  project: $PROJECT
  source:
    repoURL: https://git.invalid/shop
    targetRevision: main
    path: deploy
    kustomize: {namePrefix: a-}
  destination: {server: https://kubernetes.default.svc, namespace: $NAME}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [ApplyOutOfSyncOnly=true]
`

// embedded returns an assignment with embedded delivery, served by the endpoint.
func (s *site) embedded(t *testing.T, e *harness.Endpoint, name, text string, files map[string]string) reconcilers.Assignment {
	t.Helper()
	a := s.assignment(t, strings.ReplaceAll(text, "$PROJECT", "default"))
	a.Name, a.Delivery = name, bundle.Embedded
	require.NoError(t, harness.Files(a.Dir, files))
	for path, data := range files {
		a.Content = bundle.ContentDigest([]bundle.File{{Path: path, Data: []byte(data + text)}})
	}
	a, err := e.Serve(t.Context(), a)
	require.NoError(t, err)
	return a
}

func (s *site) startEndpoint(t *testing.T) *harness.Endpoint {
	t.Helper()
	e, err := harness.StartEndpoint(t.TempDir())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	mounted := make(chan error, 1)
	go func() { mounted <- s.engine.MountCertificates(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-mounted)
		require.NoError(t, e.Stop())
	})
	return e
}

// certificates returns the data of Argo CD's ConfigMap for certificates; nil if there is none.
func (s *site) certificates(t *testing.T) map[string]string {
	t.Helper()
	found := &corev1.ConfigMap{}
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "argocd-tls-certs-cm"}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return found.Data
}

func (s *site) hasRepositorySecret(t *testing.T) bool {
	t.Helper()
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "wherry-serve"}, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

func TestEmbeddedContentComesFromTheEndpoint(t *testing.T) {
	s := newSite(t)
	e := s.startEndpoint(t)
	theirs := &corev1.ConfigMap{}
	theirs.Namespace, theirs.Name, theirs.Data = namespace, "argocd-tls-certs-cm", map[string]string{"git.example": "theirs"}
	require.NoError(t, s.Create(t.Context(), theirs))
	t.Cleanup(func() { require.NoError(t, s.Client.Delete(context.Background(), theirs)) })

	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, a.Served.Manifests.Digest.String(), res.Revision)
	require.False(t, res.Floating)
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])
	require.Equal(t, map[string]string{"git.example": "theirs", "127.0.0.1": string(a.Served.CA)}, s.certificates(t))
	require.True(t, s.hasRepositorySecret(t))
	require.Equal(t, bundle.Compliant, s.R.Observe(t.Context(), a).State)

	second := s.embedded(t, e, "shop", pointer, map[string]string{
		"manifests/settings.yaml": strings.Replace(settings, `"1"`, `"2"`, 1), "manifests/more/other.yaml": strings.Replace(settings, "{name: settings}", "{name: other}", 1),
	})
	res = s.Settled(t, second, bundle.Compliant)
	require.Equal(t, second.Served.Manifests.Digest.String(), res.Revision)
	require.Equal(t, "2", s.ConfigMap(t, "settings").Data["version"])
	require.NotNil(t, s.ConfigMap(t, "other"), "folders are read, too")

	other := s.embedded(t, e, "other", strings.ReplaceAll(pointer, "$NAME-shop", "$NAME-other"), map[string]string{
		"manifests/settings.yaml": strings.Replace(settings, "{name: settings}", "{name: third}", 1),
	})
	s.Settled(t, other, bundle.Compliant)
	s.Removed(t, second)
	require.Nil(t, s.ConfigMap(t, "settings"))
	require.Len(t, s.certificates(t), 2)
	s.Removed(t, other)
	require.Nil(t, s.ConfigMap(t, "third"))
	require.Equal(t, map[string]string{"git.example": "theirs"}, s.certificates(t))
	require.False(t, s.hasRepositorySecret(t))
	require.Empty(t, s.Own(t, applicationKind))
}

func TestAnEndpointThatArgoCDDoesNotTrustYetIsAwaited(t *testing.T) {
	s := newSite(t)
	e, err := harness.StartEndpoint(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop()) })
	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	s.Stands(t, a, bundle.Pending, argo.EndpointUnreachable, "x509")
	ctx, cancel := context.WithCancel(context.Background())
	mounted := make(chan error, 1)
	go func() { mounted <- s.engine.MountCertificates(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-mounted)
	})
	res := s.Observed(t, a, s.R.Apply(t.Context(), a), func(res reconcilers.Result) bool {
		if res.State == bundle.Pending { // as the agent does in its next pass
			s.R.Apply(t.Context(), a)
		}
		return res.State == bundle.Compliant
	})
	require.Equal(t, a.Served.Manifests.Digest.String(), res.Revision)
	s.Removed(t, a)
	require.Nil(t, s.certificates(t), "it was the agent's")
}

func TestAProjectThatLacksTheEndpointIsNamed(t *testing.T) {
	s := newSite(t)
	e := s.startEndpoint(t)
	project := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"namespace": namespace, "name": s.Name},
		"spec": map[string]any{
			"sourceRepos":  []any{"https://git.invalid/*"},
			"destinations": []any{map[string]any{"namespace": "*", "server": "*"}},
		},
	}}
	require.NoError(t, s.Create(t.Context(), project))
	t.Cleanup(func() { require.NoError(t, s.Client.Delete(context.Background(), project)) })
	a := s.embedded(t, e, "shop", strings.ReplaceAll(pointer, "$PROJECT", s.Name), map[string]string{"manifests/settings.yaml": settings})
	res := s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, argo.SourceNotPermitted, res.Reason)
	require.Equal(t, reconcilers.FaultSite, res.Fault)
	line := "oci://" + a.Served.Host + "/default/assignments/*"
	require.Contains(t, res.Message, "AppProject "+s.Name+" does not permit the agent's endpoint as a source: add \""+line+"\" to its spec.sourceRepos")
	require.Nil(t, s.application(t, "shop"))

	s.Merge(t, project, `{"spec":{"sourceRepos":["`+line+`"]}}`)
	s.Settled(t, a, bundle.Compliant)
	s.Removed(t, a)
}

func TestAnEmbeddedAssignmentWithoutAnEndpoint(t *testing.T) {
	s := newSite(t)
	a := s.assignment(t, strings.ReplaceAll(pointer, "$PROJECT", "default"))
	a.Delivery = bundle.Embedded
	res := s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, rewrite.NoEndpoint, res.Reason)
	require.Equal(t, reconcilers.FaultSite, res.Fault)
}
