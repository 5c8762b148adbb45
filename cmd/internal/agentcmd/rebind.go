package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// takeoverTime is how long a person waits to see a running agent follow other releases. Its pass may take longer.
const takeoverTime = 5 * time.Second

func newRebindCommand() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "rebind",
		Short: "Follow another cluster type, environment or ring",
		Long: `Follow the releases of another cluster type, environment, ring or platform than the configuration says.

What is here stays, and is observed, until a release of the new ones is verified: then that is applied, and what it
does not list is removed. What both have in the same content is not touched. The binding is kept in the state folder,
and counts as long as the configuration stays as it is; --undo ends it. A running agent changes over when its pass has
ended. The hub has to be told too: wherry hub clusters add --replace.

Exit codes: 0 it is bound; 2 wrong usage; 3 it failed; 4 the trust document is for another platform.`,
		Example: example("rebind --cluster-type drone-large --config agent.yaml", "rebind --undo --config agent.yaml"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			to, err := rebinding(cmd, c, undo)
			if err != nil {
				return err
			}
			r, running, err := bind(cmd.Context(), c, to)
			if err != nil && denied(err) == cli.Denied {
				return cli.Fail(cli.Denied, err, "")
			}
			if err != nil {
				return err
			}
			writeRebound(cmd.OutOrStdout(), r, running)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "follow again what the configuration says")
	return cmd
}

// rebinding is what the flags ask for. Variables and file say what the agent is configured as, and do not count.
func rebinding(cmd *cobra.Command, c *config.Config, undo bool) (to agent.Rebinding, err error) {
	to.Undo = undo
	if cmd.Flags().Changed("platform") {
		to.Platform = c.Cluster.Platform
	}
	if cmd.Flags().Changed("environment") {
		to.Environment = c.Cluster.Environment
	}
	if cmd.Flags().Changed("cluster-type") {
		to.ClusterType = c.Cluster.Type
	}
	if cmd.Flags().Changed("ring") {
		to.Ring = &c.Cluster.Ring
	}
	switch some := to != (agent.Rebinding{Undo: undo}); {
	case undo && some:
		return to, cli.Usagef("--undo cannot be combined with flags that choose a stream")
	case !undo && !some:
		return to, cli.Usagef("nothing to follow: give --cluster-type, --environment, --ring or --platform, or --undo")
	}
	return to, nil
}

// bind asks the running agent and waits until it has changed over, or else changes the state that the last one has
// left.
func bind(ctx context.Context, c *config.Config, to agent.Rebinding) (r agent.Rebound, running bool, err error) {
	client := agent.NewClient(c.StateDir)
	running = true
	r, err = config.Change(ctx, c, func(ctx context.Context, a agent.Client) (agent.Rebound, error) { return a.Rebind(ctx, to) },
		func(s *agent.State) (agent.Rebound, error) {
			running = false
			return s.Rebind(to, time.Now())
		})
	if !running {
		return r, false, err
	}
	for end := time.Now().Add(takeoverTime); err == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s, err := client.Status(ctx); err == nil && s.Cluster.Type == r.After.ClusterType && s.Cluster.Environment == r.After.Environment &&
			s.Platform == r.After.Platform && s.Cluster.Ring == r.After.Ring || ctx.Err() != nil {
			break
		}
	}
	return r, true, errors.Join(err, ctx.Err())
}

func writeRebound(w io.Writer, r agent.Rebound, running bool) {
	if r.After == r.Before {
		fmt.Fprintf(w, "%s is followed already: nothing has changed\n", r.After)
		return
	}
	by := ", as the configuration says"
	if r.Binding != nil {
		by = fmt.Sprintf("; the configuration says %s", r.Binding.Configured)
	}
	from := "once an agent runs"
	if running {
		from = "from the next pass on"
	}
	fmt.Fprintf(w, "%s is followed %s%s\n", r.After, from, by)
	if r.Before.Stream != r.After.Stream {
		fmt.Fprintf(w, "what is here stays until the first release of it begins to run\n")
	}
}
