package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/explaincmd"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/lint"
)

var lintFormats = []string{"table", "json", "sarif"}

// lintOptions are the flags of lint.
type lintOptions struct {
	source flags.Source
	format string
	ignore []string
}

func newLintCommand() *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint PLATFORM [--environment NAME]",
		Short: "Look for mistakes in a platform",
		Long: `Look for mistakes in a platform, and in what is rendered from it. Nothing is written or published.

` + flags.PlatformHelp + `

Without --environment every environment is looked at that an Environment object of PLATFORM names, at
the repository and branch that the object gives. Where PLATFORM is a folder or names a branch, it is
the base of them all, in place of what their BaseRepo objects pin. What of a base is used nowhere is
only found so. Where PLATFORM has no Environment object, it is the environment whose folder or branch PLATFORM
is by the objects around it or of its bases, or the only one.

Each finding has a code: E for what fails, W for what is probably not meant, N for what is worth
knowing. "wherry explain CODE" says more about one. -o sarif is for code scanning.

It exits with 1 where there are errors or warnings.`,
		Example: `  wherry lint examples/coffee/dev --environment dev --base examples/coffee/main \
    --workload storefront=examples/coffee/workloads/storefront \
    --workload roasting=examples/coffee/workloads/roasting
  wherry lint https://github.com/ORG/control-plane -o sarif > lint.sarif`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.source.Environment, "environment", "", "the environment's `NAME`; all environments without it")
	cli.NotEmpty(cmd, "environment")
	f.StringVarP(&o.format, "output", "o", lintFormats[0], "print as `FORMAT`, table, json or sarif")
	f.StringArrayVar(&o.ignore, "ignore", nil, "leave out findings with this `CODE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(lintFormats, cobra.ShellCompDirectiveNoFileComp))
	o.source.AddReplacements(cmd)
	return cmd
}

func (o *lintOptions) check(cmd *cobra.Command) error {
	if !slices.Contains(lintFormats, o.format) {
		return cli.Usagef("-o must be table, json or sarif, not %q", o.format)
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

func (o *lintOptions) run(cmd *cobra.Command, platform string) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	result, err := o.lint(cmd, platform)
	if err != nil {
		return err
	}
	if err := result.print(cmd.OutOrStdout(), o.format); err != nil {
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
	if result.Errors+result.Warnings > 0 {
		return cli.Exit(cli.No)
	}
	return nil
}

// lint looks at one environment, or at all.
func (o *lintOptions) lint(cmd *cobra.Command, place string) (*lintResult, error) {
	ctx := cmd.Context()
	options, err := o.source.Options(place, "")
	if err != nil {
		return nil, err
	}
	environments := []platform.Source{options}
	if o.source.Environment == "" {
		found, err := platform.Environments(ctx, options)
		if err == nil {
			environments = found
		} else if !errors.Is(err, platform.ErrNoEnvironments) { // else it is inferred
			return nil, flags.SourceFailure(err)
		}
	}
	c := &lintCollector{cmd: cmd, result: &lintResult{platform: options.Platform, Environments: []string{}, Findings: []lintFinding{}}, known: map[string]int{}, unused: map[string]int{}}
	for _, options := range environments {
		if err := c.environment(ctx, options); err != nil {
			return nil, err
		}
	}
	return c.finish(len(environments), o.ignore), nil
}

// lintFinding is a finding as it is printed.
type lintFinding struct {
	Code         string   `json:"code"`
	Severity     string   `json:"severity"`
	File         string   `json:"file,omitempty"`
	Line         int      `json:"line,omitempty"`
	Column       int      `json:"column,omitempty"`
	Message      string   `json:"message"`
	Hint         string   `json:"hint,omitempty"`
	Environments []string `json:"environments"`
}

// lintResult is what -o json prints.
type lintResult struct {
	platform     string        // may hold credentials
	Environments []string      `json:"environments"`
	Findings     []lintFinding `json:"findings"`
	Errors       int           `json:"errors"`
	Warnings     int           `json:"warnings"`
	Notes        int           `json:"notes"`
	// Incomplete is true where objects could not be read, so that what refers to them was not looked at.
	Incomplete bool `json:"incomplete"`
}

// lintCollector puts the findings of several environments together.
type lintCollector struct {
	cmd    *cobra.Command
	result *lintResult
	known  map[string]int // place in result.Findings, by what is found
	unused map[string]int // in how many environments an object of a base is not used
	bases  []finding.Finding
}

func (c *lintCollector) environment(ctx context.Context, o platform.Source) error {
	loaded, err := platform.Load(ctx, o)
	if err == nil {
		o.Environment = loaded.Model.EnvironmentName()
		flags.PrintInferred(c.cmd, loaded)
	}
	if o.Environment != "" {
		c.result.Environments = append(c.result.Environments, o.Environment)
	}
	if err != nil {
		found := finding.In(err)
		if len(found) == 0 {
			return flags.SourceFailure(err)
		}
		c.result.Incomplete = true
		c.add(o.Environment, found)
		return nil
	}
	report, err := lint.Run(ctx, loaded.Model)
	if err != nil {
		return cli.Fail(cli.Usage, err, "")
	}
	found := slices.Concat(loaded.Warnings, report.Findings, artifacts.Lint(report))
	c.add(o.Environment, c.unread(loaded, found))
	for _, f := range report.Unused {
		key := f.Code + " " + f.Position.String()
		if c.unused[key]++; c.unused[key] == 1 {
			c.bases = append(c.bases, f)
		}
	}
	return nil
}

// unread adds what is wrong with sources of app teams that could not be read, instead of what follows
// from their absence.
func (c *lintCollector) unread(loaded *platform.Loaded, found []finding.Finding) []finding.Finding {
	for _, u := range loaded.Unread {
		c.result.Incomplete = true
		mistakes := finding.In(u.Err)
		for _, r := range loaded.Model.Registrations() {
			if r.Name != u.Registration {
				continue
			}
			found = slices.DeleteFunc(found, func(f finding.Finding) bool {
				return f.Code == finding.CodeEmptyRegistration && f.Position == r.Position
			})
			if len(mistakes) == 0 {
				mistakes = []finding.Finding{{Code: finding.CodeUnreadSource, Position: r.Position, Message: unplaced(u.Err)}}
			}
		}
		found = append(found, mistakes...)
	}
	return found
}

// unplaced is what err says without the place that a finding has anyway.
func unplaced(err error) string {
	var source *platform.SourceError
	if errors.As(err, &source) {
		there := *source
		there.At = finding.Position{}
		return there.Error()
	}
	return err.Error()
}

// add adds findings of an environment, empty where it is not known yet.
func (c *lintCollector) add(environment string, found []finding.Finding) {
	for _, f := range found {
		key := strings.Join([]string{f.Code, f.Position.String(), f.Message}, "\n")
		i, ok := c.known[key]
		if !ok {
			i = len(c.result.Findings)
			c.known[key] = i
			c.result.Findings = append(c.result.Findings, lintFinding{
				Code: f.Code, Severity: f.Severity(), File: f.File, Line: f.Line, Column: f.Column, Message: f.Message, Hint: f.Hint, Environments: []string{},
			})
		}
		of := &c.result.Findings[i].Environments
		if environment != "" && !slices.Contains(*of, environment) {
			*of = append(*of, environment)
		}
	}
}

// finish adds what of a base no environment uses, if more than one was asked, leaves out what is ignored,
// sorts and counts.
func (c *lintCollector) finish(environments int, ignore []string) *lintResult {
	r := c.result
	for _, f := range c.bases {
		if c.unused[f.Code+" "+f.Position.String()] == environments && environments > 1 {
			for _, e := range r.Environments {
				c.add(e, []finding.Finding{f})
			}
		}
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f lintFinding) bool { return slices.Contains(ignore, f.Code) })
	slices.SortStableFunc(r.Findings, func(a, b lintFinding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	for _, f := range r.Findings {
		switch f.Severity {
		case finding.SeverityError:
			r.Errors++
		case finding.SeverityWarning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	return r
}

func (r *lintResult) print(w io.Writer, format string) error {
	switch format {
	case "sarif":
		return cli.Print(w, "json", r.sarif(), nil)
	case "json":
		return cli.Print(w, "json", r, nil)
	}
	for _, f := range r.Findings {
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
	return nil
}
