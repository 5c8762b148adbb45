//go:build e2e

package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
	answers "github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// A hub that follows signed releases says how far two agents are with a commit, one of which has stopped.

// fleetSite is a platform with trust documents, its hub and its agents.
type fleetSite struct {
	t      *testing.T
	dir    string
	prefix string
}

func newFleetSite(t *testing.T) *fleetSite {
	f := &fleetSite{t, t.TempDir(), registry.Prefix + "/fleet-" + strings.ToLower(rand.Text()[:8])}
	for _, name := range []string{"root", "ci", "next"} {
		f.wherry(0, "keys", "generate", "-o", name)
	}
	coffee, err := filepath.Abs("../examples/coffee")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(f.path("coffee"), os.DirFS(coffee)))
	f.wherry(0, "trust", "init", "--platform", "coffee", "--root-key", "root.pub", "--release-key", "ci.pub", "--key", "root.key")
	f.wherry(0, "trust", "publish", "trust.v1.json", "--to", "oci://"+f.prefix)
	return f
}

func (f *fleetSite) path(name string) string { return filepath.Join(f.dir, name) }

// wherry runs a command, which has to exit with a code, and returns its output.
func (f *fleetSite) wherry(code int, args ...string) string {
	f.t.Helper()
	return f.run(code, "wherry", args...)
}

// agent is wherry for a command of the agent.
func (f *fleetSite) agent(code int, args ...string) string {
	f.t.Helper()
	return f.run(code, "wherry-agent", args...)
}

func (f *fleetSite) run(code int, name string, args ...string) string {
	f.t.Helper()
	r := program(f.t, f.dir, name, args...)
	require.Equal(f.t, code, r.code, r.stderr)
	return r.stdout
}

// publish publishes a commit to a prefix, with a log level of its own so that it is a new release.
func (f *fleetSite) publish(prefix, key, commit, level string) {
	f.t.Helper()
	file := f.path("coffee/dev/configs/dev.yaml")
	data, err := os.ReadFile(file)
	require.NoError(f.t, err)
	_, after, found := strings.Cut(string(data), "LOG_LEVEL: ")
	require.True(f.t, found)
	before, _, _ := strings.Cut(after, "\n")
	require.NoError(f.t, os.WriteFile(file, []byte(strings.Replace(string(data), "LOG_LEVEL: "+before, "LOG_LEVEL: "+level, 1)), 0o600))
	f.wherry(0, "publish", "coffee/dev", "--environment", "dev", "--base", "coffee/main", "--workload", "storefront=coffee/workloads/storefront",
		"--workload", "roasting=coffee/workloads/roasting", "--to", "oci://"+prefix, "--trust", "trust.v1.json", "--key", key, "--commit", commit)
}

// serve starts the hub and returns its URL. Its log is the file log.
func (f *fleetSite) serve() string {
	f.t.Helper()
	log, err := os.Create(f.path("log"))
	require.NoError(f.t, err)
	hub := exec.Command(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry"), "hub", "serve", "--data", "hub", "--addr", "127.0.0.1:0",
		"--watch", "oci://"+f.prefix, "--trust", "trust.v1.json", "--watch-interval", "1s")
	hub.Dir, hub.Stderr = f.dir, log
	out, err := hub.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, hub.Start())
	f.t.Cleanup(func() {
		require.NoError(f.t, hub.Process.Signal(syscall.SIGTERM))
		require.NoError(f.t, hub.Wait())
		require.NoError(f.t, log.Close())
	})
	var url string
	_, err = fmt.Fscanln(out, &url)
	require.NoError(f.t, err)
	return url
}

// enroll makes an agent of a name that reports to the hub.
func (f *fleetSite) enroll(name, hub string) {
	f.t.Helper()
	config := fmt.Sprintf("registry: oci://%s\nplatform: coffee\nenvironment: dev\nclusterType: shop\ntrust: trust.v1.json\nstateDir: %s\nadapter: directory\ndirectoryRoot: %s-host\ncluster:\n  name: %s\n",
		f.prefix, name, name, name)
	require.NoError(f.t, os.WriteFile(f.path(name+".yaml"), []byte(config), 0o600))
	token := strings.TrimSpace(f.wherry(0, "hub", "tokens", "create", "--data", "hub", "--cluster-type", "shop"))
	require.NoError(f.t, os.WriteFile(f.path("token"), []byte(token), 0o600))
	f.agent(0, "enroll", "--config", name+".yaml", "--hub", hub, "--token-file", "token")
	f.once(name)
}

// once has an agent make a pass and bring its report to the hub.
func (f *fleetSite) once(name string, more ...string) {
	f.t.Helper()
	f.agent(0, append([]string{"once", "--config", name + ".yaml"}, more...)...)
}

// until asks the hub until an answer is as it has to be. The hub looks at the registry each second.
func (f *fleetSite) until(what string, holds func() bool) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if !time.Now().Before(end) {
			log, _ := os.ReadFile(f.path("log"))
			require.FailNow(f.t, what, string(log))
		}
	}
}

// rollout returns how far the fleet is with a commit; the command has to exit with a code.
func (f *fleetSite) rollout(code int, commit string) (r answers.Rollout) {
	f.t.Helper()
	out := f.wherry(code, "rollout", "commit", commit, "--environment", "dev", "--type", "shop", "--data", "hub", "-o", "json")
	require.NoError(f.t, json.Unmarshal([]byte(out), &r))
	return r
}

func (f *fleetSite) environment() answers.Environment {
	f.t.Helper()
	var list answers.Environments
	require.NoError(f.t, json.Unmarshal([]byte(f.wherry(0, "get", "environments", "--data", "hub", "-o", "json")), &list))
	require.Len(f.t, list.Environments, 1)
	return list.Environments[0]
}

func (f *fleetSite) relation(cluster string) answers.Relation {
	f.t.Helper()
	var list answers.Clusters
	require.NoError(f.t, json.Unmarshal([]byte(f.wherry(0, "get", "clusters", "--data", "hub", "-o", "json")), &list))
	for _, c := range list.Clusters {
		if c.Name == cluster && c.Desired != nil {
			return c.Desired.Relation
		}
	}
	return ""
}

func TestAHubKnowsTheDesiredStateOfItsFleet(t *testing.T) {
	t.Parallel()
	const first, second, third = "1111111111111111", "2222222222222222", "3333333333333333"
	f := newFleetSite(t)
	f.publish(f.prefix, "ci.key", first, "info")
	hub := f.serve()
	f.enroll("alive", hub)
	f.enroll("stopped", hub)
	f.until("both are compliant", func() bool { return f.environment().BaseCommit == first })
	all := f.rollout(0, first)
	require.True(t, all.Done)
	require.Equal(t, 2, all.Compliant)

	// One takes the next commit, the other has stopped: known to run another release at first, and unknown once it is silent.
	f.publish(f.prefix, "ci.key", second, "warn")
	f.until("the second commit is learned", func() bool { return f.environment().BaseCommit == second })
	f.once("alive")
	half := f.rollout(5, second)
	require.Equal(t, []int{1, 1, 0}, []int{half.Compliant, half.Waiting, half.Unknown})
	require.Equal(t, "stopped", half.Open[0].Cluster)
	require.Equal(t, answers.VerdictWaiting, half.Open[0].Verdict)
	require.Equal(t, answers.Behind, f.relation("stopped"))
	require.True(t, f.rollout(0, first).Done, "both have the first commit, or a later one")

	status := f.agent(0, "status", "--state-dir", "stopped", "-o", "json")
	require.NoError(t, os.WriteFile(f.path("stopped.json"), []byte(status), 0o600))
	f.wherry(0, "hub", "clusters", "add", "--data", "hub", "--from", "stopped.json", "--expected-interval", "1s", "--replace")
	var silent answers.Rollout
	f.until("it is silent", func() bool { silent = f.rollout(5, second); return silent.Unknown == 1 })
	require.Equal(t, answers.VerdictUnknown, silent.Open[0].Verdict)
	require.Equal(t, bundle.Compliant, silent.Open[0].LastState)
	require.WithinDuration(t, time.Now(), silent.Open[0].LastSeen, time.Minute)
	require.False(t, silent.Failed)

	// A release that is published elsewhere is foreign, although the same key has signed it.
	elsewhere := f.prefix + "/elsewhere"
	f.wherry(0, "trust", "publish", "trust.v1.json", "--to", "oci://"+elsewhere)
	f.publish(elsewhere, "ci.key", third, "error")
	f.once("alive", "--registry", "oci://"+elsewhere)
	require.Equal(t, answers.Foreign, f.relation("alive"))
	require.Equal(t, 1, f.rollout(5, second).Waiting)

	// A new epoch ends the old key. A record that it signs is refused.
	f.wherry(0, "trust", "rotate", "trust.v1.json", "--raise-epoch", "-o", "trust.v2.json")
	f.wherry(0, "trust", "add-key", "trust.v2.json", "--role", "release", "--public-key", "next.pub")
	f.wherry(0, "trust", "remove-key", "trust.v2.json", "--role", "release", "--public-key", "ci.pub")
	f.wherry(0, "trust", "sign", "trust.v2.json", "--key", "root.key")
	f.wherry(0, "trust", "publish", "trust.v2.json", "--to", "oci://"+f.prefix)
	f.publish(f.prefix, "next.key", third, "debug")
	f.until("the new epoch is learned", func() bool { return f.environment().BaseCommit == third })
	newest := f.environment().Record
	f.forgeRecord("ci")
	f.until("the forged record is refused", func() bool {
		log, err := os.ReadFile(f.path("log"))
		return err == nil && strings.Contains(string(log), "environment record refused") && strings.Contains(string(log), "reason=OldEpoch")
	})
	require.Equal(t, newest, f.environment().Record)
}

// forgeRecord makes a record that is newer than the newest one, signed by a key, the newest.
func (f *fleetSite) forgeRecord(key string) {
	f.t.Helper()
	location, err := oci.Parse("oci://" + f.prefix)
	require.NoError(f.t, err)
	repo, err := location.Repository(bundle.EnvironmentRepository("dev"), oci.Options{})
	require.NoError(f.t, err)
	ctx := f.t.Context()
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	require.NoError(f.t, err)
	v, err := bundle.ReadEnvironment(ctx, repo, desc)
	require.NoError(f.t, err)
	record := v.Record
	record.Sequence++
	document, err := record.Marshal()
	require.NoError(f.t, err)
	m, err := releases.ReadManifest(ctx, repo, desc)
	require.NoError(f.t, err)
	config := bundle.NewBlob(bundle.MediaTypeEnvironment, document)
	m.Config = config.Descriptor
	data, err := json.Marshal(m)
	require.NoError(f.t, err)
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, data)

	sealed, err := os.ReadFile(f.path(key + ".key"))
	require.NoError(f.t, err)
	private, err := keys.Load(sealed, []byte(password))
	require.NoError(f.t, err)
	signed, err := bundle.SignManifest(manifest.Descriptor.Digest, f.prefix, private)
	require.NoError(f.t, err)
	for _, b := range append([]bundle.Blob{config, manifest}, append(signed.Blobs, signed.Manifest)...) {
		require.NoError(f.t, releases.PushBlob(ctx, repo, b))
	}
	require.NoError(f.t, repo.Tag(ctx, signed.Manifest.Descriptor, bundle.SignatureTag(manifest.Descriptor.Digest)))
	require.NoError(f.t, repo.Tag(ctx, manifest.Descriptor, bundle.LatestTag))
}
