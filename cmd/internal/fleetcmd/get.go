package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Get returns the command wherry get.
func Get() *cobra.Command { return newGetCommand(new(source)) }

func newGetCommand(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List clusters, deployments, releases and more",
		Long: `List what a hub knows: clusters, deployments, releases, environments, reports, and how many there are.

A cluster that has been silent for three of its expected intervals is shown as stale, with the state that
it reported last. Silence is neither compliance nor failure.

Tables begin with a line of totals, and have the worst rows first. On a terminal they end after ` + strconv.Itoa(terminalRows) + ` rows
unless you pass --limit.

More: wherry help hub-access`,
	}
	s.addTo(cmd)
	cmd.AddCommand(newGetClusters(s), newGetDeployments(s), newGetReleases(s), newGetEnvironments(s), newGetReports(s), newGetCounts(s))
	return cmd
}

// newLister returns the flags for a list, added to cmd.
func newLister(cmd *cobra.Command, s *source, sorts []string, without ...string) *lister {
	l := &lister{source: s}
	l.addChoosing(cmd, without...)
	if sorts != nil {
		l.addSort(cmd, sorts)
	}
	l.addLimit(cmd)
	addFormat(cmd, &l.format, listFormats)
	s.completeNames(cmd, &l.query)
	return l
}

func newGetClusters(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "clusters [NAME]",
		Aliases: []string{"cluster"},
		Short:   "List clusters",
		Example: `  wherry get clusters --environment prod --state failed
  wherry get clusters -l region=east,gpu!=true --silent-for 7d --sort lastSeen
  wherry get clusters --as-of 2026-11-01 -o csv >clusters.csv
  wherry get clusters --hub https://hub.example.com -o json`,
		Args: cobra.MaximumNArgs(1),
	}
	l := newLister(cmd, s, fleet.ClusterSorts)
	cmd.ValidArgsFunction = s.completeArgument(&l.query, clusterNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := l.oneCluster(args); err != nil {
			return err
		}
		return list(cmd, l, clusterKind)
	}
	return cmd
}

// oneCluster takes the cluster of the arguments.
func (q *query) oneCluster(args []string) error {
	if len(args) == 0 {
		return nil
	}
	if q.Cluster != "" && q.Cluster != args[0] {
		return cli.Fail(cli.Usage, errors.New("--cluster and the argument name two clusters"), "give one of them")
	}
	q.Cluster = args[0]
	return nil
}

var clusterKind = kind[fleet.Clusters, fleet.Cluster]{
	columns: []column[fleet.Cluster]{
		text("CLUSTER", func(c fleet.Cluster) string { return c.Name }),
		wideText("UID", func(c fleet.Cluster) string { return c.UID }),
		wideText("PLATFORM", func(c fleet.Cluster) string { return c.Platform }),
		text("ENVIRONMENT", func(c fleet.Cluster) string { return c.Environment }),
		text("TYPE", func(c fleet.Cluster) string { return c.Type }),
		wideText("RING", func(c fleet.Cluster) string { return c.Ring }),
		{header: "STATE", value: func(c fleet.Cluster, _ time.Time) string { return c.ShownState() }, raw: func(c fleet.Cluster) string { return string(c.State) }},
		{header: "LAST STATE", wide: true, value: func(c fleet.Cluster, _ time.Time) string { return string(c.LastState) }},
		{header: "REASON", flexible: true, value: func(c fleet.Cluster, _ time.Time) string { return clusterReason(c) }, raw: func(c fleet.Cluster) string { return c.ShownReason() }},
		{
			header: "RELEASE", value: func(c fleet.Cluster, _ time.Time) string {
				return joined(", ", releaseName(c.Observed), relationText(c.Desired))
			},
			raw: func(c fleet.Cluster) string {
				if c.Observed == nil {
					return ""
				}
				return string(c.Observed.Digest)
			},
		},
		wideText("COMMIT", func(c fleet.Cluster) string {
			if c.Observed == nil {
				return ""
			}
			return short(c.Observed.BaseCommit)
		}),
		wideText("DESIRED", func(c fleet.Cluster) string {
			if c.Desired == nil {
				return ""
			}
			return releaseName(c.Desired.Release)
		}),
		wideText("RELATION", func(c fleet.Cluster) string {
			if c.Desired == nil {
				return ""
			}
			return string(c.Desired.Relation)
		}),
		{header: "BEHIND SINCE", wide: true, value: func(c fleet.Cluster, now time.Time) string {
			if c.Desired == nil || c.Desired.BehindSince.IsZero() {
				return ""
			}
			return bundle.Ago(c.Desired.BehindSince, now)
		}, raw: func(c fleet.Cluster) string {
			if c.Desired == nil {
				return ""
			}
			return stamp(c.Desired.BehindSince)
		}},
		{header: "LAST SEEN", value: func(c fleet.Cluster, now time.Time) string { return heard(c.LastSeen, c.Proof.Via, now) }, raw: func(c fleet.Cluster) string { return stamp(c.LastSeen) }},
		wideText("VIA", func(c fleet.Cluster) string { return way(c.Proof.Via) }),
		wideText("DEPLOYMENTS", func(c fleet.Cluster) string { return strconv.Itoa(c.Deployments) }),
		wideText("AGENT", func(c fleet.Cluster) string { return c.AgentVersion }),
		{header: "LABELS", wide: true, flexible: true, value: func(c fleet.Cluster, _ time.Time) string { return labels(c.Labels) }},
	},
	name: func(c fleet.Cluster) string { return c.Name },
	page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Clusters, error) {
		return a.Clusters(ctx, q)
	},
	rows:       func(p *fleet.Clusters) *[]fleet.Cluster { return &p.Clusters },
	next:       func(p *fleet.Clusters) *string { return &p.Next },
	totals:     func(p fleet.Clusters, asOf time.Time) string { return totalsLine("cluster", p.Totals, asOf) },
	count:      func(p fleet.Clusters) int { return p.Totals.Count },
	asOf:       func(p fleet.Clusters) time.Time { return p.AsOf },
	worstFirst: "state",
}

func newGetDeployments(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deployments",
		Aliases: []string{"deployment"},
		Short:   "List deployments",
		Example: `  wherry get deployments --workload web --environment prod
  wherry get deployments --image docker.io/library/nginx -o wide
  wherry get deployments --cluster plant-7 --as-of 2026-11-01`,
		Args: cobra.NoArgs,
	}
	l := newLister(cmd, s, fleet.DeploymentSorts)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return list(cmd, l, deploymentKind) }
	return cmd
}

var deploymentKind = kind[fleet.Deployments, fleet.Deployment]{
	columns: []column[fleet.Deployment]{
		text("CLUSTER", func(d fleet.Deployment) string { return d.Cluster }),
		wideText("ENVIRONMENT", func(d fleet.Deployment) string { return d.Environment }),
		wideText("TYPE", func(d fleet.Deployment) string { return d.Type }),
		wideText("RING", func(d fleet.Deployment) string { return d.Ring }),
		wideText("ASSIGNMENT", func(d fleet.Deployment) string { return d.Assignment }),
		wideText("WORKSPACE", func(d fleet.Deployment) string { return d.Workspace }),
		wideText("APPLICATION", func(d fleet.Deployment) string { return d.Application }),
		text("WORKLOAD", func(d fleet.Deployment) string { return d.Workload }),
		text("TARGET", func(d fleet.Deployment) string { return d.Target }),
		wideText("ADAPTER", func(d fleet.Deployment) string { return d.Adapter }),
		{header: "STATE", value: func(d fleet.Deployment, _ time.Time) string { return d.ShownState() }, raw: func(d fleet.Deployment) string { return string(d.State) }},
		{header: "LAST STATE", wide: true, value: func(d fleet.Deployment, _ time.Time) string { return string(d.LastState) }},
		{header: "REASON", flexible: true, value: func(d fleet.Deployment, _ time.Time) string { return waitReason(d.DeploymentStatus) }, raw: func(d fleet.Deployment) string { return d.Reason }},
		{header: "VERSION", value: func(d fleet.Deployment, _ time.Time) string { return d.ShownVersion() }, raw: func(d fleet.Deployment) string { return d.Version }},
		{header: "CONFIG", wide: true, value: func(d fleet.Deployment, _ time.Time) string { return short(d.ConfigDigest) }, raw: func(d fleet.Deployment) string { return string(d.ConfigDigest) }},
		{header: "CONTENT", wide: true, value: func(d fleet.Deployment, _ time.Time) string { return short(d.Content) }, raw: func(d fleet.Deployment) string { return string(d.Content) }},
		{header: "DESIRED", wide: true, value: func(d fleet.Deployment, _ time.Time) string { return short(d.Desired) }, raw: func(d fleet.Deployment) string { return string(d.Desired) }},
		{header: "COMMIT", wide: true, value: func(d fleet.Deployment, _ time.Time) string { return short(cmp.Or(d.BaseCommit, d.EnvironmentCommit)) }, raw: func(d fleet.Deployment) string { return cmp.Or(d.BaseCommit, d.EnvironmentCommit) }},
		{header: "SINCE", value: func(d fleet.Deployment, now time.Time) string { return bundle.Ago(d.Since, now) }, raw: func(d fleet.Deployment) string { return stamp(d.Since) }},
		{header: "LAST SEEN", value: func(d fleet.Deployment, now time.Time) string { return heard(proofTime(d), d.Proof.Via, now) }, raw: func(d fleet.Deployment) string { return stamp(proofTime(d)) }},
		wideText("VIA", func(d fleet.Deployment) string { return way(d.Proof.Via) }),
	},
	name: func(d fleet.Deployment) string { return d.Cluster + "/" + d.Assignment },
	page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Deployments, error) {
		return a.Deployments(ctx, q)
	},
	rows:       func(p *fleet.Deployments) *[]fleet.Deployment { return &p.Deployments },
	next:       func(p *fleet.Deployments) *string { return &p.Next },
	totals:     func(p fleet.Deployments, asOf time.Time) string { return totalsLine("deployment", p.Totals, asOf) },
	count:      func(p fleet.Deployments) int { return p.Totals.Count },
	asOf:       func(p fleet.Deployments) time.Time { return p.AsOf },
	worstFirst: "state",
}

// proofTime is when the agent said what is known of a deployment, but never later than the hub received it.
func proofTime(d fleet.Deployment) time.Time { return earlier(d.Proof) }

func earlier(p store.Proof) time.Time {
	if p.ReceivedAt.IsZero() || !p.OccurredAt.IsZero() && p.OccurredAt.Before(p.ReceivedAt) {
		return p.OccurredAt
	}
	return p.ReceivedAt
}

// clusterReason is the most important problem of a cluster, with the message that explains its state.
func clusterReason(c fleet.Cluster) string {
	if reason := c.ShownReason(); reason != c.Reason {
		return reason
	}
	return reasonText(c.Reason, c.Message)
}

// waitReason is the reason, with the message unless the deployment is compliant: people need it to know where to look
// next.
func waitReason(d store.DeploymentStatus) string {
	if d.State == bundle.Compliant || d.Reason == "" {
		return d.Reason
	}
	return reasonText(d.Reason, d.Message)
}

func newGetReleases(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "releases",
		Aliases: []string{"release"},
		Short:   "List releases and their progress",
		Long: `List published releases, newest first, and how far the clusters are with each: how many should run it, and of
these how many run it and are compliant, progressing or failed, how many are known to run another, and how many are
silent. A release that runs somewhere and was never published here is shown as foreign.

The hub knows what is published from "wherry hub serve --watch LOCATION" or "wherry publish --hub URL".`,
		Example: "  wherry get releases --environment prod --type drone\n  wherry get releases -o json",
		Args:    cobra.NoArgs,
	}
	l := newLister(cmd, s, nil, "cluster", "ring", "workspace", "application", "workload", "target", "adapter", "version", "config", "content", "selector", "state", "relation", "silent-for", "as-of")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return list(cmd, l, releaseKind) }
	return cmd
}

// releaseRef is the name by which people ask for a release.
func releaseRef(r fleet.Release) string {
	name := short(r.Digest)
	if r.Number > 0 && !r.Foreign {
		name = strconv.FormatInt(r.Number, 10)
	}
	if r.Environment == "" || r.Type == "" {
		return short(r.Digest)
	}
	return r.Environment + "/" + r.Type + ":" + name
}

var releaseKind = kind[fleet.Releases, fleet.Release]{
	columns: []column[fleet.Release]{
		text("ENVIRONMENT", func(r fleet.Release) string { return r.Environment }),
		text("TYPE", func(r fleet.Release) string { return r.Type }),
		{header: "RELEASE", value: func(r fleet.Release, _ time.Time) string { return releaseName(&r.ReportRelease) }, raw: func(r fleet.Release) string { return string(r.Digest) }},
		text("STANDING", func(r fleet.Release) string {
			switch {
			case r.Foreign:
				return "foreign"
			case r.Current:
				return "current"
			}
			return ""
		}),
		wideText("RINGS", func(r fleet.Release) string { return strings.Join(r.Rings, ",") }),
		{header: "COMMIT", value: func(r fleet.Release, _ time.Time) string { return short(cmp.Or(r.BaseCommit, r.EnvironmentCommit)) }, raw: func(r fleet.Release) string { return cmp.Or(r.BaseCommit, r.EnvironmentCommit) }},
		{header: "ISSUED", value: func(r fleet.Release, now time.Time) string {
			if r.IssuedAt.IsZero() {
				return ""
			}
			return bundle.Ago(r.IssuedAt, now)
		}, raw: func(r fleet.Release) string { return stamp(r.IssuedAt) }},
		text("CLUSTERS", func(r fleet.Release) string { return strconv.Itoa(r.Clusters) }),
		text("COMPLIANT", func(r fleet.Release) string { return strconv.Itoa(r.Compliant) }),
		text("PROGRESSING", func(r fleet.Release) string { return strconv.Itoa(r.Progressing) }),
		text("FAILED", func(r fleet.Release) string { return strconv.Itoa(r.Failed) }),
		text("WAITING", func(r fleet.Release) string { return strconv.Itoa(r.Waiting) }),
		text("UNKNOWN", func(r fleet.Release) string { return strconv.Itoa(r.Unknown) }),
		wideText("RUNNING", func(r fleet.Release) string { return strconv.Itoa(r.Running) }),
		{header: "MESSAGE", wide: true, flexible: true, value: func(r fleet.Release, _ time.Time) string { return r.Message }},
	},
	name: releaseRef,
	page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Releases, error) {
		return a.Releases(ctx, q)
	},
	rows: func(p *fleet.Releases) *[]fleet.Release { return &p.Releases },
	next: func(p *fleet.Releases) *string { return &p.Next },
	totals: func(p fleet.Releases, _ time.Time) string {
		foreign, current := 0, 0
		for _, r := range p.Releases {
			if r.Foreign {
				foreign++
			}
			if r.Current {
				current++
			}
		}
		line := count(max(p.Count, len(p.Releases)), "release")
		if p.Next != "" || len(p.Releases) == 0 {
			return line
		}
		return joined(" · ", fmt.Sprintf("%s: %s current", line, number(current)), some(foreign, "foreign"))
	},
	count: func(p fleet.Releases) int { return p.Count },
}

// some is a count, and empty for none.
func some(n int, what string) string {
	if n == 0 {
		return ""
	}
	return number(n) + " " + what
}

func newGetEnvironments(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "environments",
		Aliases: []string{"environment", "envs", "env"},
		Short:   "List environments",
		Example: "  wherry get environments\n  wherry get environments -o json",
		Args:    cobra.NoArgs,
	}
	l := newLister(cmd, s, nil, "cluster", "type", "ring", "workspace", "application", "workload", "target", "adapter", "version", "commit", "config", "content", "release", "image", "selector", "state", "relation", "silent-for", "as-of")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return list(cmd, l, environmentKind) }
	return cmd
}

var environmentKind = kind[fleet.Environments, fleet.Environment]{
	columns: []column[fleet.Environment]{
		wideText("PLATFORM", func(e fleet.Environment) string { return e.Platform }),
		text("ENVIRONMENT", func(e fleet.Environment) string { return e.Environment }),
		text("TYPES", func(e fleet.Environment) string { return strconv.Itoa(e.Types) }),
		{header: "COMMIT", value: func(e fleet.Environment, _ time.Time) string { return short(cmp.Or(e.BaseCommit, e.EnvironmentCommit)) }, raw: func(e fleet.Environment) string { return cmp.Or(e.BaseCommit, e.EnvironmentCommit) }},
		{header: "SINCE", value: func(e fleet.Environment, now time.Time) string {
			if e.Since.IsZero() {
				return ""
			}
			return bundle.Ago(e.Since, now)
		}, raw: func(e fleet.Environment) string { return stamp(e.Since) }},
		{header: "CLUSTERS", flexible: true, value: func(e fleet.Environment, _ time.Time) string { return totalsLine("cluster", e.Totals, time.Time{}) }, raw: func(e fleet.Environment) string { return strconv.Itoa(e.Totals.Count) }},
		{header: "INCOMPLETE", wide: true, flexible: true, value: func(e fleet.Environment, _ time.Time) string { return strings.Join(e.Incomplete, ", ") }},
		{header: "RECORD", wide: true, value: func(e fleet.Environment, _ time.Time) string { return short(e.Record) }, raw: func(e fleet.Environment) string { return string(e.Record) }},
	},
	name: func(e fleet.Environment) string { return e.Environment },
	page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Environments, error) {
		q.Limit = 0
		return a.Environments(ctx, q)
	},
	rows:   func(p *fleet.Environments) *[]fleet.Environment { return &p.Environments },
	next:   func(*fleet.Environments) *string { return new(string) },
	totals: func(p fleet.Environments, _ time.Time) string { return environmentTotals(p.Environments) },
}

// environmentTotals is the line of totals above environments.
func environmentTotals(all []fleet.Environment) string {
	sum := fleet.Totals{States: map[bundle.State]int{}, Relations: map[fleet.Relation]int{}}
	for _, e := range all {
		sum.Count += e.Totals.Count
		for s, n := range e.Totals.States {
			sum.States[s] += n
		}
		for r, n := range e.Totals.Relations {
			sum.Relations[r] += n
		}
	}
	return count(len(all), "environment") + " with " + totalsLine("cluster", sum, time.Time{})
}

func newGetReports(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "reports CLUSTER",
		Aliases: []string{"report"},
		Short:   "List the stored reports of a cluster",
		Long: `List the reports of a cluster that are stored, newest first: when its agent wrote each, when the hub received it,
by which way, and whose key signed it. "wherry describe report CLUSTER/NAME" shows what one says.`,
		Example: "  wherry get reports plant-7 --limit 20\n  wherry get reports plant-7 -o csv",
		Args:    cobra.MaximumNArgs(1),
	}
	without := []string{"as-of", "state", "relation", "silent-for"}
	for _, c := range choosing {
		if c.name != "cluster" {
			without = append(without, c.name)
		}
	}
	l := newLister(cmd, s, nil, without...)
	cmd.ValidArgsFunction = s.completeArgument(&l.query, clusterNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := l.oneCluster(args); err != nil {
			return err
		}
		if l.Cluster == "" {
			return cli.Fail(cli.Usage, errors.New("missing CLUSTER"), "reports are listed by cluster: wherry get reports CLUSTER")
		}
		return list(cmd, l, reportKind)
	}
	return cmd
}

var reportKind = kind[fleet.Reports, fleet.Report]{
	columns: []column[fleet.Report]{
		text("REPORT", func(r fleet.Report) string { return r.Name }),
		text("KIND", func(r fleet.Report) string { return r.Kind }),
		{header: "WRITTEN", value: func(r fleet.Report, now time.Time) string { return bundle.Ago(r.OccurredAt, now) }, raw: func(r fleet.Report) string { return stamp(r.OccurredAt) }},
		{header: "RECEIVED", value: func(r fleet.Report, now time.Time) string { return bundle.Ago(r.ReceivedAt, now) }, raw: func(r fleet.Report) string { return stamp(r.ReceivedAt) }},
		text("VIA", func(r fleet.Report) string { return way(r.Via) }),
		{header: "KEY", value: func(r fleet.Report, _ time.Time) string { return short(r.KeyID) }, raw: func(r fleet.Report) string { return r.KeyID }},
		text("BODY", func(r fleet.Report) string {
			if r.Kept {
				return "kept"
			}
			return "removed"
		}),
		{header: "ID", wide: true, value: func(r fleet.Report, _ time.Time) string { return short(r.ID) }, raw: func(r fleet.Report) string { return string(r.ID) }},
	},
	name: func(r fleet.Report) string { return r.Name },
	page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Reports, error) {
		cluster := q.Cluster
		q.Cluster = ""
		return a.Reports(ctx, cluster, q)
	},
	rows: func(p *fleet.Reports) *[]fleet.Report { return &p.Reports },
	next: func(p *fleet.Reports) *string { return &p.Next },
	totals: func(p fleet.Reports, _ time.Time) string {
		kept := 0
		for _, r := range p.Reports {
			if r.Kept {
				kept++
			}
		}
		if p.Next != "" {
			return fmt.Sprintf("the newest %s of %s: %s kept", count(len(p.Reports), "report"), p.Cluster, number(kept))
		}
		return fmt.Sprintf("%s of %s: %s kept", count(len(p.Reports), "report"), p.Cluster, number(kept))
	},
}

func newGetCounts(s *source) *cobra.Command {
	var of, by string
	cmd := &cobra.Command{
		Use:     "counts",
		Aliases: []string{"count"},
		Short:   "Count clusters or deployments by properties",
		Example: `  wherry get counts --of clusters --by environment,state
  wherry get counts --of deployments --workload web --by environment,ring,version,state
  wherry get counts --of clusters --by label:region,state -o csv`,
		Args: cobra.NoArgs,
	}
	l := newLister(cmd, s, nil)
	f := cmd.Flags()
	f.StringVar(&of, "of", "clusters", "count `ROWS`: clusters or deployments")
	f.StringVar(&by, "by", "environment,state", "count by these `FIELDS`, up to four, such as environment,state or label:region")
	cli.NotEmpty(cmd, "of", "by")
	_ = cmd.RegisterFlagCompletionFunc("of", cobra.FixedCompletions([]string{"clusters", "deployments"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("by", listCompletion(fleet.Dimensions))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"clusters", "deployments"}, of) {
			return cli.Usagef("--of %q: expected clusters or deployments", of)
		}
		fields := strings.Split(by, ",")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(fields) > fleet.MaxDimensions {
			return cli.Usagef("--by %s: at most %d fields can be counted by", by, fleet.MaxDimensions)
		}
		return list(cmd, l, countKind(of, fields))
	}
	return cmd
}

// countKind is the counts of rows by fields.
func countKind(of string, by []string) kind[fleet.Counts, fleet.Count] {
	k := kind[fleet.Counts, fleet.Count]{
		name: func(c fleet.Count) string { return strings.Join(c.Values, "/") },
		page: func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Counts, error) {
			q.Limit = 0
			return a.Count(ctx, of, by, q)
		},
		rows: func(p *fleet.Counts) *[]fleet.Count { return &p.Rows },
		next: func(*fleet.Counts) *string { return new(string) },
		asOf: func(p fleet.Counts) time.Time { return p.AsOf },
		totals: func(p fleet.Counts, asOf time.Time) string {
			n := 0
			for _, r := range p.Rows {
				n += r.Count
			}
			line := count(n, cmp.Or(strings.TrimSuffix(of, "s"), of))
			if !asOf.IsZero() {
				line += " as of " + utc(asOf)
			}
			return line + " by " + strings.Join(by, " and ")
		},
	}
	for i, name := range by {
		value := func(c fleet.Count) string {
			if i < len(c.Values) {
				return c.Values[i]
			}
			return ""
		}
		k.columns = append(k.columns, column[fleet.Count]{header: strings.ToUpper(name), value: func(c fleet.Count, _ time.Time) string { return cutDigest(value(c)) }, raw: value})
	}
	k.columns = append(k.columns, column[fleet.Count]{
		header: strings.ToUpper(of), value: func(c fleet.Count, _ time.Time) string { return number(c.Count) }, raw: func(c fleet.Count) string { return strconv.Itoa(c.Count) },
	})
	return k
}
