package promotecmd_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/promotecmd"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/cmd/internal/rolloutcmd"
	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// The commands run whole in this process, with git, a repository and a registry on disk, and in a bubble of virtual time: a day passes in
// no time, and a look is at its moment to the second. The clock stands still while a command reads and writes.

func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "promotecmd")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"HOME": home, "XDG_CACHE_HOME": home, "GIT_CONFIG_NOSYSTEM": "1", "COSIGN_PASSWORD": "x", "WHERRY_FORGE_TOKEN": forgetest.Writer} {
		os.Setenv(name, value)
	}
	flags.OpenKey = func(data, _ []byte) (*keys.Key, error) { // opening one of cosign's takes a second
		private, err := x509.ParsePKCS8PrivateKey(data)
		if err != nil {
			return nil, err
		}
		return keys.New(private.(crypto.Signer))
	}
	code := m.Run()
	os.RemoveAll(home)
	os.Exit(code)
}

// world is a platform in a repository at a forge, and the registry to which it is published. Dev is the first environment.
type world struct {
	t    *testing.T
	dir  string
	repo string // as commands name it
	*forgetest.Server
	to      oci.Location
	key     *keys.Key
	trusted published.Signers
	reports int64 // that were left
	// commits has the first digits of the commits that were pushed, by their content.
	commits map[string]string
}

// How a platform and its last environment are reached: by HTTP as at a forge, which takes longer. All else is on disk.
const (
	onDisk = false
	byHTTP = true
)

const objects = `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: edge}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge}
spec: {reconciler: reconciler, namespaceService: namespace}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: '{{ .Namespace }}'}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: web}
spec: {workspace: team, workload: {repo: %[1]s, branch: app, path: .}}
`

const reconciler = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: reconciler}
spec: {type: reconciler, manifests: ["{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Workload }}', namespace: '{{ .Namespace }}'}, data: {is: %s}}\n"]}
`

const workload = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web}
spec:
  deploymentTargets:
`

// newWorld makes a platform with a PromotionPolicy and the environments of its chain.
func newWorld(t *testing.T, overHTTP bool, policy string, chain ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), Server: forgetest.New(t, "github"), commits: map[string]string{}}
	w.to.Dir = w.path("registry")
	w.repo = w.Git
	if overHTTP {
		w.repo = w.URL
	}
	w.key = w.newKey("release")
	w.trusted = trust.PinnedBy([]*keys.Key{w.key})
	app := workload
	main := map[string]string{
		"objects.yaml": fmt.Sprintf(objects, w.Git), "content.yaml": fmt.Sprintf(reconciler, "zero"),
		"promotion.yaml": fmt.Sprintf("apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: edge}\nspec:\n  chain: [%s]\n%s", strings.Join(chain, ", "), policy),
	}
	for i, name := range chain {
		repo := w.Git
		if i == len(chain)-1 {
			repo = w.repo
		}
		app += fmt.Sprintf("    - {name: %[1]s, environment: %[1]s, manifests: {repo: \"https://example.invalid/m\", commit: c0ffee6789012345678901234567890123456789, path: .}}\n", name)
		main[".environments/"+name+".yaml"] = fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Environment\nmetadata: {name: %[1]s}\nspec: {controlPlane: {repo: %[2]s, branch: %[1]s, path: .}}\n", name, repo)
	}
	gittest.CommitFiles(t, w.Git, "app", map[string]string{"workload.yaml": app})
	first := gittest.CommitFiles(t, w.Git, "main", main)
	w.RunGit("symbolic-ref", "HEAD", "refs/heads/main")
	for _, name := range chain {
		gittest.CommitFiles(t, w.Git, name, map[string]string{"base-repo.yaml": fmt.Sprintf(
			"apiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: main}\nspec: {repo: %s, branch: main, path: ., commit: %s}\n", w.Git, first)})
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// newKey makes a key in the file NAME.key.
func (w *world) newKey(name string) *keys.Key {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	data, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.path(name+".key"), data, 0o600))
	key, err := keys.New(private)
	require.NoError(w.t, err)
	return key
}

// push commits other content to the base, as a team would.
func (w *world) push(text string) {
	w.t.Helper()
	w.commits[text] = w.Commit("main", "content.yaml", fmt.Sprintf(reconciler, text))[:7]
}

// bubble runs a test in virtual time, in which w.t is that of the bubble. Its loops are ended after it.
func (w *world) bubble(test func()) {
	t := w.t
	defer func() { w.t = t }()
	synctest.Test(t, func(inner *testing.T) {
		w.t = inner
		test()
	})
}

// pass lets time pass, and waits until the commands have done what there is to do.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// commands are all that are needed here, as cmd/wherry has them.
func commands() *cobra.Command {
	root := &cobra.Command{Use: "wherry", SilenceErrors: true, SilenceUsage: true}
	rollout := &cobra.Command{Use: "rollout"}
	rollout.AddCommand(rolloutcmd.Commands()...)
	root.AddCommand(promotecmd.Gate(), promotecmd.Promote(), releasecmd.Publish(), releasecmd.Sign(), rollout)
	return root
}

// run runs a command with all of its output.
func (w *world) run(ctx context.Context, out *output, args ...string) error {
	root := commands()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	return root.ExecuteContext(ctx)
}

// must runs a command, which has to end well, and returns what it said.
func (w *world) must(args ...string) string {
	w.t.Helper()
	var out output
	require.NoError(w.t, w.run(w.t.Context(), &out, args...), out.String())
	return out.String()
}

// fails runs a command, which has to end with an error, and returns what it said.
func (w *world) fails(args ...string) string {
	w.t.Helper()
	var out output
	require.Error(w.t, w.run(w.t.Context(), &out, args...), out.String())
	return out.String()
}

// promote are the arguments of wherry promote.
func (w *world) promote(args ...string) []string {
	return append([]string{"promote", w.repo, "--to", w.to.String(), "--key", w.path("release.key")}, args...)
}

// rollout are the arguments of a command of wherry rollout.
func (w *world) rollout(command, environment string, args ...string) []string {
	return append([]string{"rollout", command, w.to.String(), "--environment", environment, "--key", w.path("release.key")}, args...)
}

// advance are the arguments of wherry rollout advance.
func (w *world) advance(environment string) []string {
	return []string{"rollout", "advance", w.repo, "--environment", environment, "--to", w.to.String(), "--key", w.path("release.key")}
}

// sign adds the second signature to what waits for it in environments.
func (w *world) sign(environments ...string) {
	w.t.Helper()
	for _, name := range environments {
		require.Contains(w.t, w.must("sign", w.to.String(), "--environment", name, "--trust", w.path("trust.json"), "--key", w.path("ben.key"), "--yes"), "released")
	}
}

// standing reads what an environment has.
func (w *world) standing(environment string) state.Reader {
	w.t.Helper()
	store, err := w.to.Open(oci.Options{})
	require.NoError(w.t, err)
	return state.New(w.to, store, w.trusted, time.Now(), "edge", environment, w.t.Logf)
}

// record returns the newest record of an environment that those who are trusted have signed.
func (w *world) record(environment string) bundle.EnvironmentRecord {
	w.t.Helper()
	at := w.standing(environment)
	found, err := at.Record(w.t.Context())
	require.NoError(w.t, err)
	require.NotNil(w.t, found.Verified, environment)
	return found.Verified.Record
}

// release returns what a ring of an environment has; all clusters for an empty one.
func (w *world) release(environment, ring string) *bundle.Verified {
	w.t.Helper()
	at := w.standing(environment)
	edge, err := at.Type(w.t.Context(), "edge")
	require.NoError(w.t, err)
	v, _, err := edge.Release(w.t.Context(), bundle.MovingTag(ring))
	require.NoError(w.t, err)
	return v
}

// has returns the base commit that an environment has, by its content.
func (w *world) has(environment string) string {
	w.t.Helper()
	return w.named(w.record(environment).BaseCommit)
}

// full returns the whole name of the commit with a content.
func (w *world) full(content string) string {
	w.t.Helper()
	return strings.TrimSpace(w.RunGit("rev-parse", w.commits[content]))
}

// named puts the contents of commits in the places of their names.
func (w *world) named(text string) string {
	for content, commit := range w.commits {
		text = regexp.MustCompile(commit+"[0-9a-f]*").ReplaceAllString(text, content)
	}
	return text
}

// addCluster adds a cluster to the roster of dev, which joins at a time; zero is always.
func (w *world) addCluster(name, ring string, joins time.Time) {
	w.t.Helper()
	pem, err := bundle.MarshalPublicKey(agentKey(name).Public())
	require.NoError(w.t, err)
	text := fmt.Sprintf("apiVersion: wherry.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %[1]s}\nspec: {clusterType: edge, uid: uid-%[1]s, ring: %[2]s, publicKey: %[3]q", name, ring, pem)
	if !joins.IsZero() {
		text += ", registeredAt: " + joins.UTC().Format(time.RFC3339)
	}
	w.Commit("dev", name+".yaml", text+"}\n")
}

func agentKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%-32s", name)))
}

// report leaves a report of a cluster of dev in the registry, about what the newest record has for its ring.
func (w *world) report(name, ring string, state bundle.State, items ...bundle.Item) {
	w.t.Helper()
	release := &bundle.ReportRelease{Digest: w.record("dev").ReleaseOf("edge", ring), Sequence: 1}
	w.reports++
	body, err := json.Marshal(bundle.Report{
		Schema: bundle.ReportSchema, Cluster: bundle.ReportCluster{UID: "uid-" + name, Name: name, Platform: "edge", Type: "edge", Environment: "dev"},
		Agent: bundle.ReportAgent{Version: "1", Incarnation: 1, Seq: w.reports}, Kind: bundle.Snapshot, OccurredAt: time.Now().UTC(), State: state,
		Observed: release, Desired: release, Items: append([]bundle.Item{}, items...),
	})
	require.NoError(w.t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, agentKey(name))
	require.NoError(w.t, err)
	blobs, err := bundle.StoredReports([][]byte{envelope})
	require.NoError(w.t, err)
	repo, err := w.to.Repository(bundle.ReportRepository("uid-"+name), oci.Options{})
	require.NoError(w.t, err)
	for _, b := range blobs {
		if there, err := repo.Exists(w.t.Context(), b.Descriptor); err == nil && !there {
			require.NoError(w.t, repo.Push(w.t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
		}
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), blobs[len(blobs)-1].Descriptor, bundle.ReportTag(1, w.reports)))
}

// embed has the environments deliver the folder of the team's repository, which has the text one.
func (w *world) embed(environments ...string) {
	w.t.Helper()
	app := workload
	for _, name := range environments {
		app += fmt.Sprintf("    - {name: %[1]s, environment: %[1]s, manifests: {path: ./live}}\n", name)
	}
	w.Commit("app", "workload.yaml", app)
	w.deliver("one")
	base := w.Commit("main", "objects.yaml", strings.Replace(fmt.Sprintf(objects, w.Git), "{name: edge}\nspec: {reconciler", "{name: edge, annotations: {wherry.dev/delivery: embedded}}\nspec: {reconciler", 1))
	for _, name := range environments {
		w.Commit(name, "base-repo.yaml", fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: main}\nspec: {repo: %s, branch: main, path: ., commit: %s}\n", w.Git, base))
	}
}

// deliver commits another text to the team's folder.
func (w *world) deliver(text string) {
	w.t.Helper()
	w.Commit("app", "live/config.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: text}, data: {is: "+text+"}}\n")
}

// delivered returns the text that a ring of an environment has; all clusters for an empty one.
func (w *world) delivered(environment, ring string) string {
	w.t.Helper()
	tree := w.tree(environment, ring)
	defer tree.Close()
	require.Len(w.t, tree.Assignments, 1)
	files, err := tree.Files(tree.Assignments[0])
	require.NoError(w.t, err)
	for _, f := range files {
		if _, text, is := strings.Cut(string(f.Data), "is: "); is && strings.HasPrefix(f.Path, bundle.ManifestsDir+"/") {
			return strings.Trim(text, "}\n")
		}
	}
	return ""
}

// tree returns what a ring of an environment has. The caller closes it.
func (w *world) tree(environment, ring string) *published.Tree {
	w.t.Helper()
	v, at := w.release(environment, ring), w.standing(environment)
	of, err := at.Place.Type(v.Release.Stream())
	require.NoError(w.t, err)
	tree, err := of.Tree(w.t.Context(), v)
	require.NoError(w.t, err)
	return tree
}

// runs leaves a report of a cluster of dev that runs all that dev has.
func (w *world) runs(name string) {
	w.t.Helper()
	tree := w.tree("dev", "")
	defer tree.Close()
	var items []bundle.Item
	for _, a := range tree.Assignments {
		items = append(items, bundle.Item{Assignment: a.Name, Workload: a.Workload, Target: a.Target, State: bundle.Compliant, Since: time.Now().UTC(), Content: a.Content})
	}
	w.report(name, "", bundle.Compliant, items...)
}

// records counts the records of an environment.
func (w *world) records(environment string) (n int) {
	w.t.Helper()
	repo, err := w.to.Repository(bundle.EnvironmentRepository(environment), oci.Options{})
	require.NoError(w.t, err)
	tags, err := repo.Tags(w.t.Context())
	require.NoError(w.t, err)
	for _, tag := range tags {
		if regexp.MustCompile(`^s\d+-\d+$`).MatchString(tag) {
			n++
		}
	}
	return n
}

// twoSigners has releases need the signatures of the release key and of ben.key, by the trust document trust.json.
func (w *world) twoSigners() {
	w.t.Helper()
	anna, ben := keytest.Named(w.t, "anna", w.key), keytest.Named(w.t, "ben", w.newKey("ben"))
	envelope, err := trust.New("edge", bundle.Role{Threshold: 1, Keys: []bundle.TrustKey{anna}}, bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{anna, ben}}, 1000*24*time.Hour, time.Now())
	require.NoError(w.t, err)
	signed, err := trust.Sign(envelope, nil, []*keys.Key{w.key})
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.path("trust.json"), signed, 0o644))
	chain, err := trust.Begin(signed)
	require.NoError(w.t, err)
	w.trusted = published.Of(chain)
}

// loop is a command that goes on.
type loop struct {
	*world
	out     output
	read    int                  // lines that said has returned
	moments map[string]time.Time // of lines, by their text
	end     func() error
}

// watch starts a command, and returns once it waits for something.
func (w *world) watch(args []string) *loop {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	l := &loop{world: w, moments: map[string]time.Time{}}
	l.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	w.t.Cleanup(func() { require.NoError(w.t, l.end()) })
	if !slices.Contains(args, "--interval") {
		args = append(args, "--interval", "5m")
	}
	go func() { ended <- w.run(ctx, &l.out, append(args, "--watch")...) }()
	synctest.Wait()
	return l
}

// short leaves out what differs from run to run, and all but the first numbers of the first rule that waits or fails.
func short(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`; clusters counted by .*`, ""},
		{`soak ends in \S+`, "soak"},
		{` by release key [0-9a-f]+`, ""},
		{`edge/dev: `, ""},
		{`(, wants |[,;] \d+ published|: http).*`, ""},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}

// said returns the lines since it was called last which have one of some texts, all without any, in the words of the test: without hints,
// publications and numbers that change.
func (l *loop) said(about ...string) []string {
	l.t.Helper()
	synctest.Wait()
	all := strings.SplitAfter(l.out.String(), "\n")
	lines := []string{}
	for _, line := range all[l.read : len(all)-1] {
		stamp, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "hint: ") || strings.Contains(text, ": published ") || strings.HasPrefix(text, "watching") {
			continue
		}
		at, err := time.Parse(time.RFC3339, stamp)
		require.NoError(l.t, err, line)
		text = short(l.named(text))
		if l.moments[text] = at; len(about) == 0 || slices.ContainsFunc(about, func(a string) bool { return strings.Contains(text, a) }) {
			lines = append(lines, text)
		}
	}
	l.read = len(all) - 1
	return lines
}

// output is written by a command and read by a test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
