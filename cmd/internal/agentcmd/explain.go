package agentcmd

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/docs"
)

func newExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [REASON…]",
		Short: "Explain a reason",
		Long: `Explain the reasons that status, reports and imports give, such as DigestMismatch: what each means, and what to do.
The texts are in the program, so that no network is needed. Without REASON, explain those that the agent has now.

Exit codes: 0 explained, or there is nothing to explain; 2 an unknown reason.`,
		Example: example("explain", "explain DigestMismatch LacksBase"),
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return explainStatus(cmd)
			}
			return explainReasons(cmd.OutOrStdout(), args)
		},
	}
}

func explainReasons(w io.Writer, names []string) error {
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(w)
		}
		found, rows, err := cli.FindReason(name, "status and import name reasons, such as DigestMismatch")
		if unknown := (*cli.UnknownReasonError)(nil); errors.As(err, &unknown) {
			return cli.Fail(cli.Usage, err, unknown.Hint)
		}
		if err != nil {
			return err
		}
		cli.WriteReason(w, found, rows)
	}
	return nil
}

// explainStatus explains the reasons that the agent has now.
func explainStatus(cmd *cobra.Command) error {
	c, err := configOf(cmd)
	if err != nil {
		return err
	}
	s, err := c.Status(cmd.Context())
	if err != nil {
		return err
	}
	reasons := reasonsOf(s)
	if len(reasons) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "nothing to explain: the cluster is %s\n", s.State)
		return nil
	}
	known := docs.Reasons()
	var others []string
	reasons = slices.DeleteFunc(reasons, func(r string) bool {
		if known[r] == nil {
			others = append(others, r)
		}
		return known[r] == nil
	})
	if len(others) > 0 { // such as one of an engine's own
		cmd.PrintErrf("note: no text about %s; status has the message\n", show.List(others, len(others)))
	}
	return explainReasons(cmd.OutOrStdout(), reasons)
}

// reasonsOf lists the reasons in a status, those of the agent as a whole first, each once.
func reasonsOf(s agent.Status) (all []string) {
	add := func(reason string) {
		if reason != "" && !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	add(s.Reason)
	if r := s.Release.Refused; r != nil {
		add(string(r.Reason))
	}
	if s.Freeze != nil {
		add(s.Freeze.Reason)
	}
	for _, q := range s.Release.Quarantined {
		add(q.Reason)
	}
	for _, i := range s.Items {
		add(i.Reason)
	}
	return all
}
