//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/wherry-dev/wherry/bundle"
)

// Each target of the chain in testdata/mixed needs the one before, which another engine brings.
func TestEnginesAreMixedAndKeptInOrder(t *testing.T) {
	s := newShop(t, "mixed")
	s.release("1")
	s.publish()
	waiting := map[string]bundle.State{"shop-db": bundle.Progressing, "shop-web": bundle.Pending, "shop-pages": bundle.Pending, "shop-batch": bundle.Compliant}
	compliant := map[string]bundle.State{"shop-db": bundle.Compliant, "shop-web": bundle.Compliant, "shop-pages": bundle.Compliant, "shop-batch": bundle.Compliant}

	r := s.once(5, "--directory-root", "host", "--wait", "1s")
	require.Equal(t, waiting, s.states())
	require.Contains(t, r.stdout, "DependencyNotReady: waits for shop-db (progressing: NotReady)")
	require.Contains(t, r.stdout, "DependencyNotReady: waits for shop-web (pending: DependencyNotReady)")
	s.gone("", s.namespace("shop-web"), &corev1.Namespace{})
	require.NoDirExists(t, s.path("host/shop-pages"))

	s.podsBecomeReady("shop-db", 1)
	s.once(0, "--directory-root", "host")
	require.Equal(t, compliant, s.states())
	adapters := map[string]string{}
	for _, item := range s.status().Items {
		adapters[item.Assignment] = item.Adapter
	}
	require.Equal(t, map[string]string{"shop-db": "kubernetes", "shop-web": "flux", "shop-pages": "directory", "shop-batch": "kubernetes"}, adapters)
	require.Equal(t, "1", s.version("shop-web"))
	require.Contains(t, s.page(), "REGION: \"north\"")

	t.Run("an upgrade waits for the dependency's new content", func(t *testing.T) {
		s.edit("platform/config.yaml", "REGION: north", "REGION: south")
		s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/db:1", "registry.invalid/shop/db:2")
		s.publish()
		s.once(5, "--directory-root", "host", "--wait", "1s")
		require.Equal(t, waiting, s.states())
		require.Equal(t, "south", s.settings("shop-db")["REGION"])
		require.Equal(t, "south", s.settings("shop-batch")["REGION"], "it waits for nobody")
		require.Equal(t, "north", s.settings("shop-web")["REGION"])
		require.Contains(t, s.page(), "REGION: \"north\"")

		s.podsBecomeReady("shop-db", 2) // the old one goes once the new one is ready
		s.once(0, "--directory-root", "host")
		require.Equal(t, compliant, s.states())
		require.Equal(t, "south", s.settings("shop-web")["REGION"])
		require.Contains(t, s.page(), "REGION: \"south\"")
	})

	t.Run("removal runs in reverse", func(t *testing.T) {
		const held = "wherry.dev/e2e"
		apply := fluxObject("Kustomization", s.namespace("shop-web"))
		s.read(fluxNamespace, apply.GetName(), apply)
		controllerutil.AddFinalizer(apply, held)
		require.NoError(t, s.Update(t.Context(), apply))
		for _, target := range []string{"db", "web", "pages"} {
			s.edit("workloads/shop/workload.yaml", "purpose: "+target+"\n      environment: "+s.environment, "purpose: "+target+"\n      environment: elsewhere")
		}
		s.publish()

		r := s.once(5, "--directory-root", "host", "--wait", "1s")
		require.Equal(t, map[string]bundle.State{"shop-db": bundle.Pending, "shop-web": bundle.Progressing, "shop-batch": bundle.Compliant}, s.states())
		require.Contains(t, r.stdout, "Removing: waits for shop-web (progressing: Terminating), which depends on it")
		require.NoDirExists(t, s.path("host/shop-pages"), "it was the last to come")
		require.Equal(t, "south", s.settings("shop-db")["REGION"])

		s.read(fluxNamespace, apply.GetName(), apply)
		controllerutil.RemoveFinalizer(apply, held)
		require.NoError(t, s.Update(t.Context(), apply))
		s.once(0, "--directory-root", "host")
		require.Equal(t, map[string]bundle.State{"shop-batch": bundle.Compliant}, s.states())
		s.gone("", s.namespace("shop-db"), &corev1.Namespace{})
		s.gone("", s.namespace("shop-web"), &corev1.Namespace{})
	})
}

// page is what the adapter directory has put on the host.
func (s *site) page() string {
	s.t.Helper()
	files, err := filepath.Glob(s.path("host/shop-pages/*"))
	require.NoError(s.t, err)
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(s.t, err)
		all.Write(data)
	}
	return all.String()
}
