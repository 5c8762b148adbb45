package fleetcmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/env"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/scheduler"
)

// workload holds the flags of rollout workload: those of a hub, and of a registry that is asked in its place.
type workload struct {
	watching
	registry env.Gates
}

func newRolloutWorkloadCommand(s *source) *cobra.Command {
	w := &workload{watching: watching{source: s}}
	cmd := &cobra.Command{
		Use:   "workload NAME [PLATFORM] --version VERSION [--environment NAME] [--watch] [--timeout DURATION]",
		Short: "Show the progress of a workload's version",
		Long: `Show how far the clusters whose newest release has a workload are with a version of it. A silent cluster is unknown, whatever
it reported last; --allow-unknown does not wait for it. --watch waits until all clusters are compliant or one failed;
--timeout does so too, and ends after DURATION.

A hub is asked. The registry is asked instead if you pass PLATFORM, --to, --release-key, --trust, --base or --reports.

Exit codes: 0 all clusters are compliant, 1 waiting alone does not help, 5 not yet.

More: wherry help rings, hub-access`,
		Example: `  wherry rollout workload web --version 1.4.2 --timeout 30m --allow-unknown
  wherry rollout workload web ./platform -e prod --version 1.4.2 --to oci://127.0.0.1:5000/edge --release-key cosign.pub`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Workload = args[0]
			switch {
			case w.Workload == "":
				return cli.Usagef("NAME of the workload is empty")
			case w.Version == "":
				return cli.Usagef("missing --version, of the workload")
			}
			if err := w.askRegistry(cmd, args[1:]); err != nil {
				return err
			}
			return w.run(cmd)
		},
	}
	w.addTo(cmd)
	w.registry.AddRegistry(cmd)
	f := cmd.Flags()
	f.Lookup("version").Usage = "the `VERSION` of the workload"
	f.Lookup("workspace").Usage = "only the workload of the workspace `NAME`"
	return cmd
}

// ofRegistry are the flags that ask a registry, and no hub; so does PLATFORM.
var ofRegistry = []string{"to", "release-key", "trust", "base", "reports"}

// askRegistry reads PLATFORM for the clusters, and has them looked at in place of a hub, if PLATFORM or a flag asks for that.
func (w *workload) askRegistry(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && !slices.ContainsFunc(ofRegistry, cmd.Flags().Changed) {
		return nil
	}
	for _, name := range []string{"hub", "data"} {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s asks a hub, which knows what is published: leave it out, or PLATFORM and --to, --release-key, --trust, --base and --reports", name)
		}
	}
	w.registry.Source.Environment = w.environment
	o, err := w.registry.Open(cmd, args)
	if err != nil {
		return err
	}
	clusters, err := o.Facts.Clusters(cmd.Context(), o.Policy.Environment)
	if err != nil {
		return w.registry.Failure(err, &o.Facts)
	}
	w.by = "the reports in " + o.Facts.Location.String()
	w.waits = func(ctx context.Context) (string, error) {
		e, err := o.Facts.EntryNow(ctx, o.Loaded, o.Policy)
		if err != nil || e == nil {
			return "", w.registry.Failure(err, &o.Facts)
		}
		take, err := e.Take(w.Workload)
		if err != nil { // nobody has it yet, or several are called so
			return "", nil
		}
		return take.Waits, nil
	}
	w.instead = func(ctx context.Context, q fleet.Query) (fleet.Answers, error) {
		chosen, err := choose(clusters, q)
		if err != nil {
			return nil, err
		}
		a, err := o.Facts.Fleet(ctx, o.Policy, chosen)
		return a, w.registry.Failure(err, &o.Facts)
	}
	return nil
}

// choose returns the clusters whose reports are to be read for a query on ring, type and labels.
func choose(clusters []scheduler.Cluster, q fleet.Query) (chosen []scheduler.Cluster, err error) {
	if q.Platform != "" || !q.AsOf.IsZero() {
		return nil, cli.Usagef("without a hub, --ring, --type and --selector choose clusters, and no other flag")
	}
	selector, err := k8slabels.Parse(q.Selector)
	if err != nil {
		return nil, cli.Fail(cli.Usage, fmt.Errorf("--selector: %w", err), "")
	}
	for _, c := range clusters {
		// A cluster whose object names no ring may be in the one that its agent claims.
		if selector.Matches(k8slabels.Set(c.Labels)) && (q.Ring == "" || c.Ring == "" || q.Ring == c.Ring) && (q.Type == "" || q.Type == c.ClusterType) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
