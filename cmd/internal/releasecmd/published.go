package releasecmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/releases"
)

func publishedTable(w io.Writer, done *publisher.Published) {
	if slices.ContainsFunc(done.ClusterTypes, func(ct publisher.PublishedType) bool { return len(ct.Releases) > 0 }) {
		publishedRings(w, done)
		return
	}
	fmt.Fprintln(w, "CLUSTER TYPE\tASSIGNMENTS\tRESULT\tRELEASE\tDIGEST")
	for _, ct := range done.ClusterTypes {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", ct.ClusterType, ct.Assignments, ct.Result, show.Cell(bundle.ReleaseName(ct.Number, ct.Digest)), cmp.Or(string(ct.Digest), "-"))
	}
}

// publishedRings has a line for each release that rings have.
func publishedRings(w io.Writer, done *publisher.Published) {
	fmt.Fprintln(w, "CLUSTER TYPE\tRINGS\tASSIGNMENTS\tRESULT\tRELEASE\tDIGEST")
	for _, ct := range done.ClusterTypes {
		rows := ct.Releases
		if len(rows) == 0 || ct.Result == releases.OutcomeFailed || ct.Result == releases.OutcomeSkipped {
			rows = []publisher.PublishedRelease{{Result: ct.Result, Number: ct.Number, Digest: ct.Digest}}
		}
		for _, r := range rows {
			assignments := "-"
			if r.Digest == ct.Digest {
				assignments = fmt.Sprint(ct.Assignments)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", ct.ClusterType, cmp.Or(ringNames(r), "-"), assignments, r.Result, show.Cell(bundle.ReleaseName(r.Number, r.Digest)), cmp.Or(string(r.Digest), "-"))
		}
	}
}

// ringNames names the rings that have a release, and latest for agents without a ring.
func ringNames(r publisher.PublishedRelease) string {
	names := slices.Clone(r.Rings)
	if r.Latest {
		names = append(names, bundle.LatestTag)
	}
	return strings.Join(names, ",")
}

// conclude prints the outcome of the whole, and returns the error of what did not succeed. The trust document's file is
// for its hint; strict says that nothing was published unless all was, and quiet that a success is not printed.
func conclude(cmd *cobra.Command, done *publisher.Published, to oci.Location, trustFile string, strict, quiet bool) error {
	published := 0
	for _, u := range done.Dropping {
		cmd.PrintErrf("failed: registration %s, with all its assignments: %s\n", show.Line(u.Registration), cli.Indented(u.Error))
	}
	for _, ct := range done.ClusterTypes {
		if ct.Result == releases.OutcomePublished {
			published++
		}
		if ct.Renewed != "" && len(ct.Releases) == 0 {
			cmd.PrintErrf("renewed: %s: %s\n", ct.ClusterType, ct.Renewed)
		}
		for _, r := range ct.Releases {
			if r.Renewed != "" {
				cmd.PrintErrf("renewed: %s in %s: %s\n", ct.ClusterType, ringNames(r), r.Renewed)
			}
		}
		printOutcome(cmd, ct)
	}
	all, pending := len(done.ClusterTypes), done.Pending()
	if parts := incomplete(done); len(parts) > 0 {
		what := strings.Join(parts, ", ")
		if strict {
			return cli.Fail(cli.No, fmt.Errorf("%s: nothing was published (--strict)", what), "")
		}
		if pending > 0 {
			what += fmt.Sprintf("; %d pending", pending)
		}
		return cli.Fail(cli.No, fmt.Errorf("%s; %d published, %d unchanged", what, published, all-done.Failed()-published-pending), "")
	}
	switch {
	case done.Record.Result == releases.OutcomePending:
		n := done.Record.Signatures
		return cli.Fail(cli.NotYet,
			fmt.Errorf("%s/%s: %d pending, %d published, %d unchanged, at %s: signed by %d of %d", done.Platform, done.Environment, pending, published, all-published-pending, to, n.Have, n.Need),
			fmt.Sprintf("wherry sign %s --environment %s --trust %s --key FILE", to, done.Environment, trustFile))
	case quiet:
	case published > 0:
		cmd.PrintErrf("%s/%s: %d published, %d unchanged, at %s\n", done.Platform, done.Environment, published, all-published, to)
	case done.Record.Result == releases.OutcomePublished:
		cmd.PrintErrf("%s/%s: all bundles unchanged, with a new record of the environment, at %s\n", done.Platform, done.Environment, to)
	default:
		cmd.PrintErrf("%s/%s: unchanged, nothing was pushed to %s\n", done.Platform, done.Environment, to)
	}
	return nil
}

// printOutcome prints the outcome for a cluster type's failed assignments, whose causes were printed before.
func printOutcome(cmd *cobra.Command, ct publisher.PublishedType) {
	for _, d := range ct.Dropped {
		cmd.PrintErrf("dropped: %s/%s: %s\n", show.Line(ct.ClusterType), show.Line(d.Name), cli.Indented(d.Error))
	}
	if ct.Reason != "" {
		cmd.PrintErrf("failed: %s: %s\n", show.Line(ct.ClusterType), cli.Indented(ct.Reason))
	}
	if ct.Result == releases.OutcomeFailed || ct.Result == releases.OutcomeSkipped {
		return
	}
	for _, f := range ct.Failures {
		if f.Taken {
			cmd.PrintErrf("left out: %s/%s of registration %q: the name belongs to another\n", ct.ClusterType, f.Name, f.Registration)
		} else if f.HeldFrom != nil {
			cmd.PrintErrf("held: %s/%s: as it was rendered for sequence %d (%s)\n", show.Line(ct.ClusterType), show.Line(f.Name), f.HeldFrom.Sequence, f.HeldFrom.Reason)
		} else {
			cmd.PrintErrf("left out: %s/%s: no release had it so far\n", show.Line(ct.ClusterType), show.Line(f.Name))
		}
	}
	for _, f := range ct.FailedSites {
		if f.HeldFrom != nil {
			cmd.PrintErrf("held: the site values of cluster %s of %s: as sequence %d had them (%s)\n", show.Line(f.Cluster), show.Line(ct.ClusterType), f.HeldFrom.Sequence, f.HeldFrom.Reason)
		} else if f.Cluster != "" {
			cmd.PrintErrf("left out: the site values of cluster %s of %s: no release had any so far\n", show.Line(f.Cluster), show.Line(ct.ClusterType))
		}
	}
}

// incomplete lists the parts that are not as the platform asks for.
func incomplete(done *publisher.Published) []string {
	var parts []string
	if n := len(done.Unread); n > 0 {
		parts = append(parts, show.Count(n, "registration")+" could not be read")
	}
	if n := len(done.Dropping); n > 0 {
		parts = append(parts, show.Count(n, "registration")+" held")
	}
	if n := len(done.FailedPolicies); n > 0 {
		parts = append(parts, show.Count(n, "policy")+" failed")
	}
	held, leftOut := done.FailedAssignments()
	if held > 0 {
		parts = append(parts, show.Count(held, "assignment")+" held")
	}
	if leftOut > 0 {
		parts = append(parts, show.Count(leftOut, "assignment")+" left out")
	}
	if n := done.FailedSites(); n > 0 {
		parts = append(parts, fmt.Sprintf("site values of %s not valid", show.Count(n, "cluster")))
	}
	if n := done.Failed(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s not published", n, show.Count(len(done.ClusterTypes), "cluster type")))
	}
	return parts
}
