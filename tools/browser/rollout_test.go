package browser

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chain is a platform of two environments in one repository, file by file. prod has rings, and an approval of a leader as its gate.
var chain = map[string]string{
	".environments/all.yaml": `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {name: dev}
spec: {controlPlane: {repo: "REPO", branch: main, path: dev}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {name: prod}
spec: {controlPlane: {repo: "REPO", branch: main, path: prod}}
`,
	"base/platform.yaml": `apiVersion: wherry.dev/v1alpha1
kind: Platform
metadata: {name: coffee}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: store}
spec: {reconciler: reconciler, namespaceService: namespace}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: reconciler}
spec: {type: reconciler, manifests: ["{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Workload }}', namespace: '{{ .Namespace }}'}, data: {is: one}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: '{{ .Namespace }}'}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: web}
spec: {workload: {repo: "REPO", branch: main, path: app}, workspace: shop}
`,
	"base/promotion.yaml": `apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: coffee}
spec:
  chain: [dev, prod]
  groups:
    - name: leads
      members: [{name: anna}]
      hubs: ["HUBKEY"]
  environments:
    - name: prod
      rings: [canary, stable]
      gate: {minReported: 100, allowFloating: true, content: any, approvals: {required: 1, group: leads}}
      ringGate: {minReported: 100, allowFloating: true}
`,
	"app/workload.yaml": `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web}
spec:
  deploymentTargets:
    - {name: dev, environment: dev, manifests: {repo: "https://example.invalid/m", branch: main, path: ./shop}}
    - {name: prod, environment: prod, manifests: {repo: "https://example.invalid/m", branch: main, path: ./shop}}
`,
	"dev/base-repo.yaml": baseRepo, "prod/base-repo.yaml": baseRepo,
}

const baseRepo = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata: {name: main}
spec: {repo: "REPO", branch: main, path: base, commit: COMMIT}
`

// shell runs programs in a folder.
type shell struct {
	*testing.T
	folder string
}

// run requires that a program ends with a code, and returns what it wrote to standard output, without the last line break.
func (s shell) run(code int, program string, args ...string) string {
	s.Helper()
	if strings.HasPrefix(program, "wherry") {
		program = filepath.Join(os.Getenv("WHERRY_E2E_PROGRAMS"), program)
	}
	cmd := exec.CommandContext(s.Context(), program, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = s.folder, &said
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=secret", "HOME="+s.folder, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=anna", "GIT_AUTHOR_EMAIL=anna@example.com", "GIT_COMMITTER_NAME=anna", "GIT_COMMITTER_EMAIL=anna@example.com")
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil {
		require.ErrorAs(s, err, &ended)
	}
	if errors.As(err, &ended) {
		require.Equal(s, code, ended.ExitCode(), "%s %v\n%s%s", program, args, out, &said)
	} else {
		require.Zero(s, code, "%s %v\n%s", program, args, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (s shell) write(name, text string) {
	s.Helper()
	path := filepath.Join(s.folder, name)
	require.NoError(s, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(s, os.WriteFile(path, []byte(text), 0o644))
}

// commit pushes a commit with all files, and returns it.
func (s shell) commit(message string) string {
	s.Helper()
	s.run(0, "git", "-C", "chain", "add", "--all")
	s.run(0, "git", "-C", "chain", "commit", "-q", "-m", message)
	s.run(0, "git", "-C", "chain", "push", "-q", "origin", "main")
	return s.run(0, "git", "-C", "chain", "rev-parse", "HEAD")
}

// "Why is prod held, and who can let it on?" A person approves on a page, the promoter goes on, and the page shows how the rollout moves.
func TestWhyProdIsHeldAndWhoLetsItOn(t *testing.T) {
	browser, s := chromium(t), shell{t, t.TempDir()}
	s.run(0, "wherry", "keys", "generate", "-o", "cosign")
	hub := serve(t, s.folder, "--data", "hub", "--trust-key", "cosign.pub")
	token := func(name, role string) string {
		return s.run(0, "wherry", "hub", "access", "create", name, "--role", role, "--expires", "1d", "--data", "hub")
	}
	anna, viewer := newTab(t, browser, hub, token("anna", "approver")), newTab(t, browser, hub, token("screen", "viewer"))
	for _, c := range []struct{ name, environment, ring string }{{"dev-1", "dev", ""}, {"shop-1", "prod", "canary"}, {"shop-2", "prod", "stable"}} {
		s.write(c.name+".yaml", "registry: oci-layout:out\nhubKey: hub/hub.pub\nplatform: coffee\nenvironment: "+c.environment+"\nclusterType: store\n"+
			strings.TrimSuffix("ring: "+c.ring+"\n", "ring: \n")+"keys: [cosign.pub]\nstateDir: states/"+c.name+"\nadapter: directory\ndirectoryRoot: hosts/"+c.name+"\ncluster: {name: "+c.name+", uid: "+c.name+"}\n")
		s.run(0, "wherry-agent", "enroll", "--request", c.name+".request", "--config", c.name+".yaml")
		s.run(0, "wherry", "hub", "clusters", "add", "--data", "hub", "--request", c.name+".request")
	}
	report := func(cluster string) {
		s.run(0, "wherry-agent", "once", "--hub", hub, "--config", cluster+".yaml")
	}

	hubKey, err := os.ReadFile(filepath.Join(s.folder, "hub", "hub.pub"))
	require.NoError(t, err)
	repo := "file://" + s.folder + "/chain.git"
	s.run(0, "git", "init", "-q", "--bare", "-b", "main", "chain.git")
	s.run(0, "git", "init", "-q", "-b", "main", "chain")
	s.run(0, "git", "-C", "chain", "remote", "add", "origin", repo)
	fill := strings.NewReplacer("REPO", repo, "HUBKEY", strings.ReplaceAll(string(hubKey), "\n", `\n`))
	for name, text := range chain {
		s.write("chain/"+name, fill.Replace(text))
	}
	first := s.commit("Begin the chain")
	for _, name := range []string{"dev", "prod"} {
		s.write("chain/"+name+"/base-repo.yaml", strings.ReplaceAll(fill.Replace(baseRepo), "COMMIT", first))
	}
	s.commit("Pin the first commit")
	publisher := token("promoter", "publisher")
	s.write("promoter.token", publisher+"\n")
	promote := func(code int, environment string) {
		t.Helper()
		s.run(code, "wherry", "promote", "chain", "-e", environment, "--to", "oci-layout:out", "--key", "cosign.key", "--hub", hub, "--token-file", "promoter.token")
	}
	promote(0, "dev")
	promote(0, "prod")
	for _, c := range []string{"dev-1", "shop-1", "shop-2"} {
		report(c)
	}
	rings := func(p tab) map[string]string {
		p.Helper()
		p.open("/environments/prod")
		of := map[string]string{}
		for _, row := range p.rows() {
			if r := row["Compliant"]; r != "" && (row[""] == "canary" || row[""] == "stable") {
				of[row[""]] = r
			}
		}
		return of
	}
	both := map[string]string{"canary": "1 of 1 compliant", "stable": "1 of 1 compliant"}
	require.Equal(t, both, rings(viewer))

	// A change is proved in dev. prod waits for a person.
	s.write("chain/base/platform.yaml", strings.ReplaceAll(fill.Replace(chain["base/platform.yaml"]), "is: one", "is: two"))
	second := s.commit("web: say two")
	promote(0, "dev")
	report("dev-1")
	promote(5, "prod")

	viewer.open("/environments/prod")
	require.Contains(t, viewer.text("main"), first[:8])
	require.NotContains(t, viewer.text("main"), "Approve", "a viewer may not")

	anna.open("/")
	anna.follow(`//main//a[.="prod"]`)
	anna.follow(`//main//a[@class="button" and .="Approve"]`)
	require.Equal(t, "Approve prod", anna.text("h1"))
	require.Contains(t, anna.text("main .facts"), second[:8])
	require.Contains(t, anna.text("main .facts"), "dev")
	anna.accessible(anna.path())
	anna.fits(anna.path())
	anna.look("light", 1300)
	anna.leads(chromedp.Click(chromedp.CSS("button.act"), chromedp.NodeVisible))
	require.Equal(t, "/environments/prod?platform=coffee", anna.path())
	var decisions []string
	for _, row := range anna.rows() {
		if row["Who"] != "" {
			decisions = append(decisions, row["Who"]+": "+row["What"]+" "+row["About"])
		}
	}
	require.Equal(t, []string{"anna: ✓ approve " + second[:8] + " from dev"}, decisions)

	// The promoter hears it from the hub, and the rollout begins in the first ring.
	promote(0, "prod")
	require.Equal(t, map[string]string{"canary": "0 of 1 compliant", "stable": "not reached yet, 1 cluster"}, rings(viewer))
	require.Contains(t, viewer.text("main"), second[:8])
	report("shop-1")
	require.Equal(t, map[string]string{"canary": "1 of 1 compliant", "stable": "not reached yet, 1 cluster"}, rings(viewer))
	s.run(0, "wherry", "rollout", "advance", "chain", "-e", "prod", "--to", "oci-layout:out", "--key", "cosign.key", "--hub", hub, "--token-file", "promoter.token")
	require.Equal(t, map[string]string{"canary": "1 of 1 compliant", "stable": "0 of 1 compliant"}, rings(viewer))
	report("shop-2")
	require.Equal(t, both, rings(viewer))

	// Later somebody asks who let it on.
	viewer.open("/changes?environment=prod")
	require.Contains(t, viewer.text("main"), "approve by anna")
}
