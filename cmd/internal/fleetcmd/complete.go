package fleetcmd

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/flags"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// Bounds of completion.
const (
	completionTime = 2 * time.Second
	maxCompletions = 500
)

// listCompletion completes values with commas between them.
func listCompletion(known []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var out []string
		for _, k := range known {
			if !slices.Contains(strings.Split(before, ","), k) {
				out = append(out, before+k)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// names asks a hub for names that begin with what was typed.
type names func(ctx context.Context, a fleet.Answers, q fleet.Query, typed string) []string

// countedNames are the values of a dimension.
func countedNames(of, dimension string) names {
	return func(ctx context.Context, a fleet.Answers, q fleet.Query, _ string) []string {
		counts, err := a.Count(ctx, of, []string{dimension}, q)
		if err != nil {
			return nil
		}
		var out []string
		for _, c := range counts.Rows {
			out = append(out, c.Values...)
		}
		return out
	}
}

// clusterNames are the names of clusters.
func clusterNames(ctx context.Context, a fleet.Answers, q fleet.Query, typed string) []string {
	q.Cluster, q.Sort = "", ""
	var out []string
	for len(out) < maxCompletions {
		q.Limit = pageRows
		page, err := a.Clusters(ctx, q)
		if err != nil {
			return out
		}
		for _, c := range page.Clusters {
			if strings.HasPrefix(c.Name, typed) {
				out = append(out, c.Name)
			}
		}
		if page.Next == "" || page.Next == q.After {
			break
		}
		q.After = page.Next
	}
	return out
}

// deploymentNames are the names of deployments, as CLUSTER/ASSIGNMENT.
func deploymentNames(ctx context.Context, a fleet.Answers, q fleet.Query, typed string) []string {
	cluster, _, ok := strings.Cut(typed, "/")
	if !ok {
		var out []string
		for _, name := range clusterNames(ctx, a, q, typed) {
			out = append(out, name+"/")
		}
		return out
	}
	q.Cluster, q.Limit = cluster, pageRows
	page, err := a.Deployments(ctx, q)
	if err != nil {
		return nil
	}
	return rowNames(page.Deployments, deploymentKind.name)
}

// releaseNames are the names of releases, as ENVIRONMENT/TYPE:RELEASE.
func releaseNames(ctx context.Context, a fleet.Answers, q fleet.Query, _ string) []string {
	q.Limit = pageRows
	page, err := a.Releases(ctx, q)
	if err != nil {
		return nil
	}
	return rowNames(page.Releases, releaseKind.name)
}

// reportNames are the names of reports, as CLUSTER/REPORT.
func reportNames(ctx context.Context, a fleet.Answers, q fleet.Query, typed string) []string {
	cluster, _, ok := strings.Cut(typed, "/")
	if !ok {
		return deploymentNames(ctx, a, q, typed)
	}
	q.Cluster, q.Limit = "", maxCompletions
	page, err := a.Reports(ctx, cluster, q)
	if err != nil {
		return nil
	}
	return rowNames(page.Reports, func(r fleet.Report) string { return cluster + "/" + r.Name })
}

func rowNames[T any](rows []T, name func(T) string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = name(r)
	}
	return out
}

// complete asks the hub for names, in the time that a shell waits. It is silent if the hub cannot be asked.
func (s *source) complete(cmd *cobra.Command, q fleet.Query, typed string, ask names) []string {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	quiet := &cobra.Command{}
	quiet.SetErr(io.Discard)
	quiet.SetContext(ctx)
	answer := make(chan []string, 1)
	go func() {
		var all []string
		_ = s.ask(quiet, func(a fleet.Answers) error {
			all = ask(ctx, a, q, typed)
			return nil
		})
		answer <- all
	}()
	var all []string
	select {
	case all = <-answer:
	case <-ctx.Done():
		return nil
	}
	all = slices.DeleteFunc(all, func(name string) bool { return name == "" || !strings.HasPrefix(name, typed) })
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxCompletions)]
}

// completeArgument completes the one argument of a command.
func (s *source) completeArgument(q *query, ask names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := s.complete(cmd, q.Query, typed, ask)
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(all) > 0 && strings.HasSuffix(all[0], "/") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return all, directive
	}
}

// completeNames completes the flags that choose rows by a name.
func (s *source) completeNames(cmd *cobra.Command, q *query) {
	for flag, ask := range map[string]names{
		"cluster":     clusterNames,
		"platform":    countedNames("clusters", "platform"),
		"ring":        countedNames("clusters", "ring"),
		"workspace":   countedNames("deployments", "workspace"),
		"application": countedNames("deployments", "application"),
		"workload":    countedNames("deployments", "workload"),
		"target":      countedNames("deployments", "target"),
		"adapter":     countedNames("deployments", "adapter"),
		"version":     countedNames("deployments", "version"),
	} {
		s.completeFlag(cmd, q, flag, ask, nil)
	}
	s.completeFlag(cmd, q, "environment", countedNames("clusters", "environment"), flags.CompleteEnvironments)
	s.completeFlag(cmd, q, "type", countedNames("clusters", "type"), flags.CompleteClusterTypes)
}

// completeFlag completes a flag, if the command has it, with names of the hub; those of the repository around the current
// folder are taken if the hub has none.
func (s *source) completeFlag(cmd *cobra.Command, q *query, flag string, ask names, otherwise cobra.CompletionFunc) {
	if cmd.Flags().Lookup(flag) == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		all := s.complete(cmd, fleet.Query{Environments: q.chosenEnvironments()}, typed, ask)
		if len(all) == 0 && otherwise != nil {
			return otherwise(cmd, args, typed)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	})
}
