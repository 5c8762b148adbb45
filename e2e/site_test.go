//go:build e2e

package e2e

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/verify"
)

const (
	password    = "of a key that lives as long as a test"
	clusterType = "edge"
)

// site is a platform with its key, and the cluster of type edge that follows it. Its environment has a
// name of its own, and so have its namespaces and repositories.
type site struct {
	client.Client
	t           *testing.T
	dir         string // holds platform, workloads, cosign.key, cosign.pub and the agent's state
	environment string
	prefix      string   // of its repositories
	flags       []string // of its agent, beside what every agent is told
	env         []string // of the programs that it runs, beside that of the tests
}

// newSite makes a platform from testdata and a key.
func newSite(t *testing.T) *site {
	t.Helper()
	c, err := client.New(cluster.Config, client.Options{})
	require.NoError(t, err)
	environment := "e2e-" + strings.ToLower(rand.Text()[:8])
	s := &site{Client: c, t: t, dir: t.TempDir(), environment: environment, prefix: registry.Prefix + "/" + environment}
	require.NoError(t, os.CopyFS(s.dir, os.DirFS("testdata")))
	s.edit("workloads/shop/workload.yaml", "ENVIRONMENT", environment)
	s.generateKey("cosign")
	t.Cleanup(s.clear)
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// edit replaces text in a file of the platform, which has to hold it.
func (s *site) edit(name, from, to string) {
	s.t.Helper()
	data, err := os.ReadFile(s.path(name))
	require.NoError(s.t, err)
	require.Contains(s.t, string(data), from)
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(strings.ReplaceAll(string(data), from, to)), 0o644))
}

func (s *site) wherry(args ...string) ran {
	s.t.Helper()
	return s.program("wherry", args...)
}

// program runs wherry or wherry-agent in the site's folder.
func (s *site) program(name string, args ...string) ran {
	s.t.Helper()
	return s.execute(ours(s.t, name), args...)
}

func (s *site) execute(path string, args ...string) ran {
	s.t.Helper()
	return executeWith(s.t, s.env, s.dir, path, args...)
}

// generateKey makes the pair name.key and name.pub.
func (s *site) generateKey(name string) {
	s.t.Helper()
	r := s.wherry("keys", "generate", "-o", name)
	require.Zero(s.t, r.code, r.stderr)
}

// publish publishes the platform as it is now for the site's cluster to take.
func (s *site) publish(more ...string) {
	s.t.Helper()
	s.publishTo(s.prefix, "cosign.key", more...)
}

func (s *site) publishTo(prefix, key string, more ...string) {
	s.t.Helper()
	r := s.tryPublish(prefix, key, more...)
	require.Zero(s.t, r.code, r.stderr)
}

func (s *site) tryPublish(prefix, key string, more ...string) ran {
	s.t.Helper()
	args := []string{"publish", "platform", "--environment", s.environment, "--workload", "shop=workloads/shop", "--to", "oci://" + prefix, "--key", key}
	return s.wherry(append(args, more...)...)
}

// grow gives the platform a value that does not compress, so that a delta of its bundle is worth it.
func (s *site) grow() {
	s.t.Helper()
	var text strings.Builder
	for range 100 {
		text.WriteString(rand.Text())
	}
	s.edit("platform/config.yaml", "  LOG_LEVEL:", "  BULK: "+text.String()+"\n  LOG_LEVEL:")
}

// deltas counts those of the bundle that the site's cluster is to take, each of which has to give its files.
func (s *site) deltas() int {
	s.t.Helper()
	reference := "oci://" + s.prefix + "/" + bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	r := s.wherry("verify", reference, "--key", "cosign.pub", "-o", "json")
	require.Zero(s.t, r.code, r.stderr)
	var verified verify.Trusted
	require.NoError(s.t, json.Unmarshal([]byte(r.stdout), &verified))
	for _, d := range verified.Deltas {
		require.True(s.t, d.Applied, d.Problem)
	}
	return len(verified.Deltas)
}

// once has the site's agent make one pass, and requires that it exits with want. The pass lasts until nothing is
// progressing, for as long as an engine gets, unless more says otherwise.
func (s *site) once(want int, more ...string) ran {
	s.t.Helper()
	r := s.pass(replaced([]string{"--wait", patience.String()}, more)...)
	require.Equal(s.t, want, r.code, "exit code of wherry-agent once")
	return r
}

// replaced returns args and more without what more gives again of flags that take one value.
func replaced(args, more []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		if strings.HasPrefix(args[i], "--") && !slices.Contains([]string{"--registry", "--adapter"}, args[i]) && i+1 < len(args) && slices.Contains(more, args[i]) {
			i++
			continue
		}
		kept = append(kept, args[i])
	}
	return append(kept, more...)
}

// pass has the site's agent make one pass, however that ends.
func (s *site) pass(more ...string) ran {
	s.t.Helper()
	args := []string{
		"once", "--registry", "oci://" + s.prefix, "--environment", s.environment, "--cluster-type", clusterType,
		"--key", "cosign.pub", "--kubeconfig", cluster.Kubeconfig, "--state-dir", "agent", "--wait", "30s",
	}
	return s.program("wherry-agent", replaced(slices.Concat(args, s.flags), more)...)
}

// status is what "wherry-agent status -o json" says.
func (s *site) status() agent.Status {
	s.t.Helper()
	r := s.program("wherry-agent", "status", "--state-dir", "agent", "-o", "json")
	require.Zero(s.t, r.code, r.stderr)
	var status agent.Status
	require.NoError(s.t, json.Unmarshal([]byte(r.stdout), &status))
	for _, release := range []*agent.ReleaseStatus{status.Release.Running, status.Release.Desired} {
		if release != nil {
			release.AgeSeconds = 0 // differs from one look to the next
		}
	}
	return status
}

// until has the site's agent make passes until all assignments stand like that, and returns the last of them.
func (s *site) until(states map[string]bundle.State, more ...string) (r ran) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		r = s.pass(more...)
		if maps.Equal(states, s.states()) {
			return r
		}
		require.True(s.t, time.Now().Before(end), "got %v, want %v", s.states(), states)
	}
}

// states says how each assignment stands.
func (s *site) states() map[string]bundle.State {
	s.t.Helper()
	states := map[string]bundle.State{}
	for _, item := range s.status().Items {
		states[item.Assignment] = item.State
	}
	return states
}

// repository opens a repository of bundles, as somebody who may write to the registry.
func (s *site) repository(prefix, clusterType string) oci.Target {
	s.t.Helper()
	location, err := oci.Parse("oci://" + prefix)
	require.NoError(s.t, err)
	repository, err := location.Repository(bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository(), oci.Options{})
	require.NoError(s.t, err)
	return repository
}
