//go:build e2e && pods

package e2e

import (
	"bufio"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/e2e/harness/wire"
)

const (
	gapModelBytes  = 64 << 20
	gapMediumBytes = 512 << 20
	gapBudget      = "1GiB" // of each agent's artifacts, however full the disk of the tests is
)

// gap is a site in a network namespace that has no route but to itself, and what is outside: the platform with its registry
// and its hub. They share a medium, which is mounted on one side at a time.
type gap struct {
	*site
	link    *wire.Link // always down
	cluster *harness.Cluster
	node    *harness.Node
	medium  *harness.Medium
	git     *harness.Git
	models  *modelSite

	image  string               // by digest
	model  []byte               // the file that the host is to have
	agents map[string]*follower // by cluster type: box, second and gate
	places map[string]place
}

func newGap(t *testing.T) *gap {
	t.Helper()
	g := &gap{agents: map[string]*follower{}, places: map[string]place{}}
	var err error
	g.link, err = wire.NewLink()
	require.NoError(t, err, "this takes root and /dev/net/tun: make e2e E2E_TAGS=e2e leaves it out")
	t.Cleanup(func() { require.NoError(t, g.link.Close()) })
	require.NoError(t, g.link.Up(false))
	g.cluster, err = harness.StartIn(t.Context(), harness.Place{Start: g.link.Near.Start, Dial: g.link.Near.Dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.cluster.Stop("")) })
	require.NoError(t, g.cluster.StartFlux(t.Context(), fluxNamespace))
	c, err := client.New(g.cluster.Config, client.Options{})
	require.NoError(t, err)
	g.site = &site{Client: c, t: t, dir: t.TempDir(), environment: "dev", prefix: registry.Prefix + "/gap-" + strings.ToLower(crand.Text()[:8])}
	require.NoError(t, os.CopyFS(g.dir, os.DirFS("testdata/gap")))
	g.generateKey("cosign")
	g.prepareOutside()
	g.prepareSite()
	return g
}

// prepareOutside makes the hub, the repository, the image and the model, and publishes them.
func (g *gap) prepareOutside() {
	g.t.Helper()
	serve := exec.Command(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry"), "hub", "serve", "--data", g.path("fleet"), "--addr", "127.0.0.1:0")
	out, err := serve.StdoutPipe()
	require.NoError(g.t, err)
	require.NoError(g.t, serve.Start())
	_, err = bufio.NewReader(out).ReadString('\n') // its address: the hub is made
	require.NoError(g.t, err)
	require.NoError(g.t, serve.Process.Signal(os.Interrupt))
	require.NoError(g.t, serve.Wait())
	key := g.wherry("hub", "keys", "show", "--data", "fleet")
	require.Zero(g.t, key.code, key.stderr)
	require.NoError(g.t, os.WriteFile(g.path("hub.pub"), []byte(key.stdout), 0o644))

	g.git, err = harness.StartGit()
	require.NoError(g.t, err)
	g.t.Cleanup(func() { require.NoError(g.t, g.git.Stop()) })
	location, err := oci.Parse("oci://" + g.prefix)
	require.NoError(g.t, err)
	models, err := location.Repository("eye", oci.Options{})
	require.NoError(g.t, err)
	g.models = &modelSite{t: g.t, models: models}
	g.edit("workloads/shop/workload.yaml", "REGISTRY", g.prefix)
	g.bringImage("1")
}

// prepareSite makes this machine a node of the site, and starts the agents.
func (g *gap) prepareSite() {
	g.t.Helper()
	var err error
	g.node, err = g.cluster.StartKubelet(g.t.Context(), "gap-"+strings.ToLower(crand.Text()[:8]), g.image, "--node-ip="+g.link.Near.Address.String())
	require.NoError(g.t, err)
	g.t.Cleanup(g.leave)
	g.medium, err = g.node.NewMedium(g.t.Context(), gapMediumBytes)
	require.NoError(g.t, err)

	box, err := harness.FreeAddress()
	require.NoError(g.t, err)
	require.NoError(g.t, g.node.Mirror(registry.Prefix, "http://"+box))
	engines := []string{"--kubeconfig", g.cluster.Kubeconfig}
	for clusterType, p := range map[string]place{
		"box":    {engines: engines, more: []string{"--serve", box, "--serve-plain-http", "--serve-accept-reports", "--import-budget", gapBudget}},
		"second": {engines: engines, registry: "oci://" + box + "/default", more: []string{"--hub", "http://" + box}},
		"gate":   {registry: "oci://" + box + "/default", more: []string{"--hub", "http://" + box}},
	} {
		p.clusterType, p.key, p.state, p.start = clusterType, g.path("cosign.pub"), g.path(clusterType), g.startThere
		p.more = append(p.more, "--hub-key", g.path("hub.pub"), "--cluster-name", clusterType, "--carry-budget", gapBudget)
		g.places[clusterType] = p
	}
	for _, clusterType := range []string{"box", "second", "gate"} {
		g.agents[clusterType] = follow(g.t, g.places[clusterType])
	}
}

// startThere starts a program at the site that ends with the tests, however they end.
func (g *gap) startThere(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // of the thread that is the namespace
	return g.link.Near.Start(cmd)
}

// leave deletes the pods of the site, and then its node.
func (g *gap) leave() {
	for _, a := range g.agents {
		a.stop()
	}
	artifacts := ""
	if g.t.Failed() {
		artifacts = harness.Artifacts()
		for _, a := range g.agents {
			g.t.Log(a.log.String())
		}
	}
	g.clearFlux()
	g.clear()
	require.NoError(g.t, g.node.Stop(artifacts))
}

// bringImage pushes a version of the image, and has the platform's repository run it.
func (g *gap) bringImage(version string) {
	g.t.Helper()
	reference, err := name.ParseReference(g.pushImage(version), name.Insecure)
	require.NoError(g.t, err)
	pushed, err := remote.Head(reference)
	require.NoError(g.t, err)
	g.image = reference.Context().Name() + "@" + pushed.Digest.String()
}

// release publishes this version of everything: the repository, and a model unless it is that of before.
func (g *gap) release(version string, newModel bool) {
	g.t.Helper()
	selector := "none"
	if g.node != nil {
		selector = g.node.Name
	}
	_, err := g.git.Commit(g.t.Context(), "shop.git", "main", map[string]string{
		"web/deployment.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {%s: %s}
      tolerations: [{operator: Exists}]
      containers:
        - name: shop
          image: %s
          env: [{name: PORT, value: "8080"}, {name: VERSION, value: %q}]
`, harness.NodeKey, selector, g.image, version),
		"config/shop.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {version: %q}\n", version),
	})
	require.NoError(g.t, err)
	if newModel {
		g.model = make([]byte, gapModelBytes)
		_, _ = rand.NewChaCha8([32]byte{version[0]}).Read(g.model)
		text, err := os.ReadFile(g.path("workloads/shop/workload.yaml"))
		require.NoError(g.t, err)
		_, before, _ := strings.Cut(string(text), `digest: "`)
		before, _, _ = strings.Cut(before, `"`)
		g.edit("workloads/shop/workload.yaml", before, g.models.push(version, string(g.model)).String())
	}
	r := g.wherry("publish", "platform", "--environment", "dev", "--workload", "shop=workloads/shop",
		"--mirror", "https://git.invalid/team="+g.git.Folder(), "--to", "oci://"+g.prefix, "--key", "cosign.key")
	require.Zero(g.t, r.code, r.stderr)
}

// with mounts the medium for what do does with its folder.
func (g *gap) with(readOnly bool, do func(dir string)) {
	g.t.Helper()
	require.NoError(g.t, g.medium.Mount(g.t.Context(), readOnly))
	do(g.medium.Dir)
	require.NoError(g.t, g.medium.Unmount(g.t.Context()), "nobody keeps a file of the medium open")
}

// agent runs a command of the agent of a cluster type, in the site.
func (g *gap) agent(clusterType string, args ...string) ran {
	g.t.Helper()
	return g.program("wherry-agent", append(args, "--state-dir", g.places[clusterType].state)...)
}

// export writes what the site is to have to a medium.
func (g *gap) export(to string, more ...string) ran {
	g.t.Helper()
	r := g.wherry(append([]string{"airgap", "export", "--from", "oci://" + g.prefix, "--environment", "dev", "-o", to, "--allow-private", "127.0.0.1"}, more...)...)
	require.Zero(g.t, r.code, r.stderr)
	return r
}

// requireAll requires that everybody at the site comes to run a version.
func (g *gap) requireAll(version string) {
	g.t.Helper()
	for _, clusterType := range []string{"second", "gate"} {
		g.agents[clusterType].syncUntilDone()
	}
	var config corev1.ConfigMap
	g.read("dev-second-shop-config", "shop", &config)
	require.Equal(g.t, version, config.Data["version"])
	data, err := os.ReadFile(filepath.Join(g.places["gate"].applied(), "shop-eye", "eye.onnx"))
	require.NoError(g.t, err)
	require.Equal(g.t, digest.FromBytes(g.model), digest.FromBytes(data))

	var pods corev1.PodList
	require.NoError(g.t, g.List(g.t.Context(), &pods, client.InNamespace("dev-box-shop-web")))
	running := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			running++
			require.Contains(g.t, g.get("http://"+p.Status.PodIP+":8080/"), "\nVERSION="+version+"\n")
		}
	}
	require.Equal(g.t, 1, running)
}

// get is the answer of a server at the site.
func (g *gap) get(url string) (body string) {
	g.t.Helper()
	c := &http.Client{Timeout: followerTime, Transport: &http.Transport{DialContext: g.link.Near.Dial, DisableKeepAlives: true}}
	require.Eventually(g.t, func() bool {
		resp, err := c.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		body = string(data)
		return err == nil
	}, patience, 50*time.Millisecond, url)
	return "\n" + body
}

// waiting counts the reports of a cluster type that no hub has acknowledged.
func (g *gap) waiting(clusterType string) int {
	g.t.Helper()
	status, err := g.agents[clusterType].Status(g.t.Context())
	require.NoError(g.t, err)
	return status.Queue.Length
}

// restart has an agent offer its reports again.
func (g *gap) restart(clusterType string) {
	g.t.Helper()
	g.agents[clusterType].stop()
	g.agents[clusterType] = follow(g.t, g.places[clusterType])
}

// One medium carries everything to a site that nothing else reaches: bundles, the image of a pod and a model, for a box with
// an API server, pods and Flux, and for two others that follow the box. The same medium carries the reports of all of them home.
func TestASiteBehindAGap(t *testing.T) {
	t.Parallel()
	g := newGap(t)
	g.release("1", true)
	g.with(false, func(dir string) { g.export(filepath.Join(dir, "site.tar")) })

	g.with(false, func(dir string) {
		r := g.agent("box", "import", filepath.Join(dir, "site.tar"), "--wait", patience.String())
		require.Zero(t, r.code, r.stderr)
		g.requireAll("1")
		g.carryReportsOut(dir, "second", "gate")
	})

	// At home: reports in, acknowledgements out, and what has changed since.
	g.bringImage("2")
	g.release("2", false)
	g.with(false, func(dir string) {
		for clusterType := range g.agents {
			r := g.wherry("hub", "clusters", "add", "--data", "fleet", "--from", filepath.Join(dir, clusterType+".json"))
			require.Zero(t, r.code, r.stderr)
		}
		g.takeReports(dir)
		g.export(filepath.Join(dir, "next.tar"), "--since", filepath.Join(dir, "reports.tar"))
		full, err := os.Stat(filepath.Join(dir, "site.tar"))
		require.NoError(t, err)
		next, err := os.Stat(filepath.Join(dir, "next.tar"))
		require.NoError(t, err)
		require.Less(t, next.Size(), full.Size()-gapModelBytes, "the site has the model")
	})

	g.with(true, func(dir string) {
		r := g.agent("box", "import", filepath.Join(dir, "next.tar"), "--wait", patience.String())
		require.Zero(t, r.code, r.stderr)
		r = g.agent("box", "reports", "ack", filepath.Join(dir, "ack.tar"))
		require.Zero(t, r.code, r.stderr)
		g.requireAll("2")
		r = g.agent("box", "import", filepath.Join(dir, "site.tar"))
		require.Zero(t, r.code, "an older package changes nothing: %s", r.stderr)
		require.Contains(t, r.stdout, "OlderRelease")
		r = g.agent("box", "import", filepath.Join(dir, "next.tar"), "--wait", patience.String())
		require.Zero(t, r.code, "the same again: %s", r.stderr)
	})
	g.with(false, func(dir string) { g.carryReportsOut(dir, "second") })
	g.with(false, g.takeReports)
	g.with(false, func(dir string) {
		r := g.agent("box", "reports", "ack", filepath.Join(dir, "ack.tar"))
		require.Zero(t, r.code, r.stderr)
	})
	require.Zero(t, g.waiting("box"))
	for _, clusterType := range []string{"second", "gate"} {
		g.restart(clusterType)
		require.Eventually(t, func() bool { return g.waiting(clusterType) == 0 }, patience, 50*time.Millisecond)
	}
	arrived := g.link.Arrived()
	require.Zero(t, arrived.Packets, "nothing has passed but the medium")
}

// carryReportsOut writes the reports of the site to the medium, and who its agents are. Those that follow the box and have
// something new to report are named.
func (g *gap) carryReportsOut(dir string, changed ...string) {
	g.t.Helper()
	for clusterType := range g.agents {
		r := g.agent(clusterType, "status", "-o", "json")
		require.Zero(g.t, r.code, r.stderr)
		require.NoError(g.t, os.WriteFile(filepath.Join(dir, clusterType+".json"), []byte(r.stdout), 0o644))
	}
	// The others hand their reports to the box when they have made them.
	file := filepath.Join(dir, "reports.tar")
	require.Eventually(g.t, func() bool {
		r := g.agent("box", "reports", "export", "-o", file)
		require.Zero(g.t, r.code, r.stderr)
		return !slices.ContainsFunc(changed, func(clusterType string) bool { return !g.newest(file, clusterType) })
	}, patience, 100*time.Millisecond)
}

// newest reports whether a file has the last report of a cluster type's agent.
func (g *gap) newest(file, clusterType string) bool {
	g.t.Helper()
	status, err := g.agents[clusterType].Status(g.t.Context())
	require.NoError(g.t, err)
	envelopes, err := airgap.ReadReports(file)
	require.NoError(g.t, err)
	last := bundle.Report{}
	for _, e := range envelopes {
		var envelope struct{ Payload []byte }
		require.NoError(g.t, json.Unmarshal(e, &envelope))
		var r bundle.Report
		require.NoError(g.t, json.Unmarshal(envelope.Payload, &r))
		if r.Cluster.UID == status.Cluster.UID && r.Agent.Seq > last.Agent.Seq {
			last = r
		}
	}
	return last.State == status.State && last.Observed != nil && status.Release.Running != nil && last.Observed.Digest == status.Release.Running.Digest
}

// takeReports has the hub take what the medium has brought home, and write acknowledgements to it.
func (g *gap) takeReports(dir string) {
	g.t.Helper()
	r := g.wherry("hub", "import", "--data", "fleet", filepath.Join(dir, "reports.tar"))
	require.Zero(g.t, r.code, r.stderr)
	r = g.wherry("get", "clusters", "--data", "fleet", "-o", "json")
	require.Zero(g.t, r.code, r.stderr)
	var list struct {
		Clusters []struct{ Name, State string }
	}
	require.NoError(g.t, json.Unmarshal([]byte(r.stdout), &list), r.stdout)
	states := map[string]string{}
	for _, c := range list.Clusters {
		states[c.Name] = c.State
	}
	require.Equal(g.t, map[string]string{"box": "compliant", "second": "compliant", "gate": "compliant"}, states)
	r = g.wherry("hub", "export-ack", "--data", "fleet", "-o", filepath.Join(dir, "ack.tar"))
	require.Zero(g.t, r.code, r.stderr)
}
