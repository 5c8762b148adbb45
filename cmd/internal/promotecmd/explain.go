package promotecmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// explained is what explain prints. Its JSON form is an interface.
type explained struct {
	Environment string       `json:"environment"`
	Policy      string       `json:"policy,omitempty"`
	Chain       []string     `json:"chain"`
	Rings       []string     `json:"rings"`
	Rules       []string     `json:"rules"` // in words
	Verdict     gate.Verdict `json:"verdict"`
}

func newExplainCommand() *cobra.Command {
	a, format := &asking{}, ""
	cmd := &cobra.Command{
		Use:   "explain [PLATFORM] --environment NAME [--ring RING] [--commit COMMIT]",
		Short: "Explain a gate and what is missing",
		Long: `Explain the gate of an environment, or of one of its rings, in words, and what is missing for the commit of the environment below.

The exit code is 0, whatever the verdict; "wherry gate check" has others.

More: wherry help decisions`,
		Example: `  wherry gate explain -e prod --to oci://registry.example.com/edge --release-key cosign.pub
  wherry gate explain -e prod --ring early --hub https://hub.example.com`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, v, err := a.judge(cmd, args)
			if err != nil {
				return err
			}
			p, g := o.Policy, o.Policy.Gate
			if a.ring != "" {
				g = p.RingGate
			}
			e := explained{
				Environment: p.Environment, Policy: p.Name, Chain: append([]string{}, p.Chain...), Rings: append([]string{}, p.Rings...),
				Rules: inWords(g, v), Verdict: v,
			}
			if format != "table" {
				return cli.Print(cmd.OutOrStdout(), format, e, nil)
			}
			return e.write(cmd.OutOrStdout())
		},
	}
	a.addTo(cmd)
	cli.OutputFlag(cmd, &format)
	return cmd
}

func (e explained) write(w io.Writer) error {
	var text strings.Builder
	if e.Policy == "" {
		fmt.Fprintf(&text, "no PromotionPolicy names %s: what holds is the default\n", show.Line(e.Environment))
	} else {
		fmt.Fprintf(&text, "PromotionPolicy %s: %s\n", show.Line(e.Policy), show.Line(strings.Join(e.Chain, " → ")))
	}
	what := "A commit enters " + e.Environment + " if"
	if e.Verdict.Ring != "" {
		what = "Ring " + e.Verdict.Ring + " of " + e.Environment + " gets what the ring before it has if"
	}
	fmt.Fprintf(&text, "%s\n", show.Line(what))
	for _, rule := range e.Rules {
		fmt.Fprintf(&text, "  - %s\n", show.Line(rule))
	}
	fmt.Fprintf(&text, "\n%s\n%s", headline(e.Verdict), counted(e.Verdict))
	if _, err := io.WriteString(w, text.String()); err != nil {
		return err
	}
	return details(w, e.Verdict)
}

// inWords returns the rules of a gate, each as the end of the sentence "A commit enters NAME if".
func inWords(g promotion.Gate, v gate.Verdict) []string {
	from := v.From
	if v.Ring != "" {
		from = "the rings before it"
	}
	all := []string{"nothing of it is held, left out or unpublished in " + v.From}
	add := func(given bool, format string, args ...any) {
		if given {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(!g.AllowFloating, "no assignment follows a branch or another source that moves")
	add(g.RequirePinned, "all charts and images are named by digest")
	if g.AllowEmptyCohort {
		add(true, "the clusters of %s agree; there need not be any", from)
	} else {
		add(true, "at least one cluster of %s has reported in the last %s", from, words(g.MaxReportAge))
	}
	add(g.MinReported > 0, "%g %% of the clusters have", g.MinReported)
	add(true, "%g %% of those that have reported are compliant with it", g.MinCompliant)
	add(true, "%s failed", atMost(g.MaxFailed))
	add(g.MaxQuarantined >= 0, "%s put it into quarantine", atMost(g.MaxQuarantined))
	add(g.MaxFailures >= 0, "assignments failed at most %s since it was released", show.Count(g.MaxFailures, "time"))
	if g.Required != nil {
		add(true, "all clusters with %s are compliant", g.Required)
	}
	in := g.SoakIn
	if len(in) == 0 || v.Ring != "" {
		in = []string{v.From}
	}
	add(g.Soak > 0, "it has been for %s in %s", words(g.Soak), strings.Join(in, " and "))
	if v.Ring == "" {
		add(g.Content.Held, "each workload of an application team waits until it is proved in %s, beside what is said here of the base commit", v.From)
	}
	add(g.Approvals.Required > 0, "%d of %s (%s) approve it", g.Approvals.Required, g.Approvals.Group, names(g.Approvals))
	if c := g.Check; c != nil {
		kind := "webhook"
		if c.Command != "" {
			kind = "command"
		}
		add(true, "the external check %q passes, a %s", c.Name, kind)
	}
	var open []string
	for _, p := range g.Schedule.Open {
		open = append(open, period(p))
	}
	add(len(open) > 0, "it is %s", strings.Join(open, " or "))
	for _, f := range g.Schedule.Freezes {
		add(true, "it is not between %s and %s: %s", f.From.Format(time.RFC3339), f.Until.Format(time.RFC3339), cmp.Or(f.Reason, "a freeze"))
	}
	add(true, "nobody has paused automation, if automation asks")
	add(g.Override.Required > 0, "or %d of %s (%s) override the rules that do not hold, with a reason; what is unpublished, held or not pinned stays out", g.Override.Required, g.Override.Group, names(g.Override))
	return all
}

func atMost(n int) string {
	if n == 0 {
		return "no cluster"
	}
	return "at most " + show.Count(n, "cluster")
}

func names(a promotion.Approvals) string {
	var all []string
	for _, m := range a.Members {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return show.List(all, 10)
}

func words(d time.Duration) string {
	v := duration.Value(d)
	return v.String()
}

func period(p promotion.Period) string {
	days := "every day"
	if len(p.Days) > 0 {
		var all []string
		for _, d := range p.Days {
			all = append(all, d.String()[:3])
		}
		days = strings.Join(all, ",")
	}
	where := "UTC"
	if p.Location != nil {
		where = p.Location.String()
	}
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute) }
	return fmt.Sprintf("%s %s-%s (%s)", days, clock(p.Opens), clock(p.Closes), where)
}
