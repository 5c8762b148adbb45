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
	"github.com/wherry-dev/wherry/airgap/medium"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// watchFolder takes in each medium that comes to the mount point, until the command is told to end.
func (f *importFlags) watchFolder(cmd *cobra.Command, c *config.Config) error {
	var opts medium.WatchOptions
	if f.reports != "" {
		if f.reports != filepath.Base(f.reports) || !filepath.IsLocal(f.reports) || strings.HasPrefix(f.reports, ".") && f.reports != "." {
			return cli.Fail(cli.Usage, fmt.Errorf("--reports %s: expected a file name on the medium", f.reports), "with --watch give a name such as reports.tar, or . for the medium itself")
		}
		opts.Own = []string{f.reports, "reports-*.tar", resultPattern}
	}
	dir, err := filepath.Abs(f.watch)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		cmd.PrintErrf("waiting for media at %s\n", dir)
	}
	err = medium.Watch(cmd.Context(), dir, opts, func(_ context.Context, found medium.Found) medium.Outcome {
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
func (f *importFlags) takeFound(cmd *cobra.Command, c *config.Config, dir string, found medium.Found) medium.Outcome {
	printf := func(format string, args ...any) {
		cli.Row(cmd.OutOrStdout(), time.Now().UTC().Format(time.RFC3339)+" "+fmt.Sprintf(format, args...))
	}
	one := *f
	if one.reports != "" {
		one.reports = filepath.Join(dir, f.reports)
	}
	if found.Err != nil && len(found.Acks) == 0 {
		_ = one.reportResult(cmd, c, imported{}, sourceError(found.Err)) // the line has it, too
		printf("%s: not taken: %v", dir, found.Err)
		return medium.Ended
	}
	if found.Packages == 0 && len(found.Acks) == 0 && f.reports == "" {
		printf("%s: nothing to take: %s", dir, nothing(found))
		return medium.Ended
	}
	// A watch opens no state: the agent could not begin, or begin again, while it does.
	if _, err := agent.NewClient(c.StateDir).Status(cmd.Context()); err != nil {
		printf("%s: not taken yet: %v", dir, controlError(c, err))
		return medium.Failed
	}
	n := named{acks: found.Acks}
	if found.Packages > 0 {
		var err error
		if n, err = f.open(cmd, []string{dir}); err != nil { // it has gone meanwhile
			printf("%s: not taken: %v", dir, err)
			return medium.Failed
		}
		defer n.close()
	}
	done, errs := one.takeMedium(cmd, c, n)
	if cmd.Context().Err() != nil {
		return medium.Failed
	}
	all := slices.Concat(errs, n.skipped, []error{found.Err})
	if failed := joined(all...); failed == nil {
		errs = append(errs, one.reportResult(cmd, c, done, nil))
	} else {
		_ = one.reportResult(cmd, c, done, failed)
	}
	printf("%s", line(dir, found, done, errs))
	return outcomeOf(found, done)
}

// nothing says that a medium has no package, and which files were looked at.
func nothing(found medium.Found) string {
	text := "no *.tar or *.tar.001 on it"
	if len(found.Skipped) > 0 {
		text = "no package on it"
	}
	return text + passedOver(found)
}

// passedOver names the files that look like a package and cannot be used.
func passedOver(found medium.Found) string {
	var names []string
	for _, item := range found.Skipped {
		why := string(item.Kind)
		if item.Err != nil {
			why = item.Err.Error()
		}
		names = append(names, fmt.Sprintf("%s (%s)", filepath.Base(item.Name), why))
	}
	if len(names) == 0 {
		return ""
	}
	return "; passed over: " + show.List(names, maxNamedFiles)
}

// maxNamedFiles is how many files on a medium a line names.
const maxNamedFiles = 8

// line says in one line what came of a medium.
func line(dir string, found medium.Found, done imported, errs []error) string {
	s := summarize(done)
	var parts []string
	if s.Package != "" {
		parts = append(parts, s.totals())
	}
	if s.Acknowledged != nil {
		parts = append(parts, ackLine(*s.Acknowledged))
	}
	if s.Reports != nil {
		parts = append(parts, s.Reports.String())
	}
	for _, err := range append(errs, found.Err) {
		if err != nil {
			parts = append(parts, err.Error())
		}
	}
	switch {
	case found.Packages == 0 && len(found.Acks) == 0:
		parts = append([]string{"nothing to take: " + nothing(found)}, parts...)
		found.Skipped = nil
	case len(parts) == 0:
		parts = append(parts, "nothing for this agent")
	}
	return dir + ": " + strings.Join(parts, "; ") + passedOver(found)
}

// outcomeOf says whether a medium is to be tried again: where this machine, or the medium, has failed.
func outcomeOf(found medium.Found, done imported) medium.Outcome {
	switch {
	case found.Packages == 0:
		return medium.Ended
	case done.status == nil, done.result.Verdict == agent.Broken:
		return medium.Failed
	}
	again := slices.ContainsFunc(done.result.Streams, func(s intake.Stream) bool { return s.Outcome == intake.Unfinished || s.Outcome == intake.NoRoom })
	if again {
		return medium.Failed
	}
	return medium.Ended
}
