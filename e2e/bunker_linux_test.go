//go:build e2e && pods

package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

// bunker is four sites in one network namespace, whose only way out is a link to the registry. They share an API server. The
// git server of the application is nowhere: the publisher alone has a clone.
type bunker struct {
	*site
	cluster *harness.Cluster
	argo    *harness.Argo
	git     *harness.Git
	link    *wire.Link
	proxy   *wire.Proxy          // at the far end of the link
	agents  map[string]*follower // by cluster type
	first   string               // HOST:PORT of the host's agent
	second  place                // of another host, whose agent asks that one first, and then the registry
}

// bunkerSites are the cluster types of testdata/bunker, with the flags of their agents' engines.
var bunkerSites = map[string][]string{
	"flux":  {"--serve"},
	"argo":  {"--serve", "--settle", "0s"}, // or each step would take half a minute more
	"plain": {},
	"host":  nil,
}

func newBunker(t *testing.T) *bunker {
	t.Helper()
	b := &bunker{agents: map[string]*follower{}}
	var err error
	b.link, err = wire.NewLink()
	require.NoError(t, err, "this takes root and /dev/net/tun: make e2e E2E_TAGS=e2e leaves it out")
	t.Cleanup(func() { require.NoError(t, b.link.Close()) })

	b.cluster, err = harness.StartIn(t.Context(), harness.Place{Start: b.link.Near.Start, Dial: b.link.Near.Dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.cluster.Stop("")) })
	c, err := client.New(b.cluster.Config, client.Options{})
	require.NoError(t, err)
	b.site = &site{Client: c, t: t, dir: t.TempDir(), environment: "dev", prefix: registry.Prefix + "/bunker-" + strings.ToLower(t.Name())}
	var starting sync.WaitGroup
	starting.Go(func() { require.NoError(t, b.cluster.StartFlux(t.Context(), fluxNamespace)) })
	starting.Go(func() {
		b.argo, err = b.cluster.StartArgo(t.Context(), argoNamespace)
		require.NoError(t, err)
	})
	starting.Wait()
	mounting, stop := context.WithCancel(context.Background())
	mounted := make(chan error, 1)
	go func() { mounted <- b.argo.MountCertificates(mounting) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-mounted)
	})

	require.NoError(t, os.CopyFS(b.dir, os.DirFS("testdata/bunker")))
	b.generateKey("cosign")
	b.git, err = harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.git.Stop()) })
	return b
}

// open lets the agents of the bunker reach the registry over TLS, and returns its location and the file of its authority.
func (b *bunker) open() (registryURL, authority string) {
	b.t.Helper()
	far, err := b.link.Far.Listen()
	require.NoError(b.t, err)
	near, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: strings.Split(b.prefix, "/")[0]})
	to.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // requests end with the link
	server, err := wire.Serve(near, net.IP(b.link.Far.Address.AsSlice()), to)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, server.Close()) })
	b.proxy = wire.ForwardFrom(far, near.Addr().String())
	b.t.Cleanup(func() { require.NoError(b.t, b.proxy.Close()) })
	authority = b.path("authority.pem")
	require.NoError(b.t, os.WriteFile(authority, server.Authority, 0o600))
	_, prefix, _ := strings.Cut(b.prefix, "/")
	return "oci://" + far.Addr().String() + "/" + prefix, authority
}

// begin starts the agents.
func (b *bunker) begin() {
	b.t.Helper()
	location, authority := b.open()
	for clusterType, flags := range bunkerSites {
		p := place{registry: location, clusterType: clusterType, key: b.path("cosign.pub"), state: b.path("agent-" + clusterType)}
		p.start, p.env = b.link.Near.Start, []string{"SSL_CERT_FILE=" + authority}
		if flags != nil {
			p.engines = []string{"--kubeconfig", b.cluster.Kubeconfig}
			for _, f := range flags {
				p.engines = append(p.engines, f)
				if f == "--serve" {
					address, err := harness.FreeAddress()
					require.NoError(b.t, err)
					p.engines = append(p.engines, address)
				}
			}
		}
		if clusterType == "host" { // others of the site follow it
			var err error
			b.first, err = harness.FreeAddress()
			require.NoError(b.t, err)
			p.more = []string{"--serve", b.first, "--serve-plain-http"} // loopback is spoken to without TLS
		}
		b.agents[clusterType] = follow(b.t, p)
	}
	b.second = place{
		registry: "oci://" + b.first + "/default", clusterType: "host", key: b.path("cosign.pub"), state: b.path("agent-second"),
		start: b.link.Near.Start, env: []string{"SSL_CERT_FILE=" + authority},
		more: []string{"--registry", location},
	}
}

// cut takes the link away, once no connection is open that agents would wait for.
func (b *bunker) cut() {
	b.t.Helper()
	b.proxy.Sever()
	var last wire.Arrived
	require.Eventually(b.t, func() bool {
		before := last
		last = b.link.Arrived()
		return last == before
	}, patience, 200*time.Millisecond)
	require.NoError(b.t, b.link.Up(false))
}

// release pushes a version of the application to the clone, and publishes it.
func (b *bunker) release(version string) {
	b.t.Helper()
	_, err := b.git.Commit(b.t.Context(), "shop.git", "main", map[string]string{
		"web/shop.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {version: \"" + version + "\"}\n",
		"README.md":      "not for a cluster\n",
		"web/notes.text": "nor is this\n",
	})
	require.NoError(b.t, err)
	r := b.wherry("publish", "platform", "--environment", b.environment, "--workload", "shop=workloads/shop",
		"--mirror", "https://git.invalid/team="+b.git.Folder(), "--to", "oci://"+b.prefix, "--key", "cosign.key")
	require.Zero(b.t, r.code, r.stderr)
}

// version is the one of the application that a site has.
func (b *bunker) version(clusterType string) string {
	b.t.Helper()
	if clusterType == "host" {
		data, err := os.ReadFile(b.file())
		if err != nil {
			return ""
		}
		_, version, _ := strings.Cut(string(data), "version: ")
		return strings.Trim(version, "\"}\n")
	}
	var app corev1.ConfigMap
	if err := b.Get(b.t.Context(), b.object(clusterType), &app); err != nil {
		return ""
	}
	return app.Data["version"]
}

// file is the application on the host.
func (b *bunker) file() string { return b.path("agent-host-applied/shop-web/manifests/shop.yaml") }

// object is the application on the cluster.
func (b *bunker) object(clusterType string) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("%s-%s-shop-web", b.environment, clusterType), Name: "shop"}
}

// each does something for all sites at once.
func (b *bunker) each(do func(clusterType string, a *follower)) {
	b.t.Helper()
	var all sync.WaitGroup
	for clusterType, a := range b.agents {
		all.Go(func() { do(clusterType, a) })
	}
	all.Wait()
}

// requireAll requires that all sites come to run a version, and say so.
func (b *bunker) requireAll(version string) {
	b.t.Helper()
	b.each(func(clusterType string, a *follower) {
		a.syncUntilDone()
		require.Equal(b.t, version, b.version(clusterType), clusterType)
	})
}

// requireCompliant requires that a site without a registry comes to be compliant. Sync itself fails there.
func (b *bunker) requireCompliant(clusterType string, a *follower) {
	var last agent.Result
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		var err error
		last, err = a.Sync(b.t.Context(), followerTime)
		require.NoError(b.t, err)
		require.Equal(b.t, agent.Unreachable, last.Verdict, clusterType)
		if last.Status.State == bundle.Compliant {
			return
		}
		require.True(b.t, time.Now().Before(end), "%s: %s: %v", clusterType, last.Status.State, last.Status.Items)
	}
}

// Everything that a site runs travels in its bundle: the registry is all that it ever reaches, and while it does not reach
// that either, its engine is restarted, and brings back what somebody deletes.
func TestSitesWithoutARouteToTheOutside(t *testing.T) {
	t.Parallel()
	b := newBunker(t)
	b.release("1")
	b.begin()
	b.requireAll("1")

	b.cut()
	require.NoError(t, b.cluster.RestartFlux(t.Context(), fluxNamespace)) // its storage is empty
	start, err := b.argo.StopRepoServer()
	require.NoError(t, err)
	require.NoError(t, start(t.Context()))
	require.NoError(t, os.Remove(b.file()))
	for clusterType := range b.agents {
		if clusterType == "host" {
			continue
		}
		var app corev1.ConfigMap
		require.NoError(t, b.Get(t.Context(), b.object(clusterType), &app))
		require.NoError(t, b.Delete(t.Context(), &app))
	}
	before := b.link.Arrived()
	b.each(func(clusterType string, a *follower) {
		require.Eventually(t, func() bool {
			b.requireCompliant(clusterType, a)
			return b.version(clusterType) == "1"
		}, patience, 100*time.Millisecond, clusterType)
	})
	second := follow(t, b.second) // a new machine, which has never had a link
	second.syncUntilDone()
	require.FileExists(t, filepath.Join(b.second.applied(), "shop-web/manifests/shop.yaml"))
	require.Equal(t, before, b.link.Arrived(), "nothing passes")

	b.release("2")
	require.NoError(t, b.link.Up(true))
	b.requireAll("2")
	b.agents["host"].stop()
	second.syncUntilDone() // the box before it is gone
	status, err := second.Status(t.Context())
	require.NoError(t, err)
	require.True(t, status.Registries[1].Last, "%+v", status.Registries)
	data, err := os.ReadFile(filepath.Join(b.second.applied(), "shop-web/manifests/shop.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(data), `version: "2"`)
	delete(b.agents, "host")
	for clusterType, a := range b.agents {
		status, err := a.Status(t.Context())
		require.NoError(t, err)
		require.Len(t, status.Items, 1)
		require.Equal(t, map[string]string{"flux": "flux", "argo": "argo", "plain": "kubernetes", "host": "directory"}[clusterType], status.Items[0].Adapter)
	}
}
