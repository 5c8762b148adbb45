package fleetcmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// way returns how reports came, for people.
func way(v store.Via) string {
	switch v {
	case store.ViaHTTP:
		return "link"
	case store.ViaMedia:
		return "medium"
	}
	return string(v)
}

// heard returns the age of a cluster's last word, and the way by which it came unless that is the usual one.
func heard(at time.Time, via store.Via, now time.Time) string {
	ago := bundle.Ago(at, now)
	if at.IsZero() || via == "" || via == store.ViaHTTP {
		return ago
	}
	return ago + " by " + way(via)
}

// silence returns what is known of a state only from a cluster's silence: "last heard 31 days ago by medium". It is empty
// for states that are reported.
func silence(state bundle.State, at time.Time, via store.Via, now time.Time) string {
	switch {
	case state == store.Unreported || state == store.Stale && at.IsZero():
		return "never heard of"
	case state != store.Stale:
		return ""
	}
	s := "last heard " + longAgo(at, now)
	if via != "" {
		s += " by " + way(via)
	}
	return s
}

// longAgo returns the age of a moment in words: "31 days ago".
func longAgo(at, now time.Time) string {
	d := now.Sub(at)
	switch {
	case at.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	}
	return longAge(d) + " ago"
}

// longAge returns a duration in words, in its largest unit.
func longAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return show.Count(int(d/time.Second), "second")
	case d < time.Hour:
		return show.Count(int(d/time.Minute), "minute")
	case d < 48*time.Hour:
		return show.Count(int(d/time.Hour), "hour")
	}
	return show.Count(int(d/(24*time.Hour)), "day")
}

// stamp returns a time for csv, empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// utc returns a time for people, empty for none.
func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return show.Time(t)
}

// shortDigits is how many digits of digests and commits are shown.
const shortDigits = 8

// short returns the first digits of a digest or of a commit.
func short[S ~string](d S) string {
	_, hex, ok := strings.Cut(string(d), ":")
	if !ok {
		hex = string(d)
	}
	return hex[:min(len(hex), shortDigits)]
}

// releaseName returns the name of a release, empty for none.
func releaseName(r *bundle.ReportRelease) string {
	if r == nil {
		return ""
	}
	return bundle.ReleaseName(r.Number, r.Digest)
}

// relationText returns how far a cluster is from what it should run; empty if it runs that, or that is unknown.
func relationText(m *fleet.Desired) string {
	switch {
	case m == nil || m.Relation == fleet.Current || m.Relation == fleet.Nothing || m.Relation == "":
		return ""
	case m.Relation == fleet.Behind && m.Behind > 0:
		return fmt.Sprintf("%d behind", m.Behind)
	}
	return string(m.Relation)
}

// joined joins the texts that are not empty.
func joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), separator)
}

// labels returns labels as a selector would name them.
func labels(all map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return strings.Join(out, ",")
}

// totalsLine is the first line of a list: "1,204 clusters: 12 failed, 30 stale, 1,162 compliant · 40 behind".
func totalsLine(thing string, t fleet.Totals, asOf time.Time) string {
	line := count(t.Count, thing)
	if !asOf.IsZero() {
		line += " as of " + utc(asOf)
	}
	states := slices.SortedFunc(maps.Keys(t.States), func(a, b bundle.State) int {
		return cmp.Or(fleet.Severity(a)-fleet.Severity(b), cmp.Compare(a, b))
	})
	var parts []string
	for _, s := range states {
		if n := t.States[s]; n > 0 {
			parts = append(parts, number(n)+" "+string(s))
		}
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	parts = nil
	for _, r := range []fleet.Relation{fleet.Behind, fleet.Foreign, fleet.Ahead} {
		if n := t.Relations[r]; n > 0 {
			parts = append(parts, number(n)+" "+string(r))
		}
	}
	return joined(" · ", line, strings.Join(parts, ", "))
}

// reasonText is a reason with the message that explains it, for a cell.
func reasonText(reason, message string) string {
	if message == "" {
		return reason
	}
	return joined(": ", reason, show.Short(message)) // -o json has all of it
}
