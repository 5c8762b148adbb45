package explaincmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
	"github.com/wherry-dev/wherry/scheduler"
)

func newAssignmentCommand() *cobra.Command {
	x := &question{}
	return x.command(&cobra.Command{
		Use:   "assignment PLATFORM TYPE/TARGET [--environment NAME]",
		Short: "Say why a deployment target is on a cluster type",
		Long: `Say why a deployment target is on a cluster type: the policies that select the pair, with each term of their
selectors and the label that meets it, the ConfigMaps of its configuration in the order in which they are
merged, its adapter, and why it fails if it does. With embedded delivery it also lists the embedded objects with
the sources that they are from, and what the agent changes in the objects of Flux and Argo CD, so that they take
the content from the agent's endpoint. TARGET is the full name, WORKLOAD-TARGET.

The exit code is 1 if it is not there.`,
		Example: "  wherry explain assignment ./dev shop/till-test --environment dev --base ./main\n" +
			"  wherry explain assignment shop/till-test --environment dev --from oci://127.0.0.1:5000/edge --key cosign.pub",
	}, nil, func(cmd *cobra.Command, e *scheduler.Explainer) error { return x.pair(cmd, e, true) },
		func(cmd *cobra.Command, r *catalog.Released) error { return x.line(cmd, r, true) })
}

func newNoAssignmentCommand() *cobra.Command {
	x := &question{}
	return x.command(&cobra.Command{
		Use:   "no-assignment PLATFORM TYPE TARGET [--environment NAME]",
		Short: "Say why a deployment target is not on a cluster type",
		Long: `Say why a deployment target is not on a cluster type: for every policy, which terms of its selectors are
not met, and the label that was found. Policies that want least stand first.

The exit code is 1 if it is there.`,
		Example: "  wherry explain no-assignment ./dev roastery till-test --environment dev --base ./main",
	}, nil, func(cmd *cobra.Command, e *scheduler.Explainer) error { return x.pair(cmd, e, false) },
		func(cmd *cobra.Command, r *catalog.Released) error { return x.line(cmd, r, false) })
}

// pair explains from the sources. The exit code is 1 if the pair is not assigned, or is, unlike the question.
func (x *question) pair(cmd *cobra.Command, e *scheduler.Explainer, assigned bool) error {
	why, err := e.Pair(cmd.Context(), x.clusterType, x.target)
	if err != nil {
		return failure.Input(err)
	}
	answer := struct {
		*scheduler.Explanation
		// Rewritten lists what the agent changes in the rendered objects; see rewritten.
		Rewritten []rewrite.Change `json:"rewritten,omitempty"`
		content
	}{Explanation: why}
	var changes rewriting
	if why.Rendered != nil && why.Rendered.Delivery == scheduler.Embedded {
		if answer.content, err = x.readContent(cmd, e, why); err != nil {
			return err
		}
	}
	if made := why.Rendered; made != nil {
		line := bundle.Assignment{Name: made.Name, Namespace: made.Namespace, Adapter: made.Adapter, SiteValues: made.SiteValues}
		if slices.ContainsFunc(why.Settings, func(s scheduler.Setting) bool { return s.Name == "delivery" && s.Value == scheduler.Embedded }) {
			line.Delivery = bundle.Embedded
		}
		changes = rewritten("PLATFORM", line, folderOf(made.Files, func(f scheduler.File) (string, []byte) { return f.Path, f.Data }))
		answer.Rewritten = changes.all()
	}
	err = cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) {
		pairTable(w, why)
		answer.content.table(w)
		changes.table(w)
	})
	if err != nil {
		return err
	}
	if why.Assigned != assigned {
		return cli.Exit(cli.No)
	}
	return nil
}

func pairTable(w io.Writer, x *scheduler.Explanation) {
	selecting := slices.DeleteFunc(slices.Clone(x.Policies), func(p scheduler.PolicyMatch) bool { return !p.Selects })
	name := x.ClusterType.Name + "/" + x.Target.Name
	switch {
	case x.Error != "":
		fmt.Fprintf(w, "%s is selected by %s, and fails:\n\n    %s\n\n", name, show.Count(len(selecting), "policy"), strings.ReplaceAll(x.Error, "\n", "\n    "))
	case x.Assigned:
		fmt.Fprintf(w, "%s is assigned by %s.\n\n", name, show.Count(len(selecting), "policy"))
	default:
		fmt.Fprintf(w, "%s is not assigned: none of %s selects it.\n\n", name, show.Count(len(x.Policies), "policy"))
	}
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = show.Line(c)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("CLUSTER TYPE", x.ClusterType.Name, x.ClusterType.Position.String())
	row("TARGET", x.Target.Name, x.Target.Position.String())
	row("WORKLOAD", x.Workload+origin(x.Registration))
	row("WORKSPACE", cmp.Or(x.Workspace, "none: the target stands in the platform itself"))
	if x.Assigned {
		row("NAMESPACE", show.Cell(x.Namespace))
		if x.Adapter != "" {
			row("ADAPTER", x.Adapter, "chosen by "+x.AdapterBecause)
		}
		for _, s := range x.Settings {
			name, because := strings.ToUpper(s.Name), s.Because
			for line := range strings.Lines(s.Value) {
				row(name, show.Cell(strings.TrimSpace(line)), because)
				name, because = "", ""
			}
		}
		for i, c := range x.Config {
			row(fmt.Sprintf("CONFIG %d", i+1), c.Name, c.Position.String())
		}
		matchesTable(w, selecting)
		return
	}
	all := slices.Clone(x.Policies)
	slices.SortStableFunc(all, func(a, b scheduler.PolicyMatch) int { return cmp.Compare(a.Unmet(), b.Unmet()) })
	matchesTable(w, all)
}

func origin(registration string) string {
	if registration == "" {
		return ""
	}
	return ", of registration " + registration
}

// matchesTable lists policies with their terms.
func matchesTable(w io.Writer, all []scheduler.PolicyMatch) {
	for _, p := range all {
		how := "selects it"
		if n := p.Unmet(); n > 0 {
			how = fmt.Sprintf("%d of %s not met", n, show.Count(len(p.Terms), "term"))
		}
		fmt.Fprintf(w, "\nPolicy %s (%s): %s\n", show.Cell(p.Name), show.Line(p.Position.String()), how)
		if len(p.Terms) == 0 {
			fmt.Fprintln(w, "  ✓\tits selectors are empty, so it selects every target for every cluster type")
		}
		for _, t := range p.Terms {
			mark, side, value := "✗", "cluster type", "has no such label"
			if t.Met {
				mark = "✓"
			}
			if t.Side == scheduler.TargetSide {
				side = "target"
			}
			if t.Value != nil {
				value = fmt.Sprintf("has %s=%s", t.Label, show.Value(t.Value))
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", mark, side, show.Line(t.Asks), show.Line(value))
		}
	}
}

// maxOthers bounds the names of other assignments in an answer.
const maxOthers = 16

// line explains from a bundle.
func (x *question) line(cmd *cobra.Command, r *catalog.Released, assigned bool) error {
	found, err := r.ExplainAssignment(x.target)
	if err != nil {
		return err
	}
	answer := struct {
		catalog.AssignmentAnswer
		Rewritten []rewrite.Change `json:"rewritten,omitempty"`
	}{AssignmentAnswer: found}
	var changes rewriting
	if a := answer.Assignment; a != nil {
		files, err := r.Tree().Read(*a)
		if err != nil {
			return err
		}
		paths := slices.Sorted(maps.Keys(files))
		changes = rewritten(r.Release.Platform, *a, folderOf(paths, func(path string) (string, []byte) { return path, files[path] }))
		answer.Rewritten = changes.all()
	}
	err = cli.Print(cmd.OutOrStdout(), x.format, answer, func(w io.Writer) {
		lineTable(w, answer.AssignmentAnswer, r)
		content{answer.Sources, answer.Objects}.table(w)
		changes.table(w)
	})
	if err != nil {
		return err
	}
	if answer.Assigned != assigned {
		return cli.Exit(cli.No)
	}
	return nil
}

func lineTable(w io.Writer, x catalog.AssignmentAnswer, r *catalog.Released) {
	name := x.ClusterType + "/" + x.Target
	a := x.Assignment
	if a == nil {
		var names []string
		for _, other := range r.Assignments {
			names = append(names, other.Name)
		}
		fmt.Fprintf(w, "%s is not in release %s.\n\n", name, r.Name())
		fmt.Fprintf(w, "It has %s: %s\n", show.Count(len(names), "assignment"), show.Cell(show.List(names, maxOthers)))
		fmt.Fprintln(w, "Which policy does not select it is known to the sources alone: give PLATFORM instead of --from.")
		return
	}
	fmt.Fprintf(w, "%s is in release %s.\n\n", name, r.Name())
	row := func(name, text string) { fmt.Fprintf(w, "%s\t%s\n", name, show.Cell(text)) }
	row("RELEASE", fmt.Sprintf("%s, %s, of %s", x.Release.Digest, x.Release.Tag, show.Time(r.Release.IssuedAt)))
	row("BASE COMMIT", x.Release.BaseCommit)
	row("WORKLOAD", a.Workload)
	row("WORKSPACE", a.Workspace)
	row("NAMESPACE", a.Namespace)
	row("ADAPTER", a.Adapter)
	if a.Delivery != "" {
		row("DELIVERY", a.Delivery)
	}
	row("VERSION", bundle.ShownVersion(a.Version))
	row("POLICIES", strings.Join(a.Policies, ", "))
	for i, c := range a.Config {
		row(fmt.Sprintf("CONFIG %d", i+1), c.Name)
	}
	if h := a.HeldFrom; h != nil {
		row("HELD FROM", fmt.Sprintf("sequence %d, base commit %s: %s", h.Sequence, cmp.Or(h.BaseCommit, "not known"), h.Reason))
	}
}
