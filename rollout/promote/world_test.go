package promote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// world is a platform in a repository at a forge, which publishes to a layout.
type world struct {
	t     *testing.T
	forge *forgetest.Server
	loc   oci.Location
	key   *keys.Key
	now   time.Time
	first string // the base commit that all environments begin with
	// cohort is how the clusters of an environment are with a commit: facts that a hub or reports give.
	cohort func(environment, commit string) gate.Cohort
	// published counts the publications, by environment.
	published map[string]int
	// judged are the questions that the gate was asked.
	judged []Question
	// steps are the steps that were begun; the run ends before that with the index kill, unless it is negative.
	steps []string
	kill  int
}

var (
	proved  = gate.Cohort{Clusters: 3, Compliant: 3}
	waiting = gate.Cohort{Clusters: 3, Compliant: 1, Progressing: 2}
	failed  = gate.Cohort{Clusters: 3, Compliant: 2, Failed: 1}
)

var errKilled = errors.New("killed")

const policyFile = "policy.yaml"

// policy is a PromotionPolicy with a gate in one line of YAML.
func policyOf(gate string) string {
	return `apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: edge}
spec:
  chain: [dev, stage, prod]
  environments:
    - name: stage
      gate: ` + gate + "\n"
}

func baseRepo(repo, commit string) string {
	return fmt.Sprintf(`# Which state of the base this environment has.
apiVersion: scheduler.kalypso.io/v1alpha1
kind: BaseRepo
metadata:
  name: main
spec:
  repo: %s   # ours
  branch: main
  path: .
  commit: %s # by the robot
`, repo, commit)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, forge: forgetest.New(t, "github"), loc: oci.Location{Dir: t.TempDir()}, key: keytest.New(t), kill: -1,
		now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), published: map[string]int{},
		cohort: func(string, string) gate.Cohort { return proved },
	}
	files := map[string]string{
		"platform.yaml": "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: edge}\n",
		policyFile:      policyOf("{}"),
	}
	for _, name := range []string{"dev", "stage", "prod"} {
		files[".environments/"+name+".yaml"] = fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {name: %s}
spec:
  controlPlane: {repo: %s, branch: %s, path: .}
`, name, w.forge.Git, name)
	}
	w.first = gittest.CommitFiles(t, w.forge.Git, "main", files)
	w.forge.RunGit("symbolic-ref", "HEAD", "refs/heads/main")
	for _, name := range []string{"dev", "stage", "prod"} {
		gittest.CommitFiles(t, w.forge.Git, name, map[string]string{"base-repo.yaml": baseRepo(w.forge.Git, w.first), "README.md": name + "\n"})
	}
	return w
}

// push commits to the base, as a team would.
func (w *world) push(text string) (commit string) {
	w.t.Helper()
	return w.forge.Commit("main", "notes.txt", text)
}

// pinByHand pins a commit as a person would.
func (w *world) pinByHand(environment, commit string) {
	w.t.Helper()
	w.forge.Commit(environment, "base-repo.yaml", baseRepo(w.forge.Git, commit))
}

// deploy pins and publishes a commit, as somebody without a gate would.
func (w *world) deploy(environment, commit string) {
	w.t.Helper()
	w.pinByHand(environment, commit)
	w.now = w.now.Add(time.Minute)
	require.NoError(w.t, w.publish(w.t.Context(), Publication{Environment: environment}))
}

// pinned returns the commit that an environment's branch pins.
func (w *world) pinned(environment string) string {
	w.t.Helper()
	_, after, found := strings.Cut(w.forge.RunGit("show", environment+":base-repo.yaml"), "  commit: ")
	require.True(w.t, found)
	return strings.Fields(after)[0]
}

// has returns the base commit of an environment's newest record; empty without one.
func (w *world) has(environment string) string {
	w.t.Helper()
	r, err := w.record(w.t.Context(), "edge", environment)
	require.NoError(w.t, err)
	if r == nil {
		return ""
	}
	return r.BaseCommit
}

func (w *world) record(ctx context.Context, platform, environment string) (*bundle.EnvironmentRecord, error) {
	store, err := w.loc.Open(oci.Options{})
	if err != nil {
		return nil, err
	}
	reader := state.New(w.loc, store, trust.PinnedBy([]*keys.Key{w.key}), w.now, platform, environment, w.t.Logf)
	r, err := reader.Record(ctx)
	if err != nil || r.Verified == nil {
		return nil, err
	}
	return &r.Verified.Record, nil
}

func (w *world) publish(ctx context.Context, p Publication) error {
	w.published[p.Environment]++
	built, err := platform.Build(ctx, platform.Source{Platform: w.forge.Git, Environment: p.Environment}, platform.Options{Pack: true})
	if err != nil {
		return err
	}
	_, err = publisher.Publish(ctx, built.Result, w.loc, []*keys.Key{w.key}, publisher.PublishOptions{Now: func() time.Time { return w.now }, Packed: built.Packed})
	return err
}

// decided reads the decisions about an environment.
func (w *world) decided(ctx context.Context, p promotion.Policy) ([]decisions.Found, decisions.Trust, error) {
	found, err := decisions.Read(ctx, w.loc, oci.Options{}, p.Environment, w.t.Logf)
	return found, decisions.Trust{Platform: "edge", Policy: p, Releases: trust.PinnedBy([]*keys.Key{w.key}), Now: w.now}, err
}

// judge asks the real gate, with the record and the decisions that the layout has and the world's cohort.
func (w *world) judge(ctx context.Context, q Question) (gate.Verdict, error) {
	w.judged = append(w.judged, q)
	ask := gate.Question{Policy: q.Policy, Gate: q.Policy.Gate, Commit: q.Commit, Cohort: w.cohort(q.Policy.Below(), q.Commit), Automatic: q.Automatic, Now: w.now}
	found, t, err := w.decided(ctx, q.Policy)
	if err != nil {
		return gate.Verdict{}, err
	}
	ask.Decisions = decisions.Of(found, t)
	r, err := w.record(ctx, "edge", q.Policy.Below())
	if err != nil || r == nil {
		return gate.Judge(ask), err
	}
	ask.Candidate = &gate.Candidate{Platform: r.Platform, Environment: r.Environment, BaseCommit: q.Commit, IssuedAt: r.IssuedAt, Incomplete: r.Incomplete}
	ask.Stays = map[string][]gate.Stay{r.Environment: {{From: r.IssuedAt}}}
	return gate.Judge(ask), nil
}

func (w *world) promoter() *Promoter {
	client, err := forge.New(w.forge.URL, forge.Options{Kind: forge.GitHub, Tokens: forge.Tokens{forge.AnyToken: forgetest.Writer}, Wait: func(context.Context, time.Duration) error { return nil }})
	require.NoError(w.t, err)
	return &Promoter{
		Source: platform.Source{Platform: w.forge.Git}, Judge: w.judge, Record: w.record, PolicyNow: platform.PolicyNow, Publish: w.publish,
		Paused: func(ctx context.Context, _ string, p promotion.Policy) (decisions.Pause, bool, error) {
			found, t, err := w.decided(ctx, p)
			pause, is := decisions.Paused(found, t)
			return pause, is, err
		},
		Pause: func(ctx context.Context, platform, environment, reason string) error {
			_, err := decisions.Write(ctx, w.loc, oci.Options{}, bundle.Decision{Action: bundle.Pause, Platform: platform, Environment: environment, Reason: reason}, w.key, w.now)
			return err
		},
		Access: func(url string) Access { return Access{URL: url, Forge: client} },
		before: func(step string) error {
			w.steps = append(w.steps, step)
			if w.kill >= 0 && len(w.steps) > w.kill {
				return errKilled
			}
			return nil
		},
	}
}

// resume writes a decision to resume.
func (w *world) resume(environment string) {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	_, err := decisions.Write(w.t.Context(), w.loc, oci.Options{}, bundle.Decision{Action: bundle.Resume, Platform: "edge", Environment: environment}, w.key, w.now)
	require.NoError(w.t, err)
}

// pass runs one pass, and returns its lines.
func (w *world) pass(o Options) ([]string, Pass) {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	o.Now = w.now
	all, err := w.promoter().Pass(w.t.Context(), o)
	require.NoError(w.t, err)
	var lines []string
	for _, r := range all.Results {
		require.Empty(w.t, r.Warnings)
		lines = append(lines, r.String())
	}
	return lines, all
}

// status returns the newest status of a promotion into an environment, as "state: description".
func (w *world) status(environment, commit string) string {
	for _, s := range w.forge.Statuses(commit) {
		if s.Context == "wherry/promote/"+environment {
			return s.State + ": " + s.Description
		}
	}
	return ""
}

// Worst returns the worst state of all results; Current if there are none.
func (p Pass) Worst() State {
	if len(p.Results) == 0 {
		return Current
	}
	return p.Results[0].State
}
