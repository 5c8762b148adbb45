package releasecmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Publication is what [PublishEnvironment] publishes. Source, Place, To and Keys are required.
type Publication struct {
	// Source is resolved: Place is what its Resolve or ResolveAll returned. Its Environment is the one to publish, and its
	// Dropped is what Options drops.
	Source *flags.Source
	Place  string
	To     oci.Location
	Keys   []*keys.Key
	// TrustFile is version 1 of the trust document, for a hint; Options.Trust is what it led to.
	TrustFile string
	Registry  flags.Registry
	// Fleet has the hub that is told, and that plan checks ask. Without one, that of the settings is taken.
	Fleet flags.Fleet
	// RequireClean refuses folders with changes that are in no commit.
	RequireClean bool
	// PausedToo publishes also while the environment is paused. Else what is there is renewed, and anything else refused.
	PausedToo bool
	// Facts are what gates and content are judged by; nil for those of the other fields.
	Facts *facts.Facts
	// Judged is true if the gate has passed for the base commit that is pinned. Else it is asked before anything is published into an
	// environment that holds content.
	Judged bool
	// Entry is an answer about the content that the caller has got already; it is asked again if it answers another question, or does not hold
	// any more. It may be nil.
	Entry *facts.Entry
	// NextBatch lets new content into the first ring although the batch before has not reached the last one.
	NextBatch bool
	// Unproved lets in what the environment below has not proved.
	Unproved Unproved
	// Options are those of the publisher. What the platform, Source and Registry say is filled in.
	Options publisher.PublishOptions
	// Print prints the result to stdout, before the conclusion is printed to stderr. It may be nil.
	Print func(*publisher.Published) error
	// Quiet leaves out the conclusion of a success.
	Quiet bool
	// Read, if not nil, is called with what was read.
	Read func(*platform.Loaded)

	warn func(format string, args ...any)
}

// PublishEnvironment renders an environment and publishes it, as wherry publish does, and tells the hub. It prints problems,
// warnings and the conclusion to stderr. The result is nil if nothing was published; with a result, the error is about
// assignments that failed (exit code 1) or signatures that are missing (5).
func PublishEnvironment(cmd *cobra.Command, p Publication) (*publisher.Published, error) {
	p.warn = warned{}.printer(cmd)
	for race := 1; ; race++ {
		done, err := p.publish(cmd)
		if !errors.Is(err, publisher.ErrDecideAgain) {
			return done, err
		}
		if race == releases.MaxRaces {
			return nil, failure.At(err, p.To)
		}
		if p.Entry = nil; p.Facts != nil {
			p.Facts = p.Facts.Anew()
		}
	}
}

// publish decides which content may enter, renders and publishes. The error wraps publisher.ErrDecideAgain if another publisher was faster.
func (p *Publication) publish(cmd *cobra.Command) (*publisher.Published, error) {
	p.Options.OCI = p.Registry.Options()
	p.Fleet.Default(p.Source.Settings())
	p.Source.Named = p.To.String()
	entering, err := p.enter(cmd)
	if err != nil {
		return nil, err
	}
	built, err := entering.source.Render(cmd, p.Place, p.To.Dir, platform.Options{
		Pack: true, ToSign: true, Platform: entering.read, AfterLoad: lastReleases(p.To, p.Options.Trust, p.Keys, p.Options),
	})
	if err != nil {
		return nil, err
	}
	if entering.entry != nil {
		if err := p.Unproved.checkNames(entering.entry, built.Result.Workloads); err != nil {
			return nil, err
		}
	}
	loaded := built.Loaded
	if p.Read != nil {
		p.Read(loaded)
	}
	if err := p.checkClean(cmd, loaded); err != nil {
		return nil, err
	}
	opts := p.Options
	opts.EnvironmentCommit, opts.BaseID, opts.Source, opts.Created = loaded.EnvironmentCommit, loaded.BaseID, loaded.Source, loaded.BaseTime
	opts.Unread, opts.Strict = loaded.Unread, p.Source.Strict
	if opts.Fleet, err = p.clusters(cmd, built); err != nil {
		return nil, err
	}
	opts.Cache, opts.Packed = p.Source.Cache.Get(), built.Packed
	opts.Parallel, opts.Now = publisher.DefaultParallel, cli.Now
	opts.CheckOutput, opts.DeltaCommand = cmd.ErrOrStderr(), cli.DeltaCommand()
	defer p.Source.Cache.Trim()
	policy, err := loaded.Model.Promotion()
	if err != nil {
		return nil, failure.At(err, p.To)
	}
	if n := len(policy.Chain); n > 0 {
		opts.Commits = policy.Environment != policy.Chain[n-1]
	}
	pause, again, err := p.decided(cmd, loaded, policy)
	if err != nil {
		return nil, failure.At(err, p.To)
	}
	if p.PausedToo {
		pause = nil
	}
	opts.Paused, opts.Again = pause != nil || entering.refused != nil, again
	if entering.entry != nil {
		opts.Admission = entering.entry.Admission()
		opts.Admission.Unproved = entering.unproved
		if p.Unproved.Reason != "" && opts.Message == "" {
			opts.Message = p.Unproved.message()
		}
	}
	done, err := publisher.Publish(cmd.Context(), built.Result, p.To, p.Keys, opts)
	if errors.Is(err, publisher.ErrDecideAgain) {
		return nil, err
	}
	if entering.entry != nil {
		done.NextLook = entering.entry.NextLook()
	}
	for _, w := range done.Warnings {
		p.warn("%s", w)
	}
	if !p.Quiet { // those who watch get an event
		for _, w := range done.Proved {
			cmd.PrintErrf("proved: %s\n", show.Line(w.String()))
		}
	}
	for _, w := range done.AwaitingProof {
		cmd.PrintErrf("waits: %s\n", show.Line(w.Reason))
	}
	if err != nil {
		for _, ct := range done.ClusterTypes {
			cmd.PrintErrf("%s: %s\n", ct.ClusterType, ct.Result)
		}
		var refused *checks.Error
		if errors.As(err, &refused) {
			return nil, cli.Fail(cli.Denied, refused, "")
		}
		if errors.Is(err, publisher.ErrUnproved) {
			return nil, refusal(err)
		}
		if no := (*facts.NotOverriddenError)(nil); errors.As(err, &no) {
			return nil, cli.Fail(cli.Denied, no, no.Command())
		}
		return nil, failure.At(err, p.To)
	}
	if p.Print != nil {
		if err := p.Print(done); err != nil {
			return done, err
		}
	}
	if p.Options.Message != "" && !slices.ContainsFunc(done.ClusterTypes, publisher.PublishedType.Released) {
		cmd.PrintErrf("note: no release was made, so the message is kept nowhere\n")
	}
	p.TellHub(cmd, done)
	if err := conclude(cmd, done, p.To, p.TrustFile, p.Source.Strict, p.Quiet); err != nil {
		return done, err
	}
	switch {
	case pause != nil:
		return done, refused(cmd, done, *pause, p.To)
	case done.Undone != nil:
		return done, cli.Fail(cli.No, fmt.Errorf("%s: %s; it was not published again", done.Environment, show.Line(done.Undone.String())),
			fmt.Sprintf("mend it in git; or wherry rollout resume %s --environment %s --again lets it be released again", p.To, done.Environment))
	}
	if entering.refused != nil {
		return done, entering.refused
	}
	if entering.waits != "" {
		return done, entering.Waits(done.Environment, entering.pinned)
	}
	return done, nil
}

// enter asks what may enter the environment.
func (p *Publication) enter(cmd *cobra.Command) (entering, error) {
	from := p.Facts
	if from == nil {
		var err error
		if from, err = factsOf(cmd, p.Source, p.Place, p.To, p.Registry, &p.Fleet, p.signers(), p.warn); err != nil {
			return entering{}, err
		}
	}
	return enter(cmd, p.Source, p.Place, from, p.Entry, p.Judged, p.NextBatch, p.Unproved)
}

// signers are those whose releases count.
func (p *Publication) signers() published.Signers {
	if p.Options.Trust.Documented() {
		return p.Options.Trust
	}
	return trust.PinnedBy(p.Keys)
}

// decided returns why the environment is paused, nil if it is not, and until when what was undone may be released again.
func (p *Publication) decided(cmd *cobra.Command, loaded *platform.Loaded, policy promotion.Policy) (_ *decisions.Pause, again time.Time, _ error) {
	found, err := decisions.Read(cmd.Context(), p.To, p.Registry.Options(), policy.Environment, p.warn)
	if err != nil {
		return nil, again, fmt.Errorf("publish to %s: %w", p.To, err)
	}
	judge := decisions.Trust{
		Platform: cmp.Or(loaded.Model.PlatformName(), p.Options.Platform, publisher.DefaultPlatform), Policy: policy, Releases: p.signers(), Now: time.Now(),
	}
	pause, is := decisions.Paused(found, judge)
	if !is {
		return nil, decisions.Again(found, judge), nil
	}
	return &pause, again, nil
}

// refused returns the error for what was not published because of a pause, if there is anything.
func refused(cmd *cobra.Command, done *publisher.Published, pause decisions.Pause, to oci.Location) error {
	why := fmt.Sprintf("%s is paused by %s since %s", done.Environment, show.Line(pause.By), pause.IssuedAt.Format(time.RFC3339))
	if pause.Reason != "" {
		why += ": " + show.Line(pause.Reason)
	}
	if len(done.Refused) == 0 {
		cmd.PrintErrf("note: %s\n", why)
		return nil
	}
	return cli.Fail(cli.NotYet, fmt.Errorf("%s; new content of %s was not published", why, strings.Join(done.Refused, ", ")),
		fmt.Sprintf("wherry rollout resume %s --environment %s, or --paused-too to publish all the same", to, done.Environment))
}

// clusters returns the clusters that plan checks count. Without such a check no hub is asked.
func (p *Publication) clusters(cmd *cobra.Command, built platform.Built) (*impact.Fleet, error) {
	roster := diff.RosterOf(built.Loaded.Model)
	if !built.Result.Checks.HasPlans() {
		return &roster, nil
	}
	known, err := p.Fleet.Of(cmd, built, p.Options.Platform)
	if known == nil {
		known = &roster
	}
	return known, err
}

// checkClean prints which files are in no commit, and refuses them with RequireClean.
func (p *Publication) checkClean(cmd *cobra.Command, loaded *platform.Loaded) error {
	files := slices.Concat(loaded.Uncommitted, loaded.UncommittedBase)
	if p.RequireClean && len(files) > 0 {
		return cli.Fail(cli.Usage, errors.New(flags.Uncommitted(files, "")), "commit them, or leave out --require-clean")
	}
	return p.Source.WarnUncommitted(cmd, files, ", so the releases name no commit of them")
}
