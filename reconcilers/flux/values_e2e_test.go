//go:build e2e

package flux_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

func TestFluxPutsSiteValuesIntoManifests(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {host: \"${shop_host}\"}\n")
	a := s.Assignment(t, objects)
	for _, host := range []string{"shop.plant-7.example.com", "shop.plant-8.example.com"} {
		a.Values = map[string]string{"shop.host": host}
		a.ValuesDigest = sitevalues.Digest(a.Values)
		s.Settled(t, a, bundle.Compliant)
		require.Eventually(t, func() bool {
			c := s.ConfigMap(t, "settings")
			return c != nil && c.Data["host"] == host
		}, time.Minute, 100*time.Millisecond)
	}
	var site corev1.ConfigMap
	require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: a.Namespace, Name: rewrite.SiteConfigMap}, &site))
	require.Equal(t, "shop.plant-8.example.com", site.Data["shop_host"])
}
