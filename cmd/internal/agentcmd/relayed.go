package agentcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// waitingReports are the clusters whose reports an agent has for the next medium.
type waitingReports struct {
	// Own is the queue of the agent's own cluster.
	Own relay.Cluster `json:"own"`
	// Others are as their reports call them; nobody has verified these.
	Others []relay.Cluster `json:"others"`
}

func newReportsLsCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List clusters with queued reports",
		Long: `List the clusters whose reports wait here: this agent's own, and those of other agents, if it takes them
(--serve-accept-reports). The names of others are as their reports have them; only the hub verifies these.`,
		Example: example("reports ls"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			all, err := waiting(cmd.Context(), c)
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, all, func(w io.Writer) { waitingTable(w, all, time.Now()) })
		}),
	}
	cli.OutputFlag(cmd, &format)
	return cmd
}

func waiting(ctx context.Context, c *config.Config) (all waitingReports, err error) {
	st, err := c.Status(ctx)
	if err != nil {
		return all, err
	}
	all.Own = relay.Cluster{UID: st.Cluster.UID, Name: st.Cluster.Name, Reports: st.Queue.Length, Bytes: st.Queue.Bytes}
	if st.Queue.Oldest != nil {
		all.Own.Since = *st.Queue.Oldest
	}
	all.Others, err = config.Look(ctx, c,
		func(ctx context.Context, a agent.Client) ([]relay.Cluster, error) { return a.Relayed(ctx) },
		func(s *agent.State) ([]relay.Cluster, error) { return s.Relay().Clusters() })
	return all, err
}

func waitingTable(w io.Writer, all waitingReports, now time.Time) {
	fmt.Fprintln(w, "CLUSTER\tUID\tREPORTS\tSIZE\tSINCE\tLAST")
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return ago(t, now)
	}
	for _, c := range append([]relay.Cluster{all.Own}, all.Others...) {
		cli.Row(w, c.Name, c.UID, fmt.Sprint(c.Reports), show.Size(c.Bytes), ago(c.Since), ago(c.Last))
	}
}

func newReportsForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "forget UID",
		Short: "Delete another agent's reports",
		Long: `Delete the reports of another cluster that wait here, and the acknowledgements for it, such as of a cluster
that is gone. Its agent, if it still runs, keeps its reports and brings them again.

Exit codes: 0 they are deleted; 1 there are none; 2 wrong usage.`,
		Example: example("reports forget 5d0c7f3a-till-3"),
		Args:    cobra.ExactArgs(1),
		RunE: configured(func(cmd *cobra.Command, c *config.Config, args []string) error {
			n, err := config.Change(cmd.Context(), c,
				func(ctx context.Context, a agent.Client) (int, error) { return a.Forget(ctx, args[0]) },
				func(s *agent.State) (int, error) { return s.Relay().Drop(args[0]) })
			switch {
			case err != nil:
				return err
			case n == 0:
				return cli.Fail(cli.No, fmt.Errorf("no reports of a cluster with the uid %q wait here", args[0]), `"reports ls" lists the clusters with their uids`)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "deleted %s of cluster %s\n", show.Count(n, "report"), args[0])
			return nil
		}),
	}
}
