package fleetcmd

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
)

// Drift returns the command wherry drift.
func Drift() *cobra.Command { return newDriftCommand(new(source)) }

func newDriftCommand(s *source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Show differences from the desired state",
		Long: `Show differences from the desired state:

  drifted   the reconciler found changes that somebody made
  content   the cluster has other content than its release
  missing   the release has it, the cluster does not
  extra     the cluster has it, the release does not
  behind    the cluster runs an older release than desired
  foreign   the cluster runs a release that was never published here

Silent clusters are not drift: "wherry get clusters --state stale" lists them. The exit code is 1 if there are differences.

More: wherry help hub-access`,
		Example: "  wherry drift --environment prod\n  wherry drift -l region=east -o json",
		Args:    cobra.NoArgs,
	}
	s.addTo(cmd)
	l := newLister(cmd, s, nil)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found := false
		k := driftKind
		k.page = func(ctx context.Context, a fleet.Answers, q fleet.Query) (fleet.Drifts, error) {
			page, err := a.Drift(ctx, q)
			found = found || len(page.Drifts) > 0
			return page, err
		}
		l.quiet = true
		if err := list(cmd, l, k); err != nil {
			return err
		}
		if found {
			return cli.Exit(cli.No)
		}
		return nil
	}
	return cmd
}

var driftKind = kind[fleet.Drifts, fleet.Drift]{
	columns: []column[fleet.Drift]{
		text("CLUSTER", func(d fleet.Drift) string { return d.Cluster }),
		wideText("UID", func(d fleet.Drift) string { return d.UID }),
		wideText("TYPE", func(d fleet.Drift) string { return d.Type }),
		text("ASSIGNMENT", func(d fleet.Drift) string { return d.Assignment }),
		text("KIND", func(d fleet.Drift) string { return d.Kind }),
		text("STATE", func(d fleet.Drift) string { return string(d.State) }),
		{header: "DESIRED", value: func(d fleet.Drift, _ time.Time) string { return cutDigest(d.Desired) }, raw: func(d fleet.Drift) string { return d.Desired }},
		{header: "RUNNING", value: func(d fleet.Drift, _ time.Time) string { return cutDigest(d.Running) }, raw: func(d fleet.Drift) string { return d.Running }},
		{header: "SINCE", value: func(d fleet.Drift, now time.Time) string {
			if d.Since.IsZero() {
				return ""
			}
			return bundle.Ago(d.Since, now)
		}, raw: func(d fleet.Drift) string { return stamp(d.Since) }},
		{header: "MESSAGE", flexible: true, value: func(d fleet.Drift, _ time.Time) string { return reasonText("", d.Message) }, raw: func(d fleet.Drift) string { return d.Message }},
	},
	name: func(d fleet.Drift) string {
		if d.Assignment == "" {
			return d.Cluster
		}
		return d.Cluster + "/" + d.Assignment
	},
	rows: func(p *fleet.Drifts) *[]fleet.Drift { return &p.Drifts },
	next: func(p *fleet.Drifts) *string { return &p.Next },
	asOf: func(p fleet.Drifts) time.Time { return p.AsOf },
	totals: func(p fleet.Drifts, asOf time.Time) string {
		line := "no drift"
		n := driftCount(p)
		if n > 0 {
			line = count(n, "difference") + " from the desired state"
		}
		if !asOf.IsZero() {
			line += " as of " + utc(asOf)
		}
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(p.Kinds)) {
			parts = append(parts, some(p.Kinds[k], k))
		}
		if rest := joined(", ", parts...); rest != "" {
			line += ": " + rest
		}
		return line
	},
	count: driftCount,
}

func driftCount(p fleet.Drifts) int {
	n := 0
	for _, k := range p.Kinds {
		n += k
	}
	return max(n, len(p.Drifts))
}

// cutDigest returns the first digits of a digest, and other text as it is.
func cutDigest(s string) string {
	if strings.HasPrefix(s, "sha256:") {
		return short(s)
	}
	return s
}
