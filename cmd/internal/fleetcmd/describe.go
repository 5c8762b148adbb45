package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Describe returns the command wherry describe.
func Describe() *cobra.Command { return newDescribeCommand(new(source)) }

func newDescribeCommand(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Show one object in detail",
		Long:  "Show everything that a hub knows about one cluster, deployment, release, environment or report.\n\nMore: wherry help hub-access",
	}
	s.addTo(cmd)
	cmd.AddCommand(newDescribeCluster(s), newDescribeDeployment(s), newDescribeRelease(s), newDescribeEnvironment(s), newDescribeReport(s))
	return cmd
}

// describer holds the flags of a command that describes one thing.
type describer struct {
	*source
	query
	format format
}

// newDescriber returns the flags, added to cmd. With are those that choose.
func newDescriber(cmd *cobra.Command, s *source, with ...string) *describer {
	d := &describer{source: s}
	without := []string{"environment", "state", "relation", "silent-for"}
	for _, c := range choosing {
		if !slices.Contains(with, c.name) {
			without = append(without, c.name)
		}
	}
	if !slices.Contains(with, "as-of") {
		without = append(without, "as-of")
	}
	d.addChoosing(cmd, without...)
	if slices.Contains(with, "environment") {
		d.addEnvironment(cmd)
	}
	addFormat(cmd, &d.format, documentFormats)
	s.completeNames(cmd, &d.query)
	return d
}

// describe asks for one thing and prints it.
func describe[T any](cmd *cobra.Command, d *describer, get func(context.Context, fleet.Answers) (T, error), write func(w *sheet, v T, now time.Time)) error {
	if err := d.finish(cmd.Flags(), d.now()); err != nil {
		return err
	}
	return d.ask(cmd, func(a fleet.Answers) error {
		v, err := get(cmd.Context(), a)
		if err != nil {
			return err
		}
		if d.format != asTable {
			return document(cmd.OutOrStdout(), d.format, v)
		}
		now := d.now()
		if !d.AsOf.IsZero() {
			now = d.AsOf
		}
		sheet := &sheet{width: d.width()}
		write(sheet, v, now)
		_, err = io.WriteString(cmd.OutOrStdout(), sheet.String())
		return err
	})
}

// sheet is text for people about one thing: values with names, tables, and what to do next.
type sheet struct {
	strings.Builder
	width int
}

// nameWidth is the width of the names of values.
const nameWidth = 12

// value writes a value with its name; nothing if it is empty. Text of others stays in its line.
func (s *sheet) value(name, v string) {
	if v != "" {
		fmt.Fprintf(s, "%-*s %s\n", nameWidth, name, show.Line(v))
	}
}

// section begins a part with a title.
func (s *sheet) section(title string) { fmt.Fprintf(s, "\n%s\n", show.Line(title)) }

// table writes rows below a title.
func (s *sheet) table(title string, t *table) {
	s.section(title)
	_ = t.write(s, s.width)
}

// hints writes what to do next.
func (s *sheet) hints(all []string) {
	if len(all) == 0 {
		return
	}
	s.section("What to do")
	for _, h := range all {
		fmt.Fprintf(s, "  %s\n", show.Line(h))
	}
}

// lastReports is how many reports of a cluster are shown.
const lastReports = 5

// clusterDetail is the document about a cluster, as GET /v1/clusters/{cluster} has it, and its newest reports.
type clusterDetail struct {
	Cluster     fleet.Cluster      `json:"cluster"`
	Deployments []fleet.Deployment `json:"deployments"`
	reports     []fleet.Report
}

func newDescribeCluster(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster NAME|UID",
		Aliases: []string{"clusters"},
		Short:   "Show a cluster",
		Long: `Show who a cluster is, what it runs, what it should run, how that is known and how old the proof is, each of its
deployments with its reason, and what to do about what is wrong.`,
		Example: "  wherry describe cluster plant-7\n  wherry describe cluster plant-7 --as-of 2026-11-01\n  wherry describe cluster plant-7 -o json",
		Args:    cobra.ExactArgs(1),
	}
	d := newDescriber(cmd, s, "as-of")
	cmd.ValidArgsFunction = s.completeArgument(&d.query, clusterNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (clusterDetail, error) {
			return clusterDetails(ctx, a, args[0], d.Query, d.format == asTable)
		}, writeCluster)
	}
	return cmd
}

// clusterDetails asks for a cluster. With reports it asks for the newest of them as well.
func clusterDetails(ctx context.Context, a fleet.Answers, name string, q fleet.Query, reports bool) (v clusterDetail, err error) {
	q.Cluster, q.Limit = name, 1
	clusters, err := a.Clusters(ctx, q)
	if err == nil && len(clusters.Clusters) == 0 {
		err = unknownCluster(ctx, a, name)
	}
	if err != nil {
		return v, unknownClusterHint(ctx, a, name, err)
	}
	v.Cluster = clusters.Clusters[0]
	q.Cluster, q.Limit, q.Sort = v.Cluster.UID, 0, "state"
	deployments, err := a.Deployments(ctx, q)
	if err != nil {
		return v, err
	}
	if v.Deployments = deployments.Deployments; v.Deployments == nil {
		v.Deployments = []fleet.Deployment{}
	}
	if reports && q.AsOf.IsZero() {
		list, err := a.Reports(ctx, v.Cluster.UID, fleet.Query{Limit: lastReports})
		if err == nil {
			v.reports = list.Reports
		} else if refused := (*hubapi.Error)(nil); !errors.As(err, &refused) || refused.Code != hubapi.CodeForbidden { // whose scope has workspaces sees no reports
			return v, err
		}
	}
	return v, nil
}

// unknownCluster is the error of a name that no cluster has.
func unknownCluster(ctx context.Context, a fleet.Answers, name string) error {
	known := clusterNames(ctx, a, fleet.Query{}, "")
	return &fleet.UnknownNameError{Kind: "cluster", Name: name, Near: known}
}

// unknownClusterHint gives an error of a cluster that does not exist the names that are near.
func unknownClusterHint(ctx context.Context, a fleet.Answers, name string, err error) error {
	if errors.Is(err, store.ErrUnknownCluster) {
		return unknownCluster(ctx, a, name)
	}
	return err
}

func writeCluster(w *sheet, v clusterDetail, now time.Time) {
	c := v.Cluster
	w.value("Cluster", c.Name)
	w.value("UID", c.UID)
	w.value("Platform", c.Platform)
	w.value("Environment", c.Environment)
	w.value("Type", c.Type)
	w.value("Ring", c.Ring)
	w.value("Labels", labels(c.Labels))
	w.value("Key", strings.Join(c.KeyIDs, ", "))
	switch {
	case c.Reporting == store.NotReporting:
		w.value("Reports", "none are expected")
	case c.ExpectedSeconds > 0:
		w.value("Reports", "expected every "+longAge(time.Duration(c.ExpectedSeconds)*time.Second))
	}
	if !c.AddedAt.IsZero() {
		w.value("Registered", utc(c.AddedAt))
	}
	w.value("Agent", c.AgentVersion)
	w.Builder.WriteByte('\n')
	w.value("State", joined(" · ", c.ShownState(), silence(c.State, c.LastSeen, c.Proof.Via, now)))
	w.value("Since", sinceText(c.Since, now))
	w.value("Reason", joined(": ", c.ShownReason(), c.Message))
	w.value("Last heard", joined(", ", sinceText(c.LastSeen, now), viaText(c.Proof.Via)))
	w.value("Identity", c.SharedHow)
	w.value("Runs", releaseText(c.Observed))
	if c.Offered != nil && (c.Observed == nil || c.Offered.Digest != c.Observed.Digest) {
		w.value("Offered", releaseText(c.Offered))
	}
	if m := c.Desired; m != nil {
		w.value("Desired", releaseText(m.Release))
		w.value("Relation", desiredText(m, now))
	} else {
		w.value("Desired", "unknown: the hub does not follow what is published for it")
	}
	t := &table{headers: []string{"ASSIGNMENT", "STATE", "VERSION", "SINCE", "REASON"}, flexible: []bool{false, false, false, false, true}}
	for _, d := range v.Deployments {
		t.add(d.Assignment, d.ShownState(), d.ShownVersion(), bundle.Ago(d.Since, now), joined(": ", d.Reason, d.Message))
	}
	if len(t.rows) > 0 {
		w.table(count(len(v.Deployments), "deployment"), t)
	}
	if len(v.reports) > 0 {
		w.table("Last reports", newTable(shownColumns(reportKind.columns, asTable), v.reports, now))
	}
	w.hints(clusterHints(c))
}

// sinceText is a time with its age.
func sinceText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return utc(t) + " (" + longAgo(t, now) + ")"
}

func viaText(v store.Via) string {
	if v == "" {
		return ""
	}
	return "by " + way(v)
}

// releaseText is a release with its commit and time.
func releaseText(r *bundle.ReportRelease) string {
	if r == nil {
		return ""
	}
	s := releaseName(r)
	if r.BaseCommit != "" {
		s += " of commit " + short(r.BaseCommit)
	}
	if !r.IssuedAt.IsZero() {
		s += ", issued " + utc(r.IssuedAt)
	}
	if r.Expired {
		s += ", expired"
	}
	return s
}

// desiredText compares what a cluster runs with what it should run, in words.
func desiredText(m *fleet.Desired, now time.Time) string {
	switch m.Relation {
	case fleet.Behind:
		s := "behind"
		if m.Behind > 0 {
			s += " by " + count(m.Behind, "release")
		}
		if !m.BehindSince.IsZero() {
			s += ", since " + sinceText(m.BehindSince, now)
		}
		return s
	case fleet.Foreign:
		return "foreign: it runs a release that was never published here"
	case fleet.Ahead:
		return "ahead: it runs a newer release than it should"
	case fleet.Nothing:
		return "it runs no release"
	}
	return string(m.Relation)
}

// clusterHints says what to do about a cluster.
func clusterHints(c fleet.Cluster) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if !c.SharedSince.IsZero() || c.Conflicts > 0 {
		add("two agents share this identity: find the copy, end it, then run wherry hub clusters unshare %s", c.Name)
	}
	switch c.State {
	case store.Unreported:
		if c.Reporting == store.NotReporting {
			break
		}
		add("it has never reported: look at its agent with wherry-agent doctor")
	case store.Stale:
		if c.Proof.Via == store.ViaMedia {
			add("bring its reports: wherry-agent reports export at the site, wherry hub import here")
		} else {
			add("look at its link and its agent: wherry-agent status and wherry-agent doctor at the site")
		}
		add("if it is gone for good: wherry hub clusters retire %s", c.Name)
	case bundle.Failed, bundle.Drifted, bundle.Rejected:
		if r := c.Reason; r != "" {
			add("wherry explain %s says what the reason means", r)
		}
	}
	if c.Mismatch != "" {
		add("its agent is configured for another place than it is registered for: change either (%s)", c.Mismatch)
	}
	if m := c.Desired; m != nil && m.Relation == fleet.Foreign {
		add("find out who published what it runs: wherry describe release %s", short(c.Observed.Digest))
	}
	return all
}

func newDescribeDeployment(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deployment CLUSTER/ASSIGNMENT",
		Aliases: []string{"deployments"},
		Short:   "Show a deployment",
		Example: "  wherry describe deployment plant-7/web-main\n  wherry describe deployment plant-7/web-main --as-of 7d -o json",
		Args:    cobra.ExactArgs(1),
	}
	d := newDescriber(cmd, s, "as-of")
	cmd.ValidArgsFunction = s.completeArgument(&d.query, deploymentNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, assignment, ok := strings.Cut(args[0], "/")
		if !ok || cluster == "" || assignment == "" {
			return cli.Fail(cli.Usage, fmt.Errorf("%q does not name a deployment", args[0]), "write CLUSTER/ASSIGNMENT, as wherry get deployments -o name prints it")
		}
		return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (fleet.Deployment, error) {
			detail, err := clusterDetails(ctx, a, cluster, d.Query, false)
			if err != nil {
				return fleet.Deployment{}, err
			}
			var known []string
			for _, one := range detail.Deployments {
				if known = append(known, one.Assignment); one.Assignment == assignment {
					return one, nil
				}
			}
			return fleet.Deployment{}, cli.Fail(cli.Failed, fmt.Errorf("cluster %s has no deployment %q", cluster, assignment), failure.Near(assignment, known))
		}, writeDeployment)
	}
	return cmd
}

func writeDeployment(w *sheet, d fleet.Deployment, now time.Time) {
	w.value("Deployment", d.Cluster+"/"+d.Assignment)
	w.value("Environment", d.Environment)
	w.value("Type", joined(", ring ", d.Type, d.Ring))
	w.value("Workspace", d.Workspace)
	w.value("Application", d.Application)
	w.value("Workload", d.Workload)
	w.value("Target", d.Target)
	w.value("Reconciler", d.Adapter)
	w.Builder.WriteByte('\n')
	w.value("State", joined(" · ", d.ShownState(), silence(d.State, proofTime(d), d.Proof.Via, now)))
	w.value("Since", sinceText(d.Since, now))
	w.value("Reason", joined(": ", d.Reason, d.Message))
	if d.Failures > 0 {
		w.value("Failures", fmt.Sprintf("%s; its agent counts how often it has begun to fail", number(int(d.Failures))))
	}
	w.value("Proof", joined(", ", sinceText(proofTime(d), now), viaText(d.Proof.Via)))
	w.Builder.WriteByte('\n')
	w.value("Version", d.Version)
	w.value("Config", string(d.ConfigDigest))
	w.value("Content", string(d.Content))
	switch {
	case d.Desired == "":
	case d.Desired == d.Content:
		w.value("Desired", "the same content")
	default:
		w.value("Desired", string(d.Desired))
	}
	w.value("Revision", d.Revision)
	if d.Floating {
		w.value("Floating", "yes: what runs may change without a release")
	}
	w.value("Release", string(d.Release))
	w.value("Commit", d.BaseCommit)
	w.value("Env commit", d.EnvironmentCommit)
}

func newDescribeRelease(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release RELEASE",
		Aliases: []string{"releases"},
		Short:   "Show a release and its progress",
		Long: `Show a release, the assignments and artifacts that it has, and how far the clusters are with it. RELEASE is
ENVIRONMENT/TYPE:NUMBER, such as prod/drone:12, or at least the first 7 digits of its digest. With --against, show
what differs from another one.`,
		Example: "  wherry describe release prod/drone:12\n  wherry describe release prod/drone:12 --against prod/drone:11\n  wherry describe release 68846e7d -o json",
		Args:    cobra.ExactArgs(1),
	}
	against := ""
	d := newDescriber(cmd, s, "platform", "environment", "type")
	cmd.ValidArgsFunction = s.completeArgument(&d.query, releaseNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := d.releaseArgument(args[0])
		if err != nil {
			return err
		}
		one := func(ctx context.Context, a fleet.Answers, text, name string, q fleet.Query) (fleet.ReleaseDetail, error) {
			v, err := a.Release(ctx, name, q)
			if errors.Is(err, store.ErrUnknownRelease) {
				err = cli.Fail(cli.Failed, fmt.Errorf("release %s: %w", text, store.ErrUnknownRelease), failure.Near(text, releaseNames(ctx, a, fleet.Query{Environments: q.Environments, Type: q.Type}, "")))
			}
			return v, err
		}
		if against == "" {
			return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (fleet.ReleaseDetail, error) {
				return one(ctx, a, args[0], name, d.Query)
			}, writeRelease)
		}
		return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (fleet.ReleaseDiff, error) {
			after, err := one(ctx, a, args[0], name, d.Query)
			if err != nil {
				return fleet.ReleaseDiff{}, err
			}
			stream := fleet.Query{Environments: []string{after.Environment}, Type: after.Type} // of a number
			if strings.Contains(against, ":") {
				stream = fleet.Query{} // it names its own
			}
			before, err := one(ctx, a, against, against, stream)
			if err != nil {
				return fleet.ReleaseDiff{}, err
			}
			return fleet.DiffReleases(before, after)
		}, writeReleaseDiff)
	}
	cmd.Flags().StringVar(&against, "against", "", "show what differs from this `RELEASE`; a number alone is one of the same stream")
	_ = cmd.RegisterFlagCompletionFunc("against", s.completeArgument(&d.query, releaseNames))
	cli.NotEmpty(cmd, "against")
	return cmd
}

func writeReleaseDiff(w *sheet, d fleet.ReleaseDiff, _ time.Time) {
	for _, side := range []struct {
		name string
		r    fleet.Release
	}{{"Before", d.Before}, {"After", d.After}} {
		w.value(side.name, joined(" ", side.r.Environment+"/"+side.r.Type, releaseName(&side.r.ReportRelease)))
		w.value("  commit", side.r.BaseCommit)
	}
	w.value("Differ", fmt.Sprintf("%s of %s", number(len(d.Assignments)), count(d.Total(), "assignment")))
	if len(d.Assignments) > 0 {
		t := &table{headers: []string{"ASSIGNMENT", "WORKSPACE", "BEFORE", "AFTER", "DIFFERS"}, flexible: make([]bool, 5)}
		for _, a := range d.Assignments {
			what, sides := strings.Join(a.Differs, ","), [2]string{}
			for i, s := range []*fleet.AssignmentContent{a.Before, a.After} {
				if s != nil {
					sides[i] = cmp.Or(bundle.ShownVersion(s.Version), short(s.Content))
				} else {
					what = []string{"added", "removed"}[i]
				}
			}
			t.add(a.Name, a.Workspace, sides[0], sides[1], what)
		}
		w.table(count(len(d.Assignments), "assignment"), t)
	}
	if len(d.Artifacts) > 0 {
		t := &table{headers: []string{"TYPE", "BEFORE", "AFTER"}, flexible: []bool{false, true, true}}
		for _, a := range d.Artifacts {
			t.add(string(a.Type), strings.Join(a.Before, ", "), strings.Join(a.After, ", "))
		}
		w.table(count(len(d.Artifacts), "artifact"), t)
	}
}

// releaseArgument takes the environment and the cluster type out of a release's name.
func (q *query) releaseArgument(text string) (string, error) {
	stream, name, ok := strings.Cut(text, ":")
	if !ok || stream == "sha256" {
		return text, nil
	}
	environment, clusterType, ok := strings.Cut(stream, "/")
	if !ok {
		environment, clusterType = q.environment, stream
	}
	switch {
	case environment == "":
		return "", cli.Fail(cli.Usage, fmt.Errorf("%q lacks the environment", text), "write ENVIRONMENT/TYPE:NUMBER, such as prod/"+text)
	case clusterType == "" || name == "":
		return "", cli.Fail(cli.Usage, fmt.Errorf("%q does not name a release", text), "write ENVIRONMENT/TYPE:NUMBER, such as prod/drone:12")
	case q.environment != "" && q.environment != environment, q.Type != "" && q.Type != clusterType:
		return "", cli.Usagef("%s, and --environment or --type, name two streams of releases", text)
	}
	q.environment, q.Type = environment, clusterType
	return name, nil
}

func writeRelease(w *sheet, r fleet.ReleaseDetail, now time.Time) {
	w.value("Release", releaseName(&r.ReportRelease))
	w.value("Digest", string(r.Digest))
	w.value("Platform", r.Platform)
	w.value("Environment", r.Environment)
	w.value("Type", r.Type)
	w.value("Rings", strings.Join(r.Rings, ", "))
	switch {
	case r.Foreign:
		w.value("Standing", "foreign: it was never published here")
	case r.Current:
		w.value("Standing", "current")
	case len(r.KeyIDs) == 0:
		w.value("Standing", "unknown: the hub does not follow what is published for it")
	default:
		w.value("Standing", "replaced by a newer one")
	}
	w.value("Commit", r.BaseCommit)
	w.value("Env commit", r.EnvironmentCommit)
	w.value("Message", r.Message)
	w.value("Issued", sinceText(r.IssuedAt, now))
	w.value("Expires", utc(r.ExpiresAt))
	w.value("Signed by", strings.Join(r.KeyIDs, ", "))
	w.value("Clusters", progress(r.Clusters, r.Compliant, r.Progressing, r.Failed, r.Waiting, r.Unknown)+fmt.Sprintf("; %s run it", number(r.Running)))
	if len(r.Assignments) > 0 {
		t := &table{headers: []string{"ASSIGNMENT", "WORKSPACE", "WORKLOAD", "VERSION", "RECONCILER", "CONFIG"}, flexible: make([]bool, 6)}
		for _, a := range r.Assignments {
			t.add(a.Name, a.Workspace, a.Workload, bundle.ShownVersion(a.Version), a.Adapter, short(a.ConfigDigest))
		}
		w.table(count(len(r.Assignments), "assignment"), t)
	}
	if len(r.Artifacts) > 0 {
		t := &table{headers: []string{"ARTIFACT", "TYPE", "DIGEST", "SIZE"}, flexible: []bool{true, false, false, false}}
		for _, a := range r.Artifacts {
			size := ""
			if a.Size > 0 {
				size = show.Size(a.Size)
			}
			t.add(cmp.Or(a.Reference, a.Name), string(a.Type), short(a.Digest), size)
		}
		w.table(count(len(r.Artifacts), "artifact"), t)
	}
}

// progress is how far clusters are: "3 of 5 clusters are compliant, 1 failed, 1 unknown".
func progress(clusters, compliant, progressing, failed, waiting, unknown int) string {
	if clusters == 0 {
		return "no cluster should run it"
	}
	verb := "are"
	if clusters == 1 {
		verb = "is"
	}
	return joined(", ", fmt.Sprintf("%s of %s %s compliant", number(compliant), count(clusters, "cluster"), verb),
		some(failed, "failed"), some(unknown, "unknown"), some(waiting, "waiting"), some(progressing, "progressing"))
}

// environmentDetail is the document about an environment: its row, and that of each of its releases that is current.
type environmentDetail struct {
	fleet.Environment
	Releases []fleet.Release `json:"releases"`
}

func newDescribeEnvironment(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "environment NAME",
		Aliases: []string{"environments", "env"},
		Short:   "Show an environment and its releases",
		Example: "  wherry describe environment prod\n  wherry describe environment prod -o json",
		Args:    cobra.ExactArgs(1),
	}
	d := newDescriber(cmd, s, "platform")
	cmd.ValidArgsFunction = s.completeArgument(&d.query, countedNames("clusters", "environment"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (v environmentDetail, err error) {
			all, err := a.Environments(ctx, fleet.Query{Platform: d.Platform})
			if err != nil {
				return v, err
			}
			var found, known []string
			for _, e := range all.Environments {
				known = append(known, e.Environment)
				if e.Environment == args[0] {
					v.Environment = e
					found = append(found, e.Platform)
				}
			}
			switch {
			case len(found) == 0:
				return v, &fleet.UnknownNameError{Kind: "environment", Name: args[0], Near: known}
			case len(found) > 1:
				return v, cli.Fail(cli.Usage, fmt.Errorf("%d platforms have an environment %q", len(found), args[0]), "give --platform: "+strings.Join(found, ", "))
			}
			v.Releases, err = currentReleases(ctx, a, v.Environment)
			return v, err
		}, writeEnvironment)
	}
	return cmd
}

func currentReleases(ctx context.Context, a fleet.Answers, e fleet.Environment) ([]fleet.Release, error) {
	current := []fleet.Release{}
	q := fleet.Query{Platform: e.Platform, Environments: []string{e.Environment}, Limit: pageRows}
	for {
		page, err := a.Releases(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Releases {
			if r.Current || r.Foreign {
				current = append(current, r)
			}
		}
		if page.Next == "" || page.Next == q.After {
			return current, nil
		}
		q.After = page.Next
	}
}

func writeEnvironment(w *sheet, v environmentDetail, now time.Time) {
	e := v.Environment
	w.value("Environment", e.Environment)
	w.value("Platform", e.Platform)
	w.value("Commit", e.BaseCommit)
	w.value("Env commit", e.EnvironmentCommit)
	w.value("Published", sinceText(e.IssuedAt, now))
	if e.Record == "" {
		w.value("Record", "none: the hub does not follow what is published for it")
	} else {
		w.value("Record", string(e.Record))
	}
	w.value("Incomplete", strings.Join(e.Incomplete, ", "))
	w.value("Types", strconv.Itoa(e.Types))
	w.value("Clusters", totalsLine("cluster", e.Totals, time.Time{}))
	if len(v.Releases) > 0 {
		columns := slices.DeleteFunc(shownColumns(releaseKind.columns, asTable), func(c column[fleet.Release]) bool { return c.header == "ENVIRONMENT" })
		w.table("Releases that are current, or foreign", newTable(columns, v.Releases, now))
	}
}

func newDescribeReport(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "report CLUSTER/REPORT",
		Aliases: []string{"reports"},
		Short:   "Show a report and verify its signature",
		Long: `Show what a stored report says, when its agent wrote it and when the hub received it, by which way it came, and
whether the signature on it is good now. -o json has the signed bytes as well, as "envelope".`,
		Example: "  wherry describe report plant-7/r1-12\n  wherry describe report plant-7/r1-12 -o json",
		Args:    cobra.ExactArgs(1),
	}
	d := newDescriber(cmd, s)
	cmd.ValidArgsFunction = s.completeArgument(&d.query, reportNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, name, ok := strings.Cut(args[0], "/")
		if !ok || cluster == "" || name == "" {
			return cli.Fail(cli.Usage, fmt.Errorf("%q does not name a report", args[0]), "write CLUSTER/REPORT, such as plant-7/r1-12; wherry get reports CLUSTER lists them")
		}
		return describe(cmd, d, func(ctx context.Context, a fleet.Answers) (fleet.ReportDetail, error) {
			v, err := a.Report(ctx, cluster, name)
			if errors.Is(err, store.ErrUnknownReport) {
				err = cli.Fail(cli.Failed, fmt.Errorf("report %s: %w", args[0], store.ErrUnknownReport), fmt.Sprintf("wherry get reports %s lists those that are stored", cluster))
			}
			return v, unknownClusterHint(ctx, a, cluster, err)
		}, writeReport)
	}
	return cmd
}

// signatureText explains the verdict on a signature.
func signatureText(verdict string) string {
	switch verdict {
	case "good":
		return "good"
	case "previous":
		return "good, by a key that the agent has replaced since"
	case "revoked":
		return "by a key that was revoked since: do not rely on this report"
	case "bad":
		return "bad: these are not the bytes that the agent signed"
	}
	return verdict
}

func writeReport(w *sheet, r fleet.ReportDetail, now time.Time) {
	w.value("Report", r.Name)
	w.value("ID", string(r.ID))
	w.value("Cluster", joined(", uid ", r.Body.Cluster.Name, r.Body.Cluster.UID))
	w.value("Kind", r.Kind)
	w.value("Written", sinceText(r.OccurredAt, now)+", by the agent's clock")
	w.value("Received", joined(", ", sinceText(r.ReceivedAt, now), viaText(r.Via)))
	w.value("Key", r.KeyID)
	w.value("Signature", signatureText(r.Signature))
	w.value("Agent", r.Body.Agent.Version)
	w.Builder.WriteByte('\n')
	w.value("State", string(r.Body.State))
	w.value("Reason", joined(": ", r.Body.Reason, r.Body.Message))
	w.value("Runs", releaseText(r.Body.Observed))
	w.value("Offered", releaseText(r.Body.Desired))
	if len(r.Body.Items) > 0 {
		t := &table{headers: []string{"ASSIGNMENT", "STATE", "VERSION", "SINCE", "REASON"}, flexible: []bool{false, false, false, false, true}}
		for _, i := range r.Body.Items {
			t.add(i.Assignment, string(i.State), bundle.ShownVersion(i.Version), utc(i.Since), joined(": ", i.Reason, i.Message))
		}
		w.table(count(len(r.Body.Items), "assignment"), t)
	}
}
