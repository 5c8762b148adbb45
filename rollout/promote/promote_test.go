package promote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/gate"
)

func TestACommitMovesAlongTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.push("one")
	next := w.push("two")
	w.deploy("prod", w.first)
	w.deploy("dev", next)
	w.cohort = func(environment, _ string) gate.Cohort {
		return map[string]gate.Cohort{"dev": proved, "stage": waiting}[environment]
	}
	before := w.forge.RunGit("show", "stage:base-repo.yaml")

	lines, all := w.pass(Options{})
	require.Equal(t, []string{
		"prod: not yet: compliant: 1 of 3 (33.3 %), wants at least 100 % of those that have reported: 2 more clusters have to become compliant; published what it has",
		"stage: promoted " + short(next) + " (2 commits)",
	}, lines)
	require.Equal(t, Waiting, all.Worst())
	require.Equal(t, next, w.pinned("stage"))
	require.Equal(t, next, w.has("stage"))
	require.Equal(t, strings.Replace(before, w.first, next, 1), w.forge.RunGit("show", "stage:base-repo.yaml"), "nothing else changes")
	require.Equal(t, "base-repo.yaml", w.forge.RunGit("diff", "--name-only", "stage~", "stage"))
	require.Equal(t, "success: promoted to stage", w.status("stage", next))
	require.Equal(t, "pending: compliant: 2 more clusters have to become compliant", w.status("prod", next))
	message := w.forge.RunGit("log", "-1", "--format=%an: %B", "stage")
	require.Contains(t, message, "wherry: Promote "+short(next)+" to stage\n")
	require.Contains(t, message, "- "+short(next)+" By hand\n")
	trailers := w.forge.RunGit("log", "-1", "--format=%(trailers:only)", "stage")
	require.Contains(t, trailers, "Base-Commit: "+next+"\nWherry-Environment: stage\n")

	w.cohort = func(string, string) gate.Cohort { return proved }
	lines, _ = w.pass(Options{})
	require.Equal(t, []string{"prod: promoted " + short(next) + " (2 commits)", "stage: has " + short(next)}, lines)
	require.Equal(t, next, w.has("prod"))
	heads := w.forge.RunGit("for-each-ref", "refs/heads")
	lines, all = w.pass(Options{})
	require.Equal(t, []string{"stage: has " + short(next), "prod: has " + short(next)}, lines)
	require.Equal(t, Current, all.Worst())
	require.Equal(t, heads, w.forge.RunGit("for-each-ref", "refs/heads"))
}

func TestAFailedEnvironmentKeepsTheNextOneBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	w.cohort = func(string, string) gate.Cohort { return failed }
	lines, all := w.pass(Options{To: "stage"})
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "stage: held: compliant: 2 of 3")
	require.Contains(t, lines[0], "1 cluster failed; none may")
	require.Equal(t, Held, all.Worst())
	require.Equal(t, w.first, w.pinned("stage"))
	require.Contains(t, w.status("stage", next), "failure: compliant: 1 failed")
}

func TestOnlyTheNewestCommitThatIsProvedGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.push("one")
	w.deploy("dev", one)
	two := w.push("two")
	w.deploy("dev", two)
	isProved := map[string]bool{one: true}
	w.cohort = func(_, commit string) gate.Cohort {
		if isProved[commit] {
			return proved
		}
		return waiting
	}
	lines, _ := w.pass(Options{To: "stage"})
	require.Contains(t, lines[0], "stage: not yet: compliant")
	require.Equal(t, w.first, w.pinned("stage"), "the proof of an earlier commit is none for the newest")
	isProved = map[string]bool{two: true}
	_, all := w.pass(Options{To: "stage"})
	require.Equal(t, Promoted, all.Worst())
	require.Equal(t, []string{two, one}, []string{all.Results[0].Commits[0].ID, all.Results[0].Commits[1].ID}, "what comes along is listed")
}

func TestThePolicyThatJudgesIsTheOneThatTheTargetHasNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	strict := w.forge.Commit("main", policyFile, policyOf("{soak: 24h}"))
	w.pinByHand("stage", strict)
	weak := w.forge.Commit("main", policyFile, policyOf("{}"))
	w.deploy("dev", weak)
	_, all := w.pass(Options{To: "stage"})
	require.Equal(t, Waiting, all.Worst(), "a commit cannot let itself through")
	require.Equal(t, "soak ends in 23h59m", all.Results[0].Reason)
	require.True(t, all.NextLook.Equal(w.now.Add(24*time.Hour-time.Minute)), all.NextLook)
	require.Equal(t, "pending: soak: the soak in dev ends at "+all.NextLook.Format(time.RFC3339), w.status("stage", weak))
	_, all = w.pass(Options{To: "stage", PausedToo: true})
	require.Equal(t, Waiting, all.Worst(), "it holds for people too")

	w.now = w.now.Add(24 * time.Hour)
	_, all = w.pass(Options{To: "stage"})
	require.Equal(t, Promoted, all.Worst())
	require.Equal(t, weak, w.has("stage"))
}

func TestABranchThatMovesAfterTheGateIsJudgedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	strict := w.forge.Commit("main", policyFile, policyOf("{soak: 24h}"))
	p := w.promoter()
	moved := false
	p.before = func(step string) error {
		if step == "pin" && !moved {
			moved = true
			w.pinByHand("stage", strict) // with a stricter policy, just before the push
		}
		return nil
	}
	all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
	require.NoError(t, err)
	require.True(t, moved)
	require.Equal(t, Ahead, all.Worst(), all)
	require.Equal(t, strict, w.pinned("stage"))
}

func TestTwoPromotersAtOnceEndAsOne(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"judge", "pin", "publish", "status"} {
		t.Run("the other one runs before the step "+at, func(t *testing.T) {
			w := newWorld(t)
			next := w.push("two")
			w.deploy("dev", next)
			p := w.promoter()
			acted := false
			p.before = func(step string) error {
				if step == at && !acted {
					acted = true
					other, err := w.promoter().Pass(t.Context(), Options{To: "stage", Now: w.now})
					require.NoError(t, err)
					require.LessOrEqual(t, other.Worst(), Promoted)
				}
				return nil
			}
			all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
			require.NoError(t, err)
			require.True(t, acted)
			require.Contains(t, []State{Promoted, Current}, all.Worst(), all)
			require.Equal(t, next, w.pinned("stage"))
			require.Equal(t, next, w.has("stage"))
			require.Equal(t, "1", w.forge.RunGit("rev-list", "--count", "--grep=^Promote", "stage"))
		})
	}
}

func TestPromotingWhatIsThereRepairsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	w.pinByHand("stage", next) // by a person, or a run that was cut off: pinned, and not published
	lines, _ := w.pass(Options{To: "stage", Quiet: true})
	require.Equal(t, []string{"stage: has " + short(next)}, lines)
	require.Equal(t, next, w.has("stage"))
	require.Equal(t, 1, w.published["stage"])
	require.Equal(t, "success: stage has it", w.status("stage", next))
	require.Empty(t, w.judged)
	w.pass(Options{To: "stage", Quiet: true})
	require.Equal(t, 1, w.published["stage"])
	w.pass(Options{To: "stage"})
	require.Equal(t, 2, w.published["stage"], "a person wants it to be made sure of")

	w.cohort = func(string, string) gate.Cohort { return waiting }
	newer := w.push("three")
	w.pinByHand("stage", newer)
	w.deploy("dev", w.push("four"))
	lines, _ = w.pass(Options{To: "stage"})
	require.Contains(t, lines[0], "; published what it has", "while the gate waits for the next one")
	require.Equal(t, newer, w.has("stage"))
}

func TestAPausedEnvironmentWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy("stage", w.first)
	next := w.push("two")
	w.deploy("dev", next)
	require.NoError(t, w.promoter().Pause(t.Context(), "edge", "stage", "incident 12"))
	lines, all := w.pass(Options{To: "stage"})
	require.Contains(t, lines[0], "stage: not yet: paused")
	require.Contains(t, lines[0], "incident 12")
	require.Equal(t, Waiting, all.Worst())
	require.Contains(t, w.status("stage", next), "pending: paused")
	w.pinByHand("stage", next)
	w.pass(Options{To: "stage"})
	require.Equal(t, w.first, w.has("stage"), "nothing is published either: it may have been undone")
	w.pinByHand("stage", w.first)

	lines, _ = w.pass(Options{To: "stage", PausedToo: true})
	require.Equal(t, []string{"stage: promoted " + short(next) + " (1 commit)"}, lines)
	require.False(t, w.judged[len(w.judged)-1].Automatic)
}

func TestAnOlderCommitGoesThroughTheGateAndPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.push("one")
	w.deploy("dev", one)
	two := w.push("two")
	w.deploy("stage", two)
	lines, all := w.pass(Options{To: "stage"})
	require.Equal(t, []string{fmt.Sprintf("stage: has %s, which is newer than %s of dev", short(two), short(one))}, lines)
	require.Equal(t, Ahead, all.Worst())

	w.cohort = func(string, string) gate.Cohort { return waiting }
	_, all = w.pass(Options{To: "stage", Commit: one[:7]})
	require.Equal(t, Waiting, all.Worst(), "the same gate")
	w.cohort = func(string, string) gate.Cohort { return proved }
	lines, _ = w.pass(Options{To: "stage", Commit: one[:7]})
	require.Equal(t, []string{"stage: promoted " + short(one) + ", which is older: paused until it is resumed"}, lines)
	require.Equal(t, one, w.has("stage"))

	w.deploy("dev", two)
	lines, _ = w.pass(Options{})
	require.Contains(t, strings.Join(lines, "\n"), "stage: not yet: paused")
	require.Equal(t, one, w.pinned("stage"))
	w.resume("stage")
	lines, _ = w.pass(Options{To: "stage"})
	require.Equal(t, []string{"stage: promoted " + short(two) + " (1 commit)"}, lines)
}

func TestARunThatIsKilledAtAnyStepIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		older bool
		steps []string
		kill  []int
	}{
		{"promotion", false, []string{"load", "judge", "pin", "publish", "status"}, []int{0, 1, 2, 3, 4}},
		{"promotion of an older commit", true, []string{"load", "judge", "pause", "pin", "publish", "status"}, []int{2, 3, 4}}, // the others are the same
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			previous := w.first
			w.deploy("stage", w.first)
			for _, k := range c.kill {
				next, o := w.push(fmt.Sprint(k)), Options{To: "stage"}
				commit := next
				if c.older {
					w.resume("stage")
					w.deploy("stage", next)
					w.deploy("dev", previous)
					commit, o.Commit = previous, previous
				} else {
					w.deploy("dev", next)
				}
				w.steps, w.kill = nil, k
				_, all := w.pass(o)
				require.ErrorIs(t, all.Results[0].Err, errKilled)
				require.Equal(t, c.steps[:k+1], w.steps)
				require.Contains(t, []string{w.has("stage"), next, commit}, w.pinned("stage"))

				w.kill = -1
				_, all = w.pass(o)
				require.Contains(t, []State{Promoted, Current}, all.Worst(), "%+v", all)
				require.Equal(t, commit, w.pinned("stage"))
				require.Equal(t, commit, w.has("stage"))
				require.Contains(t, w.status("stage", commit), "success: ")
				_, paused, err := w.promoter().Paused(t.Context(), "edge", w.judged[len(w.judged)-1].Policy)
				require.NoError(t, err)
				require.Equal(t, c.older, paused)
				previous = next
			}
		})
	}
}

// An environment that somebody has just read is not read again, unless its branch has moved since.
func TestAnEnvironmentIsReadOnceUnlessItMoves(t *testing.T) {
	t.Parallel()
	for moves, reads := range map[bool]int{false: 0, true: 1} {
		w := newWorld(t)
		w.deploy("dev", w.push("one"))
		p := w.promoter()
		loaded, err := platform.LoadPlatform(t.Context(), p.source("stage"))
		require.NoError(t, err)
		p.Loaded = map[string]*platform.Loaded{"stage": loaded}
		if moves {
			w.forge.Commit("stage", "README.md", "somebody else's")
		}
		w.steps = nil
		done, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
		require.NoError(t, err)
		require.Equal(t, Promoted, done.Results[0].State, done.Results[0].Reason)
		loads := 0
		for _, step := range w.steps {
			if step == "load" {
				loads++
			}
		}
		require.Equal(t, reads, loads, w.steps)
	}
}

// The gate passed when the change request was opened, and does not any more when it is merged.
func TestAMergedChangeRequestSaysWhatItsPinWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.push("one")
	w.deploy("dev", one)
	w.pass(Options{To: "stage", ChangeRequest: true})
	w.forge.Merge(1)
	why := "failed: tills of plant 7 <b>"
	pass := func() Result {
		p := w.promoter()
		p.Publish = func(context.Context, Publication) error {
			return &UnfinishedError{Pin: why, Err: errors.New("stage: base commit waits: soak ends in " + w.now.String())}
		}
		all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
		require.NoError(t, err)
		require.Equal(t, Waiting, all.Results[0].State)
		return all.Results[0]
	}
	for range 3 {
		require.Empty(t, pass().Warnings)
		w.now = w.now.Add(time.Minute)
	}
	comments := func() (texts []string) {
		for _, c := range w.forge.Changes()[0].Comments {
			_, text, _ := strings.Cut(c.Body, "\n")
			texts = append(texts, text)
		}
		return texts
	}
	require.Equal(t, []string{"`stage` goes on with the base commit that it has, until the gate lets " + short(one) + " in. It waits: failed: tills of plant 7 &#60;b&#62;\n"}, comments())
	require.Equal(t, "pending: "+why, w.status("stage", one))
	why = "soak: the soak in dev ends at noon"
	pass()
	require.Len(t, comments(), 1)
	require.Contains(t, comments()[0], "It waits: soak: the soak in dev ends at noon")

	// That the forge does not answer keeps nothing else back.
	w.forge.Fail(forgetest.Fault{Route: "GET ", Status: 403})
	require.Len(t, pass().Warnings, 1)

	// A person's pin has no request of wherry's: neither one that is pushed, nor one that is merged, which has one of the person's.
	calls := len(w.forge.Changes()[0].Comments)
	w.pinByHand("stage", w.push("two"))
	pass()
	require.Len(t, w.forge.Changes()[0].Comments, calls)
	three := w.push("three")
	text := w.forge.RunGit("show", "stage:base-repo.yaml")
	w.forge.RunGit("branch", "by-hand", "stage")
	w.forge.Commit("by-hand", "base-repo.yaml", regexp.MustCompile("commit: [0-9a-f]+").ReplaceAllString(text, "commit: "+three))
	w.forge.Merge(w.forge.Add(forgetest.Change{Source: "by-hand", Target: "stage", Title: "We want three"}))
	w.forge.Commit("stage", "README.md", "something else")
	for range 2 {
		require.Empty(t, pass().Warnings)
	}
	require.Len(t, w.forge.Changes()[0].Comments, calls)
	require.Len(t, w.forge.Changes()[1].Comments, 1)
	require.Contains(t, w.forge.Changes()[1].Comments[0].Body, "until the gate lets "+short(three)+" in. It waits: soak: the soak in dev ends at noon")
}

func TestAPromotionByChangeRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.push("one")
	w.deploy("dev", one)
	o := Options{To: "stage", ChangeRequest: true}
	stage := w.forge.RunGit("rev-parse", "stage")
	for k := range 4 { // killed at each step
		w.steps, w.kill = nil, k
		_, all := w.pass(o)
		require.ErrorIs(t, all.Results[0].Err, errKilled)
	}
	w.kill = -1
	lines, all := w.pass(o)
	require.Equal(t, Proposed, all.Worst(), lines)
	require.Len(t, w.forge.Changes(), 1)
	request := w.forge.Changes()[0]
	require.Equal(t, "stage: proposed "+short(one)+" (1 commit): change request 1 is open: "+all.Results[0].Request.URL, lines[0])
	require.Equal(t, stage, w.forge.RunGit("rev-parse", "stage"))
	require.Equal(t, "Promote "+short(one)+" to stage", request.Title)
	require.Equal(t, []string{"promoted"}, request.Labels)
	require.Equal(t, "promote/stage", request.Source)
	require.Contains(t, request.Body, "| compliant | pass | `3 of 3 (100.0 %)` | `at least 100 % of those that have reported` |\n")
	require.Contains(t, request.Body, "- "+short(one)+" `By hand`, `Ann`\n")
	require.Equal(t, "pending: change request 1 is open", w.status("stage", one))

	w.pass(o)
	require.Equal(t, request, w.forge.Changes()[0], "left alone")
	two := w.push("two")
	w.deploy("dev", two)
	w.pass(o)
	require.Len(t, w.forge.Changes(), 1, "one open request for each environment")
	require.Equal(t, "Promote "+short(two)+" to stage", w.forge.Changes()[0].Title)
	require.Equal(t, stage, w.forge.RunGit("rev-parse", "promote/stage~"))

	w.forge.Edit(1, func(c *forgetest.Change) { c.State = "closed" })
	for range 2 {
		lines, all = w.pass(o)
		require.Equal(t, Held, all.Worst(), "closed by a person: a no")
		require.Equal(t, []string{"stage: held: change request 1 for " + short(two) + " was closed"}, lines)
	}
	require.Equal(t, "failure: change request 1 for "+short(two)+" was closed", w.status("stage", two))
	require.Len(t, w.forge.Changes(), 1)
	again := o
	again.Again = true
	_, all = w.pass(again)
	require.Equal(t, Proposed, all.Worst())
	require.Len(t, w.forge.Changes(), 2)

	w.forge.Merge(2)
	lines, _ = w.pass(o)
	require.Equal(t, []string{"stage: has " + short(two)}, lines)
	require.Equal(t, two, w.has("stage"))
	require.Equal(t, "success: stage has it", w.status("stage", two))
}

func TestTheFirstEnvironmentPinsTheNewestCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	p := w.promoter()
	p.Judge = func(_ context.Context, q Question) (gate.Verdict, error) {
		return gate.Verdict{Environment: "dev", Commit: q.Commit, Result: gate.Pass}, nil
	}
	all, err := p.Pass(t.Context(), Options{To: "dev", Now: w.now})
	require.NoError(t, err)
	require.Equal(t, Promoted, all.Worst())
	require.Equal(t, next, w.has("dev"))

	w.forge.Commit("dev", "base-repo.yaml", strings.Replace(baseRepo(w.forge.Git, "X"), "  commit: X # by the robot\n", "", 1))
	newer := w.push("three")
	lines, _ := w.pass(Options{To: "dev"})
	require.Equal(t, []string{"dev: has " + short(newer)}, lines, "without a pin it is only published")
	require.Equal(t, newer, w.has("dev"))
}

func TestAPushThatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	p := w.promoter()
	forgeOf := p.Access("").Forge
	reader := func(url string) Access {
		return Access{URL: w.forge.URL, User: "x", Password: forgetest.Reader, Forge: forgeOf}
	}
	p.Access = reader
	all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
	require.NoError(t, err)
	require.ErrorIs(t, all.Results[0].Err, outgit.ErrDenied, "a token that may only read")
	require.NotContains(t, all.Results[0].Reason, forgetest.Reader)

	w.forge.Protect("stage")
	_, all = w.pass(Options{To: "stage"})
	var refused *outgit.RefusedError
	require.ErrorAs(t, all.Results[0].Err, &refused)
	require.Equal(t, w.first, w.pinned("stage"))
	_, all = w.pass(Options{To: "stage", ChangeRequest: true})
	require.Equal(t, Proposed, all.Worst())
}

func TestAStatusThatCannotBeSetIsAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	next := w.push("two")
	w.deploy("dev", next)
	w.forge.Fail(forgetest.Fault{Route: "POST /api/v3/", Status: http.StatusForbidden})
	all, err := w.promoter().Pass(t.Context(), Options{To: "stage", Now: w.now})
	require.NoError(t, err)
	require.Equal(t, Promoted, all.Worst())
	require.Len(t, all.Results[0].Warnings, 1)
	require.Contains(t, all.Results[0].Warnings[0], forge.ErrForbidden.Error())
	_, all = w.pass(Options{To: "stage"})
	require.Equal(t, "success: stage has it", w.status("stage", next), "published, and no status: set by the next run")
}

func TestAPublicationThatIsNotFinishedIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		held   bool
		state  State
		status string
	}{{true, Held, "failure: 1 assignment held"}, {false, Waiting, "pending: 1 assignment held"}} {
		w := newWorld(t)
		next := w.push("two")
		w.deploy("dev", next)
		w.deploy("stage", w.first)
		p := w.promoter()
		p.Publish = func(context.Context, Publication) error {
			return &UnfinishedError{Held: c.held, Err: errors.New("1 assignment held"), Hint: "mend it"}
		}
		all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
		require.NoError(t, err)
		require.Equal(t, c.state, all.Worst())
		require.Equal(t, "mend it", all.Results[0].Hint)
		require.Equal(t, c.status, w.status("stage", next))
		require.Equal(t, next, w.pinned("stage"))
		lines, _ := w.pass(Options{To: "stage"})
		require.Equal(t, []string{"stage: has " + short(next)}, lines, "the next run completes it")
	}
}

func TestAPinThatWaitsGivesWayToWhatTheGateLetsIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		dev  string // the commit that it has
		want string
	}{
		{"what dev has is newer", "two", "stage: promoted two (1 commit)"},
		{"dev has nothing newer", "zero", "stage: not yet: base commit one waits"},
		{"dev has it", "one", "stage: not yet: base commit one waits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			commits := map[string]string{"zero": w.push("zero"), "one": w.push("one"), "two": w.push("two")}
			w.deploy("dev", commits[c.dev])
			w.deploy("stage", w.first)
			w.pinByHand("stage", commits["one"])
			p := w.promoter()
			publish := p.Publish
			p.Publish = func(ctx context.Context, of Publication) error {
				if !of.Judged {
					return &UnfinishedError{Pin: "soak", Err: errors.New("stage: base commit one waits")}
				}
				return publish(ctx, of)
			}
			all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
			require.NoError(t, err)
			require.Equal(t, c.want, strings.ReplaceAll(all.Results[0].String(), short(commits["two"]), "two"))
			require.Equal(t, c.dev == "two", w.pinned("stage") == commits["two"])
		})
	}
}
