//go:build e2e

package promotion

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/e2e/harness"
)

// places is the distance of the places at which commands are killed.
var places = sweeptest.Every(11)

// A change goes from main to all rings of prod as the clusters prove it; what they do not prove goes nowhere.
func TestAChangeReachesProductionOnceItIsProved(t *testing.T) {
	for name, withHub := range map[string]bool{"with a hub": true, "with the registry alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, withHub)
		})
	}
}

func story(t *testing.T, withHub bool) {
	w := newWorld(t)
	w.settle(withHub)

	// The change is published for dev, and nothing moves before dev has it.
	second := w.change("two", "audit")
	w.pin("dev", second)
	w.killed(places, 0, "publish", w.platform, "--environment", "dev")
	w.killed(places, 5, w.promote("stage")...)
	w.visit(w.of("dev")...)
	w.awaitHub("dev", second, 0)
	w.killed(places, 0, w.promote("stage")...)
	require.Equal(t, second, w.newest("stage").BaseCommit)
	w.exits(5, w.promote("prod")...) // stage has not got it yet

	// One cluster of stage fails: prod is held, with the reasons.
	mend := w.occupy(w.of("stage")[0], "audit-s")
	w.visit(w.of("stage")...)
	w.awaitHub("stage", second, 1)
	said := w.exits(1, w.gate("check", "prod")...)
	require.Regexp(t, `(?m)^failed +fail `, said)
	require.Contains(t, said, "stage-1")
	w.killed(places, 1, w.promote("prod")...)
	require.NotEqual(t, second, w.newest("prod").BaseCommit)

	// It is mended, and the canaries of prod get the change, and after them the other rings, one by one.
	mend()
	w.visit(w.of("stage")...)
	w.awaitHub("stage", second, 0)
	w.killed(places, 0, w.promote("prod")...)
	require.Equal(t, second, w.newest("prod").BaseCommit)
	w.visit(w.of("prod")...)
	require.Contains(t, w.has(w.of("prod", "canary")[0], "web"), "two")
	require.Contains(t, w.has(w.of("prod", "early")[0], "web"), "one")
	w.awaitRing(second, "canary")
	w.killedUntil(places, []int{0, 5}, w.advance()...) // 5 if early has got it before a kill: it has to prove it for stable
	w.visit(w.of("prod")...)
	w.awaitRing(second, "early")
	w.killed(places, 0, w.advance()...)
	w.visit(w.of("prod")...)
	w.everywhere("two")

	// A bad release is proved in dev and stage, and halts at the canaries by itself.
	bad := w.change("three", "audit", "trace")
	w.advanceTo("prod", bad)
	for _, s := range w.of("prod", "canary") {
		defer w.occupy(s, "trace-p")()
	}
	w.visit(w.of("prod")...)
	w.awaitHub("prod", bad, 1)
	w.killed(places, 1, w.advance()...)
	require.Contains(t, w.has(w.of("prod", "early")[0], "web"), "two")

	// It is undone, and a good one waits until a person says that prod may go on. Then that reaches all.
	w.killed(places, 0, "rollout", "undo", "--environment", "prod", "--yes", "--reason", "trace is in the way")
	w.visit(w.of("prod")...)
	w.everywhere("two")
	good := w.change("four", "audit")
	w.advanceTo("stage", good)
	w.visit(w.of("stage")...)
	w.awaitHub("stage", good, 0)
	w.killed(places, 5, w.promote("prod")...)
	w.killed(places, 0, "rollout", "resume", "--environment", "prod", "--reason", "mended on main")
	w.killed(places, 0, w.promote("prod")...)
	for _, ring := range []string{"canary", "early"} {
		w.visit(w.of("prod")...)
		w.awaitRing(good, ring)
		w.must(w.advance()...)
	}
	w.visit(w.of("prod")...)
	w.everywhere("four")
	w.oracle.check()

	// The oracle sees a release that nobody has proved.
	var wrong []string
	w.oracle.wrong = func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	w.pin("prod", w.change("five"))
	w.must(w.publish("prod", "--unproved", "the oracle has to see it")...)
	w.oracle.check()
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "none of those proved")
}

// settle publishes the first release for all environments, which all sites then have.
func (w *world) settle(withHub bool) {
	w.t.Helper()
	first := w.newestOf("main")
	if withHub {
		w.serveHub()
	}
	w.introduce(first)
	if withHub {
		w.register()
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // a record of the same second is not after it
	}
	w.must(w.publish("dev")...)
	for _, name := range []string{"stage", "prod"} { // each is proved in the one below
		w.visit(w.of(below[name])...)
		w.awaitHub(below[name], first, 0)
		w.must(w.promote(name)...)
	}
	w.visit(w.of("prod")...)
	w.everywhere("one")
	w.oracle.check()
}

// everywhere requires that all sites that answer run a release, and that the one that is offline does not.
func (w *world) everywhere(release string) {
	w.t.Helper()
	for _, s := range w.sites {
		if s.offline {
			require.Empty(w.t, w.has(s, "web"), s.name)
		} else if s.environment == "prod" {
			require.Contains(w.t, w.has(s, "web"), release, "%s: %+v", s.name, s.status.Items)
			require.True(w.t, s.compliant(), "%s: %+v", s.name, s.status.Items)
		}
	}
}

// pin pins a commit of the base in an environment, by hand.
func (w *world) pin(environment, commit string) {
	w.t.Helper()
	w.commit(environment, w.environmentFiles(environment, commit))
}

// publishDev has dev get a commit, which needs no gate.
func (w *world) publishDev(commit string) {
	w.t.Helper()
	w.pin("dev", commit)
	w.must("publish", w.platform, "--environment", "dev")
}

// advanceTo brings a commit up to an environment: published for dev, and promoted through those between as they prove it.
func (w *world) advanceTo(environment, commit string) {
	w.t.Helper()
	w.publishDev(commit)
	for _, name := range []string{"dev", "stage"} {
		w.visit(w.of(name)...)
		w.awaitHub(name, commit, 0)
		w.must(w.promote(next[name])...)
		require.Equal(w.t, commit, w.newest(next[name]).BaseCommit)
		if next[name] == environment {
			return
		}
	}
}

// asks are the flags by which a command finds the facts.
func (w *world) asks() (args []string) {
	if w.hub != "" {
		return []string{"--hub", w.hub, "--token-file", w.path("hub", "admin.token")}
	}
	for _, s := range w.sites {
		if _, err := os.Stat(w.path(s.name + ".tar")); err == nil && s.medium {
			args = append(args, "--reports", w.path(s.name+".tar"))
		}
	}
	return args
}

// mirror says where the repositories of teams are.
func (w *world) mirror() string { return "https://git.example=" + w.dir }

// publish are the arguments of wherry publish, which asks a hub if there is one.
func (w *world) publish(environment string, args ...string) []string {
	args = append([]string{"publish", w.platform, "--environment", environment, "--mirror", w.mirror()}, args...)
	if w.hub != "" {
		args = append(args, w.asks()...)
	}
	return args
}

func (w *world) promote(to string) []string {
	return append([]string{"promote", w.platform, "-e", to, "--mirror", w.mirror()}, w.asks()...)
}

func (w *world) gate(what, environment string) []string {
	return append([]string{"gate", what, w.platform, "--environment", environment}, w.asks()...)
}

func (w *world) advance() []string {
	return append([]string{"rollout", "advance", w.platform, "--environment", "prod"}, w.asks()...)
}

// serveHub begins a hub that watches the location.
func (w *world) serveHub() {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(harness.ProgramsEnv), "wherry"), "hub", "serve", "--data", w.path("hub"), "--addr", "127.0.0.1:0", "--watch", w.to, "--watch-interval", "1s", "--trust-key", w.path("release.pub"))
	cmd.Env = append(os.Environ(), "HOME="+w.dir)
	log, err := os.Create(w.path("hub.log"))
	require.NoError(w.t, err)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if w.t.Failed() {
			data, _ := os.ReadFile(w.path("hub.log"))
			w.t.Logf("the hub said:\n%s", data)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(w.t, err)
	w.hub = strings.TrimSpace(line)
}

// register registers all sites at the hub, from their Cluster objects.
func (w *world) register() {
	w.t.Helper()
	for _, name := range []string{"dev", "stage", "prod"} {
		roster := w.path("roster", name)
		require.NoError(w.t, os.MkdirAll(roster, 0o755))
		for _, s := range w.sites {
			if s.environment == name {
				require.NoError(w.t, os.WriteFile(filepath.Join(roster, s.name+".yaml"), []byte(s.object()), 0o644))
			}
		}
		w.must("hub", "clusters", "add", "--data", w.path("hub"), "--roster", roster, "--environment", name, "--platform", "edge", "--expected-interval", "1h")
	}
}

// awaitHub waits until the hub has learned a commit of an environment and how its clusters stand: all compliant for the code 0, one
// failed for 1. Without a hub there is nothing to wait for.
func (w *world) awaitHub(environment, commit string, code int) {
	w.t.Helper()
	if w.hub == "" {
		return
	}
	w.exits(code, append([]string{"rollout", "commit", commit, "--environment", environment, "--watch", "--timeout", "60s"}, w.asks()...)...)
}

// awaitRing is awaitHub for a ring of prod whose sites have a commit.
func (w *world) awaitRing(commit, ring string) {
	w.t.Helper()
	if w.hub != "" {
		w.must(append([]string{"rollout", "commit", commit, "--environment", "prod", "--ring", ring, "--watch", "--timeout", "60s"}, w.asks()...)...)
	}
}
