//go:build e2e

package e2e

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// targets are the deployment targets of the platform in testdata.
var targets = [...]string{"shop-web", "shop-batch"}

// namespace is the one in which Kalypso's naming puts a target of the site.
func (s *site) namespace(target string) string {
	return fmt.Sprintf("%s-%s-%s", s.environment, clusterType, target)
}

// read gets an object, which has to be there.
func (s *site) read(namespace, name string, object client.Object) {
	s.t.Helper()
	require.NoError(s.t, s.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object))
}

// gone requires that there is no such object.
func (s *site) gone(namespace, name string, object client.Object) {
	s.t.Helper()
	err := s.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object)
	require.True(s.t, apierrors.IsNotFound(err), "%s/%s: got %v, want not found", namespace, name, err)
}

// settings is the platform's configuration as it reached a target.
func (s *site) settings(target string) map[string]string {
	s.t.Helper()
	var settings corev1.ConfigMap
	s.read(s.namespace(target), "platform-config", &settings)
	return settings.Data
}

// objects identifies what the release put on the cluster: equal results mean that nobody has written to
// any of it since. Of a Deployment that is the generation, as controllers write its status at any time.
func (s *site) objects() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	for _, target := range targets {
		var namespace corev1.Namespace
		var settings corev1.ConfigMap
		var deployment appsv1.Deployment
		s.read("", s.namespace(target), &namespace)
		s.read(s.namespace(target), "platform-config", &settings)
		s.read(s.namespace(target), "shop", &deployment)
		found["Namespace/"+target] = fmt.Sprint(namespace.UID, " ", namespace.ResourceVersion)
		found["ConfigMap/"+target] = fmt.Sprint(settings.UID, " ", settings.ResourceVersion)
		found["Deployment/"+target] = fmt.Sprint(deployment.UID, " ", deployment.Generation)
	}
	return found
}

// foreign creates a ConfigMap that is nobody's of ours.
func (s *site) foreign(namespace, name string) {
	s.t.Helper()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"owner": "somebody else"},
	}
	require.NoError(s.t, s.Create(s.t.Context(), object))
}

// requireForeign requires that the ConfigMap is as foreign made it.
func (s *site) requireForeign(namespace, name string) {
	s.t.Helper()
	var object corev1.ConfigMap
	s.read(namespace, name, &object)
	require.Equal(s.t, map[string]string{"owner": "somebody else"}, object.Data)
	require.Empty(s.t, object.Labels)
}

// ownNamespace makes a namespace that no release knows of.
func (s *site) ownNamespace(name string) string {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.environment + "-" + name}}
	require.NoError(s.t, s.Create(s.t.Context(), namespace))
	return namespace.Name
}

// clear deletes the site's namespaces, so that a cluster that was given is left as it was found.
func (s *site) clear() {
	var namespaces corev1.NamespaceList
	ctx := context.Background() // that of the test has ended
	require.NoError(s.t, s.List(ctx, &namespaces))
	for _, namespace := range namespaces.Items {
		if len(namespace.Name) > len(s.environment) && namespace.Name[:len(s.environment)] == s.environment {
			require.NoError(s.t, client.IgnoreNotFound(s.Delete(ctx, &namespace)))
		}
	}
}
