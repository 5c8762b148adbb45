package agentcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newReportsDeadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Manage rejected reports",
		Long: `Show the reports that the hub will not take. They are out of the way of the others, and offered again once a
day; retry offers them now, as after the hub was upgraded, and drop deletes them.

A hub says so in its answers over HTTP alone. What it refuses of a registry or a file is not acknowledged, and
is told to whoever runs "wherry hub import".`,
		Example: example("reports dead", "reports dead retry"),
	}
	list := newReportsDeadListCommand()
	cmd.Args, cmd.RunE = cobra.NoArgs, list.RunE
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list,
		newReportsDeadChangeCommand("retry", "Retry rejected reports", "will be offered to the hub again",
			func(ctx context.Context, c agent.Client) (int, error) { return c.RetryDeadLetters(ctx) }, func(s *agent.State) (int, error) { return s.Outbox().RetryDeadLetters() }),
		newReportsDeadChangeCommand("drop", "Delete rejected reports", "deleted",
			func(ctx context.Context, c agent.Client) (int, error) { return c.DropDeadLetters(ctx) }, func(s *agent.State) (int, error) { return s.Outbox().DropDeadLetters() }))
	return cmd
}

func newReportsDeadListCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List rejected reports and reasons",
		Example: example("reports dead list -o json"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			letters, err := deadLetters(cmd.Context(), c)
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), output, letters, func(w io.Writer) { deadTable(w, letters) })
		}),
	}
	cli.OutputFlag(cmd, &output)
	return cmd
}

func deadTable(w io.Writer, letters []outbox.DeadLetter) {
	if len(letters) == 0 {
		fmt.Fprintln(w, "no hub has said that it will not take a report that waits here")
		return
	}
	fmt.Fprintln(w, "SEQ\tMADE\tREJECTED\tRETRY\tREASON")
	for _, l := range letters {
		cli.Row(w, fmt.Sprint(l.Seq), when(l.MadeAt), when(l.RejectedAt), when(l.RetryAt), l.Reason)
	}
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func deadLetters(ctx context.Context, c *config.Config) ([]outbox.DeadLetter, error) {
	return config.Look(ctx, c, func(ctx context.Context, a agent.Client) ([]outbox.DeadLetter, error) { return a.DeadLetters(ctx) }, func(s *agent.State) ([]outbox.DeadLetter, error) { return s.Outbox().DeadLetters() })
}

func newReportsDeadChangeCommand(use, short, done string, ask func(context.Context, agent.Client) (int, error), do func(*agent.State) (int, error)) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example("reports dead " + use),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			n, err := config.Change(cmd.Context(), c, ask, do)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", show.Count(n, "report"), done)
			return nil
		}),
	}
}
