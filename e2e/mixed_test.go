//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// chain are the targets of testdata/mixed of which each needs the one before, and who brings them.
var chain = []struct{ target, adapter string }{{"db", "kubernetes"}, {"web", "flux"}, {"api", "argo"}, {"till", "ansible"}, {"pages", "directory"}}

// mixed is a platform with a cluster type on which several engines work.
type mixed struct{ *shop }

func newMixed(t *testing.T) mixed {
	t.Helper()
	s := mixed{newShop(t, "mixed")}
	s.startArgo()
	s.repositorySecret("git", map[string]string{
		"type": "git", "url": s.git.URL + "/" + s.environment, "username": harness.GitUser, "password": harness.GitPassword,
	})
	s.edit("workloads/shop/workload.yaml", "FOLDER", s.dir)
	s.push(map[string]string{"web/shop.yaml": versioned, "api/shop.yaml": versioned})
	return s
}

// versioned is what Flux and Argo CD find in the repository.
const versioned = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {version: \"1\"}\n"

// settle has the site's agent make passes with all its engines until all assignments stand like that. On a busy machine an
// engine may refuse a first attempt, which the next pass makes again.
func (m mixed) settle(states map[string]bundle.State) {
	m.t.Helper()
	require.Zero(m.t, m.until(states, m.engines(patience)...).code)
}

func (m mixed) engines(wait time.Duration) []string {
	return []string{"--directory-root", "host", "--ansible-playbook", "ansible-playbook", "--wait", wait.String()}
}

// stand is how all assignments stand where those of the chain stand like that.
func (m mixed) stand(states ...bundle.State) map[string]bundle.State {
	all := map[string]bundle.State{"shop-batch": bundle.Compliant} // which is no part of it
	for i, state := range states {
		all["shop-"+chain[i].target] = state
	}
	return all
}

// till is what a playbook has written on the host.
func (m mixed) till() string {
	m.t.Helper()
	data, err := os.ReadFile(m.path("till"))
	require.NoError(m.t, err)
	return string(data)
}

// page is what the adapter directory has put on the host.
func (m mixed) page() string {
	m.t.Helper()
	files, err := filepath.Glob(m.path("host/shop-pages/*"))
	require.NoError(m.t, err)
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(m.t, err)
		all.Write(data)
	}
	return all.String()
}

func TestEnginesAreMixedAndKeptInOrder(t *testing.T) {
	t.Parallel()
	const soon = time.Second
	s := newMixed(t)
	s.publish()
	waiting := s.stand(bundle.Progressing, bundle.Pending, bundle.Pending, bundle.Pending, bundle.Pending)
	compliant := s.stand(bundle.Compliant, bundle.Compliant, bundle.Compliant, bundle.Compliant, bundle.Compliant)

	r := s.until(waiting, s.engines(soon)...)
	require.Equal(t, 5, r.code)
	require.Contains(t, r.stdout, "DependencyNotReady: waits for shop-db (progressing: NotReady)")
	require.Contains(t, r.stdout, "DependencyNotReady: waits for shop-web (pending: DependencyNotReady)")
	s.gone("", s.namespace("shop-web"), &corev1.Namespace{})
	require.NoFileExists(t, s.path("till"))
	require.NoDirExists(t, s.path("host/shop-pages"))

	s.podsBecomeReady("shop-db", 1)
	s.settle(compliant)
	adapters := map[string]string{}
	for _, item := range s.status().Items {
		adapters[item.Assignment] = item.Adapter
	}
	for _, c := range chain {
		require.Equal(t, c.adapter, adapters["shop-"+c.target])
	}
	require.Equal(t, "1", s.version("shop-web"))
	require.Equal(t, "1", s.version("shop-api"))
	require.Equal(t, "open", s.till())
	require.Contains(t, s.page(), "REGION: \"north\"")

	t.Run("an upgrade waits for the dependency's new content", func(t *testing.T) {
		s.edit("platform/config.yaml", "REGION: north", "REGION: south")
		s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/db:1", "registry.invalid/shop/db:2")
		s.edit("workloads/shop/workload.yaml", "content: open", "content: closed")
		s.publish()
		require.Equal(t, 5, s.until(waiting, s.engines(soon)...).code)
		require.Equal(t, "south", s.settings("shop-db")["REGION"])
		require.Equal(t, "south", s.settings("shop-batch")["REGION"], "it waits for nobody")
		require.Equal(t, "north", s.settings("shop-web")["REGION"])
		require.Equal(t, "north", s.settings("shop-api")["REGION"])
		require.Equal(t, "open", s.till())
		require.Contains(t, s.page(), "REGION: \"north\"")

		s.podsBecomeReady("shop-db", 2) // the old one goes once the new one is ready
		s.settle(compliant)
		require.Equal(t, "south", s.settings("shop-web")["REGION"])
		require.Equal(t, "south", s.settings("shop-api")["REGION"])
		require.Equal(t, "closed", s.till())
		require.Contains(t, s.page(), "REGION: \"south\"")
	})

	t.Run("removal runs in reverse", func(t *testing.T) {
		const held = "wherry.dev/e2e"
		hold := func(change func(client.Object, string) bool) {
			require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Flux writes there too
				apply := fluxObject("Kustomization", s.namespace("shop-web"))
				s.read(fluxNamespace, apply.GetName(), apply)
				change(apply, held)
				return s.Update(t.Context(), apply)
			}))
		}
		hold(controllerutil.AddFinalizer)
		for _, c := range chain {
			s.edit("workloads/shop/workload.yaml", "purpose: "+c.target+"\n      environment: "+s.environment, "purpose: "+c.target+"\n      environment: elsewhere")
		}
		s.publish("--allow-removals")

		s.until(s.stand(bundle.Pending, bundle.Progressing), s.engines(30*time.Second)...) // what came last has gone
		require.Eventually(t, func() bool {                                                // its Kustomization was told to go, and waits for who holds it
			r := s.pass(s.engines(soon)...)
			return strings.Contains(r.stdout, "Removing: waits for shop-web (progressing: Terminating), which depends on it")
		}, patience, 200*time.Millisecond)
		require.NoDirExists(t, s.path("host/shop-pages"))
		require.NoFileExists(t, s.path("till"))
		s.gone("", s.namespace("shop-api"), &corev1.Namespace{})
		require.Equal(t, "south", s.settings("shop-db")["REGION"])

		hold(controllerutil.RemoveFinalizer)
		s.settle(s.stand())
		s.gone("", s.namespace("shop-web"), &corev1.Namespace{})
		s.gone("", s.namespace("shop-db"), &corev1.Namespace{})
	})
}
