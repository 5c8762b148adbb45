package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/wherry-dev/wherry/bundle/oci/archive"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newReportsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reports",
		Short: "Carry compliance reports out by file, and see what the hub will not take",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReportsExportCommand(), newReportsAckCommand(), newReportsDeadCommand(), newReportsLsCommand(), newReportsForgetCommand())
	return cmd
}

func newReportsExportCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "export -o FILE",
		Short: "Write all queued reports to a file",
		Long: `Write all queued reports to a file, an OCI layout in a tar, for "wherry hub import" or "wherry airgap
reports". They stay in the queue until an acknowledgement comes back; see reports ack. An agent that takes the
reports of other agents (--serve-accept-reports) writes these too, after its own. With -o - the file goes to
standard output, as from an agent in a pod.`,
		Example: example("reports export -o reports.tar"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			if path == "" {
				return cli.Usagef("no file: give -o FILE")
			}
			if path == medium.Stdin {
				return writeReports(cmd.Context(), c, os.Stdout) // not the command's, which escapes
			}
			written, err := exportReports(cmd, c, path)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), written)
			return nil
		},
	}
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to `FILE`, which is replaced; - is standard output")
	return cmd
}

// writtenReports is a file of reports that was written. Its JSON is an interface.
type writtenReports struct {
	File     string `json:"file"`
	Reports  int    `json:"reports"`
	Clusters int    `json:"clusters"` // that the reports are of
}

func (w writtenReports) String() string {
	return fmt.Sprintf("wrote %s of %s to %s", show.Count(w.Reports, "report"), show.Count(w.Clusters, "cluster"), w.File)
}

// exportReports writes all reports that wait to path: whole and on disk, or not at all.
func exportReports(cmd *cobra.Command, c *config.Config, path string) (writtenReports, error) {
	written := writtenReports{File: path}
	if err := onMedium(path, func(w io.Writer) error { return writeReports(cmd.Context(), c, w) }); err != nil {
		return written, err
	}
	clusters := map[string]bool{}
	err := airgap.EachReport(path, func(envelope []byte) error {
		claim, err := bundle.PeekReport(envelope)
		clusters[claim.Cluster.UID] = true
		written.Reports++
		return err
	})
	written.Clusters = len(clusters)
	return written, err
}

// onMedium has write make the file at path, on any file system: whole and on disk, or not at all. What an earlier process
// has left unfinished there goes.
func onMedium(path string, write func(io.Writer) error) error {
	fsys := medium.OS{}
	if err := medium.RemovePartial(fsys, path); err != nil {
		return err
	}
	out, err := medium.Create(fsys, path, 0)
	if err != nil {
		return err
	}
	if err := write(out); err != nil {
		return errors.Join(err, out.Discard())
	}
	return out.Commit()
}

func writeReports(ctx context.Context, c *config.Config, w io.Writer) error {
	err := agent.NewClient(c.StateDir).Reports(ctx, w)
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	state, err := c.ReadState()
	if err != nil {
		return err
	}
	return errors.Join(state.WriteReports(w), state.Close())
}

func newReportsAckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ack FILE",
		Short: "Delete the reports that a hub's acknowledgement file names",
		Long: `Delete the reports that the file of "wherry hub export-ack" or "wherry airgap reports" names. The pinned hub
key must have signed all of it and some of it must be for this cluster; otherwise nothing is deleted, and the
exit code is 4.

An agent that takes the reports of other agents (--serve-accept-reports) deletes those that the file names as
well, and keeps the acknowledgements for these agents, who get them with their next request. A file for other
clusters alone is of use there.`,
		Example: example("reports ack acks.tar --hub-key hub.pub"),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			envelopes, err := airgap.ReadAck(args[0])
			if errors.Is(err, archive.ErrDamaged) {
				return cli.Fail(cli.Failed, err, cli.DamagedHint)
			}
			if errors.Is(err, airgap.ErrFormat) || errors.Is(err, os.ErrNotExist) {
				return cli.Fail(cli.Usage, err, `"wherry hub export-ack" writes such a file`)
			}
			if err != nil {
				return cli.Fail(denied(err), err, "")
			}
			done, err := acknowledge(cmd, c, envelopes)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), ackLine(done))
			return nil
		},
	}
}

// ofOthers is the part of a message about the reports of other agents.
func ofOthers(done outbox.Acknowledged) string {
	if done.DeletedOfOthers+done.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf("; deleted %s of other clusters, %s kept for them", show.Count(done.DeletedOfOthers, "report"), show.Count(done.Waiting, "acknowledgement"))
}

func denied(err error) int {
	if outbox.IsUntrusted(err) || errors.As(err, new(*bundle.Refusal)) {
		return cli.Denied
	}
	return cli.Failed
}

func acknowledge(cmd *cobra.Command, c *config.Config, envelopes [][]byte) (done outbox.Acknowledged, err error) {
	done, err = config.Change(cmd.Context(), c,
		func(ctx context.Context, a agent.Client) (outbox.Acknowledged, error) {
			return a.Acknowledge(ctx, envelopes)
		},
		func(s *agent.State) (outbox.Acknowledged, error) {
			hubKey, err := c.HubKey()
			if err != nil {
				return outbox.Acknowledged{}, err
			}
			return s.Acknowledge(envelopes, hubKey, c.Serve.AcceptReports)
		})
	switch {
	case errors.Is(err, outbox.ErrNoHubKey):
		return done, cli.Fail(cli.Usage, err, `enroll it, or give it --hub-key with what "wherry hub keys show" prints`)
	case outbox.IsUntrusted(err):
		return done, cli.Fail(cli.Denied, err, "nothing was deleted; compare --hub-key with what \"wherry hub keys show\" prints")
	}
	return done, err
}
