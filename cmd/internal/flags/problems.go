package flags

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// PrintInferred prints the environment of a platform if no flag gave it.
func PrintInferred(cmd *cobra.Command, loaded *platform.Loaded) {
	if loaded.Inferred != "" {
		cmd.PrintErrf("environment: %s (%s)\n", show.Line(loaded.Model.EnvironmentName()), show.Line(loaded.Inferred))
	}
}

// PrintProblems prints the problems of a platform: its warnings and those of a later step, unreadable sources, policies
// with mistakes, and the failed assignments of result, if there is a result. With --strict any problem is an error.
func (f *Source) PrintProblems(cmd *cobra.Command, loaded *platform.Loaded, later []finding.Finding, result *scheduler.Result) error {
	warnings := printFindings(cmd, append(loaded.Warnings, later...))
	if result != nil && len(result.ClusterTypes) == 0 {
		cmd.PrintErrln("note: the environment has no ClusterType (of a repository with a branch per environment, give the URL or PATH#BRANCH)")
	}
	unread, policies, failed := printUnread(cmd, loaded), PrintFailedPolicies(cmd, loaded), 0
	if result != nil {
		failed = f.printFailures(cmd, result)
	}
	if !f.Strict || warnings+unread+policies+failed == 0 {
		return nil
	}
	text := show.Count(warnings, "warning")
	if unread > 0 {
		text += ", " + show.Count(unread, "unread registration")
	}
	if policies > 0 {
		text += ", " + show.Count(policies, "failed policy")
	}
	return cli.Fail(cli.No, fmt.Errorf("%s, %s: %s (--strict)", text, show.Count(failed, "failed assignment"), cmp.Or(f.StrictEnd, "nothing is done")), "")
}

func printFindings(cmd *cobra.Command, findings []finding.Finding) (warnings int) {
	for _, f := range findings {
		kind := "warning"
		if f.Note {
			kind = "note"
		} else {
			warnings++
		}
		code := ""
		if f.Code != "" {
			code = " [" + f.Code + "]" // for "wherry explain"
		}
		cmd.PrintErrf("%s: %s%s\n", kind, show.Line(f.String()), code)
	}
	return warnings
}

// printUnread prints which app teams' sources could not be read, with a hint.
func printUnread(cmd *cobra.Command, loaded *platform.Loaded) int {
	for _, u := range loaded.Unread {
		cmd.PrintErrf("failed: registration %s, with all its assignments: %s\n", show.Line(u.Registration), cli.Indented(u.Err.Error()))
		var e *cli.Error
		if errors.As(failure.Input(u.Err), &e) && e.Hint != "" {
			cmd.PrintErrf("hint: %s\n", cli.Indented(e.Hint))
		}
	}
	return len(loaded.Unread)
}

// PrintFailedPolicies prints the policies with a mistake in their selectors, and returns their number.
func PrintFailedPolicies(cmd *cobra.Command, loaded *platform.Loaded) int {
	failed := loaded.Model.FailedPolicies()
	for _, f := range failed {
		cmd.PrintErrf("failed: policy %s, with all that it selects: %s\n", f.Name, cli.Indented(f.Err.Error()))
	}
	return len(failed)
}

func (f *Source) printFailures(cmd *cobra.Command, result *scheduler.Result) (failed int) {
	for _, ct := range result.ClusterTypes {
		for _, failure := range ct.Failures {
			if !slices.Contains(f.Dropped, ct.Name+"/"+failure.Name) { // printed when they are dropped
				cmd.PrintErrf("failed: %s/%s: %s\n", show.Line(ct.Name), show.Line(failure.Name), cli.Indented(failure.Err.Error()))
				failed++
			}
		}
		failed += printFailedSites(cmd, ct)
	}
	return failed
}

// printFailedSites prints the mistakes in the site values of a cluster type, and returns their number.
func printFailedSites(cmd *cobra.Command, ct scheduler.ClusterTypeResult) int {
	switch {
	case ct.Sites.IsFinal():
		return 0
	case ct.Sites.Err != nil:
		cmd.PrintErrf("failed: the site values of %s: %s\n", show.Line(ct.Name), cli.Indented(ct.Sites.Err.Error()))
		return 1
	}
	for _, f := range ct.Sites.Failures {
		cmd.PrintErrf("failed: the site values of cluster %s of %s: %s\n", show.Line(f.Cluster), show.Line(ct.Name), cli.Indented(f.Err.Error()))
	}
	return len(ct.Sites.Failures)
}

// FailedAssignments returns the error of a command that completed except for failed assignments; nil if none failed. Rest
// ends its text, with the outcome of the other assignments.
func FailedAssignments(loaded *platform.Loaded, result *scheduler.Result, rest string) error {
	failed, all, sites := 0, 0, 0
	for _, ct := range result.ClusterTypes {
		if s := ct.Sites; !s.IsFinal() {
			sites += max(1, len(s.Failures))
		}
		failed, all = failed+len(ct.Failures), all+len(ct.Failures)+len(ct.Assignments)
	}
	var parts []string
	if n := len(loaded.Unread); n > 0 {
		parts = append(parts, show.Count(n, "registration")+" could not be read")
	}
	if n := len(loaded.Model.FailedPolicies()); n > 0 {
		parts = append(parts, show.Count(n, "policy")+" failed")
	}
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", failed, show.Count(all, "assignment")))
	}
	if sites > 0 {
		parts = append(parts, fmt.Sprintf("site values of %s not valid", show.Count(sites, "cluster")))
	}
	if len(parts) == 0 {
		return nil
	}
	return cli.Fail(cli.No, fmt.Errorf("%s, %s", strings.Join(parts, ", "), rest), "")
}

// WarnUncommitted prints which files are in no commit, and what follows from it. With --strict that is an error.
func (f *Source) WarnUncommitted(cmd *cobra.Command, files []string, consequence string) error {
	if len(files) == 0 {
		return nil
	}
	if f.Strict {
		return cli.Fail(cli.No, fmt.Errorf("%s: nothing is done (--strict)", Uncommitted(files, "")), "")
	}
	cmd.PrintErrf("warning: %s\n", Uncommitted(files, consequence))
	return nil
}

// Uncommitted names the first of the files that are in no commit, and what follows from it, which may be empty.
func Uncommitted(files []string, consequence string) string {
	return fmt.Sprintf("%s not committed%s: %s", show.Count(len(files), "file"), consequence, show.Line(show.List(files, 5)))
}
