package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/explaincmd"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/findings"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

var lintFormats = []string{"table", "json", "sarif"}

// lintOptions are the flags of lint.
type lintOptions struct {
	source       flags.Source
	environments []string
	format       string
	ignore       []string
	failOn       string
}

func newLintCommand() *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint [PLATFORM] [--environment NAME]…",
		Short: "Check a platform for mistakes",
		Long: `Check a platform, and what is rendered from it, for mistakes. Nothing is written or published.

Without --environment, outside the folder or branch of one, all environments that Environment objects name are checked. If
PLATFORM is a folder or names a branch, that is the base of them all.

Each finding has a code: E is an error, W probably a mistake, N a note. "wherry explain CODE" explains it. To ignore a code,
list it under "ignore" in the Platform object, or pass --ignore. -o sarif is for code scanning.

The exit code is 1 if there are errors or warnings; with --fail-on error, only for errors.

More: wherry help linting, sources`,
		Example: `  wherry lint examples/coffee/dev --environment dev --base examples/coffee/main \
    --workload storefront=examples/coffee/workloads/storefront \
    --workload roasting=examples/coffee/workloads/roasting
  wherry lint https://github.com/ORG/control-plane -o sarif > lint.sarif
  wherry lint`,
		Args: cobra.MaximumNArgs(1),
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.environments, "environment", "e", nil, "the environment's `NAME`; all environments without it; may be repeated")
	cli.NotEmpty(cmd, "environment")
	_ = cmd.RegisterFlagCompletionFunc("environment", flags.CompleteEnvironments)
	f.StringVarP(&o.format, "output", "o", lintFormats[0], "print as `FORMAT`, table, json or sarif")
	f.StringArrayVar(&o.ignore, "ignore", nil, "leave out findings with this `CODE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(lintFormats, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.failOn, "fail-on", finding.SeverityWarning, "exit with 1 for findings of this `SEVERITY` and above, error or warning")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(lintFailOn, cobra.ShellCompDirectiveNoFileComp))
	o.source.AddReplacements(cmd)
	o.source.Cache.AddTo(cmd)
	return cmd
}

var lintFailOn = []string{finding.SeverityError, finding.SeverityWarning}

func (o *lintOptions) check() error {
	if !slices.Contains(lintFormats, o.format) {
		return cli.Usagef("-o must be table, json or sarif, not %q", o.format)
	}
	if !slices.Contains(lintFailOn, o.failOn) {
		return cli.Usagef("--fail-on must be error or warning, not %q", o.failOn)
	}
	for i, code := range o.ignore {
		known, err := explaincmd.Code(code)
		if err != nil {
			return err
		}
		o.ignore[i] = known.Code
	}
	return nil
}

func (o *lintOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	sources, err := o.sources(cmd, args)
	if err != nil {
		return err
	}
	cache, err := o.source.Cache.Open(cmd, sources[0].Platform)
	if err != nil {
		return err
	}
	defer o.source.Cache.Trim()
	result, err := findings.Collect(cmd.Context(), sources, findings.Options{
		Ignore: o.ignore, Cache: cache, OCI: new(flags.Registry).Options(), AfterLoad: func(loaded *platform.Loaded) { flags.PrintInferred(cmd, loaded) },
	})
	if err != nil {
		return failure.Input(err)
	}
	switch out := cmd.OutOrStdout(); o.format {
	case "sarif":
		err = cli.Print(out, "json", result.SARIF(cli.Version()), nil)
	case "json":
		err = cli.Print(out, "json", result, nil)
	default:
		printFindings(out, result.Findings)
	}
	if err != nil {
		return err
	}
	summary := fmt.Sprintf("%s, %s, %s", show.Count(result.Errors, "error"), show.Count(result.Warnings, "warning"), show.Count(result.Notes, "note"))
	if result.Incomplete {
		summary += "; the rest is looked at once the errors are corrected"
	}
	if len(result.Findings) > 0 {
		summary += `; "wherry explain CODE" says more`
	}
	cmd.PrintErrln(summary)
	if result.Errors > 0 || result.Warnings > 0 && o.failOn == finding.SeverityWarning {
		return cli.Exit(cli.No)
	}
	return nil
}

// sources returns a source for each environment that flags name; without any, one that may stand for all.
func (o *lintOptions) sources(cmd *cobra.Command, args []string) ([]platform.Source, error) {
	names := o.environments
	if len(names) == 0 {
		names = []string{""}
	}
	var all []platform.Source
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		one := o.source
		one.Environment = name
		place, err := one.ResolveAll(cmd, args)
		if err != nil {
			return nil, err
		}
		source, err := one.Options(place, "")
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	return all, nil
}

func printFindings(w io.Writer, found []findings.Finding) {
	for _, f := range found {
		place := finding.Position{File: f.File, Line: f.Line}.String()
		if f.Column > 0 {
			place += fmt.Sprintf(":%d", f.Column)
		}
		if place != "" {
			place += ": "
		}
		fmt.Fprintf(w, "%s%s %s: %s\n", show.Line(place), f.Severity, f.Code, show.Cell(f.Message))
		if f.Hint != "" {
			fmt.Fprintf(w, "    %s\n", show.Cell(f.Hint))
		}
	}
}
