package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/scheduler"
)

func newScheduleCommand() *cobra.Command {
	var source flags.Source
	var format string
	var schema bool
	cmd := &cobra.Command{
		Use:   "schedule [PLATFORM] [--environment NAME]",
		Short: "Assign deployment targets to cluster types",
		Long: `Print the decisions of an environment's scheduling policies: each deployment target on each cluster type, with the
policies that selected it and the terms of their selectors. Nothing is rendered.

"wherry render" and "wherry publish" take decisions with --assignments: from this command or another scheduler. --schema
prints the JSON Schema of the format.

The exit code is 1 if the source of a WorkloadRegistration cannot be read, or a policy has an unknown field in its
selectors; the targets of the others are decided.

More: wherry help rendering, sources`,
		Example: `  wherry schedule ./dev --environment dev --base ./main --workload web=./app
  wherry schedule ./dev --environment dev -o json | my-scheduler | wherry render ./dev --environment dev --assignments - -o out`,
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := fmt.Fprint(cmd.OutOrStdout(), scheduler.DecisionSchema)
				return err
			}
			return schedule(cmd, &source, args, format)
		},
	}
	source.AddTo(cmd)
	cli.OutputFlag(cmd, &format)
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of a decision")
	return cmd
}

func schedule(cmd *cobra.Command, source *flags.Source, args []string, format string) error {
	place, err := source.Resolve(cmd, args)
	if err != nil {
		return err
	}
	loaded, err := source.Load(cmd, place, "")
	if err != nil {
		return err
	}
	decision, err := loaded.Model.Decide(cmd.Context())
	if err != nil {
		return cli.Fail(cli.Usage, err, "")
	}
	if err := source.PrintProblems(cmd, loaded, decision.Warnings, nil); err != nil {
		return err
	}
	if err := cli.Print(cmd.OutOrStdout(), format, decision, func(w io.Writer) { decisionTable(w, decision) }); err != nil {
		return err
	}
	cmd.PrintErrf("%s: %s\n", decision.Environment, show.Count(len(decision.Assignments), "assignment"))
	return flags.FailedAssignments(loaded, &scheduler.Result{}, "the others' targets are decided")
}

func decisionTable(w io.Writer, d *scheduler.Decision) {
	fmt.Fprintln(w, "CLUSTER TYPE\tASSIGNMENT\tWORKSPACE\tPOLICIES")
	for _, a := range d.Assignments {
		var reasons []string
		for _, p := range a.Policies {
			reasons = append(reasons, fmt.Sprintf("%s (%s on %s)", p.Name, orAny(p.TargetTerms), orAny(p.ClusterTypeTerms)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", show.Cell(a.ClusterType), show.Cell(a.Name), show.Cell(a.Workspace), show.Cell(strings.Join(reasons, "; ")))
	}
}

func orAny(terms []string) string {
	if len(terms) == 0 {
		return "any"
	}
	return strings.Join(terms, ", ")
}
