//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wherry-dev/wherry/bundle"
)

func TestWhatOthersOwnSurvivesApplyChangeAndPrune(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	elsewhere := s.ownNamespace("elsewhere")
	s.foreign(elsewhere, "platform-config") // the name that our own ConfigMaps have
	s.publish()
	s.once(0)
	web, batch := s.namespace("shop-web"), s.namespace("shop-batch")
	s.foreign(web, "theirs")
	s.foreign(batch, "theirs")
	s.labelSettings(web)

	s.edit("platform/config.yaml", "REGION: north", "REGION: south")
	s.publish()
	s.once(0)
	require.Equal(t, map[string]string{"REGION": "south", "LOG_LEVEL": "info", "THEIRS": "yes"}, s.settings("shop-web"))
	s.requireLabelled(web)

	s.dropBatch()
	s.publish()
	kept := s.once(0)
	require.Contains(t, kept.stderr, "NamespaceKept")
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
	var namespace corev1.Namespace
	s.read("", batch, &namespace)
	require.Nil(t, namespace.DeletionTimestamp)
	s.gone(batch, "platform-config", &corev1.ConfigMap{})
	s.gone(batch, "shop", &appsv1.Deployment{})
	for _, theirs := range []struct{ namespace, name string }{{elsewhere, "platform-config"}, {web, "theirs"}, {batch, "theirs"}} {
		s.requireForeign(theirs.namespace, theirs.name)
	}
	s.requireLabelled(web)
}

// labelSettings adds, as somebody else, a label, an annotation and a key to a ConfigMap of ours.
func (s *site) labelSettings(namespace string) {
	s.t.Helper()
	var settings corev1.ConfigMap
	s.read(namespace, "platform-config", &settings)
	if settings.Labels == nil {
		settings.Labels = map[string]string{}
	}
	if settings.Annotations == nil {
		settings.Annotations = map[string]string{}
	}
	settings.Labels["theirs"], settings.Annotations["theirs"], settings.Data["THEIRS"] = "yes", "yes", "yes"
	require.NoError(s.t, s.Update(s.t.Context(), &settings))
}

func (s *site) requireLabelled(namespace string) {
	s.t.Helper()
	var settings corev1.ConfigMap
	s.read(namespace, "platform-config", &settings)
	require.Equal(s.t, "yes", settings.Labels["theirs"])
	require.Equal(s.t, "yes", settings.Annotations["theirs"])
	require.Equal(s.t, "yes", settings.Data["THEIRS"])
}
