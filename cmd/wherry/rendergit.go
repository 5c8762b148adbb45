package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/outdir"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
)

// gitOutput holds the flags for output to git.
type gitOutput struct {
	to         string
	gitOpsRepo bool
	direct     bool
	again      bool
	status     bool
	work       string
	forge      flags.Forge

	target outgit.Target
	opts   outgit.Options
}

// gitFlags are those that mean nothing without --to-git or --to-gitops-repo.
var gitFlags = append([]string{"direct", "again", "allow-empty", "status", "work-branch"}, flags.ForgeFlags...)

func (g *gitOutput) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.to, "to-git", "", "commit to this branch, `URL#BRANCH[:FOLDER]`, in place of a folder")
	f.BoolVar(&g.gitOpsRepo, "to-gitops-repo", false, "commit to the branch that the environment's GitOpsRepo object names")
	f.BoolVar(&g.direct, "direct", false, "push to the branch itself, without a change request; it is made if need be")
	f.BoolVar(&g.again, "again", false, "open a change request although a person closed one with the same content")
	f.BoolVar(&g.opts.AllowEmpty, "allow-empty", false, "leave cluster types without assignments that have some on the branch")
	f.BoolVar(&g.status, "status", false, "set the status of the platform's commit at its forge")
	f.StringVar(&g.work, "work-branch", "", "the `BRANCH` that the change request comes from (default deployment/ENVIRONMENT)")
	cli.NotEmpty(cmd, "to-git", "work-branch")
	g.forge.AddTo(cmd)
	cmd.MarkFlagsOneRequired("output", "to-git", "to-gitops-repo")
	cmd.MarkFlagsMutuallyExclusive("output", "to-git", "to-gitops-repo")
}

// check reads the flags.
func (g *gitOutput) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("output") {
		for _, name := range gitFlags {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s is for output to git: give --to-git or --to-gitops-repo", name)
			}
		}
		return nil
	}
	for _, name := range []string{"again", "work-branch"} {
		if g.direct && cmd.Flags().Changed(name) {
			return cli.Usagef("--%s is for change requests, and --direct opens none", name)
		}
	}
	return g.read()
}

func (g *gitOutput) read() (err error) {
	if err := g.forge.Read(); err != nil {
		return err
	}
	g.opts.Author, g.opts.Committer = g.forge.Author, g.forge.Committer
	if g.to == "" {
		return nil
	}
	if g.target, err = outgit.ParseTarget(g.to); err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("--to-git: %w", err), "")
	}
	if !g.direct {
		_, err = g.connect(g.target.URL)
	}
	return err
}

// connect returns the repository at a URL of git.
func (g *gitOutput) connect(at string) (*forge.Repository, error) {
	r, err := g.forge.New(at)
	if errors.Is(err, forge.ErrUnknownKind) {
		return nil, cli.Fail(cli.Usage, err, "name it with --forge, or pass --direct, which needs no forge")
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, err, "a change request needs a forge; --direct pushes to the branch of any repository")
	}
	return r, nil
}

// run commits the rendered files.
func (g *gitOutput) run(cmd *cobra.Command, place string, built platform.Built, o outdir.Options, timeout time.Duration) error {
	loaded, result := built.Loaded, built.Result
	if err := g.findTarget(loaded); err != nil {
		return err
	}
	source, err := g.sourceOf(place, loaded)
	if err != nil {
		return err
	}
	g.opts.Timeout = timeout
	g.opts.Force, g.opts.Keep, g.opts.WorkBranch, g.opts.Again = o.Force, o.Keep, g.work, g.again
	g.opts.EnvironmentCommit, g.opts.Date = loaded.EnvironmentCommit, newer(loaded.EnvironmentTime, loaded.BaseTime)
	committed, followed := withoutFollowed(loaded, result)
	if followed > 0 {
		cmd.PrintErrf("note: embedded manifests of %s are not committed, as the reconciler takes them from the same source\n", show.Count(followed, "assignment"))
	}
	outcome, err := g.push(cmd, committed)
	var answer error
	if err == nil {
		answer = g.print(cmd, outcome)
	}
	var unset error
	if source != nil {
		unset = source.SetStatus(cmd.Context(), loaded.EnvironmentCommit, statusOf(result, outcome, err))
	}
	if unset != nil && (err != nil || answer != nil) {
		cmd.PrintErrf("warning: %s\n", show.Line(unset.Error())) // the other error says more
	}
	switch {
	case err != nil:
		return g.failure(err)
	case answer != nil:
		return answer
	case errors.Is(unset, forge.ErrNotFound):
		return cli.Fail(cli.Failed, unset, "the files are committed; push the platform's commit before --status")
	case unset != nil:
		return g.failure(unset)
	}
	return flags.FailedAssignments(loaded, result, fmt.Sprintf("the rest is in %s", outcome.Branch))
}

func newer(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// findTarget takes the target from the GitOpsRepo object if no flag names it.
func (g *gitOutput) findTarget(loaded *platform.Loaded) error {
	if g.to != "" {
		return nil
	}
	all := loaded.Model.GitOpsRepos()
	if len(all) != 1 {
		var names []string
		for _, r := range all {
			names = append(names, r.Name)
		}
		err := fmt.Errorf("the environment has no GitOpsRepo object")
		if len(all) > 1 {
			err = fmt.Errorf("the environment has several GitOpsRepo objects: %s", show.List(names, 5))
		}
		return cli.Fail(cli.Usage, err, "name the branch with --to-git URL#BRANCH")
	}
	r := all[0]
	g.target = outgit.Target{URL: r.Repo, Branch: r.Branch, Folder: r.Path}
	if err := g.target.Check(); err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("%s: GitOpsRepo %s: %w", r.Position, r.Name, err), "")
	}
	return nil
}

// withoutFollowed returns the result without the embedded files of assignments whose reconciler takes the content from the same source,
// and the number of those: who reads the branch would apply it twice.
func withoutFollowed(loaded *platform.Loaded, result *scheduler.Result) (*scheduler.Result, int) {
	own := map[string]string{}
	for _, r := range loaded.Model.Registrations() {
		own[r.Name] = r.Workload.Repo
	}
	without, followed := *result, 0
	without.ClusterTypes = slices.Clone(result.ClusterTypes)
	for i := range without.ClusterTypes {
		ct := &without.ClusterTypes[i]
		ct.Assignments = slices.Clone(ct.Assignments)
		for j := range ct.Assignments {
			if a := &ct.Assignments[j]; artifacts.Followed(a, own[a.Registration]) {
				a.Files = artifacts.RenderedFiles(a)
				followed++
			}
		}
	}
	return &without, followed
}

// push commits the result, to the branch itself or with a change request.
func (g *gitOutput) push(cmd *cobra.Command, result *scheduler.Result) (outgit.Outcome, error) {
	t := g.target
	if p, err := forge.PlaceOf(t.URL, g.forge.Kind); err == nil {
		g.opts.User, g.opts.Password = g.forge.Tokens.Login(p)
		t.URL = p.CloneURL(t.URL)
		if held := g.forge.Tokens.Withheld(p); held != "" {
			cmd.PrintErrf("note: %s is not sent to %s; pass --forge %s if it is meant for this host\n", held, show.Line(p.Web), p.Kind)
		}
	}
	if g.direct {
		return outgit.Push(cmd.Context(), t, result, g.opts)
	}
	r, err := g.connect(t.URL)
	if err != nil {
		return outgit.Outcome{}, err
	}
	return outgit.Propose(cmd.Context(), r, t, result, g.opts)
}

// print prints the outcome. Its error is the answer no.
func (g *gitOutput) print(cmd *cobra.Command, o outgit.Outcome) error {
	counts := fmt.Sprintf("%s written, %d removed, %d unchanged", show.Count(len(o.Written), "file"), len(o.Removed), o.Unchanged)
	request := o.Proposal.Request
	switch o.Proposal.Action {
	case outgit.None:
		cmd.PrintErrf("%s has this content: %s\n", g.target, counts)
		return nil
	case outgit.Withdrawn:
		cmd.PrintErrf("%s has this content: %s\nchange request %d is closed, since nothing is left of it\n", g.target, counts, request.Number)
		return nil
	case outgit.Declined:
		return cli.Fail(cli.No, fmt.Errorf("change request %d with the same content was closed, so none is open: %s", request.Number, request.URL),
			"change the platform, or pass --again to open a new one")
	case "":
		cmd.PrintErrf("%s: %s\n", g.target, counts)
		if !o.Pushed {
			cmd.PrintErrln("nothing is pushed: the branch has this content")
		}
		cmd.Println(o.Commit)
		return nil
	}
	cmd.PrintErrf("%s: %s\nchange request %d %s, from branch %s\n", g.target, counts, request.Number, o.Proposal.Action, o.Branch)
	if o.Proposal.TheirText {
		cmd.PrintErrf("note: somebody wrote the text of change request %d, so it is left as it is\n", request.Number)
	}
	cmd.Println(request.URL)
	return nil
}

// sourceOf returns the repository whose commit gets a status; nil without --status.
func (g *gitOutput) sourceOf(place string, loaded *platform.Loaded) (*forge.Repository, error) {
	if !g.status {
		return nil, nil
	}
	if loaded.EnvironmentCommit == "" {
		return nil, cli.Usagef("--status: the platform's files are in no commit")
	}
	at, kind := gitrepo.OriginOf(place), forge.Kind("")
	if repository, _, found := strings.Cut(place, "#"); loaded.Source != "" && (found || gitrepo.IsURL(place)) {
		at = repository
	}
	run, inCI := forge.RunOf(os.Getenv)
	if at == "" {
		at = run.URL
	}
	switch {
	case at == "":
		return nil, cli.Usagef("--status: the platform's folder has no remote named origin")
	case inCI && sameHost(at, run.URL):
		kind = run.Kind
	case sameHost(at, g.target.URL): // that --forge is about
		kind = g.forge.Kind
	}
	r, err := forge.New(at, forge.Options{Kind: kind, Tokens: g.forge.Tokens})
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--status: %w", err), "the status is set at the forge of the platform's repository")
	}
	return r, nil
}

func sameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host != "" && x.Host == y.Host
}

// statusOf describes a run for people who look at the platform's commit.
func statusOf(result *scheduler.Result, o outgit.Outcome, err error) forge.Status {
	s := forge.Status{Context: "wherry/render/" + result.Environment, State: forge.Success, URL: o.Proposal.Request.URL}
	failed := 0
	for _, ct := range result.ClusterTypes {
		failed += len(ct.Failures)
	}
	s.Description = fmt.Sprintf("%d written, %d removed, %d unchanged", len(o.Written), len(o.Removed), o.Unchanged)
	switch {
	case err != nil:
		s.State, s.Description = forge.Failure, "the rendered files could not be committed"
	case failed > 0:
		s.State = forge.Failure
		s.Description = fmt.Sprintf("%s failed; %s", show.Count(failed, "assignment"), s.Description)
	}
	return s
}

// failure gives an error of writing to git its exit code and a hint.
func (g *gitOutput) failure(err error) error {
	denied := "let the token's user push to that branch, or name another one with --work-branch"
	if g.direct {
		denied = "if the branch is protected, leave out --direct: a change request does not push to it"
	}
	return g.forge.Failure(err, g.target.URL, denied,
		cli.As[*outgit.ForeignBranchError](cli.Failed, "merge or delete that branch, or name another one with --work-branch"))
}
