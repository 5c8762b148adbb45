// Package rolloutcmd holds the commands of wherry rollout that change what rings have, or whether anything changes it by itself: advance,
// undo, abort, pause and resume. Packages undo and advance of the publisher do the work. Begin with [Commands].
package rolloutcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/rollout/undo"
)

// Commands returns the commands, for wherry rollout.
func Commands() []*cobra.Command {
	return []*cobra.Command{newStatusCommand(), newAdvanceCommand(), newUndoCommand(), newAbortCommand(), newPauseCommand(), newResumeCommand()}
}

// signing are the flags of the commands that sign something for an environment at a location.
type signing struct {
	env.Signing
	registry    flags.Registry
	format      string
	environment string
}

func (s *signing) addTo(cmd *cobra.Command) {
	s.registry.AddTo(cmd)
	cli.OutputFlag(cmd, &s.format)
	flags.EnvironmentFlag(cmd, &s.environment, "the environment's `NAME`")
	s.AddTo(cmd, "")
}

// open reads the flags, the settings and the keys.
func (s *signing) open(cmd *cobra.Command, args []string) error {
	if err := s.TakeArgument(cmd, args, &s.environment); err != nil {
		return err
	}
	return s.OpenKeys(cmd, s.registry)
}

// backing holds the flags of undo and abort.
type backing struct {
	signing
	options     undo.Options
	yes, dryRun bool
}

func newUndoCommand() *cobra.Command {
	var b backing
	cmd := &cobra.Command{
		Use:   "undo [LOCATION] [--environment NAME] [--cluster-type TYPE] [--ring NAME] [--workload NAME] [--back-to COMMIT] --reason TEXT [--key FILE | --signer cosign:URI]",
		Short: "Restore previous content",
		Long: `Restore the previous content of an environment, a cluster type (--cluster-type) or a ring (--ring), and pause the environment.
Nothing is rendered: the new releases refer to the same files. Repeating it changes nothing more. You see the plan first and
confirm it, or pass --yes. What was undone stays out until somebody runs "wherry rollout resume --again".

The previous content is that of the newest earlier record that is complete and differs in the first ring. Every ring gets
what it had then. --back-to goes further back or forward again: to a COMMIT, a record's tag, or with --cluster-type a release.

--workload restores one workload alone, in one ring or in all that have its newest revision, and pauses nothing. It gets the
files that it had, also if the base has changed since; --back-to names a version. A newer revision may come at any time.

` + exitHelp + `

More: wherry help promoting, rings, signing-keys`,
		Example: `  wherry rollout undo oci://127.0.0.1:5000/edge --environment prod --reason "orders fail" --key cosign.key
  wherry rollout undo oci://127.0.0.1:5000/edge --environment prod --cluster-type drone --reason "orders fail" --key cosign.key
  wherry rollout undo oci://127.0.0.1:5000/edge --environment prod --workload shop/checkout --reason "orders fail" --key cosign.key
  wherry rollout undo oci://127.0.0.1:5000/edge --environment prod --back-to 3f2a9c1 --reason "orders fail" --dry-run --key cosign.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return b.run(cmd, args, undo.Undo, false) },
	}
	b.addTo(cmd)
	b.Signers.AddReleases(cmd)
	f := cmd.Flags()
	b.addReason(cmd)
	f.StringVar(&b.options.Ring, "ring", "", "give back what the ring `NAME` had (default all rings)")
	f.StringVar(&b.options.Workload, "workload", "", "only the workload `NAME`, or REGISTRATION/NAME")
	f.StringVar(&b.options.To, "back-to", "", "go back to this `COMMIT`, or to a record by its tag, or to a version of the workload (default the newest previous content)")
	f.BoolVar(&b.options.AllowEmpty, "allow-empty", false, "delete all assignments of cluster types that were not there before")
	cli.NotEmpty(cmd, "ring", "workload", "back-to")
	cmd.MarkFlagsMutuallyExclusive("workload", "cluster-type")
	return cmd
}

func newAbortCommand() *cobra.Command {
	var b backing
	cmd := &cobra.Command{
		Use:   "abort [LOCATION] [--environment NAME] [--cluster-type TYPE] --reason TEXT [--key FILE | --signer cosign:URI]",
		Short: "Abort a rollout",
		Long: `Stop a rollout: give the narrower rings what the widest ring has, in new releases that refer to the same files, and
pause the environment. Where all rings have the same, nothing is done.

The plan is shown first, and done after a yes, or with --yes. What was taken back stays out after "wherry rollout resume" too,
until a person says "wherry rollout resume --again".

` + exitHelp + `

More: wherry help signing-keys`,
		Example: `  wherry rollout abort oci://127.0.0.1:5000/edge --environment prod --reason "canaries run hot" --key cosign.key`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return b.run(cmd, args, undo.Abort, true) },
	}
	b.addTo(cmd)
	b.Signers.AddReleases(cmd)
	b.addReason(cmd)
	return cmd
}

const exitHelp = `Exit codes: 0 if it is done or was already, 1 if there is nothing to go back to, 5 if a trust document asks for more
signatures, which "wherry sign" adds: then nothing changes on clusters before.`

func (b *backing) addReason(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.options.Reason, "reason", "", "keep this `TEXT` for those who find it undone (required)")
	_ = cmd.MarkFlagRequired("reason")
	f.BoolVar(&b.yes, "yes", false, "do not ask")
	f.BoolVar(&b.dryRun, "dry-run", false, "show the plan alone")
	f.StringVar(&b.options.ClusterType, "cluster-type", "", "only this `TYPE` of clusters (default all)")
	cli.NotEmpty(cmd, "reason", "cluster-type")
	_ = cmd.RegisterFlagCompletionFunc("cluster-type", flags.CompleteClusterTypes)
}

func (b *backing) run(cmd *cobra.Command, args []string, do undoing, aborts bool) error {
	if err := b.open(cmd, args); err != nil {
		return err
	}
	if !b.yes && !b.dryRun && !cli.IsTerminal() {
		return cli.Fail(cli.Usage, errors.New("nobody can be asked whether to do it: this is not a terminal"), "give --dry-run to see the plan, and --yes to do it")
	}
	b.options.Environment, b.options.Show = b.environment, func(p *undo.Plan) error { return b.agree(cmd, p) }
	done, err := do(cmd.Context(), b.Location, b.Keys, b.options, b.PublishOptions(b.registry))
	if done != nil {
		for _, w := range done.Warnings {
			cmd.PrintErrf("warning: %s\n", cli.Indented(w))
		}
	}
	if errors.Is(err, errDryRun) {
		return nil
	}
	if err != nil {
		return b.explain(err)
	}
	if err := cli.Print(cmd.OutOrStdout(), b.format, done, func(w io.Writer) { undoneTable(w, done) }); err != nil {
		return err
	}
	return b.conclude(cmd, done, aborts)
}

// errDryRun ends what is only planned.
var errDryRun = errors.New("a plan alone")

// agree shows what is planned, and asks at the terminal.
func (b *backing) agree(cmd *cobra.Command, p *undo.Plan) error {
	left, previous := undo.Names(p.Left, p.Previous)
	if p.Previous.Record == "" {
		previous = "what the widest ring has"
	}
	out := cmd.ErrOrStderr()
	if b.dryRun {
		out = cmd.OutOrStdout()
	}
	if b.dryRun && b.format != "table" {
		if err := cli.Print(out, b.format, p, nil); err != nil {
			return err
		}
		return errDryRun
	}
	question := "Pause the environment, and do this?"
	if w := p.Workload; w != nil {
		left, previous = w.Names()
		question = "Do this?"
		fmt.Fprintf(out, "%s: %s from %s back to %s:\n", show.Line(p.Platform+"/"+p.Environment), show.Line(w.Key.String()), show.Line(left), show.Line(previous))
	} else {
		fmt.Fprintf(out, "%s: from %s back to %s:\n", show.Line(p.Platform+"/"+p.Environment), left, previous)
	}
	err := cli.Print(out, "table", nil, func(w io.Writer) {
		gets := "GETS"
		if p.Workload != nil {
			gets = "AS IN"
		}
		cli.Row(w, "CLUSTER TYPE", "RINGS", "HAS", gets)
		for _, c := range p.Changes {
			cli.Row(w, c.ClusterType, strings.Join(c.Rings, ","), ofCommit(c.From, c.FromCommit), ofCommit(c.To, c.ToCommit))
		}
	})
	switch {
	case err != nil:
		return err
	case b.dryRun:
		return errDryRun
	case b.yes:
		return nil
	}
	yes, err := cli.AskYes(cmd, cmd.InOrStdin(), question)
	if err == nil && !yes {
		return cli.Fail(cli.No, errors.New("nothing was changed"), "")
	}
	return err
}

// ofCommit names a release with its base commit.
func ofCommit(release, commit string) string {
	if release == "" {
		return "nothing"
	}
	if commit == "" {
		return release
	}
	return release + " of " + commit[:min(len(commit), 7)]
}

// explain gives an error its exit code and hint.
func (b *backing) explain(err error) error {
	if b.options.Workload != "" {
		return failure.At(err, b.Location,
			cli.Is(undo.ErrNoPrevious, cli.No, "--back-to VERSION names what to go back to; without --workload, undo gives back what the whole environment had"),
			cli.Is(publisher.ErrUnfinished, cli.Failed, "publish again, which completes it; without --workload, undo takes it back"))
	}
	return failure.At(err, b.Location, cli.Is(undo.ErrNoPrevious, cli.No,
		fmt.Sprintf("--back-to COMMIT names what to go back to, also if it is incomplete; wherry releases %s shows what there is", b.Location)))
}

func undoneTable(w io.Writer, done *undo.Done) {
	if len(done.Releases) == 0 {
		return
	}
	fmt.Fprintln(w, "CLUSTER TYPE\tRINGS\tRESULT\tRELEASE\tDIGEST")
	for _, r := range done.Releases {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ClusterType, ringNames(r.PublishedRelease), r.Result, show.Cell(bundle.ReleaseName(r.Number, r.Digest)), cmp.Or(string(r.Digest), "-"))
	}
}

// ringNames names the rings that have a release, and latest for agents without a ring.
func ringNames(r publisher.PublishedRelease) string {
	names := slices.Clone(r.Rings)
	if r.Latest {
		names = append(names, bundle.LatestTag)
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

func (b *backing) conclude(cmd *cobra.Command, done *undo.Done, aborts bool) error {
	name := show.Line(done.Platform + "/" + done.Environment)
	left, previous := undo.Names(done.Left, done.Previous)
	if done.Previous.Record == "" {
		previous = "what the widest ring has"
	}
	if w := done.Workload; w != nil {
		name += ": " + show.Line(w.Key.String())
		left, previous = w.Names()
		left, previous = show.Line(left), show.Line(previous)
	}
	switch {
	case !done.Undone && done.Workload != nil:
		why := "it was undone already, and "
		if b.options.To != "" {
			why = ""
		}
		cmd.PrintErrf("%s: nothing to do: %sit has %s\n", name, why, show.Line(done.Workload.Left.String()))
		cmd.PrintErrf("hint: --back-to VERSION goes further back\n")
		return nil
	case !done.Undone && aborts:
		cmd.PrintErrf("%s: nothing to do: all rings have the same, that of record %s\n", name, done.Left.Record)
		return nil
	case !done.Undone:
		cmd.PrintErrf("%s: nothing to do: it has its previous content already, that of record %s\n", name, done.Left.Record)
		cmd.PrintErrf("hint: --back-to COMMIT goes further back\n")
		return nil
	case done.Result == releases.OutcomePending:
		return cli.Fail(cli.NotYet, fmt.Errorf("%s: back from %s to %s: pending, signed by %d of %d", name, left, previous, done.Signatures.Have, done.Signatures.Need),
			fmt.Sprintf("wherry sign %s --environment %s --trust %s --key FILE", b.Location, done.Environment, b.First))
	}
	cmd.PrintErrf("%s: back from %s to %s, at %s\n", name, left, previous, b.Location)
	if done.Workload != nil {
		cmd.PrintErrf("note: %s stays out until something newer comes, or wherry rollout resume %s --environment %s --again lets it come\n", left, b.Location, done.Environment)
	}
	if done.Pause != nil {
		cmd.PrintErrf("note: the environment is paused: mend what is wrong, then run wherry rollout resume %s --environment %s\n", b.Location, done.Environment)
	}
	return nil
}
