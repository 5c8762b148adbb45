package fleetcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Events returns the command wherry events.
func Events() *cobra.Command { return newEventsCommand(new(source)) }

func newEventsCommand(s *source) *cobra.Command {
	var (
		q      query
		f      format
		follow bool
		after  int64
	)
	cmd := &cobra.Command{
		Use:   "events [-f] [--after ID]",
		Short: "Follow changes in the fleet",
		Long: `Show changes in the fleet in the order in which the hub learned of them: what changed on clusters, which were registered,
changed or retired, what was published, and what people decided about promotion. Without -f, those that are stored are
shown, after --after or from the oldest that the hub keeps. With -f, the command goes on with each that comes, and begins
with the next one unless --after is given. To go on after an interruption, give the ID of the last event.

More: wherry help hub-access`,
		Example: "  wherry events -f --environment prod\n  wherry events --after 1204 -o ndjson",
		Args:    cobra.NoArgs,
	}
	s.addTo(cmd)
	q.addChoosing(cmd, ofPresent...)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with the events that come")
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the event with this `ID`")
	addFormat(cmd, &f, []format{asTable, asNDJSON})
	s.completeNames(cmd, &q)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if after < 0 {
			return cli.Usagef("--after %d: expected the ID of an event", after)
		}
		if err := q.finish(cmd.Flags(), s.now()); err != nil {
			return err
		}
		from := store.Position(after)
		if follow && !cmd.Flags().Changed("after") {
			from = -1
		}
		write := func(e fleet.Event) error { return writeEvent(cmd, f, e) }
		return s.ask(cmd, func(a fleet.Answers) error {
			if !follow {
				q.AsOf = s.now()
			}
			return a.Events(cmd.Context(), from, q.Query, write)
		})
	}
	return cmd
}

func writeEvent(cmd *cobra.Command, f format, e fleet.Event) error {
	if f == asNDJSON {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetEscapeHTML(false)
		return enc.Encode(e)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d  %s  %s\n", e.ID, e.At.UTC().Format("2006-01-02 15:04:05 UTC"), show.Line(eventText(e)))
	return err
}

// eventText is an event in one line.
func eventText(e fleet.Event) string {
	switch {
	case e.Change != nil:
		what := e.Change.Cluster
		if e.Change.Assignment != "" {
			what += "/" + e.Change.Assignment
		}
		text := what + ": " + changeText(*e.Change)
		if v := e.Change.Via; v != "" && v != store.ViaHTTP {
			text += ", by " + way(v)
		}
		return text
	case e.Kind == fleet.EventDecision:
		return decisionText(e)
	case e.Kind == fleet.EventPromotion:
		return "gates of " + e.Platform + " were judged anew"
	case e.Kind == "published":
		return fmt.Sprintf("published for %s of %s: %s", e.Environment, e.Platform, short(e.Digest))
	case e.Cluster != "" || e.UID != "":
		return "registration of " + joined(", uid ", e.Cluster, e.UID) + " changed"
	}
	return e.Kind
}

// decisionText is a decision in one line, such as "ben: approve 3f2a9c1 for prod of edge: looks good".
func decisionText(e fleet.Event) string {
	where := e.Environment + " of " + e.Platform
	d := e.Decision
	if d == nil {
		return "decision about " + where + ": " + short(e.Digest)
	}
	text := cmp.Or(d.By, "key "+short(d.KeyID)) + ": " + string(d.Action)
	if d.BaseCommit != "" {
		text += " " + short(d.BaseCommit) + " for"
	}
	if name := d.Workload.String(); name != "" {
		text += " " + name + " for"
	}
	if d.Ring != "" {
		text += " ring " + d.Ring + " in"
	}
	text += " " + where
	if len(d.Rules) > 0 {
		text += ", " + strings.Join(d.Rules, ", ")
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}
