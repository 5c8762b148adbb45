package rolloutcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/cmd/internal/releasecmd"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// advancing holds the flags of advance.
type advancing struct {
	env.Gates
	env.Signing
	format  string
	options advance.Options
	watch   flags.Watch

	// followed is what the policy is read from, with --watch.
	followed platform.Followed
}

func newAdvanceCommand() *cobra.Command {
	var a advancing
	cmd := &cobra.Command{
		Use:   "advance [PLATFORM] [--environment NAME] [--ring NAME] [--to LOCATION] [--key FILE | --signer cosign:URI]",
		Short: "Advance proved releases to the next ring",
		Long: `Advance releases from ring to ring where the ring's gate passes: one step for each ring, the widest first. Nothing is
rendered: the new releases refer to the same files.

The gate is ringGate in the environment's PromotionPolicy, and counts the clusters of all rings before. A release that fails in
a narrow ring stays there. "wherry gate check --ring NAME" shows each rule. PLATFORM is read for the policy and, without
a hub, for the clusters. A paused environment waits.

Exit codes: 0 a ring was advanced, or all have the same release; 1 a gate says no; 5 a gate waits or signatures are missing.

More: wherry help rings, signing-keys, watch`,
		Example: `  wherry rollout advance ./platform --environment prod --to oci://127.0.0.1:5000/edge --key cosign.key
  wherry rollout advance -e prod --hub https://hub.example.com --ring early
  wherry rollout advance -e prod --watch`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run,
	}
	a.Source.AddEnvironment(cmd)
	a.Source.AddReplacements(cmd)
	a.AddFacts(cmd)
	cmd.Flags().Lookup("hub").Usage = "ask the hub at this `URL` how far the clusters are, in place of the reports in the registry, and tell it what was released"
	a.Registry.AddTo(cmd)
	a.Signers.AddReleases(cmd)
	a.Signing.AddTo(cmd, "the `LOCATION` to which the environment is published (default the registry of the settings)")
	cli.OutputFlag(cmd, &a.format)
	f := cmd.Flags()
	f.StringVar(&a.options.Ring, "ring", "", "advance only to the ring `NAME`")
	f.StringVar(&a.options.ClusterType, "cluster-type", "", "advance only this `TYPE` of clusters (default all)")
	a.watch.AddTo(cmd, "go on: advance each ring when its gate passes")
	cli.NotEmpty(cmd, "ring", "cluster-type")
	_ = cmd.RegisterFlagCompletionFunc("ring", a.Source.CompleteRings)
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
	return cmd
}

func (a *advancing) run(cmd *cobra.Command, args []string) error {
	if err := a.watch.Check(cmd, a.format); err != nil {
		return err
	}
	place, err := a.Source.Resolve(cmd, args)
	if err != nil {
		return err
	}
	if err := a.Take(a.Source.Settings()); err != nil {
		return err
	}
	a.Fleet.Default(a.Source.Settings())
	if err := a.OpenKeys(cmd, a.Registry); err != nil {
		return err
	}
	if a.watch.On {
		return a.goOn(cmd, place)
	}
	from, judge, err := a.facts(cmd, place)
	if err != nil {
		return err
	}
	done, err := advance.Once(cmd.Context(), a.Location, a.Keys, a.options, judge, a.PublishOptions(a.Registry))
	if err != nil {
		return a.Failure(err, from)
	}
	for _, w := range done.Warnings {
		cmd.PrintErrf("warning: %s\n", cli.Indented(w))
	}
	if err := cli.Print(cmd.OutOrStdout(), a.format, done, func(w io.Writer) { stepsTable(w, done) }); err != nil {
		return err
	}
	if done.Published != nil {
		a.tellHub(cmd, done.Published)
	}
	return a.conclude(cmd, done)
}

// tellHub sends new releases to the hub of --hub, which may not watch the location.
func (a *advancing) tellHub(cmd *cobra.Command, done *publisher.Published) {
	(&releasecmd.Publication{To: a.Location, Registry: a.Registry, Fleet: a.Fleet}).TellHub(cmd, done)
}

// goOn advances again and again.
func (a *advancing) goOn(cmd *cobra.Command, place string) error {
	wakers, hubs, err := a.FollowHub(cmd)
	if err != nil {
		return err
	}
	rings := env.Rings{Tell: func(done *publisher.Published) { a.tellHub(cmd, done) }}
	watched := flags.Watched{Format: a.format, Wakers: wakers, Sources: func() []watch.Source { return append(a.followed.Sources(a.Location.Dir), hubs...) }}
	return a.watch.Run(cmd, watched, func(ctx context.Context, t *watch.Turn, j *flags.Journal) error {
		if err := a.ReadTrust(cmd, a.Registry); err != nil {
			return err
		}
		from, judge, err := a.facts(cmd, place)
		if err != nil {
			return err
		}
		t.Within(watch.ForReports) // somebody may publish
		return a.Failure(rings.Advance(ctx, t, j, a.Location, a.Keys, []advance.Options{a.options}, judge, a.PublishOptions(a.Registry)), from)
	})
}

// facts returns what a gate is judged by, and the gate of the policy that the environment has now, which says what the options leave out.
func (a *advancing) facts(cmd *cobra.Command, place string) (*facts.Facts, advance.Gate, error) {
	source, err := a.Source.Options(place, "")
	if err != nil {
		return nil, nil, err
	}
	loaded, err := platform.LoadPlatform(cmd.Context(), source)
	if err != nil {
		return nil, nil, failure.Input(err)
	}
	flags.PrintInferred(cmd, loaded)
	policy, err := loaded.Model.Promotion()
	if err != nil {
		return nil, nil, failure.Input(err)
	}
	a.Source.Environment, a.followed = policy.Environment, loaded.Followed
	a.options.Environment = policy.Environment
	from := &facts.Facts{
		Location: a.Location, Options: a.Registry.Options(), Signers: a.Trusted, Platform: loaded.Model.PlatformName(),
		Clusters: func(context.Context, string) ([]scheduler.Cluster, error) { return loaded.Model.Clusters(), nil }, // a ring is judged in its own environment
		Warn:     func(format string, args ...any) { cmd.PrintErrf("note: "+format+"\n", args...) }, Now: time.Now, Carry: true,
	}
	if err := a.Complete(cmd, from); err != nil {
		return nil, nil, err
	}
	record, err := from.Record(cmd.Context(), from.Platform, policy.Environment)
	if err != nil {
		return nil, nil, a.Failure(err, from)
	}
	if policy, err = from.PolicyNow(cmd.Context(), source, loaded, record); err != nil {
		return nil, nil, failure.Input(err)
	}
	a.options.Rings = policy.Rings
	return from, from.RingGate(map[string]promotion.Policy{policy.Environment: policy}), nil
}

func stepsTable(w io.Writer, done *advance.Done) {
	if len(done.Steps) == 0 {
		return
	}
	fmt.Fprintln(w, "RING\tFROM\tCOMMIT\tCLUSTER TYPES\tRESULT")
	for _, s := range done.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show.Cell(s.Ring), show.Cell(s.From), cmp.Or(show.Cell(s.Commit[:min(7, len(s.Commit))]), "-"), show.Cell(strings.Join(s.ClusterTypes, ",")), s.Result)
	}
}

func (a *advancing) conclude(cmd *cobra.Command, done *advance.Done) error {
	name := show.Line(done.Platform + "/" + done.Environment)
	if len(done.Steps) == 0 {
		cmd.PrintErrf("%s: nothing to do: each ring has what the ring before it has\n", name)
		return nil
	}
	if by := done.Steps[0].Verdict.CountedBy(); by != "" {
		cmd.PrintErrf("%s\n", show.Line(by))
	}
	for _, s := range done.Steps {
		for _, r := range s.Verdict.Rules {
			if r.Result != gate.Pass {
				text := r.String()
				if r.Change != "" {
					text += ": " + r.Change
				}
				cmd.PrintErrf("ring %s: %s: %s\n", show.Line(s.Ring), r.Result, show.Line(text))
			}
		}
	}
	switch {
	case done.Has(advance.Advanced):
		return nil
	case done.Has(advance.Pending):
		return cli.Fail(cli.NotYet, fmt.Errorf("%s: pending: more signatures are needed", name),
			fmt.Sprintf("wherry sign %s --environment %s --trust %s --key FILE", a.Location, done.Environment, a.First))
	case done.Has(advance.Held):
		return cli.Fail(cli.No, fmt.Errorf("%s: held", name), fmt.Sprintf("wherry rollout abort %s --environment %s gives the narrower rings what the widest has", a.Location, done.Environment))
	}
	text := "not yet"
	if !done.NextLook.IsZero() {
		text += ", look again at " + done.NextLook.Format(time.RFC3339)
	}
	return cli.Fail(cli.NotYet, fmt.Errorf("%s: %s", name, text), "")
}
