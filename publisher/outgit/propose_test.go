package outgit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/scheduler"
)

const work = "deployment/dev"

// desk is a forge with a client for it.
type desk struct {
	*forgetest.Server
	forge *forge.Repository
}

func newDesk(t *testing.T, kind forge.Kind) desk {
	t.Helper()
	s := forgetest.New(t, string(kind))
	r, err := forge.New(target(s).URL, forge.Options{Kind: kind, Wait: func(context.Context, time.Duration) error { return nil }})
	require.NoError(t, err)
	return desk{s, r}
}

// propose proposes a result and holds the work branch against what git says.
func (d desk) propose(t *testing.T, result *scheduler.Result, o Options) Outcome {
	t.Helper()
	outcome, err := Propose(t.Context(), d.forge, target(d.Server), result, o)
	require.NoError(t, err)
	if outcome.Branch == work {
		require.Equal(t, outcome.Commit, d.RunGit("rev-parse", work))
		require.Equal(t, d.RunGit("rev-parse", "dev"), d.RunGit("rev-parse", work+"^"))
	}
	return outcome
}

func TestAnEnvironmentHasOneChangeRequest(t *testing.T) {
	for _, kind := range []forge.Kind{forge.GitLab, forge.Azure} { // package forge holds all four against each other
		t.Run(string(kind), func(t *testing.T) {
			d := newDesk(t, kind)
			dev := d.RunGit("rev-parse", "dev")
			d.Commit("people", "a", "1")
			theirs := d.Add(forgetest.Change{Source: "people", Target: "dev", Title: "Theirs"})

			first := d.propose(t, edge(), Options{})
			require.Equal(t, Opened, first.Proposal.Action)
			require.True(t, first.Pushed)
			request := d.Changes()[1]
			require.Equal(t, "Update manifests in dev from deployment/dev", request.Title)
			require.Equal(t, []string{"promoted"}, request.Labels)
			require.Contains(t, request.Body, "- Written: `edge/app-t1/namespace.yaml`\n")
			require.Contains(t, request.Body, "Base commit: abc\n")
			require.Equal(t, dev, d.RunGit("rev-parse", "dev"), "the branch itself stays")

			again := d.propose(t, edge(), Options{})
			require.Equal(t, Unchanged, again.Proposal.Action)
			require.False(t, again.Pushed)
			require.Equal(t, first.Commit, again.Commit)
			same := d.propose(t, edge(), Options{EnvironmentCommit: "another", Date: time.Unix(1_750_000_000, 0)})
			require.Equal(t, first.Commit, same.Commit, "a commit of the platform that changes no file changes nothing here")
			require.False(t, same.Pushed)

			second := d.propose(t, changed("2"), Options{})
			require.Equal(t, Updated, second.Proposal.Action)
			require.Equal(t, request.Number, second.Proposal.Request.Number)
			require.Equal(t, d.RunGit("rev-parse", "dev"), d.RunGit("rev-parse", work+"^"), "one commit ahead")

			d.Commit("dev", "README.md", "Newer\n")
			moved := d.propose(t, changed("2"), Options{})
			require.True(t, moved.Pushed, "the work branch follows the branch")
			require.NotEqual(t, second.Commit, moved.Commit)

			d.Merge(request.Number)
			merged := d.propose(t, changed("2"), Options{})
			require.Equal(t, None, merged.Proposal.Action)
			require.False(t, merged.Pushed)
			require.Equal(t, d.RunGit("rev-parse", "dev"), merged.Commit)

			next := changed("3")
			third := d.propose(t, next, Options{})
			require.Equal(t, Opened, third.Proposal.Action)
			all := d.Changes()
			require.Len(t, all, 3)
			require.Empty(t, all[2].Labels, "the base commit is the same")
			require.Equal(t, "open Theirs", all[theirs-1].State+" "+all[theirs-1].Title)
		})
	}
}

func TestAChangeRequestThatAPersonClosed(t *testing.T) {
	d := newDesk(t, forge.GitHub)
	number := d.propose(t, edge(), Options{}).Proposal.Request.Number
	d.Edit(number, func(c *forgetest.Change) { c.State = "closed" })
	head := d.RunGit("rev-parse", work)

	declined := d.propose(t, edge(), Options{})
	require.Equal(t, Declined, declined.Proposal.Action)
	require.Equal(t, number, declined.Proposal.Request.Number)
	d.Commit("dev", "README.md", "Newer\n")
	require.Equal(t, Declined, d.propose(t, edge(), Options{}).Proposal.Action, "the same content on a newer branch")
	require.Equal(t, head, d.RunGit("rev-parse", work))

	other := d.propose(t, changed("2"), Options{})
	require.Equal(t, Opened, other.Proposal.Action)
	require.NotEqual(t, number, other.Proposal.Request.Number)
	d.Edit(other.Proposal.Request.Number, func(c *forgetest.Change) { c.State = "closed" })
	again := d.propose(t, changed("2"), Options{Again: true})
	require.Equal(t, Opened, again.Proposal.Action)
	require.Len(t, d.Changes(), 3)
}

func TestAChangeRequestIsWithdrawnOnceTheBranchHasItsContent(t *testing.T) {
	for _, kind := range []forge.Kind{forge.GitHub, forge.Azure} { // the others close as they update
		d := newDesk(t, kind)
		_, err := Push(t.Context(), target(d.Server), edge(), Options{})
		require.NoError(t, err)
		number := d.propose(t, changed("2"), Options{}).Proposal.Request.Number
		theirs := d.Add(forgetest.Change{Source: "people", Target: "dev"})
		require.Equal(t, Withdrawn, d.propose(t, edge(), Options{}).Proposal.Action)
		require.Equal(t, "closed", d.Changes()[number-1].State)
		require.Equal(t, "open", d.Changes()[theirs-1].State)
		require.Equal(t, None, d.propose(t, edge(), Options{}).Proposal.Action)
		require.Equal(t, Opened, d.propose(t, changed("2"), Options{}).Proposal.Action, "no person closed it")
	}
}

func TestTextThatAPersonWroteStays(t *testing.T) {
	d := newDesk(t, forge.GitLab)
	number := d.propose(t, edge(), Options{}).Proposal.Request.Number
	d.Edit(number, func(c *forgetest.Change) { c.Title, c.Body = "Their title", "Their text" })
	outcome := d.propose(t, changed("2"), Options{})
	require.Equal(t, Updated, outcome.Proposal.Action)
	require.True(t, outcome.Proposal.TheirText)
	require.Equal(t, "Their title Their text", d.Changes()[0].Title+" "+d.Changes()[0].Body)
	_, err := Push(t.Context(), target(d.Server), changed("2"), Options{})
	require.NoError(t, err)
	require.Equal(t, None, d.propose(t, changed("2"), Options{}).Proposal.Action)
	require.Equal(t, "open", d.Changes()[0].State, "it is theirs now")
}

func TestAWorkBranchOfOthersIsNotTouched(t *testing.T) {
	d := newDesk(t, forge.Gitea)
	d.Commit(work, "a", "1")
	head := d.RunGit("rev-parse", work)
	_, err := Propose(t.Context(), d.forge, target(d.Server), edge(), Options{})
	var foreign *ForeignBranchError
	require.ErrorAs(t, err, &foreign)
	require.EqualError(t, err, `branch deployment/dev has a commit that wherry did not make for this environment: `+head[:12]+` "By hand" by Ann`)
	require.Equal(t, head, d.RunGit("rev-parse", work))
	require.Empty(t, d.Changes())

	outcome, err := Propose(t.Context(), d.forge, target(d.Server), edge(), Options{WorkBranch: "wherry/dev"})
	require.NoError(t, err)
	require.Equal(t, Opened, outcome.Proposal.Action)

	d.Commit("wherry/dev", "fix", "by hand")
	_, err = Propose(t.Context(), d.forge, target(d.Server), changed("2"), Options{WorkBranch: "wherry/dev"})
	require.ErrorAs(t, err, &foreign, "a person's commit on our branch")

	other := edge()
	other.Environment = "prod"
	d.RunGit("update-ref", "refs/heads/deployment/prod", outcome.Commit)
	_, err = Propose(t.Context(), d.forge, target(d.Server), other, Options{})
	require.ErrorAs(t, err, &foreign, "another environment's")

	tree := d.RunGit("rev-parse", "dev^{tree}")
	message := d.RunGit("log", "-1", "--format=%B", outcome.Commit)
	amended := d.RunGit("commit-tree", tree, "-p", "dev", "-m", message)
	d.RunGit("update-ref", "refs/heads/"+work, amended)
	_, err = Propose(t.Context(), d.forge, target(d.Server), edge(), Options{})
	require.ErrorAs(t, err, &foreign, "ours, with another tree")

	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{WorkBranch: "dev"}, `"dev" cannot be the work branch`},
		{Options{WorkBranch: "-x"}, `"-x" cannot be the work branch`},
	} {
		_, err = Propose(t.Context(), d.forge, target(d.Server), edge(), test.o)
		require.EqualError(t, err, test.want)
	}
	missing := target(d.Server)
	missing.Branch = "none"
	_, err = Propose(t.Context(), d.forge, missing, edge(), Options{})
	require.ErrorAs(t, err, new(*MissingBranchError))
	require.EqualError(t, err, "there is no branch none in "+d.URL)
}

func TestABranchThatMovesIsReadAgain(t *testing.T) {
	d := newDesk(t, forge.GitHub)
	require.NoError(t, err2(Propose(t.Context(), d.forge, target(d.Server), edge(), Options{})))
	race := func(branch string, times int) error {
		runs := 0
		return err2(run(t.Context(), target(d.Server), Options{}, func(r repository, o Options) (Outcome, error) {
			heads, err := r.heads(t.Context(), branch, "dev")
			require.NoError(t, err)
			old := d.RunGit("rev-parse", branch)
			if runs++; runs <= times {
				d.Commit(branch, "theirs", strings.Repeat("x", runs))
			}
			made, err := r.make(t.Context(), Target{URL: d.URL, Branch: branch}, heads, &rendered{changed("2")}, o)
			if err != nil {
				return made, err
			}
			return made, r.push(t.Context(), made.Commit, branch, old)
		}))
	}
	require.NoError(t, race("dev", 2))
	require.Equal(t, "xx", d.RunGit("show", "dev:theirs"), "nothing of theirs is lost")
	require.Equal(t, "2", d.RunGit("show", "dev:edge/app-t1/platform-config.yaml"))
	require.ErrorIs(t, race("dev", 100), ErrBusy)
}

func err2(_ Outcome, err error) error { return err }

// A push that is not from the commit that was read must fail, also between reading and pushing.
func TestAPushIsRefusedByGitOnceTheBranchMoved(t *testing.T) {
	d := newDesk(t, forge.GitHub)
	require.ErrorIs(t, err2(run(t.Context(), target(d.Server), Options{}, func(r repository, o Options) (Outcome, error) {
		heads, err := r.heads(t.Context(), "dev")
		require.NoError(t, err)
		made, err := r.make(t.Context(), target(d.Server), heads, &rendered{edge()}, o)
		require.NoError(t, err)
		theirs := d.Commit("dev", "theirs", "x")
		require.ErrorIs(t, r.push(t.Context(), made.Commit, "dev", heads["dev"]), errMoved)
		require.ErrorIs(t, r.push(t.Context(), made.Commit, "new", heads["dev"]), errMoved, "a branch that was deleted")
		require.Equal(t, theirs, d.RunGit("rev-parse", "dev"))
		return made, errMoved
	})), ErrBusy)
}

// A run that was cut off at each of its steps is completed by the next.
func TestARunThatWasCutOffIsCompleted(t *testing.T) {
	steps := []string{"git POST git-receive-pack", "git GET refs", "POST ", "git POST git-upload-pack", "PATCH ", "GET "} // what writes is in the sample
	for i := 0; i < len(steps); i += sweeptest.Every(2) {
		step := steps[i]
		t.Run(step, func(t *testing.T) {
			d := newDesk(t, forge.GitHub)
			for _, result := range []*scheduler.Result{edge(), changed("2")} {
				ctx, cancel := context.WithCancel(t.Context())
				d.Fail(forgetest.Fault{Route: step, Before: cancel})
				_, err := Propose(ctx, d.forge, target(d.Server), result, Options{})
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
				cancel()
				d.propose(t, result, Options{})
			}
			all := d.Changes()
			require.Len(t, all, 1)
			require.Equal(t, "open", all[0].State)
			require.Equal(t, "2", d.RunGit("show", work+":edge/app-t1/platform-config.yaml"))
			require.Empty(t, d.RunGit("fsck", "--strict", "--no-dangling"))
		})
	}
}

func TestAForgeThatFailsLeavesTheBranchForTheNextRun(t *testing.T) {
	d := newDesk(t, forge.GitHub)
	for _, status := range []int{403, 409, 422, 500, 500, 500, 500} {
		d.Fail(forgetest.Fault{Route: "POST ", Status: status})
	}
	for _, want := range []error{forge.ErrForbidden, forge.ErrConflict, forge.ErrRefused, forge.ErrUnavailable} {
		_, err := Propose(t.Context(), d.forge, target(d.Server), edge(), Options{})
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), forgetest.Writer)
	}
	outcome := d.propose(t, edge(), Options{})
	require.Equal(t, Opened, outcome.Proposal.Action)
	require.False(t, outcome.Pushed, "the first run has pushed it")
}

// An edit is proposed again only if somebody asks for it, whatever was proposed in between.
func TestAnEditThatAPersonClosedIsANoForGood(t *testing.T) {
	t.Parallel()
	d := newDesk(t, forge.GitHub)
	d.Commit("dev", "commit", "zero")
	propose := func(content string, o Options) Proposal {
		t.Helper()
		outcome, err := ProposeEdit(t.Context(), d.forge, target(d.Server), Edit{
			Environment: "dev", Purpose: "promote", Content: content, Title: "Promote " + content,
			Files: func(context.Context, Branch) (map[string][]byte, error) {
				return map[string][]byte{"commit": []byte(content)}, nil
			},
		}, o)
		require.NoError(t, err)
		return outcome.Proposal
	}
	require.Equal(t, Opened, propose("one", Options{}).Action)
	d.Edit(1, func(c *forgetest.Change) { c.State = "closed" })
	require.Equal(t, Opened, propose("two", Options{}).Action)
	before := d.Changes()
	declined := propose("one", Options{}) // as after an undo in the environment below
	require.Equal(t, Declined, declined.Action)
	require.Equal(t, 1, declined.Request.Number)
	require.Equal(t, before, d.Changes(), "the request for the other one is as it was")
	require.Equal(t, Updated, propose("one", Options{Again: true}).Action)
	require.Equal(t, Unchanged, propose("one", Options{}).Action)
}
