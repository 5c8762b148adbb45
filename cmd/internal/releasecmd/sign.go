package releasecmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff/view"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
)

// signing holds the flags of sign.
type signing struct {
	env.Signing
	registry    flags.Registry
	environment string
	yes         bool
	format      string
	options     publisher.PendingOptions
}

// Sign returns the command wherry sign.
func Sign() *cobra.Command {
	var s signing
	cmd := &cobra.Command{
		Use:   "sign [LOCATION] [--environment NAME] [--trust FILE] [--key FILE | --signer cosign:URI]",
		Short: "Sign releases that wait for signatures",
		Long: `Add a signature to the releases of an environment that wait for more than one, because its trust document
asks for several and "wherry publish" had fewer keys.

What waits is read in full and checked: signed by a release key at least, meant for this environment, and
newer than what stands. Then it is shown against the releases that stand, and after a yes, or with --yes,
each of these releases is signed, and the environment's record. Whoever completes the number releases them.

The exit code is 5 while signatures are missing still, and 4 where what waits should not be signed. It is 0
where nothing waits, and -o json has no clusterTypes then. Where LOCATION has other environments and not this
one, it is 3. It can be repeated; one more signature by the same key is none.`,
		Example: `  wherry sign oci://127.0.0.1:5000/edge --environment dev --trust trust.v1.json --key bob.key
  wherry sign oci-layout:./out --environment dev --trust trust.v1.json --key bob.key --yes -o json
  wherry sign -e dev --key bob.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: s.run,
	}
	s.Signers.AddOptional(cmd)
	s.AddTo(cmd, "")
	s.registry.AddTo(cmd)
	cli.OutputFlag(cmd, &s.format)
	f := cmd.Flags()
	flags.EnvironmentFlag(cmd, &s.environment, "the environment's `NAME`")
	f.StringVar(&s.options.Tag, "pending", "", "sign what this `TAG` of the environment's records names, in place of the newest that waits")
	f.BoolVar(&s.yes, "yes", false, "do not ask")
	return cmd
}

func (s *signing) run(cmd *cobra.Command, args []string) error {
	if err := s.TakeArgument(cmd, args, &s.environment); err != nil {
		return err
	}
	if s.First == "" {
		return flags.MissingTrust()
	}
	if !s.yes && !cli.IsTerminal() {
		return cli.Fail(cli.Usage, errors.New("cannot ask for confirmation: this is not a terminal"), "pass --yes to sign all that is pending")
	}
	if err := s.ReadTrust(cmd, s.registry); err != nil {
		return err
	}
	loc, trust := s.Location, s.Trusted
	s.options.OCI = s.registry.Options()
	pending, err := publisher.OpenPending(cmd.Context(), loc, s.environment, trust, s.options)
	if errors.Is(err, publisher.ErrNothingPending) {
		cmd.PrintErrf("%v\n", err)
		if s.format == "table" {
			return nil
		}
		return cli.Print(cmd.OutOrStdout(), s.format, &publisher.Pending{
			Platform: trust.Document.Platform, Environment: s.environment, Epoch: trust.Epoch, Need: trust.Threshold,
			ClusterTypes: []publisher.PendingType{},
		}, nil)
	}
	if err != nil {
		return failure.At(err, loc)
	}
	for _, w := range pending.Warnings {
		cmd.PrintErrf("warning: %s\n", w)
	}
	if err := pendingPlan(cmd.ErrOrStderr(), pending); err != nil {
		return err
	}
	if err := s.confirm(cmd, pending); err != nil {
		return err
	}
	keys, err := s.Signers.Open(cmd)
	if err != nil {
		return err
	}
	if err := pending.Sign(cmd.Context(), keys); err != nil {
		return failure.At(err, loc)
	}
	if err := cli.Print(cmd.OutOrStdout(), s.format, pending, func(w io.Writer) { signedTable(w, pending) }); err != nil {
		return err
	}
	return concludeSigning(cmd, pending)
}

// confirm asks at the terminal.
func (s *signing) confirm(cmd *cobra.Command, pending *publisher.Pending) error {
	if s.yes {
		return nil
	}
	yes, err := cli.AskYes(cmd, cmd.InOrStdin(), fmt.Sprintf("Sign %s and the record?", show.Count(pending.Waiting(), "release")))
	if err == nil && !yes {
		return cli.Fail(cli.No, errors.New("nothing was signed"), "")
	}
	return err
}

// pendingPlan prints the releases that would be signed.
func pendingPlan(out io.Writer, e *publisher.Pending) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s/%s, epoch %d, commit %s, published %s\n", show.Cell(e.Platform), e.Environment, e.Epoch, show.Cell(e.BaseCommit), show.Time(e.Record.IssuedAt))
	fmt.Fprintf(w, "signed by %s; %d of the release keys have to\n\n", namesCell(e.Record.SignedBy), e.Need)
	fmt.Fprintln(w, "CLUSTER TYPE\tRELEASE\tSTANDS\tASSIGNMENTS\tEXPIRES\tRINGS\tSIGNED BY")
	for _, t := range e.ClusterTypes {
		stands, count := show.Cell(bundle.ReleaseName(t.PreviousNumber, t.PreviousDigest)), "unchanged"
		if t.Result == releases.OutcomePending {
			count = fmt.Sprintf("%d: %d added, %d changed, %d removed", t.Assignments, len(t.Added), len(t.Changed), len(t.Removed))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", show.Cell(t.ClusterType), bundle.ReleaseName(t.Number, t.Digest), stands, count, show.Time(t.ExpiresAt), show.Cell(view.Rings(t.Rings)), namesCell(t.SignedBy))
	}
	fmt.Fprintln(w)
	told := map[string]bool{"": true}
	for _, t := range e.ClusterTypes {
		if t.Result == releases.OutcomePending && !told[t.Message] {
			fmt.Fprintf(w, "message\t%s\n", show.Line(t.Message))
			told[t.Message] = true
		}
	}
	for _, t := range e.ClusterTypes {
		for _, part := range []struct {
			what  string
			names []string
		}{{"add", t.Added}, {"change", t.Changed}, {"remove", t.Removed}, {"held", t.Held}} {
			for _, name := range part.names {
				fmt.Fprintf(w, "%s\t%s/%s\n", part.what, show.Cell(t.ClusterType), show.Cell(name))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range e.ClusterTypes {
		if err := view.SiteChanges(out, t.ClusterType, t.SiteValues); err != nil {
			return err
		}
	}
	if len(e.Incomplete) > 0 {
		fmt.Fprintf(w, "not all that the commit asks for: %s\n", show.Cell(strings.Join(e.Incomplete, ", ")))
	}
	return w.Flush()
}

func namesCell(names []trust.KeyName) string {
	var cells []string
	for _, n := range names {
		cells = append(cells, n.Cell())
	}
	if len(cells) == 0 {
		return "nobody"
	}
	return strings.Join(cells, ", ")
}

func signedTable(w io.Writer, e *publisher.Pending) {
	fmt.Fprintln(w, "CLUSTER TYPE\tRESULT\tRELEASE\tSIGNED BY\tDIGEST")
	for _, t := range e.ClusterTypes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show.Cell(t.ClusterType), t.Result, bundle.ReleaseName(t.Number, t.Digest), namesCell(t.SignedBy), t.Digest)
	}
}

// concludeSigning prints that all is released, or returns the error with the signatures that are missing.
func concludeSigning(cmd *cobra.Command, e *publisher.Pending) error {
	if e.Complete() {
		cmd.PrintErrf("%s/%s: released\n", show.Cell(e.Platform), e.Environment)
		return nil
	}
	have := e.Have()
	what := fmt.Sprintf("signed by %d of %d", have, e.Need)
	if !e.Added {
		what = fmt.Sprintf("this key has signed all of it before, so it is still signed by %d of %d", have, e.Need)
	}
	return cli.Fail(cli.NotYet, fmt.Errorf("%s/%s: %s: %s missing", show.Cell(e.Platform), e.Environment, what, show.Count(e.Need-have, "signature")), "")
}
