package hubcmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
)

func newExportAckCommand(dir *string) *cobra.Command {
	var out string
	var clusters []string
	cmd := &cobra.Command{
		Use:   "export-ack -o FILE",
		Short: "Write acknowledgements for agents that report by media",
		Long: `Write a signed acknowledgement of every report that came by media and has not been acknowledged this way
since. "wherry-agent reports ack" takes the file and deletes what it names. If the file is lost, the
agent exports its reports again, and importing them makes their acknowledgements due again.

It exits with 1, and writes nothing, if no acknowledgement is due.`,
		Example: `  wherry hub export-ack -o ack.tar
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
				acks, err := h.Acks(cmd.Context(), uids...)
				if err != nil {
					return err
				}
				if acks.Reports == 0 {
					return cli.Fail(cli.No, errors.New("no acknowledgement is due"), `"wherry hub import" makes them due`)
				}
				err = cli.WriteFile(out, func(w io.Writer) error { return airgap.WriteAck(w, acks.Envelopes) })
				if err != nil {
					return cli.Fail(cli.Failed, fmt.Errorf("write acknowledgements: %w", err), "")
				}
				// Only now: were this lost, the same would be exported once more.
				if err := h.MarkExported(cmd.Context(), acks); err != nil {
					return err
				}
				cmd.PrintErrf("%s: %s acknowledged\n", out, show.Count(acks.Reports, "report"))
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to `FILE`, which is replaced (required)")
	cli.NotEmpty(cmd, "output")
	cmd.Flags().StringSliceVar(&clusters, "cluster", nil, "only the cluster `NAME`, or the one with this uid; may be repeated")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}
