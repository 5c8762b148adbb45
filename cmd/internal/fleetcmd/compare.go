package fleetcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// Compare returns the command wherry compare.
func Compare() *cobra.Command { return newCompareCommand(new(source)) }

func newCompareCommand(s *source) *cobra.Command {
	var o fleet.CompareOptions
	var f format
	cmd := &cobra.Command{
		Use:   "compare LEFT RIGHT [--only-diff] [--ignore config]",
		Short: "Compare two parts of the fleet",
		Long: `Compare two parts of the fleet, or two moments, by deployment target: version, configuration, content, what one side lacks,
and how many clusters run each.

A side is one of these:

  an environment       prod, or with parameters prod,asOf=24h
  parameters           type=drone,ring=canary
  a label selector     region=east

--ignore config leaves configuration and content out, since content includes configuration.
The exit code is 1 if the sides differ.

More: wherry help hub-access`,
		Example: `  wherry compare stage prod --only-diff --ignore config
  wherry compare prod,asOf=24h prod
  wherry compare type=drone,ring=canary type=drone,ring=stable -o json
  wherry compare region=east region=west`,
		Args: cobra.ExactArgs(2),
	}
	s.addTo(cmd)
	cmd.Flags().BoolVar(&o.OnlyDiff, "only-diff", false, "leave out what is the same on both sides")
	cmd.Flags().StringSliceVar(&o.Ignore, "ignore", nil, "do not compare these `PROPERTIES`: "+alternatives(fleet.Comparable))
	cli.NotEmpty(cmd, "ignore")
	_ = cmd.RegisterFlagCompletionFunc("ignore", listCompletion(fleet.Comparable))
	addFormat(cmd, &f, []format{asTable, asWide, asJSON, asYAML, asNDJSON, asCSV})
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= 2 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.complete(cmd, fleet.Query{}, typed, countedNames("clusters", "environment")), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, what := range o.Ignore {
			if !slices.Contains(fleet.Comparable, what) {
				return cli.Usagef("--ignore %q: expected one of %s", what, alternatives(fleet.Comparable))
			}
		}
		var sides [2]fleet.Side
		for i, arg := range args {
			var err error
			if sides[i], err = side(arg, s.now()); err != nil {
				return err
			}
		}
		var c fleet.Comparison
		err := s.ask(cmd, func(a fleet.Answers) (err error) {
			c, err = a.Compare(cmd.Context(), sides[0], sides[1], o)
			return err
		})
		if err != nil {
			return err
		}
		if err := printComparison(cmd, f, c, s.width()); err != nil {
			return err
		}
		if differing(c) > 0 {
			return cli.Exit(cli.No)
		}
		return nil
	}
	return cmd
}

// side reads a side of a comparison. What has none of the parameters of routes is a label selector.
func side(text string, now time.Time) (fleet.Side, error) {
	parsed, err := fleet.ParseSide(text, now)
	if err == nil {
		return parsed, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, _, _ := strings.Cut(part, "=")
		name = strings.TrimSuffix(strings.TrimSpace(name), "!")
		if slices.Contains(fleet.Parameters(), name) || !strings.ContainsAny(part, "=!") {
			return parsed, cli.Fail(cli.Usage, err, "a side is an environment, such as prod or prod,asOf=24h; parameters, such as type=drone,asOf=24h; or a label selector, such as region=east")
		}
	}
	return fleet.Side{Query: fleet.Query{Selector: text}, Name: text}, nil
}

// differing counts the rows that differ.
func differing(c fleet.Comparison) (n int) {
	for _, r := range c.Rows {
		if len(r.Differs) > 0 {
			n++
		}
	}
	return n
}

func printComparison(cmd *cobra.Command, f format, c fleet.Comparison, width int) error {
	out := cmd.OutOrStdout()
	columns := []column[fleet.ComparisonRow]{
		wideText("WORKSPACE", func(r fleet.ComparisonRow) string { return r.Workspace }),
		text("WORKLOAD", func(r fleet.ComparisonRow) string { return r.Workload }),
		text("TARGET", func(r fleet.ComparisonRow) string { return joined(" / ", r.Target, r.RightTarget) }),
		text("DIFFERS", func(r fleet.ComparisonRow) string { return strings.Join(r.Differs, ", ") }),
		{header: c.Left, flexible: true, value: func(r fleet.ComparisonRow, _ time.Time) string { return variants(r.Left, r.Differs) }},
		{header: c.Right, flexible: true, value: func(r fleet.ComparisonRow, _ time.Time) string { return variants(r.Right, r.Differs) }},
	}
	p := printer[fleet.ComparisonRow]{w: out, format: f, columns: shownColumns(columns, f)}
	switch {
	case f.streams() && len(c.Rows) == 0:
		return p.stream(nil)
	case f.streams():
		return p.stream(c.Rows)
	case !f.forPeople():
		return document(out, f, c)
	}
	n := differing(c)
	verb := "differ"
	if n == 1 {
		verb = "differs"
	}
	if _, err := fmt.Fprintf(out, "%s and %s: %s %s, %s the same\n", c.Left, c.Right, count(n, "target"), verb, number(c.Same)); err != nil || len(c.Rows) == 0 {
		return err
	}
	return newTable(p.columns, c.Rows, time.Time{}).write(out, width)
}

// variants says what one side runs: "1.4.0 on 12 clusters, 1.3.0 on 1". The configuration is there if that differs, and
// the content if nothing else does.
func variants(all []fleet.Variant, differs []string) string {
	config := slices.Contains(differs, "config")
	content := slices.Contains(differs, "content") && !config && !slices.Contains(differs, "version")
	var parts []string
	for _, v := range all {
		what := bundle.ShownVersion(v.Version)
		if config {
			what = joined(" ", what, "config "+orNone(short(v.ConfigDigest)))
		}
		if content || what == "" && v.Content != "" {
			what = joined(" ", what, "content "+orNone(short(v.Content)))
		}
		part := joined(" ", what, "on "+count(v.Clusters, "cluster"))
		if v.Compliant < v.Clusters {
			part += fmt.Sprintf(" (%s compliant)", number(v.Compliant))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
