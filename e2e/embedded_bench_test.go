//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownregistry "github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// Of the workloads of BenchmarkEmbedded so many come from one chart, and so many are kustomized.
const (
	embeddedWorkloads  = 200
	embeddedChart      = 50
	embeddedKustomized = 50
	embeddedUpdates    = 5
)

// BenchmarkEmbedded prints figures of a platform whose bundle contains all workloads: of the publisher, and of an agent with
// the adapter kubernetes. Beside them are those of Flux's source-controller, which pulls the same content from git.
func BenchmarkEmbedded(b *testing.B) {
	f := newEmbeddedBench(b)
	fmt.Printf("%d workloads of five objects and a namespace, %d from one chart and %d kustomized; updates: median of %d, one workload each\n",
		embeddedWorkloads, embeddedChart, embeddedKustomized, embeddedUpdates)
	f.commit()
	figure("publish-first-ms", f.publish(), "ms")
	a := f.follow()
	a.sync()
	a.sync()
	m := meter{b: b, name: "agent", pids: []int{a.cmd.Process.Pid}}
	var published, requests, down, up, cpu []int64
	for range embeddedUpdates {
		f.value++
		f.commit()
		published = append(published, f.publish())
		computed := m.cpu()
		t := f.bundles.measure(a.sync)
		time.Sleep(time.Second)
		cpu = append(cpu, (m.cpu() - computed).Milliseconds())
		requests, down, up = append(requests, t.requests), append(down, t.Down), append(up, t.Up)
	}
	figure("publish-one-change-ms", median(published), "ms")
	figure("embedded-update1of200-requests", median(requests), "count")
	figure("embedded-update1of200-bytes-down", median(down), "bytes")
	figure("embedded-update1of200-bytes-up", median(up), "bytes")
	figure("embedded-update1of200-cpu-ms", median(cpu), "ms")
	a.stop()
	f.flux()
}

// counted is a server behind a proxy that counts.
type counted struct {
	t      testing.TB
	server *wire.Server
	proxy  *wire.Proxy
}

func (c counted) measure(do func()) traffic {
	c.t.Helper()
	return (&wireBench{tb: c.t, server: c.server, proxy: c.proxy}).measure(do)
}

func (c counted) host() string { return fmt.Sprintf("%s:%d", wireHost, c.proxy.Port()) }

// embeddedBench is a git repository with all workloads, and a registry.
type embeddedBench struct {
	t       *testing.B
	dir     string
	git     *harness.Git
	plain   string // HOST:PORT of the registry without TLS and without the proxy, to publish to
	bundles counted
	sources counted // git
	value   int     // of one object, which updates change
	latest  string  // the commit
}

func newEmbeddedBench(b *testing.B) *embeddedBench {
	f := &embeddedBench{t: b, dir: b.TempDir()}
	require.NoError(b, os.CopyFS(f.dir, os.DirFS("testdata/embedded")))
	f.writeWorkload()
	var err error
	f.git, err = harness.StartGit()
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.git.Stop()) })
	registry, err := ownregistry.Open(f.path("registry"), ownregistry.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, registry.Close()) })
	plain := httptest.NewServer(registry.Handler())
	b.Cleanup(plain.Close)
	f.plain = strings.TrimPrefix(plain.URL, "http://")

	serve := func(name string, start func(net.Listener) (*wire.Server, error)) counted {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		server, err := start(l)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, server.Close()) })
		proxy, err := wire.Forward("127.0.0.1:0", l.Addr().String())
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, proxy.Close()) })
		require.NoError(b, os.WriteFile(f.path(name+".pem"), server.Authority, 0o600))
		return counted{b, server, proxy}
	}
	f.bundles = serve("registry", func(l net.Listener) (*wire.Server, error) {
		return wire.Serve(l, net.ParseIP(wireHost), registry.Handler())
	})
	f.sources = serve("git", func(l net.Listener) (*wire.Server, error) {
		return wire.Serve(l, net.ParseIP(wireHost), f.git.Handler())
	})
	f.run("wherry", "keys", "generate", "-o", "cosign")
	return f
}

func (f *embeddedBench) path(name string) string {
	return filepath.Join(f.dir, filepath.FromSlash(name))
}

// folder is that of a workload in the repository; those of the chart share one.
func (f *embeddedBench) folder(i int) string {
	if i < embeddedChart {
		return "charts/service"
	}
	return fmt.Sprintf("services/%03d", i)
}

func (f *embeddedBench) writeWorkload() {
	var text strings.Builder
	text.WriteString("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata:\n  name: shop\nspec:\n  deploymentTargets:\n")
	for i := range embeddedWorkloads {
		fmt.Fprintf(&text, "    - name: service-%03d\n      environment: dev\n      manifests: {repo: \"https://git.invalid/team/shop\", branch: main, path: %q}\n", i, f.folder(i))
	}
	require.NoError(f.t, os.MkdirAll(f.path("workloads/shop"), 0o755))
	require.NoError(f.t, os.WriteFile(f.path("workloads/shop/workload.yaml"), []byte(text.String()), 0o600))
}

// objects are the five of a workload. A name may be an expression of a chart.
func objects(name, value string) map[string]string {
	return map[string]string{
		"config.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  value: \"" + value + "\"\n  region: north\n",
		"account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: " + name + "\nautomountServiceAccountToken: false\n",
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: " + name + "\nspec:\n  clusterIP: None\n  selector:\n    app: " + name + "\n  ports:\n    - port: 8080\n",
		"role.yaml":    "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: " + name + "\nrules:\n  - apiGroups: [\"\"]\n    resources: [configmaps]\n    verbs: [get]\n",
		"binding.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: " + name + "\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: Role\n  name: " + name +
			"\nsubjects:\n  - kind: ServiceAccount\n    name: " + name + "\n",
	}
}

// commit commits all workloads. The last one has the value.
func (f *embeddedBench) commit() {
	f.t.Helper()
	files := map[string]string{"charts/service/Chart.yaml": "apiVersion: v2\nname: service\nversion: 1.0.0\n", "charts/service/values.yaml": "value: \"0\"\n"}
	for name, text := range objects("{{ .Release.Name }}", "{{ .Values.value }}") {
		files["charts/service/templates/"+name] = text
	}
	for i := embeddedChart; i < embeddedWorkloads; i++ {
		value := "0"
		if i == embeddedWorkloads-1 {
			value = fmt.Sprint(f.value)
		}
		var names []string
		for name, text := range objects(fmt.Sprintf("service-%03d", i), value) {
			files[f.folder(i)+"/"+name] = text
			names = append(names, "  - "+name+"\n")
		}
		slices.Sort(names)
		if i < embeddedChart+embeddedKustomized {
			files[f.folder(i)+"/kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncommonAnnotations:\n  team: shop\nresources:\n" + strings.Join(names, "")
		}
	}
	var err error
	f.latest, err = f.git.Commit(f.t.Context(), "shop.git", "main", files)
	require.NoError(f.t, err)
}

// run runs a program to its end.
func (f *embeddedBench) run(name string, args ...string) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(os.Getenv(harness.ProgramsEnv), name), args...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "COSIGN_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	require.NoError(f.t, err, "%s %v\n%s", name, args, out)
}

// publish publishes the platform, and returns the milliseconds that it took.
func (f *embeddedBench) publish() int64 {
	f.t.Helper()
	begun := time.Now()
	f.run("wherry", "publish", "platform", "--environment", "dev", "--workload", "shop=workloads/shop", "--mirror", "https://git.invalid/team="+f.git.Folder(),
		"--cache", f.path("cache"), "--to", "oci://"+f.plain+"/edge", "--key", "cosign.key")
	return time.Since(begun).Milliseconds()
}

func (f *embeddedBench) follow() *follower {
	f.t.Helper()
	return follow(f.t, place{
		registry: "oci://" + f.bundles.host() + "/edge", clusterType: "box", key: f.path("cosign.pub"), state: f.path("state"),
		env:     []string{"SSL_CERT_FILE=" + f.path("registry.pem")},
		engines: []string{"--kubeconfig", cluster.Kubeconfig},
		more:    []string{"--interval", "80s", "--memory", fmt.Sprintf("wherry-system/embedded-%d", os.Getpid())},
	})
}

// flux prints the same figures of source-controller, which pulls the repository when it is told to. It applies nothing.
func (f *embeddedBench) flux() {
	f.t.Helper()
	authority, err := os.ReadFile(f.path("git.pem"))
	require.NoError(f.t, err)
	require.NoError(f.t, cluster.StartFlux(f.t.Context(), fluxNamespace))
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(f.t, err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fluxNamespace, Name: "embedded"},
		Data:       map[string][]byte{"username": []byte(harness.GitUser), "password": []byte(harness.GitPassword), "ca.crt": authority},
	}
	require.NoError(f.t, c.Create(f.t.Context(), secret))
	source := fluxObject("GitRepository", "embedded")
	source.Object["spec"] = map[string]any{
		"url": "https://" + f.sources.host() + "/shop.git", "interval": "24h", "ref": map[string]any{"branch": "main"}, "secretRef": map[string]any{"name": secret.Name},
	}
	require.NoError(f.t, c.Create(f.t.Context(), source))
	f.awaitCommit(c, source)
	m := meter{b: f.t, name: "source-controller", pids: []int{cluster.Flux(fluxNamespace)[0].PID}}
	var requests, down, up, cpu []int64
	for range embeddedUpdates {
		f.value++
		f.commit()
		computed := m.cpu()
		t := f.sources.measure(func() {
			require.NoError(f.t, c.Get(f.t.Context(), client.ObjectKeyFromObject(source), source))
			patch := client.MergeFrom(source.DeepCopy())
			source.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": time.Now().Format(time.RFC3339Nano)})
			require.NoError(f.t, c.Patch(f.t.Context(), source, patch))
			f.awaitCommit(c, source)
		})
		time.Sleep(time.Second)
		cpu = append(cpu, (m.cpu() - computed).Milliseconds())
		requests, down, up = append(requests, t.requests), append(down, t.Down), append(up, t.Up)
	}
	figure("embedded-update1of200-requests-flux", median(requests), "count")
	figure("embedded-update1of200-bytes-down-flux", median(down), "bytes")
	figure("embedded-update1of200-bytes-up-flux", median(up), "bytes")
	figure("embedded-update1of200-cpu-ms-flux", median(cpu), "ms")
	require.NoError(f.t, c.Delete(f.t.Context(), source))
	require.NoError(f.t, c.Delete(f.t.Context(), secret))
}

// awaitCommit waits until source-controller has the newest commit.
func (f *embeddedBench) awaitCommit(c client.Client, source *unstructured.Unstructured) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		require.NoError(f.t, c.Get(f.t.Context(), client.ObjectKeyFromObject(source), source))
		revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "revision")
		if strings.HasSuffix(revision, f.latest) && ready(source) {
			return
		}
		require.True(f.t, time.Now().Before(end), conditions(source))
	}
}
