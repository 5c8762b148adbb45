package hubcmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/upkeep"
)

// maxFindings bounds the findings that are listed.
const maxFindings = 10_000

func newVerifyCommand(dir *location) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify stored reports, history and audit log",
		Long: `Read everything that the hub has stored, also while it serves. The signature of each report that is kept is
verified by all keys that were ever registered for its cluster; the present of each cluster has to be what its
history says; and each entry of the audit log has to follow from the one before, by its digest. Note the digest
of the newest entry elsewhere: it vouches for all entries up to there, also if somebody writes the log anew.

A report is good if a key in force has signed it, previous if the agent has replaced that key since, and revoked
if a person has replaced or removed it: such a report was good when it came. A bad one is signed by no key
of its cluster, or is not what the database says of it: somebody, or a disk, has changed the database.

It exits with 0 if there is nothing to say, and with 1 and each finding otherwise.`,
		Example: "  wherry hub verify --data /var/lib/wherry-hub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out struct {
				upkeep.Verified
				Findings []upkeep.Finding `json:"findings"`
			}
			out.Findings = []upkeep.Finding{}
			err := withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) (err error) {
				if err := h.Check(cmd.Context()); err != nil {
					return err
				}
				progress := cli.NewProgress("verifying")
				defer progress.End()
				out.Verified, err = h.Verify(cmd.Context(), func(f upkeep.Finding) error {
					if len(out.Findings) < maxFindings {
						out.Findings = append(out.Findings, f)
					}
					return nil
				}, func(bytes int64) { progress.Update(bytes, 0) })
				return err
			})
			if err != nil {
				return err
			}
			err = cli.Print(cmd.OutOrStdout(), format, out, func(w io.Writer) {
				fmt.Fprintf(w, "%d reports: %d good, %d previous, %d revoked, %d bad; %d differences of the present\n",
					out.Reports(), out.Good, out.Previous, out.Revoked, out.Bad, out.Differences)
				if out.Audit > 0 {
					fmt.Fprintf(w, "audit log up to entry %d: %s\n", out.Audit, out.AuditDigest)
				}
				if len(out.Findings) > 0 {
					fmt.Fprintln(w, "CLUSTER\tREPORT\tASSIGNMENT\tPROBLEM")
				}
				for _, f := range out.Findings {
					cli.Row(w, f.UID, f.Report, f.Assignment, f.Problem)
				}
			})
			if err != nil {
				return err
			}
			if more := out.Bad + out.Differences + out.Gaps - int64(len(out.Findings)); more > 0 {
				cmd.PrintErrf("and %d more findings\n", more)
			}
			if !out.OK() {
				return cli.Exit(cli.No)
			}
			return nil
		},
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}
