package agentcmd

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/agent/carry"
	"github.com/wherry-dev/wherry/agent/intake"
	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/probation"
	"github.com/wherry-dev/wherry/agent/registries"
	"github.com/wherry-dev/wherry/agent/relay"
	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
)

// shownQuarantined is how many of the releases that were given up the table shows.
const shownQuarantined = 3

// writeTable writes the agent's state at now, a line for each part, and none for a part without a problem. Add further
// lines here.
func writeTable(w io.Writer, s agent.Status, now time.Time) {
	row := func(name string, values ...any) { cli.Row(w, name, fmt.Sprint(values...)) }
	row("cluster", s.Cluster.Name, " (", s.Cluster.Environment, "/", s.Cluster.Type, ring(s), ")")
	if b := s.Binding; b != nil {
		row("bound", "to ", b.Bound, " since ", b.At.Format(time.RFC3339), "; the configuration says ", b.Configured)
	}
	switch {
	case s.Version == "":
		row("agent", "not running; showing the last known state")
	case s.Step != "":
		row("agent", s.Version, ", busy with ", s.Step)
	default:
		row("agent", s.Version)
	}
	row("state", string(s.State)+spaced(reasonOf(s.Reason, s.Message)))
	if b := s.Freeze; b != nil && b.Reason != s.Reason {
		row("no change", freezeLine(b))
	}
	if r := s.Release.Running; r != nil {
		row("running", r.Name(), ", ", issued(r))
	}
	if r := s.Release.Desired; r != nil && newer(s) {
		row("newest", r.Name(), ", ", issued(r))
	}
	if r := s.Release.Refused; r != nil {
		row("refused", bundle.ReleaseName(0, r.Digest), " ", r.Reason, ", first ", ago(r.At, now), runsStill(s))
	}
	if m := s.OlderMedium; m != nil {
		row("old medium", bundle.ReleaseName(0, m.Digest), ", ", ago(m.At, now), ": it is older than what was accepted, and changed nothing")
	}
	if h := s.Release.Held; h != nil {
		row("rollback", rollbackLine(s, now))
	}
	for _, q := range s.Release.Quarantined[:min(len(s.Release.Quarantined), shownQuarantined)] {
		row("given up", bundle.ReleaseName(q.Number, q.Digest), " ", q.Reason, ", ", ago(q.At, now))
	}
	if t := s.Trust; t != nil {
		row("trust", fmt.Sprintf("version %d, epoch %d, %s", t.Version, t.Epoch, validity(t)))
	}
	if s.ClockBehindSeconds > 0 {
		row("clock", "behind by at least ", span(s.ClockBehindSeconds))
	}
	row("queue", queueLine(s.Queue, now))
	for _, to := range slices.Sorted(maps.Keys(s.Queue.Unsent)) {
		row("unsent", "to ", to, ": ", s.Queue.Unsent[to])
	}
	if line := contactLine(s, now); line != "" {
		row("contact", line)
	}
	for _, r := range s.Registries {
		row("registry", r.Registry, registryLine(r, now))
	}
	if c := s.Carry; c != nil {
		row("artifacts", carryLine(c))
	}
	if e := s.Endpoint; e != nil {
		row("serves", endpointLine(e))
	}
	for _, st := range s.Streams {
		row("stored", streamLine(st, now))
	}
	if r := s.Relay; r != nil {
		row("relay", relayLine(r))
	}
	if len(s.Items) == 0 {
		return
	}
	row("items", itemsLine(s.Items))
	fmt.Fprintf(w, "\nASSIGNMENT\tADAPTER\tSTATE\tSINCE\tREASON\n")
	for _, i := range s.Items {
		cli.Row(w, i.Assignment, i.Adapter, string(i.State), ago(i.Since, now), reasonOf(i.Reason, i.Message))
	}
}

// streamLine returns what a site package has brought of a stream.
func streamLine(s intake.StreamStatus, now time.Time) string {
	line := s.Environment + "/" + s.ClusterType
	if s.Release != "" {
		line += fmt.Sprintf(" %s, %s, imported %s", s.Release, show.Size(s.Bytes), ago(*s.Since, now))
	}
	if s.AllowExpired != "" {
		line += "; it had expired: " + show.Line(s.AllowExpired)
	}
	if s.Arriving != "" {
		line += "; release " + s.Arriving + " is not whole yet: import its package again"
	}
	return line
}

// relayLine returns what waits here of other agents, and for them.
func relayLine(r *relay.Status) string {
	line := fmt.Sprintf("%s of %s, %s", show.Count(r.Reports, "report"), show.Count(r.Clusters, "other cluster"), show.Size(r.Bytes))
	if r.Acks > 0 {
		line += ", " + show.Count(r.Acks, "acknowledgement") + " kept for them"
	}
	return line
}

// endpointLine returns where the agent serves its store, the fingerprint of its CA, and whether something is missing.
func endpointLine(e *serve.Status) string {
	line := e.URL + " at " + e.Address
	if e.CA != "" {
		line += ", CA " + e.CA[:16]
	}
	if e.Waiting != "" {
		line += ", but not the newest release: " + e.Waiting
	}
	return line
}

// runsStill returns why the release that runs is the refused one, if it is.
func runsStill(s agent.Status) string {
	if s.Release.Running == nil || s.Release.Running.Digest != s.Release.Refused.Digest {
		return ""
	}
	return "; it runs, since it was accepted before, and runs on until another one is"
}

// rollbackLine returns whether the release that a person has gone back to runs already.
func rollbackLine(s agent.Status, now time.Time) string {
	h := s.Release.Held
	line := h.To.Name()
	if r := s.Release.Running; r == nil || r.Digest != h.To.Digest {
		line = "pending: " + line + " is to run with the next pass that has its files"
	}
	line += ", asked for " + ago(h.At, now)
	if h.By != "" {
		line += " by " + h.By
	}
	if h.Reason != "" {
		line += ": " + h.Reason
	}
	return line
}

// newer reports whether the newest release differs from the running one, and has no line of its own.
func newer(s agent.Status) bool {
	d, r := s.Release.Desired, s.Release.Running
	given := func(q probation.Quarantined) bool { return q.Digest == d.Digest }
	return s.Release.Refused == nil && (r == nil || r.Digest != d.Digest) && !slices.ContainsFunc(s.Release.Quarantined, given)
}

func ring(s agent.Status) string {
	if s.Cluster.Ring == "" {
		return ""
	}
	return ", ring " + s.Cluster.Ring
}

// issued is the age of a release, and whether one as old would be taken.
func issued(r *agent.ReleaseStatus) string {
	s := "issued " + span(r.AgeSeconds) + " ago"
	if !r.Expired {
		return s
	}
	s = "expired, " + s
	if r.IssuedAt != nil && r.ExpiresAt != nil {
		s += ", valid for " + span(int64(r.ExpiresAt.Sub(*r.IssuedAt)/time.Second))
	}
	if r.AllowExpired != "" {
		s += "; allowed: " + show.Line(r.AllowExpired)
	}
	return s
}

func queueLine(q outbox.Status, now time.Time) string {
	s := show.Count(q.Length, "report")
	if q.Oldest != nil {
		s += ", the oldest " + ago(*q.Oldest, now)
	}
	for _, of := range []struct {
		count int64
		what  string
	}{{q.Coalesced, "coalesced"}, {q.Dropped, "dropped"}, {int64(q.Rejected), "rejected (reports dead)"}} {
		if of.count > 0 {
			s += fmt.Sprintf(", %d %s", of.count, of.what)
		}
	}
	return s
}

// carryLine returns how many artifacts are missing, and the bytes that they take.
func carryLine(c *carry.Status) string {
	stored := show.Size(c.StoredBytes) + " in the store"
	if c.BudgetBytes > 0 {
		stored += " of at most " + show.Size(c.BudgetBytes)
	}
	if c.Missing == 0 {
		return show.Count(c.Artifacts, "artifact") + ", " + stored
	}
	most := ""
	if c.MissingAtMost {
		most = "at most "
	}
	return fmt.Sprintf("%d of %s missing, %s%s to bring; %s", c.Missing, show.Count(c.Artifacts, "artifact"), most, show.Size(c.MissingBytes), stored)
}

// contactLine returns when the registry answered last, and when it is asked again.
func contactLine(s agent.Status, now time.Time) string {
	var parts []string
	if s.LastContact != nil {
		parts = append(parts, ago(*s.LastContact, now))
	}
	switch {
	case s.NextTry == nil:
	case s.NextTry.After(now):
		parts = append(parts, "asked again in "+span(int64(s.NextTry.Sub(now)/time.Second)))
	default:
		parts = append(parts, "asked again now")
	}
	return strings.Join(parts, ", ")
}

// registryLine returns whether the answer of one of several registries counted, or why not.
func registryLine(r registries.Status, now time.Time) string {
	s := ""
	if r.Reason != "" {
		s = ": " + reasonOf(r.Reason, r.Message) + ", first " + ago(r.Since, now)
	}
	if r.Last {
		s += ", whose answer counted last"
	}
	return s
}

// itemsLine counts the assignments by state, the worst first.
func itemsLine(items []bundle.Item) string {
	count := map[bundle.State]int{}
	for _, i := range items {
		count[i.State]++
	}
	var parts []string
	for len(count) > 0 {
		present := slices.Sorted(maps.Keys(count))
		worst := bundle.AgentState(false, present)
		if count[worst] == 0 { // one that agents do not have, such as removed
			worst = present[0]
		}
		parts = append(parts, fmt.Sprintf("%d %s", count[worst], worst))
		delete(count, worst)
	}
	return strings.Join(parts, ", ")
}

// ago is the time since t, as people say it.
func ago(t, now time.Time) string { return span(max(0, int64(now.Sub(t)/time.Second))) + " ago" }

// span writes a time as people say it.
func span(seconds int64) string {
	switch d := time.Duration(seconds) * time.Second; {
	case d >= 48*time.Hour:
		return show.Count(int(d/(24*time.Hour)), "day")
	case d >= 2*time.Hour:
		return show.Count(int(d/time.Hour), "hour")
	case d >= 2*time.Minute:
		return show.Count(int(d/time.Minute), "minute")
	default:
		return show.Count(int(seconds), "second")
	}
}
