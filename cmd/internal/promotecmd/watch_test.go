package promotecmd_test

import (
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/keys"
)

// Others look at the next poll, or at the next event, which may be hours later.
func TestTheNextLookIsAtTheMomentWhenASoakEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {allowEmptyCohort: true, content: any, soak: 13m}}]\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		w.push("one")
		w.pass(12 * time.Minute)
		require.Equal(w.t, []string{"dev: promoted one (1 commit)", "prod: not yet: soak"}, l.said())
		require.Contains(w.t, w.fails(w.promote("-e", "prod")...), "prod: not yet: soak ends in ", "a person waits too")
		w.pass(7 * time.Minute)
		require.Equal(w.t, []string{"prod: promoted one (1 commit)"}, l.said())
		require.Equal(w.t, 13*time.Minute, w.record("prod").IssuedAt.Sub(w.record("dev").IssuedAt))
	})
}

// A soak and a freeze end at different times, and the loop names both.
func TestASoakEndsWhenItEndsWhateverIsFrozenThen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ freeze, want string }{
		{"from: 2000-01-01T00:00:00Z, until: 2000-01-04T00:00:00Z", "schedule: frozen until 2000-01-04T00:00:00Z: sale"},
		{"from: 2000-01-01T01:00:00Z, until: 2000-01-04T00:00:00Z", "then the schedule is closed until 2000-01-04T00:00:00Z"},
	} {
		w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {allowEmptyCohort: true, content: any, soak: 6h, schedule: {freeze: [{"+c.freeze+", reason: sale}]}}}]\n", "dev", "prod")
		w.bubble(func() {
			w.watch(w.promote())
			w.push("one")
			w.pass(12 * time.Minute)
			said := w.fails(w.promote("-e", "prod")...)
			require.Regexp(w.t, `prod: not yet: soak ends in 5h\S*; `+regexp.QuoteMeta(c.want), said)
		})
	}
}

func TestASoakAddsUpAllStaysInTheEnvironmentsThatTheGateNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, `  environments:
    - {name: stage, gate: {allowEmptyCohort: true, content: any, soak: 13m}}
    - {name: prod, gate: {allowEmptyCohort: true, content: any, soak: 17m, soakIn: [dev]}}
`, "dev", "stage", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		w.push("one")
		w.pass(6 * time.Minute)
		began := w.record("dev").IssuedAt
		w.push("two")
		w.pass(6 * time.Minute)
		stay := w.record("dev").IssuedAt.Sub(began)
		w.must(w.promote("-e", "dev", "--commit", w.commits["one"])...)
		again := w.record("dev").IssuedAt
		l.said()
		w.pass(18 * time.Minute)
		require.Equal(w.t, []string{"stage: promoted one (1 commit)", "prod: promoted one (1 commit)"}, l.said("promoted"))
		require.Equal(w.t, 13*time.Minute-stay, w.record("stage").IssuedAt.Sub(again), "it had been in dev before")
		require.Equal(w.t, 17*time.Minute-stay, w.record("prod").IssuedAt.Sub(again), "its time in stage does not count")
	})
}

func TestPromotionsThatQueueUpSkipNoProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {allowEmptyCohort: true, content: any, soak: 7m}}]\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		for _, text := range []string{"one", "two", "three"} {
			w.push(text)
			w.pass(6 * time.Minute)
		}
		l.said()
		w.pass(8 * time.Minute)
		require.Equal(w.t, []string{"prod: promoted three (3 commits)"}, l.said())
		require.Equal(w.t, 7*time.Minute, w.record("prod").IssuedAt.Sub(w.record("dev").IssuedAt), "the proof of those before is none for it")
		message := w.RunGit("log", "--format=%B", "prod")
		require.Contains(w.t, message, fmt.Sprintf("- %s By hand\n- %s By hand\n- %s By hand\n", w.commits["three"], w.commits["two"], w.commits["one"]))
		require.Equal(w.t, "1", w.RunGit("rev-list", "--count", "--grep=^Promote", "prod"))
	})
}

func TestAPausedEnvironmentIsLeftAloneUntilAPersonResumesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  gate: {allowEmptyCohort: true, content: any}\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		w.push("one")
		w.pass(6 * time.Minute)
		for _, c := range []struct {
			by, reason string
			pause      func() []string
			next, has  string
		}{
			{"a person", "sale", func() []string { return w.rollout("pause", "prod", "--reason", "sale") }, "two", "one"},
			{"an undo", "orders fail", func() []string { return w.rollout("undo", "prod", "--yes", "--reason", "orders fail") }, "three", "one"},
			{"a promotion of something older", "promotion of the older commit one", func() []string { return w.promote("-e", "prod", "--commit", w.commits["one"]) }, "four", "one"},
		} {
			l.said()
			w.must(c.pause()...)
			w.push(c.next)
			w.pass(12 * time.Minute)
			require.Equal(w.t, []string{"dev: promoted " + c.next + " (1 commit)", "prod: not yet: paused: " + c.reason}, l.said("promoted", "not yet"), "once: paused by %s", c.by)
			require.Equal(w.t, c.has, w.has("prod"))
			w.must(w.rollout("resume", "prod")...)
			w.pass(6 * time.Minute)
			require.Equal(w.t, c.next, w.has("prod"))
		}
	})
}

func TestWhatWasUndoneStaysOutUntilAPersonSaysAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  gate: {allowEmptyCohort: true, content: any}\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		w.push("one")
		w.pass(6 * time.Minute)
		w.push("two")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "two", w.has("prod"))
		pinned := w.RunGit("show", "prod:base-repo.yaml")
		w.must(w.rollout("undo", "prod", "--yes", "--reason", "orders fail")...)
		w.must(w.rollout("resume", "prod")...)
		l.said()
		w.pass(61 * time.Minute) // a look at everything is among them
		require.Equal(w.t, "one", w.has("prod"), "git still pins what was undone")
		require.Equal(w.t, pinned, w.RunGit("show", "prod:base-repo.yaml"))
		require.Len(w.t, l.said("was undone at"), 1, "it is said once")

		// A person mends the pin alone. Dev still has what was undone, and its gate passes.
		w.Commit("prod", "base-repo.yaml", strings.ReplaceAll(pinned, w.full("two"), w.full("one")))
		w.pass(61 * time.Minute)
		require.Equal(w.t, "one", w.has("prod"))
		require.Contains(w.t, w.RunGit("show", "prod:base-repo.yaml"), w.full("one"))
		require.Contains(w.t, w.fails(w.promote("-e", "prod")...), "prod: held: undone: commit "+w.full("two")[:12]+" was undone at")

		w.must(w.rollout("resume", "prod", "--again")...)
		w.pass(12 * time.Minute)
		require.Equal(w.t, "two", w.has("prod"))
	})
}

func TestWhatIsThereAlreadyIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  gate: {allowEmptyCohort: true, content: any}\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		l.said()
		layer := w.path("registry/blobs/sha256/" + w.release("prod", "").Tree.Digest.Encoded())
		require.NoError(w.t, os.Remove(layer))
		require.Contains(w.t, w.must(w.promote("-e", "prod")...), "prod: has ")
		require.FileExists(w.t, layer, "by a person who promotes it again")
		require.NoError(w.t, os.Remove(layer))
		w.pass(61 * time.Minute)
		require.FileExists(w.t, layer, "by the loop")
		require.Equal(w.t, []string{"renewed: edge: its files are not there any more"}, l.said())
	})
}

func TestAChangeRequestThatAPersonClosedIsANo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byHTTP, "  gate: {allowEmptyCohort: true, content: any}\n  environments: [{name: prod, changeRequest: true, gate: {allowEmptyCohort: true, content: any}}]\n", "dev", "prod")
	closed := func(c *forgetest.Change) { c.State = "closed" }
	w.bubble(func() {
		l := w.watch(w.promote("--forge", "github"))
		w.push("one")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"dev: promoted one (1 commit)", "prod: proposed one (1 commit): change request 1 is open"}, l.said())
		w.Edit(1, closed)
		w.Commit("dev", "README.md", "so that the loop looks")
		w.pass(11 * time.Minute)
		require.Equal(w.t, []string{"prod: held: change request 1 for one was closed"}, l.said(), "once")
		require.Len(w.t, w.Changes(), 1)
		require.Contains(w.t, w.fails(w.promote("--forge", "github", "-e", "prod", "--again")...), "change request 2 is open", "a person asks again")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"prod: proposed one (1 commit): change request 2 is open"}, l.said())
		w.Edit(2, closed)
		w.push("two")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"dev: promoted two (1 commit)", "prod: proposed two (2 commits): change request 3 is open"}, l.said(), "another commit")
	})
}

// rings is a policy whose environment dev has three rings, and whose prod gets nothing for weeks.
func rings(gate string) string {
	return "  environments: [{name: dev, rings: [canary, early, stable], ringGate: " + gate + "}, {name: prod, gate: {allowEmptyCohort: true, content: any, soak: 9w}}]\n"
}

func TestTwoLoopsAtOnceEndAsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, rings("{allowEmptyCohort: true, soak: 7m}"), "dev", "prod")
	w.bubble(func() {
		all := []*loop{w.watch(w.promote()), w.watch(w.promote())}
		all = append(all, w.watch(w.advance("dev")))
		w.push("one")
		w.pass(22 * time.Minute)
		rings := w.record("dev").Rings["edge"]
		require.Equal(w.t, rings["canary"], rings["early"])
		require.Equal(w.t, rings["canary"], rings["stable"])
		require.Equal(w.t, int64(4), w.release("dev", "stable").Release.Number, "the first, one for the canary, and one for each ring after it")
		require.Equal(w.t, "1", w.RunGit("rev-list", "--count", "--grep=^Promote", "dev"))
		for _, l := range all {
			require.NotContains(w.t, l.out.String(), "failed")
		}
		advanced := map[string]time.Time{} // by one of them at least
		for _, l := range all {
			for _, line := range l.said("advanced") {
				advanced[line] = l.moments[line]
			}
		}
		require.Len(w.t, advanced, 2)
		require.Equal(w.t, 7*time.Minute, advanced["dev: ring stable: advanced one"].Sub(advanced["dev: ring early: advanced one"]), "at the moment when the soak ends")
	})
}

func TestAClusterThatJoinsInTheMiddleBelongsToItsRingAndAFailureHoldsIt(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"promote", "rollout advance"} {
		t.Run(command, func(t *testing.T) {
			w := newWorld(t, onDisk, rings("{minReported: 100, soak: 11m}"), "dev", "prod")
			w.addCluster("plant-1", "canary", time.Time{})
			w.addCluster("plant-2", "early", time.Time{})
			w.bubble(func() {
				w.must(w.promote("-e", "dev")...)
				w.push("one")
				w.must(w.promote("-e", "dev")...)
				args := w.promote()
				if command != "promote" {
					args = w.advance("dev")
				}
				l := w.watch(args)
				w.report("plant-1", "canary", bundle.Compliant)
				w.addCluster("plant-3", "canary", time.Now())
				w.pass(20 * time.Minute)
				said := l.said("ring")
				require.Equal(w.t, "dev: ring early: not yet: reported: 1 of 2 (50.0 %)", said[len(said)-1])
				w.report("plant-3", "canary", bundle.Compliant)
				w.pass(6 * time.Minute)
				require.Equal(w.t, "dev: ring early: advanced one", l.said("ring")[0])
				w.report("plant-2", "early", bundle.Failed)
				w.pass(20 * time.Minute)
				require.Equal(w.t, []string{"dev: ring stable: held: compliant: 2 of 3 (66.6 %)"}, l.said("ring stable"), "once")
				have := w.record("dev").Rings["edge"]
				require.Equal(w.t, have["canary"], have["early"])
				require.NotEqual(w.t, have["canary"], have["stable"])
			})
		})
	}
}

func TestALoopThatSignsWithOneOfTwoKeysWaitsForTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, rings("{allowEmptyCohort: true, soak: 1m}"), "dev", "prod")
	w.bubble(func() {
		w.twoSigners()
		l := w.watch(w.promote("--trust", w.path("trust.json")))
		w.sign("dev", "prod")
		w.push("one")
		w.pass(10 * time.Minute)
		require.Len(w.t, l.said("dev: "), 2, "of each commit once that signatures are missing")
		w.sign("dev")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"dev: has one", "dev: ring early: not yet: more signatures are needed"}, l.said("dev"))
		w.Commit("dev", "README.md", "so that it is published again")
		w.pass(12 * time.Minute)
		require.Equal(w.t, []string{"dev: not yet: 1 pending"}, l.said("dev"))
		have := w.record("dev").Rings["edge"]
		require.NotEqual(w.t, have["canary"], have["early"], "nothing moves meanwhile")
		w.sign("dev")
		w.pass(15 * time.Minute)
		w.sign("dev")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"dev: ring stable: not yet: more signatures are needed"}, l.said("dev"))
		have = w.record("dev").Rings["edge"]
		require.Equal(w.t, []digest.Digest{have["canary"], have["canary"]}, []digest.Digest{have["early"], have["stable"]})
	})
}

func TestHeldAssignmentsAreSaidOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {allowEmptyCohort: true, content: any, soak: 9w}}]\n", "dev", "prod")
	w.bubble(func() {
		l := w.watch(w.promote())
		l.said()
		w.push("'{{ .Nothing.at.all }}'")
		w.pass(11 * time.Minute)
		w.Commit("dev", "README.md", "so that it is published again")
		w.pass(12 * time.Minute)
		require.Equal(w.t, []string{"dev: held: 1 assignment held"}, l.said("dev: held"))
		require.Equal(w.t, 1, strings.Count(l.out.String(), "failed: edge/web-dev: "))
		w.push("one")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"dev: promoted one (1 commit)"}, l.said("dev"))
	})
}

// What is read is one environment, so nobody asks for the newest commit of the base in the name of the first.
func TestAPlatformThatIsOneEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  gate: {allowEmptyCohort: true, content: any}\n", "dev", "prod")
	w.bubble(func() {
		for _, name := range []string{"dev", "prod"} {
			args := w.promote()
			args[1] += "#" + name
			l := w.watch(args)
			w.push(name)
			w.pass(6 * time.Minute)
			if name == "dev" {
				require.Equal(w.t, []string{"dev: promoted dev (1 commit)"}, l.said())
			} else {
				require.NotContains(w.t, l.out.String(), "Z dev: ")
				require.Equal(w.t, "1", w.RunGit("rev-list", "--count", "prod"))
			}
		}
	})
}

// A chain of one environment is one whose rings are advanced.
func TestAChainOfOneEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: dev, rings: [canary, stable], ringGate: {allowEmptyCohort: true, soak: 7m}}]\n", "dev")
	w.bubble(func() {
		require.Contains(w.t, w.must(w.promote()...), "nothing to do: each environment is the first of its chain")
		l := w.watch(w.promote())
		w.push("one")
		w.pass(15 * time.Minute)
		require.Equal(w.t, []string{"dev: promoted one (1 commit)"}, l.said("promoted"))
		rings := w.record("dev").Rings["edge"]
		require.Equal(w.t, rings["canary"], rings["stable"])
	})
}

// What a team pushes goes to the first environment, and on to the next one at the moment when its soak ends there, without anybody's word.
func TestContentGoesByProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {minReported: 100, soak: 13m}}]\n", "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	w.bubble(func() {
		l := w.watch(w.promote())
		w.pass(time.Minute)
		w.runs("plant-1")
		w.pass(29 * time.Minute)
		require.Equal(w.t, "one", w.delivered("prod", ""))
		read := len(l.out.String())

		w.deliver("two")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "two", w.delivered("dev", ""))
		since, records := w.record("dev").IssuedAt, w.records("prod")
		w.runs("plant-1")
		w.pass(5 * time.Minute)
		require.Equal(w.t, "one", w.delivered("prod", ""))
		require.Equal(w.t, records+1, w.records("prod"), "that the numbers are met must not get lost")
		w.pass(8 * time.Minute)
		require.Equal(w.t, "two", w.delivered("prod", ""))
		require.Equal(w.t, 13*time.Minute, w.record("prod").IssuedAt.Sub(since), "at the moment when the soak ends")
		require.Regexp(w.t, `(?m)Z prod: published edge 2 \([0-9a-f]{8}\) at base commit [0-9a-f]{12}; web [0-9a-f]{12} → [0-9a-f]{12}, proved in dev by 1 of 1 clusters$`, l.out.String()[read:])
		require.Regexp(w.t, `^web [0-9a-f]{12} → [0-9a-f]{12}, proved in dev by 1 of 1 clusters$`, bundle.MessageOf(w.release("prod", "").Manifest))
		require.Empty(w.t, bundle.MessageOf(w.release("dev", "").Manifest))
		require.Equal(w.t, records+2, w.records("prod"))
		w.pass(3 * time.Hour)
		require.Equal(w.t, records+2, w.records("prod"), "there is nothing more to say")
	})
}

// A base commit that waits for its gate keeps back no content, and a report comes without a word.
func TestContentGoesWhileABaseCommitWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {minReported: 100, soak: 13m}}]\n", "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	w.bubble(func() {
		w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
		w.must("publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")
		l := w.watch(w.promote())
		w.deliver("two")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "two", w.delivered("dev", ""))
		w.runs("plant-1") // with the base commit that prod has
		w.pass(6 * time.Minute)
		l.said()
		w.push("base")
		w.pass(7 * time.Minute)
		require.Equal(w.t, "base", w.has("dev"))
		require.Equal(w.t, "one", w.delivered("prod", ""), "its soak is over, and nobody knows how it runs now")
		w.runs("plant-1")
		w.pass(5 * time.Minute)
		require.Equal(w.t, "two", w.delivered("prod", ""))
		require.NotEqual(w.t, "base", w.has("prod"))
		said := l.said("prod")
		require.Contains(w.t, said[len(said)-1], "prod: not yet: soak")
	})
}

// What only prod has lies at a commit that changes nothing in dev, which records it all the same.
func TestAPushToTheFolderOfProdAloneReachesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {minReported: 100}}]\n", "dev", "prod")
	w.embed("dev", "prod")
	own := func(text string) {
		w.Commit("app", "own/config.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: text}, data: {is: "+text+"}}\n")
	}
	w.Commit("app", "workload.yaml", workload+"    - {name: dev, environment: dev, manifests: {path: ./live}}\n    - {name: prod, environment: prod, manifests: {path: ./own}}\n")
	own("of prod")
	w.addCluster("plant-1", `""`, time.Time{})
	w.bubble(func() {
		w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
		w.must("publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")
		w.watch(w.promote("-e", "prod"))
		publishDev := func() {
			w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
			w.runs("plant-1")
			w.pass(6 * time.Minute)
		}
		w.deliver("two")
		w.pass(time.Minute)
		publishDev()
		require.Equal(w.t, "of prod", w.delivered("prod", ""))
		dev := w.release("dev", "").Descriptor
		own("wider")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "of prod", w.delivered("prod", ""), "dev was not read at this commit")
		publishDev()
		require.Equal(w.t, "wider", w.delivered("prod", ""))
		require.Equal(w.t, dev, w.release("dev", "").Descriptor)
		prod := w.records("prod")
		w.pass(3 * time.Hour)
		require.Equal(w.t, prod, w.records("prod"), "there is nothing more to say")
	})
}

// What only prod has waits for nobody's proof: it comes when prod opens, and when a person resumes it, without another push.
func TestWhatOnlyProdHasComesWhenProdOpens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, `  environments:
    - {name: prod, gate: {minReported: 100, schedule: {freeze: [{from: 2000-01-01T00:30:00Z, until: 2000-01-01T02:10:00Z, reason: sale}]}}}
`, "dev", "prod")
	w.embed("dev", "prod")
	own := func(text string) {
		w.Commit("own", "own/config.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: text}, data: {is: "+text+"}}\n")
	}
	own("one")
	w.Commit("app", "workload.yaml", workload+"    - {name: dev, environment: dev, manifests: {path: ./live}}\n    - {name: prod, environment: prod, manifests: {repo: \"https://git.example/contoso/gitops\", branch: own, path: ./own}}\n")
	mirror := []string{"--mirror", "https://git.example=" + filepath.Dir(filepath.Dir(w.Git))}
	w.addCluster("plant-1", `""`, time.Time{})
	w.bubble(func() {
		w.must(append([]string{"publish", w.repo}, append(mirror, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))...)...)
		w.must(append([]string{"publish", w.repo}, append(mirror, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")...)...)
		w.runs("plant-1")
		l := w.watch(w.promote(mirror...))
		w.pass(40 * time.Minute)
		own("two")
		w.pass(89 * time.Minute)
		require.Equal(w.t, "one", w.delivered("prod", ""), "it is frozen")
		w.pass(time.Minute)
		require.Equal(w.t, "two", w.delivered("prod", ""), "at the moment when the freeze ends: %s", l.out.String())

		w.must(w.rollout("pause", "prod", "--reason", "sale")...)
		own("three")
		w.pass(61 * time.Minute)
		require.Equal(w.t, "two", w.delivered("prod", ""))
		w.must(w.rollout("resume", "prod")...)
		w.pass(6 * time.Minute)
		require.Equal(w.t, "three", w.delivered("prod", ""))
		records := w.records("prod")
		w.pass(3 * time.Hour)
		require.Equal(w.t, records, w.records("prod"), "there is nothing more to say")
	})
}

// What prod has keeps its files beside another base commit until dev has run both together, or the group says that it may go on without.
func TestAnOverrideOfWhatProdHasLetsItGoOnWithTheBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "", "dev", "prod")
	anna, err := bundle.MarshalPublicKey(keyOf(w.newKey("anna")))
	require.NoError(t, err)
	released, err := bundle.MarshalPublicKey(keyOf(w.key))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.path("release.pub"), released, 0o644))
	w.Commit("main", "promotion.yaml", fmt.Sprintf(`apiVersion: wherry.dev/v1alpha1
kind: PromotionPolicy
metadata: {name: edge}
spec:
  chain: [dev, prod]
  groups: [{name: leads, members: [{name: anna, publicKey: %q}]}]
  environments: [{name: prod, gate: {minReported: 100, override: {group: leads, required: 1}}}]
`, anna))
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	override := func(args ...string) string {
		return w.must(append([]string{"gate", "override", w.repo, "-e", "prod", "--to", w.to.String(), "--release-key", w.path("release.pub"), "--key", w.path("anna.key"), "--reason", "orders fail"}, args...)...)
	}
	stays := func() bool {
		tree := w.tree("prod", "")
		defer tree.Close()
		return tree.Assignments[0].HeldFrom != nil
	}
	w.bubble(func() {
		l := w.watch(w.promote())
		w.pass(time.Minute)
		w.runs("plant-1")
		w.pass(29 * time.Minute)
		require.Equal(w.t, "one", w.delivered("prod", ""))
		w.push("base")
		w.pass(11 * time.Minute)
		override("--rule", "reported", "--rule", "compliant")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "base", w.has("prod"), l.out.String())
		require.True(w.t, stays())
		require.Contains(w.t, override("--workload", "web/web", "--rule", "content"), "dev has not run it well with base commit ")
		w.pass(6 * time.Minute)
		require.False(w.t, stays(), l.out.String())
	})
}

func keyOf(k *keys.Key) crypto.PublicKey {
	public, err := k.PublicKey()
	if err != nil {
		panic(err)
	}
	return public
}

// Who asks the gate hears what publishing would do: by the policy that prod has, and beside the base commit that it would get.
func TestTheGateOfAWorkloadSaysWhatPublishingDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {minReported: 100}}]\n", "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	released, err := bundle.MarshalPublicKey(keyOf(w.key))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.path("release.pub"), released, 0o644))
	check := func(args ...string) []string {
		return append([]string{"gate", "check", w.repo, "-e", "prod", "--to", w.to.String(), "--release-key", w.path("release.pub")}, args...)
	}
	publish := []string{"publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key")}
	pin := func(content string) {
		old := w.RunGit("show", "prod:base-repo.yaml")
		w.Commit("prod", "base-repo.yaml", regexp.MustCompile(`commit: [0-9a-f]+`).ReplaceAllString(old, "commit: "+w.full(content)))
	}
	w.bubble(func() {
		w.must(w.promote("-e", "dev")...)
		w.pass(time.Minute)
		w.runs("plant-1")
		w.must(publish...)
		w.pass(time.Minute)

		// The next base commit has another version with it, and dev proves both together.
		w.deliver("two")
		w.push("base")
		w.must(w.promote("-e", "dev")...)
		pin("base")
		w.pass(time.Minute)
		require.Contains(w.t, w.fails(check("--workload", "web/web")...), "prod: not yet for web/web: web ")
		w.runs("plant-1")
		require.Contains(w.t, w.must(check("--workload", "web/web")...), "prod: yes for web/web: it is proved in dev")
		w.must(publish...)
		require.Equal(w.t, []string{"two", "base"}, []string{w.delivered("prod", ""), w.has("prod")})

		// A commit that would let everything in is judged by the policy before it.
		w.pass(time.Minute)
		w.Commit("main", "promotion.yaml", "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: edge}\nspec: {chain: [dev, prod], gate: {content: any, allowEmptyCohort: true}}\n")
		w.deliver("three")
		w.push("lax")
		w.must(w.promote("-e", "dev")...)
		pin("lax")
		require.ErrorContains(w.t, w.run(w.t.Context(), new(output), publish...), "waits: compliant: 0 of 1")
		require.Regexp(w.t, `compliant +wait +0 of 1`, w.fails(check()...))
		require.Contains(w.t, w.fails(check("--workload", "web/web")...), "prod: not yet for web/web: web ")
		require.Equal(w.t, "two", w.delivered("prod", ""))
	})
}

// A commit that waits for its gate brings no laxer gate for rings either.
func TestAPinThatWaitsDoesNotJudgeRings(t *testing.T) {
	t.Parallel()
	policy := "  environments: [{name: prod, rings: [canary, stable], ringGate: {allowEmptyCohort: true, soak: %s}, gate: {minReported: 100}}]\n"
	w := newWorld(t, onDisk, fmt.Sprintf(policy, "9w"), "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	has := func() []string { return []string{w.delivered("prod", "canary"), w.delivered("prod", "stable")} }
	w.bubble(func() {
		w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
		w.must("publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")
		w.watch(w.promote())
		w.deliver("two")
		w.pass(6 * time.Minute)
		w.runs("plant-1")
		w.pass(6 * time.Minute)
		require.Equal(w.t, []string{"two", "one"}, has())
		w.Commit("main", "promotion.yaml", "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: edge}\nspec:\n  chain: [dev, prod]\n"+fmt.Sprintf(policy, "1m"))
		w.push("lax")
		w.pass(6 * time.Minute)
		require.Equal(w.t, "lax", w.has("dev"))
		old := w.RunGit("show", "prod:base-repo.yaml")
		w.Commit("prod", "base-repo.yaml", regexp.MustCompile(`commit: [0-9a-f]+`).ReplaceAllString(old, "commit: "+w.full("lax")))
		w.pass(18 * time.Minute)
		require.NotEqual(w.t, "lax", w.has("prod"))
		require.Equal(w.t, []string{"two", "one"}, has())
	})
}

// What was undone is in the status of each environment, of the first one too, and of one that holds no content.
func TestTheStatusSaysWhatWasUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  gate: {allowEmptyCohort: true, content: any}\n", "dev", "prod")
	w.embed("dev", "prod")
	released, err := bundle.MarshalPublicKey(keyOf(w.key))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.path("release.pub"), released, 0o644))
	status := func(environment string) string {
		var out output
		_ = w.run(w.t.Context(), &out, "rollout", "status", w.repo, "-e", environment, "--to", w.to.String(), "--release-key", w.path("release.pub")) // the exit code is another question
		return out.String()
	}
	w.bubble(func() {
		w.must(w.promote("-e", "dev")...)
		w.must(w.promote()...)
		w.pass(time.Minute)
		w.deliver("two")
		w.push("base")
		w.must(w.promote("-e", "dev")...)
		w.must(w.promote()...)
		w.pass(time.Minute)
		require.NotContains(w.t, status("dev"), "undone")
		w.must(w.rollout("undo", "dev", "--workload", "web/web", "--yes", "--reason", "orders fail")...)
		require.Regexp(w.t, `(?m)^web/web [0-9a-f]{12} is undone since \S+ \(orders fail\)$`, status("dev"))
		require.Contains(w.t, status("dev"), "no clusters of dev are known\n")
		w.must(w.rollout("undo", "prod", "--yes", "--reason", "too hot")...)
		require.Regexp(w.t, `(?m)^base commit `+w.commits["base"]+` is undone since \S+ \(too hot\)$`, status("prod"))
		require.Regexp(w.t, `(?m)^web/web [0-9a-f]{12} is undone since \S+ \(too hot\)$`, status("prod"))
	})
}

// Teams that push all the time make few records: of the first environment one in five minutes, and of others one in ten for proofs alone.
func TestPushesWithoutAnEndMakeFewRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, "  environments: [{name: prod, gate: {minReported: 100, soak: 1d}}]\n", "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	w.bubble(func() {
		w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
		w.must("publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")
		w.watch(w.promote("--interval", "1m"))
		for i := range 20 {
			w.deliver(fmt.Sprint("text", i))
			w.pass(time.Minute)
			w.runs("plant-1")
			w.pass(30 * time.Second)
		}
		require.InDelta(w.t, 30/5+1, w.records("dev"), 1)
		require.InDelta(w.t, 30/10+1, w.records("prod"), 1)
		require.Equal(w.t, "one", w.delivered("prod", ""))
	})
}

// What is proved enters the first ring as one batch, and the next one waits until that has reached the last ring, or a person lets it in.
func TestBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, onDisk, `  environments:
    - {name: prod, rings: [canary, early, stable], ringGate: {allowEmptyCohort: true, soak: 20m}, gate: {minReported: 100, soak: 13m, content: {batchAfter: 30m}}}
`, "dev", "prod")
	w.embed("dev", "prod")
	w.addCluster("plant-1", `""`, time.Time{})
	has := func() []string {
		return []string{w.delivered("prod", "canary"), w.delivered("prod", "early"), w.delivered("prod", "stable")}
	}
	w.bubble(func() {
		w.must("publish", w.repo, "-e", "dev", "--to", w.to.String(), "--key", w.path("release.key"))
		w.must("publish", w.repo, "-e", "prod", "--to", w.to.String(), "--key", w.path("release.key"), "--unproved", "the first time")
		l := w.watch(w.promote())
		prove := func(text string) {
			w.deliver(text)
			w.pass(6 * time.Minute)
			w.runs("plant-1")
			w.pass(14 * time.Minute)
		}
		prove("two")
		require.Equal(w.t, []string{"two", "one", "one"}, has())
		prove("three") // meanwhile the batch goes to the next ring
		require.Equal(w.t, []string{"two", "two", "one"}, has())
		require.NotContains(w.t, l.out.String(), "has not reached")
		w.pass(12 * time.Minute)
		require.Regexp(w.t, `prod: the batch that came to ring canary at 2000-01-01 00:1\d has not reached ring stable`, l.out.String())
		w.pass(13 * time.Minute)
		require.Equal(w.t, []string{"three", "two", "two"}, has(), "the batch was through")
		prove("four")
		require.Equal(w.t, "three", w.delivered("prod", "canary"))
		require.Regexp(w.t, `(?m)^proved: web.*, proved in dev by 1 of 1 clusters$`, w.must(w.promote("-e", "prod", "--next-batch")...))
		require.Equal(w.t, "four", w.delivered("prod", "canary"))
		require.Equal(w.t, "two", w.delivered("prod", "stable"))
		w.must(w.rollout("abort", "prod", "--yes", "--reason", "canaries run hot")...)
		w.must(w.rollout("resume", "prod")...)
		require.Equal(w.t, []string{"two", "two", "two"}, has())
		prove("five")
		require.Equal(w.t, "five", w.delivered("prod", "canary"), "nothing is under way any more")
	})
}
