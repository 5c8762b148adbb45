package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/config"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/airgap/mountpoint"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// watchFolder takes in each medium that comes to the mount point, until the command is told to end.
func (f *importFlags) watchFolder(cmd *cobra.Command, c *config.Config) error {
	var opts mountpoint.Options
	if f.reports != "" {
		if f.reports != filepath.Base(f.reports) || !filepath.IsLocal(f.reports) || strings.HasPrefix(f.reports, ".") && f.reports != "." {
			return cli.Fail(cli.Usage, fmt.Errorf("--reports %s: it is not a name on the medium", f.reports), "with --watch give a name such as reports.tar, or . for the medium itself")
		}
		opts.Own = []string{f.reports, "reports-*.tar"}
	}
	dir, err := filepath.Abs(f.watch)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		cmd.PrintErrf("waiting for media at %s\n", dir)
	}
	err = mountpoint.Watch(cmd.Context(), dir, opts, func(_ context.Context, found mountpoint.Found) mountpoint.Outcome {
		return f.takeFound(cmd, c, dir, found)
	})
	if errors.Is(err, os.ErrNotExist) {
		return cli.Fail(cli.Usage, fmt.Errorf("--watch: %w", err), "make the folder that media are mounted at first: mkdir -p "+f.watch)
	}
	if err != nil {
		return cli.Fail(cli.Usage, fmt.Errorf("--watch: %w", err), "")
	}
	return nil
}

// takeFound takes in a medium, and prints a line about it.
func (f *importFlags) takeFound(cmd *cobra.Command, c *config.Config, dir string, found mountpoint.Found) mountpoint.Outcome {
	say := func(format string, args ...any) {
		cli.Row(cmd.OutOrStdout(), time.Now().UTC().Format(time.RFC3339)+" "+fmt.Sprintf(format, args...))
	}
	if found.Err != nil {
		say("%s: not taken: %v", dir, found.Err)
		return mountpoint.Declined
	}
	// A watch opens no state: the agent could not begin, or begin again, while it does.
	if _, err := agent.NewClient(c.StateDir).Status(cmd.Context()); err != nil {
		say("%s: not taken yet: %v", dir, controlError(c, err))
		return mountpoint.Failed
	}
	n := named{acks: found.Acks}
	if found.Content != "" && !found.Again {
		var err error
		if n, err = f.open(cmd, []string{dir}); err != nil { // it has gone meanwhile
			say("%s: not taken: %v", dir, err)
			return mountpoint.Failed
		}
		defer n.close()
	}
	one := *f
	if one.reports != "" {
		one.reports = filepath.Join(dir, f.reports)
	}
	done, errs := one.takeMedium(cmd, c, n)
	if cmd.Context().Err() != nil {
		return mountpoint.Failed
	}
	say("%s", line(dir, found, done, errs))
	return outcomeOf(found, done, errs)
}

// line says in one line what came of a medium.
func line(dir string, found mountpoint.Found, done imported, errs []error) string {
	s := summarize(done)
	var parts []string
	if s.Package != "" {
		parts = append(parts, s.totals())
	} else if found.Again {
		parts = append(parts, "its package was taken before")
	}
	if s.Acknowledged != nil {
		parts = append(parts, ackLine(*s.Acknowledged))
	}
	if s.Reports != nil {
		parts = append(parts, s.Reports.String())
	}
	for _, err := range errs {
		if err != nil {
			parts = append(parts, err.Error())
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing for this agent")
	}
	return dir + ": " + strings.Join(parts, "; ")
}

// outcomeOf says whether a medium is to be tried again: where this machine, or the medium, has failed.
func outcomeOf(found mountpoint.Found, done imported, errs []error) mountpoint.Outcome {
	switch {
	case found.Content == "" || found.Again:
		if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			return mountpoint.Declined
		}
		return mountpoint.Taken
	case done.status == nil, done.result.Verdict == agent.Broken:
		return mountpoint.Failed
	}
	good := slices.ContainsFunc(done.result.Streams, func(s intake.Stream) bool { return s.Outcome.Good() })
	again := slices.ContainsFunc(done.result.Streams, func(s intake.Stream) bool { return s.Outcome == intake.Unfinished || s.Outcome == intake.NoRoom })
	switch {
	case again:
		return mountpoint.Failed
	case good || len(done.result.Streams) == 0 && errs[0] == nil:
		return mountpoint.Taken
	}
	return mountpoint.Declined
}
