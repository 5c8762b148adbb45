package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newReportsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reports",
		Short: "Manage queued compliance reports",
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
		Short: "Export queued reports to a file",
		Long: `Write all queued reports to a file, an OCI layout in a tar, for "wherry hub import" or "wherry airgap
reports". They stay in the queue until an acknowledgement comes back; see reports ack. An agent that takes the
reports of other agents (--serve-accept-reports) writes these too, after its own. With -o - the file goes to
standard output, as from an agent in a pod.

FILE may be a folder: the reports are then in reports-CLUSTER.tar there, so that one medium serves several
clusters. A file with reports of other clusters, or with something else, is never replaced.`,
		Example: example("reports export -o reports.tar"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
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
		}),
	}
	cmd.Flags().StringVarP(&path, "output", "o", "", "write to `FILE` or to a file in this folder; - is standard output")
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

// reportsName is the name of the file with a cluster's reports in a folder, which several clusters may share.
func reportsName(cluster string) string { return "reports-" + cli.FileName(cluster) + ".tar" }

// keepsForeign returns an error if the file at path is there, and none of its reports is of one of these clusters: on a medium that
// serves several clusters it is what another one has to say.
func keepsForeign(path string, clusters map[string]bool) error {
	ours, foreign := false, ""
	err := airgap.EachReport(path, func(envelope []byte) error {
		claim, err := bundle.PeekReport(envelope)
		if ours = ours || clusters[claim.Cluster.UID]; !ours && foreign == "" {
			foreign = cmp.Or(claim.Cluster.Name, claim.Cluster.UID)
		}
		return err
	})
	const hint = "name a folder, where each cluster has a file of its own, or another file"
	switch {
	case errors.Is(err, fs.ErrNotExist), ours, err == nil && foreign == "":
		return nil
	case foreign != "":
		return cli.Fail(cli.Usage, fmt.Errorf("%s has reports of cluster %s, and is not replaced", path, foreign), hint)
	}
	if info, err := os.Stat(path); err == nil && (info.Size() == 0 || !info.Mode().IsRegular()) {
		return nil
	}
	return cli.Fail(cli.Usage, fmt.Errorf("%s holds something other than reports, and is not replaced: %w", path, err), hint)
}

// exportReports writes all reports that wait to path, or to a file in the folder path: whole and on disk, or not at all.
func exportReports(cmd *cobra.Command, c *config.Config, path string) (writtenReports, error) {
	status, err := c.Status(cmd.Context())
	if err != nil {
		return writtenReports{File: path}, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, reportsName(cmp.Or(status.Cluster.Name, status.Cluster.UID)))
	}
	written, clusters := writtenReports{File: path}, map[string]bool{}
	err = onMedium(path, func(w io.Writer) error { return writeReports(cmd.Context(), c, w) }, func(unfinished string) error {
		err := airgap.EachReport(unfinished, func(envelope []byte) error {
			claim, err := bundle.PeekReport(envelope)
			clusters[claim.Cluster.UID] = true
			written.Reports++
			return err
		})
		written.Clusters = len(clusters)
		clusters[status.Cluster.UID] = true
		return cmp.Or(err, keepsForeign(path, clusters))
	})
	return written, err
}

// onMedium has write make the file at path, on any file system: whole and on disk, or not at all. Check has the last word about the
// unfinished file. What an earlier process has left unfinished there goes.
func onMedium(path string, write func(io.Writer) error, check func(unfinished string) error) error {
	fsys := medium.OS{}
	if err := medium.RemovePartial(fsys, path); err != nil {
		return err
	}
	out, err := medium.Create(fsys, path, 0)
	if err != nil {
		return err
	}
	if err = write(out); err == nil {
		err = check(path + medium.PartialSuffix)
	}
	if err != nil {
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
		Short: "Delete acknowledged reports",
		Long: `Delete the reports that the file of "wherry hub export-ack" or "wherry airgap reports" names. The pinned hub
key must have signed all of it and some of it must be for this cluster; otherwise nothing is deleted, and the
exit code is 4.

An agent that takes the reports of other agents (--serve-accept-reports) deletes those that the file names as
well, and keeps the acknowledgements for these agents, who get them with their next request. A file for other
clusters alone is of use there.`,
		Example: example("reports ack acks.tar --hub-key hub.pub"),
		Args:    cobra.ExactArgs(1),
		RunE: configured(func(cmd *cobra.Command, c *config.Config, args []string) error {
			envelopes, err := airgap.ReadAck(args[0])
			if errors.Is(err, archive.ErrDamaged) {
				return cli.Fail(cli.Failed, err, cli.DamagedHint)
			}
			if path := (*fs.PathError)(nil); errors.As(err, &path) && errors.Is(err, fs.ErrNotExist) && filepath.Dir(path.Path) != "." {
				return cli.Fail(cli.Usage, err, absentHint(path.Path))
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
		}),
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
