//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"oras.land/oras-go/v2"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/clustermemory"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// memoryName is that of the Secret and the Lease of the site's agent.
func (s *site) memoryName() clustermemory.Name {
	return clustermemory.NameFor(bundle.Stream{Platform: "default", Environment: s.environment, ClusterType: clusterType})
}

// start starts the site's agent with a state folder, and returns when it has made a pass.
func (s *site) start(state string, more ...string) *follower {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry-agent"),
		"run", "--registry", "oci://"+s.prefix, "--environment", s.environment, "--cluster-type", clusterType,
		"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--state-dir", state, "--interval", "24h")
	cmd.Args = append(cmd.Args, more...)
	f := &follower{agent.NewClient(s.path(state)), s.t, cmd, &bytes.Buffer{}}
	cmd.Dir, cmd.Stderr = s.dir, f.log
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(f.stop)
	require.Eventually(s.t, func() bool {
		_, err := f.Status(s.t.Context())
		return err == nil
	}, patience, 20*time.Millisecond)
	return f
}

func TestAMachineSetUpAnewOnACluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	older, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), "latest")
	require.NoError(t, err)
	s.edit("platform/config.yaml", "north", "south")
	s.publish()
	newer, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), "latest")
	require.NoError(t, err)
	s.once(0)
	uid := s.status().Cluster.UID
	require.Equal(t, bundle.Compliant, s.status().State)
	objects := s.objects()

	require.NoError(t, os.RemoveAll(s.path("agent")))
	repository := s.repository(s.prefix, clusterType).(oras.Target)
	_, err = oras.Tag(t.Context(), repository, older.Digest.String(), "latest")
	require.NoError(t, err)
	require.Contains(t, s.once(4).stderr, "OlderRelease")
	require.Equal(t, objects, s.objects(), "what runs is not touched")
	require.Equal(t, uid, s.status().Cluster.UID)

	_, err = oras.Tag(t.Context(), repository, newer.Digest.String(), "latest")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.path("agent")))
	s.dropBatch()
	s.publish()
	s.once(0)
	s.gone(s.namespace("shop-batch"), "shop", &appsv1.Deployment{})
	s.gone("", s.namespace("shop-batch"), &corev1.Namespace{})
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
	require.Equal(t, "south", s.settings("shop-web")["REGION"])
}

func TestTwoAgentsOnOneCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	first := s.start("first")
	first.sync()
	var lease coordinationv1.Lease
	s.read(s.memoryName().Namespace, s.memoryName().Name, &lease)
	holder := *lease.Spec.HolderIdentity
	require.EqualValues(t, 180, *lease.Spec.LeaseDurationSeconds)

	s.edit("platform/config.yaml", "north", "south")
	s.publish()
	objects := s.objects()
	s.once(5)
	require.Equal(t, "AnotherAgent", s.status().Reason)
	require.Contains(t, s.status().Message, holder)
	require.Equal(t, objects, s.objects(), "the second touches nothing")

	// The same agent goes on at once after a kill, and gives the Lease back where it ends in order.
	first.kill()
	first = s.start("first")
	first.sync()
	require.Equal(t, "south", s.settings("shop-web")["REGION"])
	s.once(5)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.cmd.Wait(), first.log.String())
	s.once(0)
	require.Equal(t, bundle.Compliant, s.status().State)
}

// What the memory and the Lease cost, beside what the objects do.
func TestRequestsForTheMemoryAreFew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	kubeconfig := s.path("proxied")
	proxy := newAPIProxy(t, kubeconfig)
	made := func() int64 { return proxy.requests.Load() - proxy.discovery.Load() }
	cost := func(more ...string) int64 {
		before := made()
		s.once(0, append(more, "--kubeconfig", kubeconfig)...)
		return made() - before
	}
	s.once(0)
	without := cost("--memory", "none")
	require.Equal(t, without+4, cost(), "the Lease is read, taken and given back, the memory is read")
	s.edit("platform/config.yaml", "north", "south")
	s.publish()
	s.once(0, "--memory", "none")
	require.Equal(t, without+5, cost(), "and written")
	require.Equal(t, without+4, cost())
}

func TestAnAgentThatMayNotKeepAMemoryDoesWithout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	namespace, objects := s.install()
	for i, u := range objects {
		if u.GetKind() == "RoleBinding" {
			objects = append(objects[:i:i], objects[i+1:]...)
			break
		}
	}
	s.apply(objects)
	agent := s.installed(namespace, find[corev1.ConfigMap](t, objects, "ConfigMap"))
	r := agent("once", "--wait", patience.String())
	require.Zero(t, r.code)
	require.Contains(t, r.stderr, "the cluster's memory is not kept as it should be")
	require.Equal(t, "LeaseDenied", s.status().Reason)
	require.Equal(t, bundle.Compliant, s.status().State)
	found := findings(t, agent("doctor", "-o", "json"))["memory"]
	require.Equal(t, "warning", found.Result)
	require.Contains(t, found.Message, "leases")
	require.Contains(t, found.Remedy, "wherry install agent")
}
