package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// History returns the command wherry history.
func History() *cobra.Command { return newHistoryCommand(new(source)) }

func newHistoryCommand(s *source) *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use:   "history [WORKLOAD|CLUSTER]",
		Short: "Show changes in the fleet, newest first",
		Long: `Show changes, newest first: of a workload on all clusters, of a cluster and all that runs on it, or of all that the
flags choose. Each has the time, from what to what, which release and commit brought it, whether it went back to what
had run there before, and by which way the hub learned of it.

More: wherry help hub-access`,
		Example: `  wherry history web --environment prod
  wherry history plant-7 --since 7d
  wherry history -e prod --application till --since 24h
  wherry history --workload web --cluster plant-7 -o csv`,
		Args: cobra.MaximumNArgs(1),
	}
	s.addTo(cmd)
	l := newLister(cmd, s, nil, ofPresent...)
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "only changes after a `TIME`, such as 2026-11-01 or 7d")
	f.StringVar(&until, "until", "", "only changes before a `TIME`")
	cli.NotEmpty(cmd, "since", "until")
	cmd.ValidArgsFunction = s.completeArgument(&l.query, func(ctx context.Context, a fleet.Answers, q fleet.Query, typed string) []string {
		return append(countedNames("deployments", "workload")(ctx, a, q, typed), clusterNames(ctx, a, q, typed)...)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var from, to time.Time
		var err error
		now := s.now()
		if from, err = moment("--since", since, now); err == nil {
			to, err = moment("--until", until, now)
		}
		switch {
		case err != nil:
			return err
		case !from.IsZero() && !to.IsZero() && !from.Before(to):
			return cli.Usagef("--since %s is not before --until %s", since, until)
		case len(args) > 0 && l.Cluster != "" && l.Workload != "":
			return cli.Fail(cli.Usage, fmt.Errorf("unexpected argument %q beside --workload and --cluster", args[0]), "leave it out")
		}
		return list(cmd, l, historyKind(args, from, to))
	}
	return cmd
}

// historyKind is the changes of what the argument names, if there is one.
func historyKind(args []string, from, to time.Time) kind[fleet.History, fleet.HistoryRow] {
	named := len(args) == 0
	var cluster, workload string
	return kind[fleet.History, fleet.HistoryRow]{
		columns: []column[fleet.HistoryRow]{
			{header: "WHEN", value: func(r fleet.HistoryRow, _ time.Time) string { return utc(r.At) }, raw: func(r fleet.HistoryRow) string { return stamp(r.At) }},
			text("CLUSTER", func(r fleet.HistoryRow) string { return r.Cluster }),
			wideText("ENVIRONMENT", func(r fleet.HistoryRow) string { return r.Environment }),
			wideText("TYPE", func(r fleet.HistoryRow) string { return r.Type }),
			{header: "ASSIGNMENT", value: func(r fleet.HistoryRow, _ time.Time) string { return cmp.Or(r.Assignment, "(agent)") }, raw: func(r fleet.HistoryRow) string { return r.Assignment }},
			wideText("WORKSPACE", func(r fleet.HistoryRow) string { return r.Workspace }),
			wideText("WORKLOAD", func(r fleet.HistoryRow) string { return r.Workload }),
			{header: "CHANGE", value: func(r fleet.HistoryRow, _ time.Time) string { return changeText(r) }, narrow: true, flexible: true},
			{header: "STATE", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return string(r.To.State) }},
			{header: "FROM STATE", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return string(r.From.State) }},
			{header: "REASON", wide: true, flexible: true, value: func(r fleet.HistoryRow, _ time.Time) string { return r.To.Reason }},
			{header: "VERSION", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return bundle.ShownVersion(r.To.Version) }, raw: func(r fleet.HistoryRow) string { return r.To.Version }},
			{header: "FROM VERSION", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return bundle.ShownVersion(r.From.Version) }, raw: func(r fleet.HistoryRow) string { return r.From.Version }},
			{header: "RELEASE", value: func(r fleet.HistoryRow, _ time.Time) string { return cmp.Or(r.To.ReleaseName, short(r.To.Release)) }, raw: func(r fleet.HistoryRow) string { return string(r.To.Release) }},
			{header: "COMMIT", value: func(r fleet.HistoryRow, _ time.Time) string {
				return short(cmp.Or(r.To.BaseCommit, r.To.EnvironmentCommit))
			}, raw: func(r fleet.HistoryRow) string { return cmp.Or(r.To.BaseCommit, r.To.EnvironmentCommit) }},
			{header: "ROLLBACK", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string {
				if r.Rollback {
					return "yes"
				}
				return ""
			}},
			{header: "RECEIVED", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return utc(r.ReceivedAt) }, raw: func(r fleet.HistoryRow) string { return stamp(r.ReceivedAt) }},
			text("VIA", func(r fleet.HistoryRow) string { return way(r.Via) }),
			{header: "REPORT", wide: true, value: func(r fleet.HistoryRow, _ time.Time) string { return short(r.Report) }, raw: func(r fleet.HistoryRow) string { return string(r.Report) }},
		},
		name: func(r fleet.HistoryRow) string { return r.Cluster + "/" + r.Assignment },
		page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.History, error) {
			if !named {
				var err error
				if cluster, workload, err = subject(ctx, a, args[0], q); err != nil {
					return fleet.History{}, err
				}
				named = true
			}
			q.Cluster, q.Workload = cmp.Or(cluster, q.Cluster), cmp.Or(workload, q.Workload)
			return a.History(ctx, fleet.HistoryQuery{Query: q, From: from, Until: to})
		},
		rows:   func(p *fleet.History) *[]fleet.HistoryRow { return &p.Changes },
		next:   func(p *fleet.History) *string { return &p.Next },
		totals: historyTotals,
	}
}

// subject decides whether a name is that of a cluster or of a workload.
func subject(ctx context.Context, a fleet.Answers, name string, q fleet.Query) (cluster, workload string, err error) {
	if q.Cluster != "" { // then the argument is a workload
		return "", name, nil
	}
	if q.Workload != "" {
		return name, "", nil
	}
	clusters, err := a.Clusters(ctx, fleet.Query{Cluster: name, Limit: 1})
	if err != nil && !errors.As(err, new(*fleet.UnknownNameError)) && !errors.Is(err, store.ErrUnknownCluster) {
		return "", "", err
	}
	isCluster := err == nil && len(clusters.Clusters) > 0
	all := countedNames("deployments", "workload")(ctx, a, fleet.Query{}, "")
	isWorkload := slices.Contains(all, name)
	switch {
	case isCluster && isWorkload:
		return "", "", cli.Fail(cli.Usage, fmt.Errorf("%q is a cluster and a workload", name), fmt.Sprintf("give --cluster %s or --workload %s", name, name))
	case isCluster:
		return name, "", nil
	case isWorkload:
		return "", name, nil
	}
	// A workload, or a cluster, that is gone has a history all the same.
	for _, try := range []fleet.Query{{Workload: name}, {Cluster: name}} {
		try.Limit = 1
		if past, err := a.History(ctx, fleet.HistoryQuery{Query: try}); err == nil && len(past.Changes) > 0 {
			return try.Cluster, try.Workload, nil
		}
	}
	known := append(all, clusterNames(ctx, a, fleet.Query{}, "")...)
	slices.Sort(known)
	return "", "", &fleet.UnknownNameError{Kind: "cluster or workload", Name: name, Near: known}
}

// changeText says what changed.
func changeText(r fleet.HistoryRow) string {
	var parts []string
	state := ""
	switch {
	case slices.Contains(r.What, "added"):
		state = joined(" ", "added:", string(r.To.State))
	case slices.Contains(r.What, "removed"):
		state = "removed"
	case r.From.State != r.To.State:
		state = arrow(string(r.From.State), string(r.To.State))
	}
	if r.To.Reason != "" && r.To.State != bundle.Compliant {
		state = joined(" ", state, "("+r.To.Reason+")")
	}
	parts = append(parts, state)
	for _, w := range r.What {
		switch w {
		case "version":
			if v := bundle.ShownVersion(r.To.Version); v != "" && !slices.Contains(r.What, "added") {
				parts = append(parts, arrow(bundle.ShownVersion(r.From.Version), v))
			} else if v != "" {
				parts = append(parts, v)
			}
		case "config":
			parts = append(parts, "config "+arrow(short(r.From.ConfigDigest), short(r.To.ConfigDigest)))
		case "content":
			if !slices.Contains(r.What, "version") && !slices.Contains(r.What, "config") {
				parts = append(parts, "content "+arrow(short(r.From.Content), short(r.To.Content)))
			}
		case "release":
			if r.Assignment == "" {
				parts = append(parts, "release "+arrow(cmp.Or(r.From.ReleaseName, short(r.From.Release)), cmp.Or(r.To.ReleaseName, short(r.To.Release))))
			}
		}
	}
	if r.Rollback {
		parts = append(parts, "rollback")
	}
	return joined(", ", parts...)
}

// arrow is a change from one text to another.
func arrow(from, to string) string {
	if from == "" || from == to {
		return to
	}
	return from + " → " + cmp.Or(to, "none")
}

// historyTotals is the line of totals above changes.
func historyTotals(h fleet.History, _ time.Time) string {
	clusters := map[string]bool{}
	failed, rollbacks := 0, 0
	for _, r := range h.Changes {
		clusters[r.UID] = true
		if r.To.State == bundle.Failed && r.From.State != bundle.Failed {
			failed++
		}
		if r.Rollback {
			rollbacks++
		}
	}
	line := count(len(h.Changes), "change")
	if h.Next != "" {
		line = "the newest " + line
	}
	if len(h.Changes) == 0 {
		return line
	}
	return joined(" · ", line+" on "+count(len(clusters), "cluster"), joined(", ", some(failed, "to failed"), countOrNone(rollbacks, "rollback")))
}

// countOrNone is a count of things, and empty for none.
func countOrNone(n int, thing string) string {
	if n == 0 {
		return ""
	}
	return count(n, thing)
}
