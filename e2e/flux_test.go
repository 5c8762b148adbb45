//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// fluxNamespace is where Kalypso's templates put Flux's objects.
const fluxNamespace = "flux-system"

// patience is the time that an engine gets for a request, on a busy machine.
const patience = 5 * time.Minute

// shop is an application's repository in the form that Kalypso's template for Flux expects.
type shop struct {
	*site
	git *harness.Git
}

// newShop makes a platform whose targets are brought by Flux, from a repository with both of them. Its
// templates and workload are those of a folder in testdata.
func newShop(t *testing.T, folder string) *shop {
	t.Helper()
	require.NoError(t, cluster.StartFlux(t.Context(), fluxNamespace))
	git, err := harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, git.Stop()) })
	s := &shop{newSite(t), git}
	for from, to := range map[string]string{folder + "/templates.yaml": "platform/templates.yaml", folder + "/workload.yaml": "workloads/shop/workload.yaml"} {
		require.NoError(t, os.Rename(s.path(from), s.path(to)))
	}
	s.edit("workloads/shop/workload.yaml", "ENVIRONMENT", s.environment)
	s.edit("workloads/shop/workload.yaml", ": REPOSITORY", ": "+git.URL+"/"+s.environment)
	s.ensure(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "repo-secret"},
		StringData: map[string]string{"username": harness.GitUser, "password": harness.GitPassword},
	})
	t.Cleanup(s.clearFlux)
	return s
}

// ensure creates an object or leaves the one that is there.
func (s *site) ensure(o client.Object) {
	s.t.Helper()
	if err := s.Create(s.t.Context(), o); err != nil {
		require.True(s.t, apierrors.IsAlreadyExists(err), err)
	}
}

// clearFlux deletes what the site has of Flux's, sources last and once nothing needs them any more.
func (s *site) clearFlux() {
	ctx := context.Background() // that of the test has ended
	for _, kind := range []string{"Kustomization", "GitRepository", "OCIRepository"} {
		require.Eventually(s.t, func() bool {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(fluxObject(kind, "").GroupVersionKind())
			require.NoError(s.t, s.List(ctx, list, client.InNamespace(fluxNamespace)))
			left := false
			for _, o := range list.Items {
				if strings.HasPrefix(o.GetName(), s.environment) {
					require.NoError(s.t, client.IgnoreNotFound(s.Delete(ctx, &o)))
					left = true
				}
			}
			return !left
		}, patience, 200*time.Millisecond)
	}
}

// fluxObject is one of Flux's kinds with a name and nothing else.
func fluxObject(kind, name string) *unstructured.Unstructured {
	group := "source.toolkit.fluxcd.io/v1"
	if kind == "Kustomization" {
		group = "kustomize.toolkit.fluxcd.io/v1"
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(group)
	o.SetKind(kind)
	o.SetNamespace(fluxNamespace)
	o.SetName(name)
	return o
}

// release pushes a version of the application and returns what Flux calls the commit.
func (s *shop) release(version string) (revision string) {
	s.t.Helper()
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {version: \"" + version + "\"}\n"
	return s.push(map[string]string{"web/shop.yaml": text, "batch/shop.yaml": text})
}

func (s *shop) push(files map[string]string) (revision string) {
	s.t.Helper()
	commit, err := s.git.Commit(s.t.Context(), s.environment, "dev", files)
	require.NoError(s.t, err)
	return "dev@sha1:" + commit
}

// version is the one of the application that a target has.
func (s *shop) version(target string) string {
	s.t.Helper()
	var app corev1.ConfigMap
	s.read(s.namespace(target), "shop", &app)
	return app.Data["version"]
}

// item has the site's agent make passes until an assignment stands as it should, and returns how.
func (s *site) item(assignment string, enough func(bundle.Item) bool) bundle.Item {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		s.pass()
		for _, item := range s.status().Items {
			if item.Assignment == assignment && enough(item) {
				return item
			}
		}
		require.True(s.t, time.Now().Before(end), "%s does not get there", assignment)
	}
}

func TestFluxBringsWhatThePlatformAssigns(t *testing.T) {
	t.Parallel()
	s := newShop(t, "flux")
	first := s.release("1")
	s.publish()
	s.once(0)
	for _, item := range s.status().Items {
		require.Equal(t, "flux", item.Adapter)
		require.Equal(t, first, item.Revision)
		require.True(t, item.Floating)
		require.Contains(t, item.Message, "Kustomization applied as v1, not v1beta2")
	}
	require.Equal(t, "1", s.version("shop-web"))
	require.Equal(t, "1", s.version("shop-batch"))

	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	s.once(0)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "debug"}, s.settings("shop-web"))

	s.dropBatch()
	s.publish()
	kept := s.once(0)
	require.NotContains(t, kept.stderr, "NamespaceKept")
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
	batch := s.namespace("shop-batch")
	for _, kind := range []string{"Kustomization", "GitRepository"} {
		s.gone(fluxNamespace, batch, fluxObject(kind, batch))
	}
	s.gone("", batch, &corev1.Namespace{})
	require.Equal(t, "1", s.version("shop-web"))
}

func TestFluxFollowsWhatTheApplicationTeamPushes(t *testing.T) {
	t.Parallel()
	s := newShop(t, "flux")
	s.release("1")
	s.publish()
	s.once(0)

	second := s.release("2")
	s.item("shop-web", func(i bundle.Item) bool { return i.State == bundle.Compliant && i.Revision == second })
	require.Equal(t, "2", s.version("shop-web"))

	s.push(map[string]string{"web/shop.yaml": "apiVersion: v1\nkind: ConfigMap\n", "batch/shop.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n"})
	broken := s.item("shop-web", func(i bundle.Item) bool { return i.State == bundle.Failed && i.Reason == "BuildFailed" })
	require.Contains(t, broken.Message, "missing metadata.name")
	require.Equal(t, second, broken.Revision, "what runs is the last good version")
	s.item("shop-batch", func(i bundle.Item) bool { return i.State == bundle.Compliant })

	third := s.release("3")
	s.item("shop-web", func(i bundle.Item) bool { return i.State == bundle.Compliant && i.Revision == third })
	require.Equal(t, "3", s.version("shop-web"))
}

// Flux takes a bundle as it is, without an agent, and verifies it by the key that agents have.
func TestFluxConsumesABundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, cluster.StartFlux(t.Context(), fluxNamespace))
	t.Cleanup(s.clearFlux)
	s.grow()
	s.publish()
	key, err := os.ReadFile(s.path("cosign.pub"))
	require.NoError(t, err)
	s.ensure(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: s.environment},
		Data:       map[string][]byte{"cosign.pub": key},
	})
	repository := bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	source, apply := fluxObject("OCIRepository", s.environment), fluxObject("Kustomization", s.environment)
	source.Object["spec"] = map[string]any{
		"url": "oci://" + s.prefix + "/" + repository, "interval": "1s", "insecure": true,
		"ref":    map[string]any{"tag": "latest"},
		"verify": map[string]any{"provider": "cosign", "secretRef": map[string]any{"name": s.environment}},
	}
	apply.Object["spec"] = map[string]any{
		"interval": "1m", "prune": true, "path": "./",
		"sourceRef": map[string]any{"kind": "OCIRepository", "name": s.environment},
	}
	require.NoError(t, s.Create(t.Context(), source))
	require.NoError(t, s.Create(t.Context(), apply))
	require.Equal(t, "info", s.brought()["LOG_LEVEL"])

	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	require.Equal(t, 1, s.deltas(), "which are nothing to Flux")
	require.Equal(t, "debug", s.brought()["LOG_LEVEL"])

	s.offerWronglySigned()
	require.Eventually(t, func() bool {
		s.read(fluxNamespace, s.environment, source)
		return strings.Contains(conditions(source), "VerificationError")
	}, patience, 200*time.Millisecond)
	require.Equal(t, "debug", s.settings("shop-web")["LOG_LEVEL"])
}

// brought waits until Flux has applied the newest bundle, and returns the settings in it.
func (s *site) brought() map[string]string {
	s.t.Helper()
	latest, err := s.repository(s.prefix, clusterType).Resolve(s.t.Context(), bundle.MovingTag(""))
	require.NoError(s.t, err)
	apply := fluxObject("Kustomization", "")
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		s.read(fluxNamespace, s.environment, apply)
		applied, _, _ := unstructured.NestedString(apply.Object, "status", "lastAppliedRevision")
		if applied == "latest@"+latest.Digest.String() {
			return s.settings("shop-web")
		}
		source := fluxObject("OCIRepository", "")
		s.read(fluxNamespace, s.environment, source)
		require.True(s.t, time.Now().Before(end), "%s\n%s", conditions(source), conditions(apply))
	}
}

// conditions is what Flux says about an object.
func conditions(o *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return fmt.Sprint(list...)
}
