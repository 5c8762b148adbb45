package airgapcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/roster"
	"github.com/wherry-dev/wherry/scheduler"
)

// reading is one call of the command reports.
type reading struct {
	roster, path, format string
	signers              flags.Signers
}

// read is what --format json prints.
type read struct {
	// Verified is true if each report in Clusters was signed by the key of its Cluster object.
	Verified bool                 `json:"verified"`
	States   map[bundle.State]int `json:"states"`
	Clusters []roster.Reported    `json:"clusters"`
	Refused  []roster.Refused     `json:"refused"`
	// Acknowledged counts the reports that the file of -o acknowledges.
	Acknowledged int `json:"acknowledged,omitempty"`
}

func newReports() *cobra.Command {
	var r reading
	cmd := &cobra.Command{
		Use:   "reports FILE… [--roster DIR] [--key KEY -o FILE]",
		Short: "Show and acknowledge reports without a hub",
		Long: `Show the reports in files of "wherry-agent reports export": the newest report of each cluster, worst first. Nothing is
stored: keep the files and pass all of them, in any order.

--roster DIR verifies each report by the key of its Cluster object in the environment's folder ("wherry roster add"), and
lists clusters that have not reported. Without it, signatures are not verified.

With --roster, -o FILE writes acknowledgements for "wherry-agent reports ack", signed by the keys given. Agents pin the public
half with --hub-key; take a key for that alone. Agents delete acknowledged reports, so keep the report files.

Exit codes: 0 all clusters are compliant; 1 some are not, or have not reported; 2 wrong usage, or a file of another kind;
3 it failed; 4 some reports were signed by nobody in the roster.

More: wherry help air-gap, signing-keys`,
		Example: `  wherry airgap reports /media/usb/reports.tar --roster platform/prod
  wherry keys generate -o reports
  wherry airgap reports archive/*.tar --roster platform/prod --key reports.key -o /media/usb/acks.tar`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	cmd.Flags().StringVar(&r.roster, "roster", "", "verify reports by the Cluster objects in `DIR`")
	cmd.Flags().StringVarP(&r.path, "output", "o", "", "write acknowledgements to `FILE`, which is replaced")
	cli.NotEmpty(cmd, "roster", "output")
	cli.FormatFlag(cmd, &r.format)
	r.signers.AddOptional(cmd)
	_ = cmd.MarkFlagDirname("roster")
	return cmd
}

func (r *reading) run(cmd *cobra.Command, files []string) error {
	signs := cmd.Flags().Changed("key") || cmd.Flags().Changed("signer")
	switch {
	case r.path != "" && r.roster == "":
		return cli.Fail(cli.Usage, errors.New("-o needs --roster: only verified reports are acknowledged"), "give the folder of the environment with its Cluster objects")
	case r.path != "" && !signs:
		return cli.Fail(cli.Usage, errors.New("-o needs --key or --signer"), `"wherry keys generate -o reports" makes a key pair, whose public half agents pin with --hub-key`)
	case r.path == "" && signs:
		return cli.Usagef("--key and --signer sign acknowledgements: name their file with -o")
	}
	var clusters []scheduler.Cluster
	if r.roster != "" {
		var err error
		if clusters, err = roster.Read(cmd.Context(), r.roster); err != nil {
			return wrongRoster(err)
		}
		if clusters == nil {
			clusters = []scheduler.Cluster{}
		}
	}
	review, err := roster.NewReview(clusters)
	if err != nil {
		return wrongRoster(err)
	}
	for _, file := range files {
		err := airgap.EachReport(file, func(envelope []byte) error { review.Add(envelope); return nil })
		if err = failure.Of(err); errors.Is(err, airgap.ErrFormat) || errors.Is(err, os.ErrNotExist) {
			err = cli.Otherwise(err, cli.Usage, `give files that "wherry-agent reports export" wrote`)
		}
		if err != nil {
			return err
		}
	}
	found := read{Verified: r.roster != "", States: map[bundle.State]int{}, Clusters: review.Clusters(), Refused: review.Refused()}
	for _, c := range found.Clusters {
		found.States[cmp.Or(c.State, "unreported")]++
	}
	if r.path != "" {
		if found.Acknowledged, err = r.acknowledge(cmd, review); err != nil {
			return err
		}
	}
	if err := cli.Print(cmd.OutOrStdout(), r.format, found, func(w io.Writer) { reportsTable(w, found, time.Now()) }); err != nil {
		return err
	}
	return r.conclude(cmd, found)
}

// acknowledge writes the acknowledgements, and says how many reports they name.
func (r *reading) acknowledge(cmd *cobra.Command, review *roster.Review) (int, error) {
	keys, err := r.signers.Open(cmd)
	if err != nil {
		return 0, err
	}
	var signers []signature.Signer
	for _, k := range keys {
		signers = append(signers, k)
	}
	envelopes, reports, err := review.Acknowledge(time.Now(), signers...)
	if err != nil {
		return 0, cli.Fail(cli.Failed, err, "")
	}
	if reports == 0 {
		cmd.PrintErrf("%s is not written: no report can be acknowledged\n", r.path)
		return 0, nil
	}
	if err := diskfile.ReplaceBy(r.path, 0o644, func(w io.Writer) error { return airgap.WriteAck(w, envelopes) }); err != nil {
		return 0, cli.Fail(cli.Failed, fmt.Errorf("write acknowledgements: %w", err), "")
	}
	return reports, nil
}

// conclude says what is not in the table, and returns the exit code.
func (r *reading) conclude(cmd *cobra.Command, found read) error {
	if !found.Verified {
		cmd.PrintErrf("note: signatures not verified; pass --roster DIR to verify them\n")
	}
	if found.Acknowledged > 0 {
		cmd.PrintErrf("%s: %s acknowledged\n", r.path, show.Count(found.Acknowledged, "report"))
	}
	for _, x := range found.Refused {
		cmd.PrintErrf("%s of cluster %s refused: %s\n", show.Count(x.Reports, "report"), cmp.Or(x.Cluster, "(unknown)"), x.Why)
	}
	switch {
	case len(found.Refused) > 0:
		return cli.Exit(cli.Denied)
	case found.States[bundle.Compliant] < len(found.Clusters):
		return cli.Exit(cli.No)
	}
	return nil
}

// reportsTable prints the totals, and then a line for each cluster.
func reportsTable(w io.Writer, found read, now time.Time) {
	var parts []string
	seen := map[bundle.State]bool{}
	for _, c := range found.Clusters { // which are the worst first
		state := cmp.Or(c.State, "unreported")
		if !seen[state] {
			parts = append(parts, fmt.Sprintf("%d %s", found.States[state], show.Cell(string(state))))
		}
		seen[state] = true
	}
	parts = slices.Compact(parts)
	fmt.Fprintf(w, "%s: %s\n\n", show.Count(len(found.Clusters), "cluster"), cmp.Or(strings.Join(parts, ", "), "no reports"))
	if len(found.Clusters) == 0 {
		return
	}
	fmt.Fprintln(w, "CLUSTER\tENVIRONMENT\tTYPE\tSTATE\tREASON\tRELEASE\tSINCE\tLAST SEEN\tREPORTS")
	for _, c := range found.Clusters {
		release, since := "", ""
		if c.Observed != nil {
			release = bundle.ReleaseName(c.Observed.Number, c.Observed.Digest)
		}
		if !c.Since.IsZero() {
			since = bundle.Ago(c.Since, now)
		}
		cli.Row(w, c.Name, c.Environment, c.ClusterType, string(cmp.Or(c.State, "unreported")), c.Reason, release, since, bundle.Ago(c.LastSeen, now), fmt.Sprint(c.Reports))
	}
}

// wrongRoster gives an error of the folder of --roster its exit code and hint.
func wrongRoster(err error) error {
	return failure.Of(fmt.Errorf("--roster: %w", err), cli.AsBy(func(e *roster.Error) (int, string) { return cli.Usage, e.Hint }))
}
