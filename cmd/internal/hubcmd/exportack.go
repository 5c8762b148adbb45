package hubcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
)

func newExportAckCommand(dir *location) *cobra.Command {
	var out, format string
	var clusters []string
	var silentFor time.Duration
	cmd := &cobra.Command{
		Use:   "export-ack -o FILE",
		Short: "Export acknowledgements for agents without a network",
		Long: `Write a signed acknowledgement of every report that came by media and has not been acknowledged this way
since. "wherry-agent reports ack" takes the file and deletes what it names. If the file is lost, the
agent exports its reports again, and importing them makes their acknowledgements due again.

It also lists the clusters that the hub has not heard of, the longest first, for whoever carries the file: those
that have missed three of their expected intervals, or that have been silent for --silent-for.

If no acknowledgement is due it says so, and writes no file.`,
		Example: `  wherry hub export-ack -o ack.tar --silent-for 7d
  wherry hub export-ack -o plant-7-ack.tar --cluster plant-7`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withHub(*dir, hub.Options{MustExist: true}, func(h *hub.Hub) error {
				var uids []string
				for _, name := range clusters {
					r, err := h.Registration(cmd.Context(), name)
					if err != nil {
						return err
					}
					uids = append(uids, r.UID)
				}
				done, failed := exportAcks(cmd, h, out, uids)
				silent, err := h.Silent(cmd.Context(), silentFor)
				if err != nil {
					return errors.Join(failed, err)
				}
				done.Silent = slices.DeleteFunc(silent, func(c hub.SilentCluster) bool { return len(uids) > 0 && !slices.Contains(uids, c.UID) })
				err = cli.Print(cmd.OutOrStdout(), format, done, func(w io.Writer) { silentTable(w, done.Silent, time.Now()) })
				return cmp.Or(failed, err)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE`, which is replaced (required)")
	cli.NotEmpty(cmd, "output")
	cmd.Flags().StringSliceVar(&clusters, "cluster", nil, "only the cluster `NAME`, or the one with this uid; may be repeated")
	cmd.Flags().Var((*duration.Value)(&silentFor), "silent-for", "list the clusters that the hub has not heard of for this `TIME`, such as 7d (default: three of the expected intervals of each)")
	cli.FormatFlag(cmd, &format)
	_ = cmd.MarkFlagRequired("output")
	return cmd
}

// exported is what export-ack has written, and for whom there was nothing.
type exported struct {
	// Reports counts those that the file acknowledges, and Clusters whose they are.
	Reports  int                 `json:"reports"`
	Clusters int                 `json:"clusters"`
	Silent   []hub.SilentCluster `json:"silent"`
}

// exportAcks writes the acknowledgements that are due, of these clusters or of all.
func exportAcks(cmd *cobra.Command, h *hub.Hub, out string, uids []string) (exported, error) {
	acks, err := h.Acks(cmd.Context(), uids...)
	if err != nil {
		return exported{}, err
	}
	if acks.Reports == 0 {
		cmd.PrintErrln("no acknowledgement is due: no file was written")
		return exported{}, nil
	}
	err = diskfile.ReplaceBy(out, 0o644, func(w io.Writer) error { return airgap.WriteAck(w, acks.Envelopes) })
	if err != nil {
		return exported{}, cli.Fail(cli.Failed, fmt.Errorf("write acknowledgements: %w", err), "")
	}
	// Only now: were this lost, the same would be exported once more.
	if err := h.MarkExported(cmd.Context(), acks); err != nil {
		return exported{}, err
	}
	cmd.PrintErrf("%s: %s of %s acknowledged\n", out, show.Count(acks.Reports, "report"), show.Count(acks.Clusters, "cluster"))
	return exported{Reports: acks.Reports, Clusters: acks.Clusters}, nil
}

func silentTable(w io.Writer, all []hub.SilentCluster, now time.Time) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "SILENT CLUSTER\tENVIRONMENT\tTYPE\tLAST HEARD OF\tREGISTERED")
	for _, c := range all {
		registered := ""
		if c.LastSeen.IsZero() {
			registered = bundle.Ago(c.Since, now)
		}
		cli.Row(w, c.Name, c.Environment, c.Type, bundle.Ago(c.LastSeen, now), registered)
	}
}
