package rolloutcmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/scheduler"
)

// choosing are the flags that ask a registry, and no hub, about a workload; so does PLATFORM.
var choosing = []string{"to", "release-key", "trust", "base", "reports"}

// open reads PLATFORM for the clusters, and returns what looks at them in place of a hub; nil if a hub is to answer.
func (l *looking) open(cmd *cobra.Command, args []string) (instead func(context.Context, fleet.Query) (fleet.Answers, error), by string, err error) {
	given := slices.IndexFunc(choosing, cmd.Flags().Changed)
	if given < 0 && len(args) == 0 {
		return nil, "", nil
	}
	for _, name := range []string{"hub", "data"} {
		if cmd.Flags().Changed(name) {
			return nil, "", cli.Usagef("--%s asks a hub, which knows what is published: leave it out, or PLATFORM and --to, --release-key, --trust, --base and --reports", name)
		}
	}
	for _, name := range []string{"cluster-type", "allow-commands", "check-env"} {
		if cmd.Flags().Changed(name) {
			return nil, "", cli.Usagef("--%s is about the rings of an environment: leave out --workload and --version", name)
		}
	}
	own := l.command
	if cmd.Flags().Changed("environment") {
		if err := own.Flags().Set("environment", cmd.Flag("environment").Value.String()); err != nil {
			return nil, "", err
		}
	}
	l.prepare(cmd)
	l.NoHub = true // whoever gives such a flag asks the registry
	o, err := l.Open(own, args)
	if err != nil {
		return nil, "", err
	}
	clusters, err := o.Facts.Clusters(cmd.Context(), o.Policy.Environment)
	if err != nil {
		return nil, "", l.Failure(err, &o.Facts)
	}
	return func(ctx context.Context, q fleet.Query) (fleet.Answers, error) {
		chosen, err := choose(clusters, q)
		if err != nil {
			return nil, err
		}
		a, err := o.Facts.Fleet(ctx, o.Policy, chosen)
		return a, l.Failure(err, &o.Facts)
	}, "the reports in " + o.Facts.Location.String(), nil
}

// choose returns the clusters whose reports are to be read for a query on ring, type and labels.
func choose(clusters []scheduler.Cluster, q fleet.Query) (chosen []scheduler.Cluster, err error) {
	if q.Platform != "" || !q.AsOf.IsZero() {
		return nil, cli.Usagef("without a hub, --ring, --type and --selector choose clusters, and no other flag")
	}
	selector, err := labels.Parse(q.Selector)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--selector: %w", err), "")
	}
	for _, c := range clusters {
		// A cluster whose object names no ring may be in the one that its agent claims.
		if selector.Matches(labels.Set(c.Labels)) && (q.Ring == "" || c.Ring == "" || q.Ring == c.Ring) && (q.Type == "" || q.Type == c.ClusterType) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
