package env

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/publisher/checks"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Gates is what a command needs that asks gates about one environment. Add its flags with AddTo, and open them with Open.
type Gates struct {
	Source   flags.Source
	Registry flags.Registry
	Fleet    flags.Fleet
	// Trust is added by AddTrust, and not by AddTo: a command that signs has another --key.
	Trust         flags.Trust
	to            string
	reports       []string
	allowCommands bool
	checkEnv      []string
	memory        facts.Memory
	noHub         bool // leaves the hub of the settings out
}

// AddTo adds --environment, --base, --mirror, --timeout, --to, the flags of registries and hubs, --reports, --allow-commands and --check-env.
func (f *Gates) AddTo(cmd *cobra.Command) {
	f.Source.AddEnvironment(cmd)
	f.Source.AddBases(cmd)
	f.Source.AddReading(cmd)
	f.addLocation(cmd)
	f.AddFacts(cmd)
}

// AddRegistry adds --base, --mirror, --to, --reports, --release-key, --trust and the flags of registries, for a command that has the name of
// the environment and asks the registry alone.
func (f *Gates) AddRegistry(cmd *cobra.Command) {
	f.noHub = true
	f.Source.AddBases(cmd)
	f.Source.AddMirrors(cmd)
	f.addLocation(cmd)
	f.addReports(cmd)
	f.AddTrust(cmd)
}

func (f *Gates) addLocation(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.to, "to", "", "the `LOCATION` to which the environments are published (default the registry of the settings)")
	f.Registry.AddTo(cmd)
	cli.NotEmpty(cmd, "to")
}

func (f *Gates) addReports(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.reports, "reports", nil, "without a hub: count the reports in this `FILE` too, which came on a medium; may be repeated")
	cli.Rare(cmd, "reports")
}

// AddFacts adds --hub, --tls-ca, --token-file, --reports, --allow-commands and --check-env alone, for a command that has the others
// already. It gives Fleet the hub of the settings.
func (f *Gates) AddFacts(cmd *cobra.Command) {
	f.Fleet.AddSending(cmd, "ask the hub at this `URL` how far the clusters are, in place of the reports in the registry")
	f.addReports(cmd)
	cmd.Flags().BoolVar(&f.allowCommands, "allow-commands", false, "run the command of the policy's external check on this machine")
	cmd.Flags().StringArrayVar(&f.checkEnv, "check-env", nil, "with --allow-commands: give the command this environment `VARIABLE` too, which holds a secret; may be repeated")
	cli.Rare(cmd, "allow-commands", "check-env", "tls-ca", "token-file")
}

// AddTrust adds --release-key and --trust.
func (f *Gates) AddTrust(cmd *cobra.Command) { f.Trust.AddReleaseKey(cmd) }

// Opened is what Gates.Open has read.
type Opened struct {
	Facts facts.Facts // of one look
	// Policy is the one that judges now. If it is lost, Lost says why, and Policy is the one that would be next; see platform.PolicyNow.
	Policy promotion.Policy
	Lost   error
	Loaded *platform.Loaded
	Place  string // of the environment
}

// Open reads the environment, its policy and the trust. Place is PLATFORM, if args has it; a location there stands for --to, as other
// commands take it.
func (f *Gates) Open(cmd *cobra.Command, args []string) (*Opened, error) {
	if len(args) > 0 && oci.IsLocation(args[0]) {
		if f.to != "" && f.to != args[0] {
			return nil, cli.Usagef("two locations are given: %s, and --to %s", args[0], f.to)
		}
		f.to, args = args[0], nil
	}
	place, err := f.Source.Resolve(cmd, args)
	if err != nil {
		return nil, err
	}
	settings := f.Source.Settings()
	loc, err := flags.Location(settings, "to", f.to)
	if err != nil {
		return nil, err
	}
	if !f.noHub {
		f.Fleet.Default(settings)
	}
	f.Trust.Default(settings)
	if !f.Trust.Given() {
		return nil, cli.Fail(cli.Usage, errors.New("missing --release-key or --trust"), `a gate believes signed records alone: give one, or set "trust" or "keys" in wherry.yaml`)
	}
	source, err := f.Source.Options(place, "")
	if err != nil {
		return nil, err
	}
	loaded, err := platform.LoadPlatform(cmd.Context(), source)
	if err != nil {
		return nil, failure.Input(err)
	}
	flags.PrintInferred(cmd, loaded)
	policy, err := loaded.Model.Promotion()
	if err != nil {
		return nil, failure.Input(err)
	}
	f.Source.Environment = policy.Environment
	signers, err := f.Trust.Open(cmd.Context(), loc, f.Registry.Options())
	if err != nil {
		return nil, err
	}
	o := &Opened{Policy: policy, Loaded: loaded, Place: place, Facts: facts.Facts{
		Location: loc, Options: f.Registry.Options(), Signers: signers, Platform: loaded.Model.PlatformName(),
		Clusters: facts.Roster(func(environment string) (platform.Source, error) { return f.Source.OptionsOf(environment, place) }),
		Warn:     func(format string, args ...any) { cmd.PrintErrf("note: "+format+"\n", args...) }, Now: time.Now,
	}}
	if err := f.Complete(cmd, &o.Facts); err != nil {
		return nil, err
	}
	o.Facts = *o.Facts.Look()
	record, err := o.Facts.Record(cmd.Context(), o.Facts.Platform, policy.Environment)
	if err != nil {
		return nil, f.Failure(err, &o.Facts)
	}
	o.Policy, o.Lost = o.Facts.PolicyNow(cmd.Context(), source, loaded, record)
	return o, nil
}

// Complete adds to facts what the flags of AddFacts say, for a command that has made the others itself.
func (f *Gates) Complete(cmd *cobra.Command, to *facts.Facts) error {
	if len(f.checkEnv) > 0 && !f.allowCommands {
		return cli.Usagef("--check-env is for the command of a check, which runs with --allow-commands alone")
	}
	if err := checks.CheckNames(f.checkEnv); err != nil {
		return cli.Usagef("--check-env: %w", err)
	}
	to.Check, to.Memory = facts.CheckOptions{AllowCommands: f.allowCommands, Env: f.checkEnv}, &f.memory
	for _, file := range f.reports {
		envelopes, err := airgap.ReadReports(file)
		if err != nil {
			return cli.Fail(cli.Usage, fmt.Errorf("--reports %s: %w", file, err), `it is a file of "wherry airgap reports collect" or "wherry-agent reports export"`)
		}
		to.Reports = append(to.Reports, envelopes...)
	}
	if f.Fleet.URL() == "" {
		return nil
	}
	if len(f.reports) > 0 {
		return cli.Fail(cli.Usage, fmt.Errorf("--reports is for a gate without a hub, and %s counts the clusters", f.Fleet.URL()),
			`give the reports to the hub (wherry hub import), or leave out --hub, $WHERRY_HUB and "hub" in wherry.yaml`)
	}
	hub, err := f.Fleet.Client(cmd)
	if err != nil {
		return err
	}
	to.Hub, to.HubURL = hub, f.Fleet.URL()
	to.Decisions = append(to.Decisions, HubDecisions(hub, f.Fleet.URL()))
	return nil
}

// HubDecisions returns a function for facts.Facts.Decisions that reads those of the hub at a URL.
func HubDecisions(hub client.Client, url string) func(ctx context.Context, environment string) ([]decisions.Found, error) {
	return func(ctx context.Context, environment string) ([]decisions.Found, error) {
		stored, err := hub.Decisions(ctx, "", environment)
		var all []decisions.Found
		for _, d := range stored {
			all = append(all, decisions.Found{Envelope: d.Envelope, Source: url})
		}
		return all, err
	}
}

// Failure gives an error of the questions about a gate its exit code and a hint.
func (f *Gates) Failure(err error, by *facts.Facts) error {
	err = failure.Of(err,
		cli.Is(facts.ErrFirst, cli.Usage, "a PromotionPolicy has the chain; for its first environment, give --commit all of its digits"),
		cli.Is(facts.ErrNoRing, cli.Usage, "the first ring gets what is published; --ring is for those after it"),
		cli.AsBy(func(e *roster.Error) (int, string) { return cli.Usage, e.Hint }))
	if by.Hub != nil {
		err = failure.HubRequest(err, f.Fleet.URL())
	}
	return failure.At(err, by.Location)
}
