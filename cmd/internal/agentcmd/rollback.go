package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

func newRollbackCommand() *cobra.Command {
	var to, reason, output string
	var list bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Roll back to an earlier release",
		Long: `Have a release run again that was accepted here before, in the epoch in force. It holds until resume, or until a
newer release comes whose content is not what was left. The running agent begins with it at once; without one, the
next does. The release that ran well before the last one is on this machine; others are fetched again by their
digests, or taken from a medium that is imported then. Older releases are refused as ever: going back lowers no protection.

--to takes what --list shows: the number, as in 11, at least the first 6 digits of the digest, the tag or the sequence.
A text that several releases are called by is refused, and the error lists them.

Exit codes: 0 it is to run; 1 it was not accepted here, or is the newest; 2 wrong usage, or several are called so; 3 it failed; 4 it may not
run here any more: it is of an earlier epoch, or was given up.`,
		Example: example("rollback --list", "rollback --to 11 --reason 'the new firmware hums'"),
		Args:    cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, c *config.Config, _ []string) error {
			switch {
			case list == (to != "") || list && reason != "":
				return cli.Usagef("give either --to RELEASE, with a --reason if wanted, or --list")
			case list:
				known, err := releases(cmd.Context(), c)
				if err != nil {
					return err
				}
				return cli.Print(cmd.OutOrStdout(), output, known, func(w io.Writer) { writeReleases(w, known) })
			}
			if err := checkRelease(to); err != nil {
				return err
			}
			back, err := rollbackAgent(cmd.Context(), c, agent.Wish{To: to, By: whoAmI(), Reason: reason})
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), output, back, func(w io.Writer) { writeRolledBack(w, back) })
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "have this `RELEASE` run again: its number, tag or digest, of which the first 6 digits are enough")
	cmd.Flags().StringVar(&reason, "reason", "", "say why, as `TEXT`, in status and reports")
	cmd.Flags().BoolVar(&list, "list", false, "list the releases that were accepted here")
	cli.OutputFlag(cmd, &output)
	return cmd
}

// checkRelease refuses a text that cannot name a release.
func checkRelease(to string) error {
	if _, err := bundle.ParseReleaseQuery(to); err != nil {
		return cli.Usagef("--to: %w (rollback --list shows them)", err)
	}
	return nil
}

func rollbackAgent(ctx context.Context, c *config.Config, w agent.Wish) (agent.RolledBack, error) {
	return config.Change(ctx, c, func(ctx context.Context, a agent.Client) (agent.RolledBack, error) { return a.RollBack(ctx, w) },
		func(s *agent.State) (agent.RolledBack, error) { return s.RollBack(w, time.Now()) })
}

func releases(ctx context.Context, c *config.Config) ([]agent.KnownRelease, error) {
	return config.Look(ctx, c, func(ctx context.Context, a agent.Client) ([]agent.KnownRelease, error) { return a.Releases(ctx) },
		func(s *agent.State) ([]agent.KnownRelease, error) { return s.Releases(time.Now()) })
}

// whoAmI returns the user's name, for the record of a decision.
func whoAmI() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Sprintf("uid %d", os.Getuid())
	}
	return cmp.Or(u.Username, "uid "+u.Uid)
}

func writeRolledBack(w io.Writer, b agent.RolledBack) {
	fmt.Fprintf(w, "release %s is to run, until resume or a newer release\n", b.Held.To.Name())
	if !b.Here {
		fmt.Fprintln(w, "its files are not on this machine: the next pass that reaches the registry fetches them, or import a medium that has the release")
	}
}

func writeReleases(w io.Writer, list []agent.KnownRelease) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no release was accepted here yet")
		return
	}
	fmt.Fprintf(w, "RELEASE\tTAG\tISSUED\tACCEPTED\tFILES\tNOTE\n")
	for _, k := range list {
		files, issued := "to be fetched", ""
		if k.Here {
			files = "here"
		}
		if k.IssuedAt != nil {
			issued = k.IssuedAt.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Name(), k.Tag(), issued, k.AcceptedAt.Format(time.RFC3339), files, note(k))
	}
}

// note returns the remarks about a release, such as newest or running.
func note(k agent.KnownRelease) string {
	var notes []string
	add := func(is bool, s string) {
		if is {
			notes = append(notes, s)
		}
	}
	add(k.Newest, "newest")
	add(k.Running, "running")
	add(k.Held && !k.Running, "to run")
	add(k.Good, "last good")
	add(k.GivenUp != "", "given up ("+k.GivenUp+")")
	add(k.NotAllowed != "" && !k.Newest && k.GivenUp == "", k.NotAllowed)
	return strings.Join(notes, ", ")
}
