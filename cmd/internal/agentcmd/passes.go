package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// defaultWait is the time for which a pass that a person waits for observes progressing assignments.
const defaultWait = 10 * time.Second

// exitCodes is the part of the help that once, sync and import have in common.
const exitCodes = `

Exit codes: 0 all assignments are compliant; 1 some have failed or drifted; 2 wrong usage; 3 the
registry is out of reach, or this machine did not do its part; 4 the newest release is refused; 5 some
are still progressing, or wait because nothing may be changed now.`

// passFlags are the flags of commands that run a pass and then print the agent's state.
type passFlags struct {
	output string
	wait   time.Duration
}

func (f *passFlags) add(cmd *cobra.Command) {
	cli.OutputFlag(cmd, &f.output)
	f.wait = defaultWait
	cmd.Flags().Var((*duration.Value)(&f.wait), "wait", "go on observing for up to `TIME` while something is progressing; playbooks and packages that end with this command are waited for up to --deadline")
}

// command completes cmd, which runs a pass: it adds the flags.
func (f *passFlags) command(cmd *cobra.Command, pass func(*cobra.Command, *config.Config, []string) error) *cobra.Command {
	f.add(cmd)
	cmd.RunE = configured(pass)
	return cmd
}

// print prints how the agent stands and ends with the pass's exit code.
func (f *passFlags) print(cmd *cobra.Command, r agent.Result) error {
	if r.Verdict == agent.Interrupted {
		return interrupted(cmd, r)
	}
	if err := printStatus(cmd, f.output, r.Status); err != nil {
		return err
	}
	return exitOf(r)
}

// interrupted is the error of a pass that this command, or the end of the running agent, has interrupted.
func interrupted(cmd *cobra.Command, r agent.Result) error {
	if cmd.Context().Err() == nil {
		return cli.Fail(cli.NotYet, errors.New(r.Error), "the agent is stopping or restarting: try again")
	}
	return context.Canceled
}

// serveHint is the hint for an address that the endpoint cannot have.
func serveHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program has the address: end it, or name another port with --serve"
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, new(*net.DNSError)):
		return "this machine does not have the address: name one of its own with --serve, or all of them, such as :5001"
	case errors.Is(err, syscall.EACCES):
		return "this user may not have the port: name one above 1023 with --serve"
	}
	return "name another address with --serve, or none"
}

func newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Long: `Keep this cluster at the newest release until told to end.

The agent looks for a newer release at every interval, verifies it, applies it, corrects drift and
queues compliance reports. It stops at SIGTERM or Ctrl-C, at any point: the next start goes on.`,
		Example: example("run --registry oci://registry.plant-7:5000/edge --environment dev --cluster-type drone --key cosign.pub --adapter directory --directory-root /srv/site"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			err := withAgent(cmd, c, func(a *agent.Agent) error { return a.Run(cmd.Context()) })
			if errors.Is(err, metrics.ErrListen) {
				return cli.Fail(cli.Failed, err, "another program may have it: name another address with --listen, or none")
			}
			if errors.Is(err, serve.ErrListen) {
				return cli.Fail(cli.Failed, err, serveHint(err))
			}
			return err
		}),
	}
}

func newOnceCommand() *cobra.Command {
	var f passFlags
	return f.command(&cobra.Command{
		Use:     "once",
		Short:   "Apply the newest release once",
		Long:    "Look for a newer release, apply it, observe everything, correct drift, and say how the cluster stands." + exitCodes,
		Example: example("once --config agent.yaml -o json"),
		Args:    cobra.NoArgs,
	}, func(cmd *cobra.Command, c *config.Config, _ []string) error {
		return withAgent(cmd, c, func(a *agent.Agent) error { return f.print(cmd, a.Once(cmd.Context(), f.wait)) })
	})
}

func newSyncCommand() *cobra.Command {
	var f passFlags
	return f.command(&cobra.Command{
		Use:     "sync",
		Short:   "Check for a newer release now",
		Long:    "Have the running agent make a pass now, as once does, and say how the cluster stands then." + exitCodes,
		Example: example("sync --state-dir /var/lib/wherry-agent"),
		Args:    cobra.NoArgs,
	}, func(cmd *cobra.Command, c *config.Config, _ []string) error {
		r, err := runningAgent(cmd, c).Sync(cmd.Context(), f.wait)
		if err != nil {
			return controlError(c, err)
		}
		return f.print(cmd, r)
	})
}

// controlError adds a hint to an error of the agent's socket.
func controlError(c *config.Config, err error) error {
	if errors.Is(err, control.ErrNotRunning) {
		return cli.Fail(cli.Failed, fmt.Errorf("%w with the state folder %s", err, c.StateDir), "start one with run, make a single pass with once, or name its folder with --state-dir")
	}
	return err
}
