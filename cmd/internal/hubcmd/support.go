package hubcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// supportEvents and supportEntries bound the newest events and entries of the audit log in a bundle.
const supportEvents, supportEntries = 1000, 500

func newSupportCommand(dir *location) *cobra.Command {
	var e examining
	var output string
	cmd := &cobra.Command{
		Use:   "support-bundle -o FILE",
		Short: "Collect diagnostics without secrets",
		Long: `Collect what those who help with a hub need to know, in a tar with gzip: the version, what "wherry hub doctor" says, the
metrics, how many clusters are in which state, the environments, the releases, the newest events and the newest entries of the audit log.

Keys, tokens and passwords are in no file of it, nor are reports. Names of clusters, workloads and people are in it: look through
it before you send it. Counters of the metrics are those of this command and not of a hub that serves.`,
		Example: "  wherry hub support-bundle --data /var/lib/wherry-hub -o support.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s cli.Support
			report, err := e.examine(cmd.Context(), *dir, func(h *hub.Hub) error {
				collect(cmd.Context(), h, &s)
				return nil
			})
			if err != nil {
				return err
			}
			s.Add("doctor.json", report, nil)
			return s.Write(cmd, output)
		},
	}
	e.addTo(cmd)
	cli.OutputSupport(cmd, &output)
	return cmd
}

// collect adds what the hub knows.
func collect(ctx context.Context, h *hub.Hub, s *cli.Support) {
	page, err := h.Metrics(ctx)
	if s.AddText("metrics.txt", page); err != nil {
		s.Add("metrics.txt", nil, err)
	}
	log, err := h.Access().AuditLog(ctx, store.AuditQuery{Limit: supportEntries})
	s.Add("audit.json", log, err)
	view, err := h.Answers(ctx, store.AccessScope{})
	if err != nil {
		s.Add("fleet.json", nil, err)
		return
	}
	for name, by := range map[string][]string{"clusters.json": {"environment", "state"}, "agents.json": {"agentVersion", "state"}, "deployments.json": {"workload", "state"}} {
		of := "clusters"
		if name == "deployments.json" {
			of = "deployments"
		}
		counts, err := view.Count(ctx, of, by, fleet.Query{})
		s.Add(name, counts, err)
	}
	environments, err := view.Environments(ctx, fleet.Query{})
	s.Add("environments.json", environments, err)
	releases, err := view.Releases(ctx, fleet.Query{Limit: supportEntries})
	s.Add("releases.json", releases, err)
	var events []fleet.Event
	err = view.Events(ctx, 0, fleet.Query{AsOf: time.Now()}, func(e fleet.Event) error {
		if events = append(events, e); len(events) > 2*supportEvents {
			events = append(events[:0], events[len(events)-supportEvents:]...)
		}
		return nil
	})
	s.Add("events.json", events[max(0, len(events)-supportEvents):], err)
}
