package promotecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/gitrepo"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// promoting holds the flags of promote.
type promoting struct {
	env.Gates // but for its Trust
	env.Signing
	forge   flags.Forge
	format  string
	options promote.Options
	watch   flags.Watch

	place    string          // the platform, as promote.Remote returns it
	facts    *facts.Facts    // what gates are judged by, of the newest pass
	look     *facts.Facts    // of one look, which ends with a judgement or a publication
	withheld map[string]bool // the hosts of which a note says that no token is sent there
	statuses promote.Statuses
	entries  map[string]*facts.Entry // what may enter environments, as it was asked since each was published last
	// published gets what was published, in place of a conclusion that is printed; nil prints one.
	published func(*publisher.Published)
}

// Promote returns the command wherry promote.
func Promote() *cobra.Command {
	var p promoting
	cmd := &cobra.Command{
		Use:   "promote [PLATFORM] [--environment NAME] [--to LOCATION] [--key FILE | --signer cosign:URI]",
		Short: "Promote proved commits to the next environment",
		Long: `Promote base commits along the chain of the PromotionPolicy. For each environment, ask its gate about the commit that the
environment below has. If the gate passes, pin the commit in the environment's BaseRepo object and publish the
environment. The first environment gets the newest commit of the base's branch. With -e, only one environment.

The pin is a commit on the environment's branch, or a change request (changeRequest in the policy, or --change-request).
Merge it and run promote again. A closed change request is not opened again without --again.

Each run completes what is missing, so run it as often as you like, or with --watch. --commit sends another commit through
the same gate; an older one also pauses the environment. PLATFORM is a git repository, a clone of one, or a folder.

Exit codes: 0 each environment has its commit, 1 one is held back, 3 one failed, 5 one has to wait.

More: wherry help promoting, rings, signing-keys, watch, forge-tokens`,
		Example: `  wherry promote https://github.com/example/platform --to oci://registry.example.com/edge --key cosign.key
  wherry promote -e stage --hub https://hub.example.com
  wherry promote -e prod --commit 3f2a9c1 --change-request
  wherry promote https://github.com/example/platform --watch --webhook :8090 --webhook-secret-file webhook.secret`,
		Args: cobra.MaximumNArgs(1),
		RunE: p.run,
	}
	p.Source.AddReading(cmd)
	p.Source.Cache.AddTo(cmd)
	p.Registry.AddTo(cmd)
	p.Signers.AddReleases(cmd)
	p.Signing.AddTo(cmd, "the `LOCATION` to publish to (default the registry of the settings)")
	p.forge.AddTo(cmd)
	cli.OutputFlag(cmd, &p.format)
	f := cmd.Flags()
	f.StringVarP(&p.options.To, "environment", "e", "", "look only at the environment `NAME`, which may be the first of the chain")
	f.StringVar(&p.options.Commit, "commit", "", "promote this `COMMIT` of the base, by seven digits or more (default that of the newest record of the environment below)")
	f.BoolVar(&p.options.ChangeRequest, "change-request", false, "propose the commit also where the policy does not ask for that")
	f.BoolVar(&p.options.Again, "again", false, "propose a commit although a person closed its change request")
	f.BoolVar(&p.options.AllowRemovals, "allow-removals", false, "remove more assignments at once from the environment of -e than its maxRemoved says")
	f.BoolVar(&p.options.NextBatch, "next-batch", false, "let proved content into the first ring of -e although the batch before has not reached the last ring")
	f.BoolVar(&p.options.PausedToo, "paused-too", false, "go on although the environment of -e is paused")
	p.watch.AddTo(cmd, "go on: give the first environment each new commit, and the others those that their gates pass")
	p.AddFacts(cmd)
	f.Lookup("hub").Usage = "ask the hub at this `URL` how far the clusters are, in place of the reports in the registry, and tell it what was published"
	cli.NotEmpty(cmd, "environment", "commit")
	_ = cmd.RegisterFlagCompletionFunc("environment", flags.CompleteEnvironments)
	return cmd
}

func (p *promoting) run(cmd *cobra.Command, args []string) error {
	if err := p.watch.Check(cmd, p.format); err != nil {
		return err
	}
	if err := p.open(cmd, args); err != nil {
		return err
	}
	if p.watch.On {
		return p.goOn(cmd)
	}
	done, err := p.pass(cmd)
	if err != nil {
		return err
	}
	if err := cli.Print(cmd.OutOrStdout(), p.format, done, func(w io.Writer) { promotedLines(w, done) }); err != nil {
		return err
	}
	return p.conclude(cmd, done)
}

// open reads the flags, finds the platform and opens the keys.
func (p *promoting) open(cmd *cobra.Command, args []string) error {
	for name, given := range map[string]bool{"commit": p.options.Commit != "", "paused-too": p.options.PausedToo, "allow-removals": p.options.AllowRemovals, "next-batch": p.options.NextBatch} {
		if given && p.options.To == "" {
			return cli.Usagef("--%s is about one environment: name it with -e", name)
		}
	}
	if err := p.forge.Read(); err != nil {
		return err
	}
	p.Source.Environment = p.options.To
	place, err := p.Source.ResolveAll(cmd, args)
	if err != nil {
		return err
	}
	p.options.To = p.Source.Environment // the one around the current folder, or of the variable
	if err := p.Take(p.Source.Settings()); err != nil {
		return err
	}
	p.Fleet.Default(p.Source.Settings())
	if err := p.locate(cmd, place); err != nil {
		return err
	}
	p.options.Git = outgit.Options{Author: p.forge.Author, Committer: p.forge.Committer, Timeout: p.Source.Timeout()}
	return p.OpenKeys(cmd, p.Registry)
}

// locate finds the repository that a place stands for. The token for its forge reads it too.
func (p *promoting) locate(cmd *cobra.Command, place string) error {
	// The repository of a clone is read for its Environment objects, which takes the login already.
	if dir, err := filepath.Abs(place); err == nil && !gitrepo.IsRemote(place) {
		p.logIn(gitrepo.OriginOf(dir))
	}
	p.logIn(place)
	options, err := p.Source.Options(place, p.Location.Dir)
	if err != nil {
		return err
	}
	if p.place, err = promote.Remote(cmd.Context(), options); err != nil {
		return p.failure(err)
	}
	p.logIn(p.place)
	return nil
}

func (p *promoting) logIn(place string) {
	at, _, _ := strings.Cut(place, "#")
	if at == "" || gitrepo.IsLocal(at) {
		return
	}
	p.place = at // whose host a token may go to
	if a, err := forge.PlaceOf(at, p.kindAt(at)); err == nil {
		user, password := p.forge.Tokens.Login(a)
		p.Source.LogIn(at, user, password)
	}
}

// kindAt returns the kind of forge that a repository is at, if a person or the CI system says so.
func (p *promoting) kindAt(at string) forge.Kind {
	run, inCI := forge.RunOf(os.Getenv)
	switch {
	case !sameHost(at, p.place):
		return ""
	case p.forge.Kind == "" && inCI && sameHost(at, run.URL):
		return run.Kind
	}
	return p.forge.Kind
}

// pass looks at all environments once.
func (p *promoting) pass(cmd *cobra.Command) (promote.Pass, error) {
	promoter, err := p.newPromoter(cmd)
	if err != nil {
		return promote.Pass{}, err
	}
	options := p.options
	options.Now = time.Now()
	done, err := promoter.Pass(cmd.Context(), options)
	return done, p.failure(err)
}

// newPromoter returns the promoter for a command.
func (p *promoting) newPromoter(cmd *cobra.Command) (*promote.Promoter, error) {
	source, err := p.Source.Of("").Options(p.place, p.Location.Dir)
	if err != nil {
		return nil, err
	}
	from, err := p.gather(cmd)
	if err != nil {
		return nil, err
	}
	p.facts, p.look, p.entries = from, from.Look(), map[string]*facts.Entry{}
	return &promote.Promoter{
		Source: source,
		Judge:  p.judge(cmd, from),
		Record: func(ctx context.Context, name, environment string) (*bundle.EnvironmentRecord, error) {
			return p.record(ctx, name, environment)
		},
		PolicyNow: func(ctx context.Context, source platform.Source, target *platform.Loaded, record *bundle.EnvironmentRecord) (promotion.Policy, error) {
			policy, err := from.PolicyNow(ctx, source, target, record)
			return policy, failure.At(err, p.Location)
		},
		Publish: func(_ context.Context, what promote.Publication) error { return p.publish(cmd, what) },
		Paused: func(ctx context.Context, name string, policy promotion.Policy) (decisions.Pause, bool, error) {
			pause, is, err := from.Paused(ctx, policy, name)
			return pause, is, p.Failure(err, from)
		},
		Again: func(ctx context.Context, name string, policy promotion.Policy) (time.Time, error) {
			again, err := from.Again(ctx, policy, name)
			return again, p.Failure(err, from)
		},
		Content: p.content, Statuses: &p.statuses,
		Pause:  p.pause,
		Access: func(at string) promote.Access { return p.access(cmd, at) },
	}, nil
}

// content returns which content may enter an environment, for the statuses of application teams' commits; nil without a token for a forge.
func (p *promoting) content(ctx context.Context, target *platform.Loaded, policy promotion.Policy) (*content.Decision, error) {
	if !p.forge.Tokens.Any() {
		return nil, nil
	}
	e, err := p.entry(ctx, target, policy)
	if err != nil || e == nil {
		return nil, err
	}
	return e.Decision, nil
}

// entry asks which content may enter an environment beside the base commit that it pins, once between its publications.
func (p *promoting) entry(ctx context.Context, target *platform.Loaded, policy promotion.Policy) (*facts.Entry, error) {
	if e := p.entries[policy.Environment]; e != nil {
		return e, nil
	}
	of := *p.look
	of.Platform = cmp.Or(target.Model.PlatformName(), publisher.DefaultPlatform)
	e, err := of.Entry(ctx, facts.AskOf(target, policy, target.BaseCommit))
	if err == nil {
		p.entries[policy.Environment] = e
	}
	return e, err
}

// record returns the newest verified record of an environment.
func (p *promoting) record(ctx context.Context, name, environment string) (*bundle.EnvironmentRecord, error) {
	record, err := p.facts.Record(ctx, name, environment)
	return record, failure.At(err, p.Location)
}

// publish publishes an environment as its branch is now.
func (p *promoting) publish(cmd *cobra.Command, what promote.Publication) error {
	options := publisher.PublishOptions{AllowRemovals: what.AllowRemovals}
	if p.First != "" {
		options.Trust = p.Trusted
	}
	done, err := releasecmd.PublishEnvironment(cmd, releasecmd.Publication{
		Source: p.Source.Of(what.Environment), Place: p.place, To: p.Location, Keys: p.Keys, TrustFile: p.First, Registry: p.Registry, Fleet: p.Fleet,
		PausedToo: what.PausedToo, Facts: p.look, Entry: p.entries[what.Environment], Judged: what.Judged, NextBatch: what.NextBatch, Options: options,
		Quiet: p.published != nil,
	})
	delete(p.entries, what.Environment)
	p.look = p.facts.Look()
	if done != nil && p.published != nil {
		p.published(done)
	}
	var said *cli.Error
	if errors.As(err, &said) && (said.Code == cli.NotYet || said.Code == cli.No && done != nil) {
		unfinished := &promote.UnfinishedError{Held: said.Code == cli.No, Err: said.Err, Hint: said.Hint}
		if pin := (*releasecmd.PinWaitsError)(nil); errors.As(err, &pin) {
			unfinished.Pin = cmp.Or(pin.Steady, pin.Why)
		}
		return unfinished
	}
	return err
}

// access tells how to reach a repository. A token of the environment goes to the host of the platform's repository, which a person has
// named, and to well-known forges: the URL of a base is in an object.
func (p *promoting) access(cmd *cobra.Command, at string) promote.Access {
	a := promote.Access{URL: at}
	of := p.forge
	of.Kind = p.kindAt(at)
	place, err := forge.PlaceOf(at, of.Kind)
	if err != nil {
		a.ForgeErr = err
		return a
	}
	a.URL = place.CloneURL(at)
	a.User, a.Password = of.Tokens.Login(place)
	if held := of.Tokens.Withheld(place); held != "" && !p.withheld[place.Web] {
		if p.withheld == nil {
			p.withheld = map[string]bool{}
		}
		p.withheld[place.Web] = true
		cmd.PrintErrf("note: %s is not sent to %s; pass --forge %s if it is meant for this host\n", held, show.Line(place.Web), place.Kind)
	}
	if a.Password == "" {
		a.ForgeErr = fmt.Errorf("no token for %s: %w", place.Web, forge.ErrUnauthorized)
		return a
	}
	repository, err := of.New(at)
	if err != nil {
		a.ForgeErr = err
		return a
	}
	a.Forge = repository
	return a
}

func sameHost(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host != "" && x.Host == y.Host
}

// promotedLines prints a line for each environment.
func promotedLines(w io.Writer, done promote.Pass) {
	for _, r := range done.Results {
		fmt.Fprintln(w, show.Line(r.String()))
	}
}

// conclude prints warnings, and returns the error of the worst result.
func (p *promoting) conclude(cmd *cobra.Command, done promote.Pass) error {
	for _, r := range done.Results {
		for _, w := range r.Warnings {
			cmd.PrintErrf("warning: %s: %s\n", show.Line(r.Environment), show.Line(w))
		}
	}
	if len(done.Results) == 0 {
		cmd.PrintErrln("nothing to do: each environment is the first of its chain; -e names one to give it the newest commit")
		return nil
	}
	worst := done.Results[0]
	about := func(text string) error { return fmt.Errorf("%s %s", show.Line(worst.Environment), text) }
	switch worst.State {
	case promote.Failed:
		var said *cli.Error
		if err := p.failure(worst.Err); errors.As(err, &said) && said.Err != nil {
			return cli.Fail(said.Code, fmt.Errorf("%s: %w", worst.Environment, said.Err), said.Hint)
		}
		return fmt.Errorf("%s: %w", worst.Environment, worst.Err)
	case promote.Held:
		return cli.Fail(cli.No, about("is held back"), worst.Hint)
	case promote.Waiting:
		return cli.Fail(cli.NotYet, about("has to wait"), worst.Hint)
	case promote.Proposed:
		return cli.Fail(cli.NotYet, about("waits for its change request"), worst.Hint)
	}
	return nil
}

// failure gives an error its exit code and a hint.
func (p *promoting) failure(err error) error {
	err = p.forge.Failure(err, gitrepo.Redact(p.place), "if the branch is protected, pass --change-request: that does not push to it")
	return p.Failure(err, cmp.Or(p.facts, &facts.Facts{Location: p.Location}))
}
