package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/load/hubload"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/rollout/gate"
)

// gateClusters is how many clusters of one environment the hub of BenchmarkGateCheck has. Each has benchAssignments.
const (
	gateClusters     = 100_000
	benchAssignments = 10
	gateTypes        = 20 // see hubload
)

// BenchmarkGateCheck prints the figures gate-check-…: a gate of prod that judges what stage has, with all its clusters in a hub and
// each rule that a hub has facts for. The programs are those of WHERRY_E2E_PROGRAMS.
func BenchmarkGateCheck(b *testing.B) {
	for range b.N {
		o := newBenchHub(b)
		platform, to, observed := benchPlatform(b)
		sites := benchFleet("gate", benchAssignments, 1)
		sites.Environment, sites.Observed, sites.Healthy = "stage", observed, true
		before := time.Now().Add(-time.Hour) // the platform was published
		o.withStoreAt(func() time.Time { return before }, func(db store.Store) {
			began := time.Now()
			require.NoError(b, sites.Register(b.Context(), db, 0, gateClusters))
			require.NoError(b, sites.Fill(b.Context(), db, 0, gateClusters, 1))
			fmt.Printf("filled in %s\n", time.Since(began).Round(time.Second))
		})
		h := o.serve("--watch", to, "--trust-key", filepath.Join(filepath.Dir(platform), "release.pub"))
		o.rolloutMS(h, newestRecord(b, to, "stage"))

		token := filepath.Join(o.dir, "token")
		require.NoError(b, os.WriteFile(token, []byte(h.Token()), 0o600))
		var took []time.Duration
		for range 20 {
			began := time.Now()
			out := benchWherry(b, "gate", "check", platform, "--environment", "prod", "--to", to, "--release-key", "release.pub", "--hub", h.URL, "--token-file", token, "-o", "json")
			took = append(took, time.Since(began))
			var v gate.Verdict
			require.NoError(b, json.Unmarshal(out, &v))
			require.Equal(b, gate.Pass, v.Result, "%s", out)
			require.Equal(b, gateClusters, v.Cohort.Clusters)
		}
		slices.Sort(took)
		fmt.Printf("a gate check takes %s to %s\n", took[0].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		figure(b, "gate-check-ms", float64(took[len(took)/2].Microseconds())/1000, "ms")
		require.NoError(b, h.Stop(), h.Log())
	}
}

// rolloutMS waits until the hub has learned a record, and prints how long the questions of a gate take over HTTP.
func (b benchHub) rolloutMS(h *hubload.Hub, record bundle.EnvironmentRecord) {
	c := client.Client{URL: h.URL, Token: h.Token(), HTTP: &http.Client{Timeout: time.Minute}}
	all := fleet.RolloutQuery{RegisteredBefore: record.IssuedAt, MaxReportAge: 36 * time.Hour, FailuresSince: record.IssuedAt.Add(-time.Hour)}
	all.Limit = 20
	some := all
	some.FailuresSince, some.Selector = time.Time{}, "gpu=true"
	var took []time.Duration
	for end := time.Now().Add(time.Minute); len(took) < 20; {
		began := time.Now()
		whole, err := c.Rollout(b.Context(), "stage", record.BaseCommit, all)
		require.NoError(b, err, h.Log())
		_, err = c.Rollout(b.Context(), "stage", record.BaseCommit, some)
		require.NoError(b, err, h.Log())
		if whole.Published {
			took = append(took, time.Since(began))
			require.Equal(b, gateClusters, whole.Clusters)
			require.Equal(b, gateClusters*49/50, whole.Compliant)
		}
		require.True(b, time.Now().Before(end), h.Log())
	}
	slices.Sort(took)
	figure(b.B, "gate-check-questions-ms", float64(took[len(took)/2].Microseconds())/1000, "ms")
}

// benchPlatform makes a platform with two environments in a git repository, and publishes it. It returns the repository, the
// location, and the releases of stage by cluster type.
func benchPlatform(b *testing.B) (repository, to string, observed map[string]bundle.ReportRelease) {
	dir := b.TempDir()
	b.Chdir(dir)
	b.Setenv("COSIGN_PASSWORD", "secret")
	benchWherry(b, "keys", "generate", "-o", "release")
	repository, to = filepath.Join(dir, "platform.git"), "oci-layout:"+filepath.Join(dir, "out")
	apps := filepath.Join(dir, "apps.git")
	commit := func(repo, branch string, files map[string]string) string {
		work := b.TempDir()
		for name, text := range files {
			path := filepath.Join(work, filepath.FromSlash(name))
			require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(b, os.WriteFile(path, []byte(text), 0o644))
		}
		hash, err := gittest.Commit(repo, branch, work)
		require.NoError(b, err)
		return hash
	}
	commit(apps, "main", map[string]string{"workload.yaml": `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web}
spec:
  deploymentTargets:
    - {name: s, environment: stage, manifests: {repo: "https://example.invalid/m", branch: main, path: .}}
    - {name: p, environment: prod, manifests: {repo: "https://example.invalid/m", branch: main, path: .}}
`})
	main := map[string]string{"objects.yaml": fmt.Sprintf(`apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: shop}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: reconciler}
spec: {type: reconciler, manifests: ["{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Workload }}', namespace: '{{ .Namespace }}'}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: '{{ .Namespace }}'}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: web}
spec: {workload: {repo: %q, branch: main, path: .}, workspace: team}
---
apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: shop}
spec:
  chain: [stage, prod]
  environments:
    - name: prod
      gate:
        minReported: 90
        minCompliant: 95
        maxFailed: %d
        maxFailures: %d
        maxReportAge: 36h
        allowFloating: true
        requiredClusters: {matchExpressions: [{key: site, operator: In, values: ["1", "2"]}]}
`, apps, gateClusters/20, gateClusters)}
	for _, name := range []string{"stage", "prod"} {
		main[".environments/"+name+".yaml"] = fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: %[1]s}\nspec: {controlPlane: {repo: %[2]q, branch: %[1]s, path: .}}\n", name, repository)
	}
	base := commit(repository, "main", main)
	objects := fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: main}\nspec: {repo: %q, branch: main, path: ., commit: %s}\n", repository, base) +
		"---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: all}\n"
	for i := range gateTypes {
		objects += fmt.Sprintf("---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata: {name: type-%02d}\nspec: {reconciler: reconciler, namespaceService: namespace}\n", i)
	}
	for _, name := range []string{"stage", "prod"} {
		commit(repository, name, map[string]string{"objects.yaml": objects})
	}
	benchWherry(b, "publish", repository, "--environment", "stage", "--to", to, "--key", "release.key")
	record := newestRecord(b, to, "stage")
	observed = map[string]bundle.ReportRelease{}
	for typ, d := range record.ClusterTypes {
		observed[typ] = bundle.ReportRelease{Digest: d, Epoch: record.Epoch, Sequence: record.Sequence, Number: 1, BaseCommit: record.BaseCommit, EnvironmentCommit: record.EnvironmentCommit, IssuedAt: record.IssuedAt}
	}
	require.Len(b, observed, gateTypes)
	return repository, to, observed
}

// newestRecord returns the newest record of an environment, which this test has published.
func newestRecord(b *testing.B, at, environment string) bundle.EnvironmentRecord {
	location, err := oci.Parse(at)
	require.NoError(b, err)
	s, err := location.Open(oci.Options{})
	require.NoError(b, err)
	repository, err := s.Repository(bundle.EnvironmentRepository(environment))
	require.NoError(b, err)
	desc, err := repository.Resolve(b.Context(), bundle.LatestTag)
	require.NoError(b, err)
	v, err := bundle.ReadEnvironment(b.Context(), repository, desc)
	require.NoError(b, err)
	return v.Record
}

// benchWherry runs the program, which has to end well, and returns its output.
func benchWherry(b *testing.B, args ...string) []byte {
	programs := os.Getenv("WHERRY_E2E_PROGRAMS")
	if programs == "" {
		b.Fatal(`WHERRY_E2E_PROGRAMS names no folder with the program: run "make bench-promotion"`)
	}
	cmd := exec.Command(filepath.Join(programs, "wherry"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(b, err, "wherry %s\n%s%s", strings.Join(args, " "), out, &stderr)
	return out
}
