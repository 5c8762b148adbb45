package explaincmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/scheduler"
)

// maxPartsShown bounds the parts of a structured value in a table; -o json has all.
const maxPartsShown = 200

func newConfigCommand() *cobra.Command {
	x := &question{}
	cmd := x.command(&cobra.Command{
		Use:   "config PLATFORM TYPE/TARGET KEY [--environment NAME]",
		Short: "Say where a configuration value comes from",
		Long: `Say where the value of a configuration key comes from, for a deployment target on a cluster type: every
ConfigMap that gives one, in the order in which they are merged, what each did to it, and of a structured value
who gave each part. For a key without a value: who has it and why that does not apply. Values that look like
secrets are masked.

With --cluster, KEY is a site value of that cluster.

The exit code is 1 if the key has no value.`,
		Example: "  wherry explain config ./dev shop/till-test LOG_LEVEL --environment dev --base ./main\n" +
			"  wherry explain config ./dev shop/till-test dns --cluster plant-7 --environment dev --base ./main",
	}, []string{"KEY"}, func(cmd *cobra.Command, e *scheduler.Explainer) error {
		if x.cluster != "" {
			return x.site(cmd, e)
		}
		return x.config(cmd, e)
	}, func(cmd *cobra.Command, r *catalog.Released) error {
		if x.cluster != "" {
			return x.releasedSite(cmd, r)
		}
		return x.releasedConfig(cmd, r)
	})
	x.addCluster(cmd)
	return cmd
}

func (x *question) config(cmd *cobra.Command, e *scheduler.Explainer) error {
	why, err := e.Config(cmd.Context(), x.clusterType, x.target, x.rest[0])
	if err != nil {
		return failure.Input(err)
	}
	pair, err := e.Pair(cmd.Context(), x.clusterType, x.target)
	if err != nil {
		return err
	}
	if !pair.Assigned {
		cmd.PrintErrf("note: no policy selects %s/%s: this is the configuration that it would get\n", x.clusterType, x.target)
	}
	if err := cli.Print(cmd.OutOrStdout(), x.format, why, func(w io.Writer) { configTable(w, why) }); err != nil {
		return err
	}
	if !why.Set {
		return cli.Exit(cli.No)
	}
	return nil
}

func configTable(w io.Writer, x *scheduler.ConfigExplanation) {
	name := x.ClusterType + "/" + x.Target
	if !x.Set {
		fmt.Fprintf(w, "%s has no value for %s.\n", name, x.Key)
		if len(x.Others) == 0 {
			fmt.Fprintf(w, "No ConfigMap has this key%s.\n", show.Line(inParentheses(x.Hint)))
		}
	} else {
		fmt.Fprintf(w, "%s has %s =%s\n", name, x.Key, belowLine(x.Value))
		switch {
		case x.Error != "":
			fmt.Fprintf(w, "The templates in it fail: %s\n", cli.Indented(x.Error))
		case x.Rendered != "":
			fmt.Fprintf(w, "which becomes%s\n", belowLine(x.Rendered))
		}
		fmt.Fprintln(w, "\nORDER\tCONFIGMAP\tEFFECT\tVALUE\tPLACE\tAPPLIES WHERE")
		for i, g := range x.Given {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", i+1, show.Cell(g.Name), g.Effect, show.Value(&g.Value), show.Line(g.Position.String()), show.Line(conditions(g.Where)))
		}
	}
	partsTable(w, x)
	if len(x.Others) > 0 {
		fmt.Fprintf(w, "\nThese have the key and do not apply:\n\nCONFIGMAP\tVALUE\tPLACE\tBECAUSE\n")
		for _, g := range x.Others {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", show.Cell(g.Name), show.Value(&g.Value), show.Line(g.Position.String()), show.Line(unmetLabels(g.Where)))
		}
	}
}

func inParentheses(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// belowLine is a text of one line, or of several below the line that it belongs to.
func belowLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = show.Cell(line)
		}
	}
	if len(lines) == 1 {
		return " " + cmp.Or(lines[0], `""`)
	}
	return "\n    " + strings.Join(lines, "\n    ")
}

func partsTable(w io.Writer, x *scheduler.ConfigExplanation) {
	if len(x.Given) < 2 || len(x.Parts) == 0 {
		return
	}
	fmt.Fprintln(w, "\nPART\tVALUE\tCONFIGMAP\tPLACE")
	for _, p := range x.Parts[:min(len(x.Parts), maxPartsShown)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", show.Cell(p.Path), show.Value(&p.Value), show.Cell(p.Name), show.Line(p.Position.String()))
	}
	if more := len(x.Parts) - maxPartsShown; more > 0 {
		fmt.Fprintf(w, "and %d more: -o json has all\n", more)
	}
}

func conditions(checks []scheduler.LabelCheck) string {
	var all []string
	for _, c := range checks {
		all = append(all, c.Label+"="+c.Value)
	}
	if len(all) == 0 {
		return "everywhere"
	}
	return strings.Join(all, ", ")
}

// unmetLabels names the labels that do not hold, and the values on both sides.
func unmetLabels(checks []scheduler.LabelCheck) string {
	var all []string
	for _, c := range checks {
		if c.Met {
			continue
		}
		var found []string
		if c.ClusterType != nil {
			found = append(found, "the cluster type has "+*c.ClusterType)
		}
		if c.Target != nil {
			found = append(found, "the target has "+*c.Target)
		}
		if len(found) == 0 {
			found = []string{"neither side has it"}
		}
		all = append(all, fmt.Sprintf("%s=%s: %s", c.Label, c.Value, strings.Join(found, ", ")))
	}
	return strings.Join(all, "; ")
}

func (x *question) releasedConfig(cmd *cobra.Command, r *catalog.Released) error {
	a := r.Assignment(x.target)
	if a == nil {
		return cli.Fail(cli.No, fmt.Errorf("%s/%s is not in release %s", r.Release.ClusterType, x.target, r.Name()),
			`"wherry bundle inspect" lists what is`)
	}
	answer, err := r.ExplainConfig(a, x.rest[0])
	if err != nil {
		return err
	}
	if err := cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) { releasedConfigTable(w, answer, r.Name()) }); err != nil {
		return err
	}
	if len(answer.Values) == 0 {
		return cli.Exit(cli.No)
	}
	return nil
}

func releasedConfigTable(w io.Writer, x catalog.ConfigAnswer, release string) {
	name := x.ClusterType + "/" + x.Target
	if len(x.Values) == 0 {
		fmt.Fprintf(w, "%s has no value for %s in release %s.\n", name, x.Key, release)
		fmt.Fprintf(w, "It has: %s\n", show.Cell(strings.Join(x.Keys, ", ")))
		return
	}
	fmt.Fprintf(w, "%s in release %s has\n\n", name, release)
	for _, v := range x.Values {
		fmt.Fprintf(w, "%s\t%s\n", show.Cell(v.Key), show.Value(&v.Value))
	}
	fmt.Fprintf(w, "\nIts configuration is composed of these ConfigMaps; later ones win: %s\n", show.Cell(strings.Join(x.Config, ", ")))
	fmt.Fprintln(w, "Which of them gave the value is known to the sources alone: give PLATFORM instead of --from.")
}
