package promotecmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
)

// asking holds the flags of a question to a gate.
type asking struct {
	env.Gates
	ring, commit string
	automatic    bool
}

func (a *asking) addTo(cmd *cobra.Command) {
	a.AddTo(cmd)
	a.AddTrust(cmd)
	cmd.Flags().StringVar(&a.ring, "ring", "", "ask whether this `RING` may get what the ring before it has")
	cmd.Flags().StringVar(&a.commit, "commit", "", "the base `COMMIT`, at least 7 digits (default that of the newest record of the environment below)")
	cmd.Flags().BoolVar(&a.automatic, "automatic", false, "ask as automation does: a pause of the environment holds")
	cli.NotEmpty(cmd, "ring", "commit")
	_ = cmd.RegisterFlagCompletionFunc("commit", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("ring", a.Source.CompleteRings)
}

// opened opens the environment. Without the policy that judges now, there is no answer.
func (a *asking) opened(cmd *cobra.Command, args []string) (*env.Opened, error) {
	o, err := a.Open(cmd, args)
	if err == nil && o.Lost != nil {
		return nil, failure.Input(o.Lost)
	}
	return o, err
}

func (a *asking) judge(cmd *cobra.Command, args []string) (*env.Opened, gate.Verdict, error) {
	if a.commit != "" && (len(a.commit) < 7 || strings.Trim(a.commit, "0123456789abcdef") != "") {
		return nil, gate.Verdict{}, cli.Usagef("--commit must be at least 7 hexadecimal digits of a commit")
	}
	o, err := a.opened(cmd, args)
	if err != nil {
		return nil, gate.Verdict{}, err
	}
	if a.ring != "" && !slices.Contains(o.Policy.Rings, a.ring) {
		return nil, gate.Verdict{}, cli.Fail(cli.Usage, fmt.Errorf("environment %s has no ring %q", o.Policy.Environment, a.ring), "known: "+cmp.Or(strings.Join(o.Policy.Rings, ", "), "none"))
	}
	ask := facts.Ask{Policy: o.Policy, Ring: a.ring, Commit: a.commit, Automatic: a.automatic}
	if a.ring == "" {
		ask.Removals = removals(cmd, &a.Source, o.Place, &o.Facts)
	}
	v, err := o.Facts.Judge(cmd.Context(), ask)
	return o, v, a.Failure(err, &o.Facts)
}

func newCheckCommand() *cobra.Command {
	a, format, workload := &asking{}, "", ""
	cmd := &cobra.Command{
		Use:   "check [PLATFORM] --environment NAME [--ring RING | --workload NAME] [--commit COMMIT]",
		Short: "Check whether a gate lets something pass",
		Long: `Ask whether the commit of the environment below may enter an environment, or with --ring what is in the ring before may enter a
ring. Every rule is listed with its numbers, and what would change it. With --workload, ask what the newest revision of a workload
there waits for.

The exit code is 0 if the gate passes, 5 if it waits, and 1 if a rule fails: then waiting alone does not help.

More: wherry help decisions`,
		Example: `  wherry gate check -e prod --to oci://registry.example.com/edge --release-key cosign.pub
  wherry gate check -e prod --hub https://hub.example.com -o json
  wherry gate check -e prod --ring early
  wherry gate check -e prod --workload shop/checkout`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if workload != "" {
				return a.checkWorkload(cmd, args, workload, format)
			}
			_, v, err := a.judge(cmd, args)
			if err != nil {
				return err
			}
			if format == "table" {
				fmt.Fprint(cmd.OutOrStdout(), headline(v), "\n", counted(v))
			}
			if err := cli.Print(cmd.OutOrStdout(), format, v, func(w io.Writer) { rulesTable(w, v) }); err != nil {
				return err
			}
			if format == "table" {
				if err := details(cmd.OutOrStdout(), v); err != nil {
					return err
				}
			}
			return exitBy(v.Result)
		},
	}
	a.addTo(cmd)
	cmd.Flags().StringVar(&workload, "workload", "", "ask about this workload, `REGISTRATION/NAME`, where the policy holds content")
	cli.NotEmpty(cmd, "workload")
	cmd.MarkFlagsMutuallyExclusive("workload", "ring")
	cmd.MarkFlagsMutuallyExclusive("workload", "commit")
	cli.OutputFlag(cmd, &format)
	return cmd
}

// exitBy returns the exit code of a result.
func exitBy(r gate.Result) error {
	switch r {
	case gate.Pass:
		return nil
	case gate.Wait:
		return cli.Exit(cli.NotYet)
	}
	return cli.Exit(cli.No)
}

// headline says the verdict in one line.
func headline(v gate.Verdict) string {
	what := show.Line(v.Environment)
	if v.Ring != "" {
		what += ", ring " + show.Line(v.Ring)
	}
	switch {
	case v.Commit == "" && v.Result == gate.Wait:
		return fmt.Sprintf("%s: not yet: %s has not been published", what, show.Line(v.From))
	case v.Commit == "" && v.Result == gate.Fail:
		return fmt.Sprintf("%s: no: %s was published without a commit of the base", what, show.Line(v.From))
	}
	of := show.Line(v.Commit[:min(len(v.Commit), 7)])
	if v.Ring == "" {
		of += " from " + show.Line(v.From)
	}
	var waits, fails int
	for _, r := range v.Rules {
		switch r.Result {
		case gate.Wait:
			waits++
		case gate.Fail:
			fails++
		}
	}
	switch v.Result {
	case gate.Pass:
		return fmt.Sprintf("%s: yes for %s: all rules pass", what, of)
	case gate.Wait:
		return fmt.Sprintf("%s: not yet for %s: %s", what, of, rulesDo(waits, "waits", "wait"))
	}
	text := fmt.Sprintf("%s: no for %s: %s", what, of, rulesDo(fails, "fails", "fail"))
	if waits > 0 {
		text += ", " + rulesDo(waits, "waits", "wait")
	}
	return text
}

// counted returns the line that says who counted the clusters; empty if nobody did.
func counted(v gate.Verdict) string {
	if v.CountedBy() == "" {
		return ""
	}
	return show.Line(v.CountedBy()) + "\n"
}

func rulesDo(n int, one, many string) string {
	if n == 1 {
		return "1 rule " + one
	}
	return fmt.Sprintf("%d rules %s", n, many)
}

// rulesTable writes the rules: those that fail, then those that wait, then the others, each in their order.
func rulesTable(w io.Writer, v gate.Verdict) {
	cli.Row(w, "RULE", "RESULT", "HAS", "WANTS")
	worst := []gate.Result{gate.Fail, gate.Wait, gate.Pass}
	for _, r := range slices.SortedStableFunc(slices.Values(v.Rules), func(a, b gate.Rule) int {
		return slices.Index(worst, a.Result) - slices.Index(worst, b.Result)
	}) {
		result := string(r.Result)
		if r.Overridden != "" {
			result = "overridden"
		}
		if r.Wants == "-" && r.Has == "-" || hidden(v, r) {
			continue // nobody asked for it
		}
		cli.Row(w, r.Name, result, r.Has, r.Wants)
	}
}

// hidden reports whether a rule says nothing yet: without a commit, all of them wait for one.
func hidden(v gate.Verdict, r gate.Rule) bool {
	return v.Commit == "" && r.Name != gate.RulePublished
}

// details writes what would change the verdict, and the clusters that are not compliant.
func details(w io.Writer, v gate.Verdict) error {
	var text strings.Builder
	for _, r := range v.Rules {
		if r.Change != "" && !hidden(v, r) {
			fmt.Fprintf(&text, "%s: %s\n", r.Name, show.Line(r.Change))
		}
		if r.Overridden != "" {
			fmt.Fprintf(&text, "%s: overridden by %s\n", r.Name, show.Line(r.Overridden))
		}
	}
	if !v.NextLook.IsZero() && v.Commit != "" {
		fmt.Fprintf(&text, "look again at %s\n", v.NextLook.Format(time.RFC3339))
	}
	if text.Len() > 0 {
		if _, err := fmt.Fprint(w, "\n", text.String()); err != nil {
			return err
		}
	}
	if len(v.Cohort.Open) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	err := cli.Print(w, "table", nil, func(w io.Writer) {
		cli.Row(w, "CLUSTER", "TYPE", "RING", "VERDICT", "REASON", "LAST REPORT", "MESSAGE")
		for _, c := range v.Cohort.Open {
			cli.Row(w, c.Name, c.Type, c.Ring, c.Verdict, c.Reason, bundle.Ago(c.LastSeen, v.AsOf), show.Short(c.Message))
		}
	})
	all := v.Cohort.Clusters - v.Cohort.Compliant
	if more := all - len(v.Cohort.Open); err == nil && more > 0 {
		_, err = fmt.Fprintf(w, "and %d more\n", more)
	}
	return err
}
