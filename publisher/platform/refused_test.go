package platform

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/manifests"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/builtin"
)

// signed is what would be signed of a platform.
func signed(t *testing.T, src Source) *scheduler.Result {
	t.Helper()
	built, err := Build(t.Context(), src, Options{ToSign: true, Pin: &sources.Options{}})
	require.NoError(t, err)
	return built.Result
}

// What Kalypso renders is published, also templates' output that is no Kubernetes object. What fails did so before files
// were looked at.
func TestKalypsosCasesAreSignedAsTheyAreRendered(t *testing.T) {
	root := os.Getenv("WHERRY_CASES")
	if root == "" {
		t.Log("WHERRY_CASES is not set: the cases of Kalypso are not run")
		return
	}
	for _, kind := range []string{"cases", "probes"} {
		files, err := filepath.Glob(filepath.Join(root, "kalypso", kind, "*/case.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			t.Run(kind+"/"+filepath.Base(filepath.Dir(file)), func(t *testing.T) {
				options := caseOptions(t, file)
				if len(options.Bases) == 0 {
					options.Bases = []string{t.TempDir()} // and no repository that an object names
				}
				rendered, all := t.TempDir(), t.TempDir()
				_, err := outdir.Write(t.Context(), all, render(t, options), outdir.Options{})
				require.NoError(t, err)
				result := signed(t, options)
				for _, ct := range result.ClusterTypes {
					for _, f := range ct.Failures {
						require.NotRegexp(t, "^E[0-9]", f.Reason, "%s/%s: %v", ct.Name, f.Name, f.Err)
						require.NoError(t, os.RemoveAll(filepath.Join(all, ct.Name, f.Name)))
					}
				}
				_, err = outdir.Write(t.Context(), rendered, result, outdir.Options{})
				require.NoError(t, err)
				require.Equal(t, gittest.ReadFiles(t, all), gittest.ReadFiles(t, rendered))
			})
		}
	}
}

const anyText = `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: p}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge%s}
spec: {reconciler: text, namespaceService: ns}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec: {deploymentTargetSelector: {labelSelector: {}}, clusterTypeSelector: {labelSelector: {}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: ns}
spec: {type: namespace, manifests: ["apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ .Namespace }}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: text}
spec: {type: reconciler, manifests: ["{{ .Manifests.text }}"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: app%s}
spec:
  deploymentTargets:
`

// pieces of files: sound ones, and ones that spoil a file.
var pieces = []string{
	"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b}\nspec: {replicas: 1}\n",
	"---\n", "---\n", "---\n", "---\n", "\n", "# a\n", "data:\n  a: 1\n", "data:\n  a: \"1\"\n", "spec:\n  replicas: '1'\n", "  labels: {a: yes}\n", "  labels: {a: \"yes\"}\n", "  labels:\n", "  namespace: 1\n",
	"kind: [Secret\n", "kind: Secret\n", "apiVersion: v1\n", "- a\n", "apiVersion: v1\nkind: List\nitems: [{}]\n", "apiVersion: v1\nkind: List\nitems: []\n", "x: &x {a: 1}\ny: {<<: *x, a: 2}\n", "x: *y\n", "metadata: {name: c}\n", "\tx: 1\n",
	"apiVersion: example.com/v1\nkind: A\nmetadata: {name: d}\nspec: [1]\n", "apiVersion: a/b/c\nkind: A\nmetadata: {name: e}\n", "apiVersion: v1\nkind: Service\nmetadata: {name: f}\nspec: {ports: [{port: 1}, {port: 2}]}\n", "'", "%", "metadata: {name: A}\n",
	"apiVersion: v1\nkind: Secret\nmetadata: {name: g}\ndata: {a: b!}\n", "...\n", "apiVersion: v1\nkind: A\nmetadata: {name: h, labels: {wherry.dev/assignment: i}}\n",
}

// TestNothingIsSignedThatAgentsRefuseToParse renders random texts. Whatever is packed, the parser of agents takes, and so does
// what knows the kinds of an API server.
func TestNothingIsSignedThatAgentsRefuseToParse(t *testing.T) {
	for _, annotations := range []string{"", ", annotations: {wherry.dev/adapter: kubernetes}", ", annotations: {wherry.dev/adapter: flux}"} {
		r := rand.New(rand.NewPCG(3, uint64(len(annotations))))
		var targets strings.Builder
		for i := range 400 {
			var text strings.Builder
			for range 1 + r.IntN(5) {
				text.WriteString(pieces[r.IntN(len(pieces))])
			}
			quoted, err := json.Marshal(text.String())
			require.NoError(t, err)
			fmt.Fprintf(&targets, "    - {name: t%d, environment: dev, manifests: {text: %s}}\n", i, quoted)
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(fmt.Sprintf(anyText, annotations, "")+targets.String()), 0o600))
		ct := signed(t, Source{Platform: dir, Environment: "dev"}).ClusterTypes[0]
		require.Len(t, append(ct.Failures, make([]scheduler.Failure, len(ct.Assignments))...), 400)
		require.Greater(t, len(ct.Failures), 100)
		require.Greater(t, len(ct.Assignments), 20)
		packed, _, err := pack.Tree(ct.Assignments, nil)
		require.NoError(t, err)
		unpack := bundle.Unpacker{Take: func(f bundle.File) error {
			if strings.HasPrefix(f.Path, bundle.MetaDir) || !manifests.IsFile(f.Path) {
				return nil
			}
			found, err := manifests.Parse(f.Path, f.Data)
			require.NoError(t, err, "%s", f.Data)
			for _, o := range found {
				require.Empty(t, builtin.Check(o.Object), "%s", f.Data)
			}
			return nil
		}}
		require.NoError(t, unpack.Gzip(strings.NewReader(string(packed.Gzip)), packed.Content))
	}
}

// Agents bound the manifests of an assignment together; what they would refuse is not signed, unless the Platform says so.
func TestNothingIsSignedThatIsTooMuchForAgents(t *testing.T) {
	document := func(name string) string { // 12 MiB for agents
		return "apiVersion: example.com/v1\nkind: Large\nmetadata: {name: " + name + "}\na: &a " + strings.Repeat("x", 128<<10) + "\nspec: [" + strings.Repeat("*a, ", 95) + "*a]\n"
	}
	targets := ""
	for name, text := range map[string]string{"large": document("a") + "---\n" + document("b"), "too-large": document("a") + "---\n" + document("b") + "---\n" + document("c")} {
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		targets += fmt.Sprintf("    - {name: %s, environment: dev, manifests: {text: %s}}\n", name, quoted)
	}
	build := func(ignore string) scheduler.ClusterTypeResult {
		dir := t.TempDir()
		text := strings.Replace(fmt.Sprintf(anyText, "", ""), "kind: Platform\nmetadata: {name: p}\n", "kind: Platform\nmetadata: {name: p}\n"+ignore, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text+targets), 0o600))
		return signed(t, Source{Platform: dir, Environment: "dev"}).ClusterTypes[0]
	}
	ct := build("")
	require.Len(t, ct.Assignments, 1)
	require.Equal(t, "app-large", ct.Assignments[0].Name)
	require.Equal(t, "app-too-large", ct.Failures[0].Name)
	require.Equal(t, scheduler.FailureReason("E1610"), ct.Failures[0].Reason)
	ct = build("spec: {ignore: [{code: E1610}]}\n")
	require.Empty(t, ct.Failures)
}
