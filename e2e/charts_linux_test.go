//go:build e2e && pods

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/hub/client"
	hubfleet "github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store/postgres/pgtest"
)

// All three charts, installed with helm on a cluster with real pods: the promoter publishes what is in git, the agent enrolls
// with the hub by a token, and applies it. Then all are upgraded to another image while reports wait, and none is lost.
func TestTheChartsAreInstalledAndUpgraded(t *testing.T) {
	t.Parallel()
	c := newChartSite(t)
	c.installHub()
	first := c.commit("one")
	c.installPromoter()
	c.published(first)
	c.installAgent()
	before := c.reports()
	require.NotEmpty(t, before)

	c.upgrade("hub", "replicas=0")
	c.commit("two")
	c.hook()
	c.eventually("release two to be applied", func(ctx context.Context) bool { return c.applied(ctx) == "two" })
	c.upgrade("agent", "image="+c.images["wherry-agent:new"])
	c.upgrade("hub", "replicas=1", "image="+c.images["wherry:new"])
	c.upgrade("promoter", "image="+c.images["wherry:new"], "port="+c.promoterPort()) // both pods are on the node's network for a while
	third := c.commit("three")
	c.hook()
	c.compliantAt(third)

	after := c.reports()
	for _, name := range before {
		require.Contains(t, after, name)
	}
	sequences := map[int64][]int64{}
	for _, name := range after {
		incarnation, sequence, _, ok := bundle.ParseReportTag(name)
		require.True(t, ok, name)
		sequences[incarnation] = append(sequences[incarnation], sequence)
	}
	for _, s := range sequences {
		slices.Sort(s)
		require.Equal(t, s[0]+int64(len(s))-1, s[len(s)-1], "no report is missing: %v", s)
	}

	said := c.node.Logs(c.central) + c.helm("get", "all", "wherry-hub", "--namespace", c.central).stdout
	require.Contains(t, said, "hub is ready")
	require.NotContains(t, said, c.hub.Token, "the admin token is in its Secret alone")

	pgtest.Require(t) // what was shown before stands without it
	c.installSharingHubs()
}

// installSharingHubs installs two hubs on one PostgreSQL database. What one is told the other answers, also after that one is gone.
func (c *chartSite) installSharingHubs() {
	c.t.Helper()
	namespace := c.environment + "-hubs"
	c.kubectl("create", "namespace", namespace)
	made := c.wherry("install", "hub", "--secret", "--namespace", namespace)
	require.Zero(c.t, made.code, made.stderr)
	c.write("hubs-secret.yaml", made.stdout)
	c.kubectl("create", "-f", "hubs-secret.yaml")
	c.kubectl("create", "secret", "generic", "hub-database", "--namespace", namespace, "--from-literal", "url="+databaseForPods(c.t))
	c.write("hubs.yaml", fmt.Sprintf("image: %s\nreplicas: 2\ntls: {secret: ''}\ndatabase: {secret: hub-database}\npod:\n  nodeSelector: {%s: %s}\n  tolerations: [{operator: Exists}]\n",
		c.images["wherry:new"], harness.NodeKey, c.node.Name))
	c.helm("install", "wherry-hub", chartOf(c.t, "hub"), "--namespace", namespace, "-f", "hubs.yaml", "--wait", "--timeout", "2m")
	var secret corev1.Secret
	c.read(namespace, "wherry-hub", &secret)
	c.write("hubs.token", string(secret.Data["admin.token"]))

	hubs := c.hubsIn(namespace)
	require.Len(c.t, hubs, 2)
	made = c.wherry("hub", "tokens", "create", "--cluster-type", clusterType, "--uses", "7", "--hub", hubs[0].url, "--token-file", "hubs.token")
	require.Zero(c.t, made.code, made.stderr)
	listed := c.wherry("hub", "tokens", "list", "--hub", hubs[1].url, "--token-file", "hubs.token", "-o", "json")
	require.Zero(c.t, listed.code, listed.stderr)
	require.Contains(c.t, listed.stdout, `"uses": 7`)

	c.kubectl("delete", "pod", hubs[1].pod, "--namespace", namespace, "--wait")
	c.kubectl("rollout", "status", "deployment/wherry-hub", "--namespace", namespace, "--timeout", "1m")
	for _, h := range c.hubsIn(namespace) {
		again := c.wherry("hub", "tokens", "list", "--hub", h.url, "--token-file", "hubs.token", "-o", "json")
		require.Zero(c.t, again.code, again.stderr)
		require.Equal(c.t, listed.stdout, again.stdout)
	}
	require.NotContains(c.t, c.node.Logs(namespace), strings.TrimSpace(string(secret.Data["admin.token"])))
}

type hubPod struct{ pod, url string }

// hubsIn are the pods of hubs that are not about to end.
func (c *chartSite) hubsIn(namespace string) (all []hubPod) {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, kube.InNamespace(namespace)))
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			all = append(all, hubPod{p.Name, "http://" + net.JoinHostPort(p.Status.PodIP, "8080")})
		}
	}
	return all
}

// databaseForPods is the URL of a new PostgreSQL database for pods. The server itself listens on a socket of this machine alone.
func databaseForPods(t *testing.T) string {
	t.Helper()
	database, err := url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	socket := filepath.Join(database.Query().Get("host"), ".s.PGSQL.5432")
	listener, err := net.Listen("tcp4", ":0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			pod, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer pod.Close()
				server, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, pod)
					_ = server.Close() // a pod that is killed leaves no connection
				}()
				_, _ = io.Copy(pod, server)
			}()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	database.Host, database.RawQuery = net.JoinHostPort(harness.PodGateway, port), "sslmode=disable"
	return database.String()
}

// chartSite is a site with a hub and a promoter in a namespace of their own, and an agent in another.
type chartSite struct {
	*site
	node           *harness.Node
	central, agent string // namespaces
	images         map[string]string
	hub            client.Client
	git            *harness.Git
	gitURL         string
	promoter       string // HOST:PORT
}

func newChartSite(t *testing.T) *chartSite {
	s := newSite(t)
	c := &chartSite{site: s, central: s.environment + "-central", agent: s.environment + "-agent", images: map[string]string{}}
	sandbox := s.pushImage("1")
	for _, program := range []string{"wherry", "wherry-agent"} {
		c.images[program+":old"] = s.pushProgram(program, "old")
		c.images[program+":new"] = c.pushAgain(c.images[program+":old"], "new")
	}
	var err error
	c.node, err = cluster.StartKubelet(t.Context(), s.environment, sandbox)
	require.NoError(t, err)
	t.Cleanup(func() {
		artifacts := ""
		if t.Failed() {
			artifacts = harness.Artifacts()
			t.Log(c.node.Logs(c.central) + c.node.Logs(c.agent))
		}
		s.clear()
		require.NoError(t, c.node.Stop(artifacts))
	})
	for _, image := range c.images {
		require.NoError(t, c.node.Pull(t.Context(), image))
	}
	c.git, err = harness.StartGit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.git.Stop()) })
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetBasicAuth(harness.GitUser, harness.GitPassword)
		c.git.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(open.Close)
	c.gitURL = open.URL
	for _, namespace := range []string{c.central, c.agent} {
		s.kubectl("create", "namespace", namespace)
	}
	return c
}

// pushAgain pushes an image of the same layers with another configuration.
func (c *chartSite) pushAgain(reference, tag string) string {
	c.t.Helper()
	from, err := name.ParseReference(reference, name.Insecure)
	require.NoError(c.t, err)
	image, err := remote.Image(from, remote.WithContext(c.t.Context()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	require.NoError(c.t, err)
	config, err := image.ConfigFile()
	require.NoError(c.t, err)
	config.Config.Labels = map[string]string{"tag": tag}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(c.t, err)
	to := from.Context().Tag(tag)
	require.NoError(c.t, remote.Write(to, image, remote.WithContext(c.t.Context())))
	return to.String()
}

// onNode are values for a pod on the network of the node, where the API server and the registry listen: there is no kube-proxy.
func (c *chartSite) onNode(more string) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(cluster.Config.Host, "https://"))
	require.NoError(c.t, err)
	return fmt.Sprintf(`
pod:
  hostNetwork: true
  nodeSelector: {%s: %s}
  tolerations: [{operator: Exists}]
env:
  - {name: KUBERNETES_SERVICE_HOST, value: %q}
  - {name: KUBERNETES_SERVICE_PORT, value: %q}
`, harness.NodeKey, c.node.Name, host, port) + more
}

// installHub installs a hub with TLS, SQLite on a volume, and a Secret that wherry makes.
func (c *chartSite) installHub() {
	c.t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(c.t, err)
	_, port, _ := net.SplitHostPort(address)
	made := c.wherry("install", "hub", "--secret", "--namespace", c.central)
	require.Zero(c.t, made.code, made.stderr)
	c.write("hub-secret.yaml", made.stdout)
	c.kubectl("create", "-f", "hub-secret.yaml")
	pool := c.certificate("hub")
	c.kubectl("create", "secret", "tls", "wherry-hub-tls", "--namespace", c.central, "--cert", "hub.crt", "--key", "hub-tls.key")
	c.provideVolume(c.node, c.central, "wherry-hub", "hub")
	c.write("hub.yaml", c.onNode("image: "+c.images["wherry:old"]+"\nport: "+port))

	began := time.Now()
	c.helm("install", "wherry-hub", chartOf(c.t, "hub"), "--namespace", c.central, "-f", "hub.yaml", "--wait", "--timeout", "2m")
	figure("install-hub-ms", time.Since(began).Milliseconds(), "ms")

	var secret corev1.Secret
	c.read(c.central, "wherry-hub", &secret)
	c.write("admin.token", string(secret.Data["admin.token"]))
	c.hub = client.Client{
		URL: "https://" + address, Token: strings.TrimSpace(string(secret.Data["admin.token"])),
		HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: time.Minute},
	}
}

// certificate writes NAME.crt and NAME-tls.key for loopback, and returns a pool with the certificate.
func (c *chartSite) certificate(name string) *x509.CertPool {
	c.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(c.t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(c.t, err)
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})
	c.write(name+".crt", string(data))
	c.write(name+"-tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	pool := x509.NewCertPool()
	require.True(c.t, pool.AppendCertsFromPEM(data))
	return pool
}

// The platform in git: an environment, and one assignment whose ConfigMap names the release.
const (
	chartPlatform = `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: edge}
---
apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: edge}
spec: {chain: [%[1]s]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: web}
spec: {workspace: retail, workload: {repo: "%[2]s/apps", branch: main, path: .}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: reconciler}
spec:
  type: reconciler
  manifests: ["{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: '{{ .Namespace }}'}, data: {release: %[3]s}}\n"]
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: '{{ .Namespace }}'}}\n"]}
`
	chartEnvironment = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {name: %[1]s}
spec: {controlPlane: {repo: "%[2]s/platform", branch: %[1]s, path: .}}
`
	chartWorkload = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web}
spec: {deploymentTargets: [{name: live, environment: %s, manifests: {repo: "https://git.invalid/web", branch: main, path: .}}]}
`
	chartClusters = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: %[1]s}
spec: {reconciler: reconciler, namespaceService: namespace}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata: {name: main}
spec: {repo: "%[2]s/platform", branch: main, path: ., commit: %[3]s}
`
)

// commit commits the platform with another release to main, and returns the commit. The first time it makes all repositories.
func (c *chartSite) commit(release string) string {
	c.t.Helper()
	commit, err := c.git.Commit(c.t.Context(), "platform", "main", map[string]string{
		"platform.yaml": fmt.Sprintf(chartPlatform, c.environment, c.gitURL, release),
		".environments/" + c.environment + ".yaml": fmt.Sprintf(chartEnvironment, c.environment, c.gitURL),
	})
	require.NoError(c.t, err)
	if release == "one" {
		_, err := c.git.Commit(c.t.Context(), "apps", "main", map[string]string{"workload.yaml": fmt.Sprintf(chartWorkload, c.environment)})
		require.NoError(c.t, err)
		_, err = c.git.Commit(c.t.Context(), "platform", c.environment, map[string]string{"objects.yaml": fmt.Sprintf(chartClusters, clusterType, c.gitURL, commit)})
		require.NoError(c.t, err)
	}
	return commit
}

func (c *chartSite) installPromoter() {
	c.t.Helper()
	c.write("cosign.password", password)
	c.write("webhook.secret", webhookSecret)
	c.kubectl("create", "secret", "generic", "wherry-promoter", "--namespace", c.central,
		"--from-file", "cosign.key", "--from-file", "cosign.password", "--from-file", "webhook.secret")
	c.write("promoter.yaml", c.onNode("image: "+c.images["wherry:old"]+"\nplatform: "+c.gitURL+"/platform\nregistry: oci://"+c.prefix+"\nport: "+c.promoterPort()+
		"\nargs: [--interval=1s]\n")) // pushes are published after ten intervals at the latest
	c.helm("install", "wherry-promoter", chartOf(c.t, "promoter"), "--namespace", c.central, "-f", "promoter.yaml", "--wait", "--timeout", "2m")
}

// promoterPort gives the promoter another port.
func (c *chartSite) promoterPort() (port string) {
	c.t.Helper()
	var err error
	c.promoter, err = harness.FreeAddress()
	require.NoError(c.t, err)
	_, port, err = net.SplitHostPort(c.promoter)
	require.NoError(c.t, err)
	return port
}

// hook tells the promoter that something was pushed.
func (c *chartSite) hook() {
	c.t.Helper()
	c.eventually("the promoter to take the webhook", func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.promoter+"/hook", strings.NewReader("{}"))
		require.NoError(c.t, err)
		r.Header.Set("X-Gitlab-Token", webhookSecret)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false // the pod is replaced
		}
		defer resp.Body.Close()
		return resp.StatusCode/100 == 2
	})
}

// published waits until the release with a base commit is in the registry.
func (c *chartSite) published(commit string) {
	c.t.Helper()
	reference := "oci://" + c.prefix + "/" + bundle.Stream{Environment: c.environment, ClusterType: clusterType}.Repository()
	c.eventually("a release", func(context.Context) bool {
		r := c.wherry("verify", reference, "--key", "cosign.pub", "-o", "json")
		return r.code == 0 && strings.Contains(r.stdout, commit)
	})
}

// installAgent installs an agent that enrolls, and waits until the hub knows that it is compliant.
func (c *chartSite) installAgent() {
	c.t.Helper()
	access := []string{"--hub", c.hub.URL, "--token-file", "admin.token", "--tls-ca", "hub.crt"}
	token := c.wherry(append([]string{"hub", "tokens", "create", "--cluster-type", clusterType}, access...)...)
	require.Zero(c.t, token.code, token.stderr)
	c.write("enroll.token", token.stdout)
	c.write("pod.yaml", c.onNode("image: "+c.images["wherry-agent:old"]))
	values := c.wherry("install", "agent", "--registry", "oci://"+c.prefix, "--platform", "edge", "--environment", c.environment, "--cluster-type", clusterType,
		"--key", "cosign.pub", "--cluster-name", c.environment, "--interval", "1s", "--hub", c.hub.URL, "--enroll-token-file", "enroll.token",
		"--namespace", c.agent, "-f", "pod.yaml", "--values")
	require.Zero(c.t, values.code, values.stderr)
	require.NotContains(c.t, values.stdout, strings.TrimSpace(token.stdout))
	c.write("agent.yaml", values.stdout)
	c.kubectl("create", "secret", "generic", "wherry-agent-enroll", "--namespace", c.agent, "--from-file", "token=enroll.token")
	c.kubectl("create", "configmap", "wherry-agent-ca", "--namespace", c.agent, "--from-file", "hub.crt")
	c.provideVolume(c.node, c.agent, "wherry-agent", "agent")

	began := time.Now()
	c.helm("install", "wherry-agent", chartOf(c.t, "agent"), "--namespace", c.agent, "-f", "agent.yaml", "--wait", "--timeout", "2m")
	figure("install-agent-ready-ms", time.Since(began).Milliseconds(), "ms")
	c.compliantAt("")
	figure("install-agent-ms", time.Since(began).Milliseconds(), "ms")
}

// upgrade sets values of an installed chart, and waits until its pods run so.
func (c *chartSite) upgrade(part string, values ...string) {
	c.t.Helper()
	namespace := c.central
	if part == "agent" {
		namespace = c.agent
	}
	args := []string{"upgrade", "wherry-" + part, chartOf(c.t, part), "--namespace", namespace, "--reuse-values", "--wait", "--timeout", "2m"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	c.helm(args...)
}

// applied is the release that the assignment's ConfigMap names.
func (c *chartSite) applied(ctx context.Context) string {
	var config corev1.ConfigMap
	if c.Get(ctx, types.NamespacedName{Namespace: c.namespace("web-live"), Name: "web"}, &config) != nil {
		return ""
	}
	return config.Data["release"]
}

// compliantAt waits until the hub knows that the cluster is compliant, with the release of a base commit if one is given.
func (c *chartSite) compliantAt(commit string) {
	c.t.Helper()
	c.eventually("the hub to know that the cluster is compliant", func(ctx context.Context) bool {
		list, err := c.hub.Deployments(ctx, hubfleet.Query{})
		return err == nil && len(list.Deployments) == 1 && list.Deployments[0].State == bundle.Compliant && (commit == "" || list.Deployments[0].BaseCommit == commit)
	})
}

// reports are the names of all reports of the cluster that the hub has.
func (c *chartSite) reports() []string {
	c.t.Helper()
	list, err := c.hub.Reports(c.t.Context(), c.environment, hubfleet.Query{})
	require.NoError(c.t, err)
	names := map[string]bool{}
	for _, r := range list.Reports {
		names[r.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
