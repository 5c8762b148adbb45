package agentcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newPauseCommand() *cobra.Command {
	var reason string
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause changes to the cluster",
		Long: `Let nothing in the cluster be changed, until resume or for a time.

The agent goes on taking newer releases, so that they are here afterwards, and goes on observing and reporting.
It applies, corrects and removes nothing. What an engine has begun ends. A restart does not end a pause. A
second pause gives a new reason and a new end.

Exit codes: 0 it is paused; 2 wrong usage; 3 it failed.`,
		Example: example("pause --reason 'harvest until Friday' --for 72h"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			if cmd.Flags().Changed("for") && lasting < time.Second {
				return cli.Usagef("--for %q: expected a positive duration such as 30m or 72h; without --for, the pause lasts until resume", lasting)
			}
			p, err := pauseAgent(cmd.Context(), c, reason, lasting)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "paused %s\n", pausedBy(p.At, p.Until, p.Reason))
			return err
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "say why, as `TEXT`, in status and reports")
	cmd.Flags().Var((*duration.Value)(&lasting), "for", "end by itself after this `TIME`, such as 2h (default: not before resume)")
	return cmd
}

func newResumeCommand() *cobra.Command {
	var retry bool
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause or a rollback",
		Long: `End a pause. A running agent begins at once with what has waited.

Where nothing is paused, end a rollback: the newest release that was accepted runs again. After a pause, a
rollback from before it goes on, until resume is called once more. With --retry, releases that were given up may
run again, and their contents.

Exit codes: 0 nothing is paused any more; 2 wrong usage; 3 it failed.`,
		Example: example("resume --state-dir /var/lib/wherry-agent"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			r, err := resumeAgent(cmd.Context(), c, retry)
			if err == nil {
				writeResumed(cmd.OutOrStdout(), r, retry)
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&retry, "retry", false, "have releases that were given up tried again")
	return cmd
}

func writeResumed(w io.Writer, r agent.Resumed, retry bool) {
	if p := r.Pause; p != nil {
		fmt.Fprintf(w, "resumed: it was paused %s\n", pausedBy(p.At, p.Until, p.Reason))
	}
	if h := r.Held; h != nil {
		fmt.Fprintf(w, "resumed: release %s was held %s\n", h.To.Name(), heldBy(h))
	}
	if h := r.StillHeld; h != nil {
		fmt.Fprintf(w, "release %s is still held %s: resume once more ends that\n", h.To.Name(), heldBy(h))
	}
	for _, q := range r.Retried {
		fmt.Fprintf(w, "release %s may run again: it was given up at %s, %s: %s\n", bundle.ReleaseName(q.Number, q.Digest), q.At.Format(time.RFC3339), q.Reason, q.Message)
	}
	switch nothing := r.Pause == nil && r.Held == nil && len(r.Retried) == 0; {
	case nothing && retry:
		fmt.Fprintln(w, "there was no pause and no rollback, and no release was given up: nothing has changed")
	case nothing:
		fmt.Fprintln(w, "there was no pause and no rollback: nothing has changed")
	}
}

// pausedBy returns since when a pause lasts, until when, and why.
func pausedBy(since, until time.Time, reason string) string {
	s := "since " + since.Format(time.RFC3339)
	if !until.IsZero() {
		s += ", until " + until.Format(time.RFC3339)
	}
	if reason != "" {
		s += ", because: " + reason
	}
	return s
}

// heldBy returns since when a rollback lasts, by whom, and why.
func heldBy(h *agent.HeldStatus) string {
	s := "since " + h.At.Format(time.RFC3339)
	if h.By != "" {
		s += ", by " + h.By
	}
	if h.Reason != "" {
		s += ", because: " + h.Reason
	}
	return s
}

func pauseAgent(ctx context.Context, c *config.Config, reason string, lasting time.Duration) (freeze.Pause, error) {
	return config.Change(ctx, c, func(ctx context.Context, a agent.Client) (freeze.Pause, error) { return a.Pause(ctx, reason, lasting) },
		func(s *agent.State) (freeze.Pause, error) { return s.Pause(reason, lasting, time.Now()) })
}

func resumeAgent(ctx context.Context, c *config.Config, retry bool) (agent.Resumed, error) {
	return config.Change(ctx, c, func(ctx context.Context, a agent.Client) (agent.Resumed, error) { return a.Resume(ctx, retry) },
		func(s *agent.State) (agent.Resumed, error) { return s.Resume(retry, time.Now()) })
}
