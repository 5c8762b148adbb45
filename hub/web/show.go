package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// functions returns those of all templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"ago":         ago,
		"age":         age,
		"bar":         bar,
		"changed":     changed,
		"clusters":    clusters,
		"digest":      shortDigest,
		"environment": environmentPath,
		"seconds":     func(n int64) string { return duration.Text(time.Duration(n) * time.Second) },
		"decisions": func(all []decided, now time.Time) any {
			return struct {
				All []decided
				Now time.Time
			}{all, now}
		},
		"join":    func(all []string) string { return strings.Join(all, ", ") },
		"look":    func(word any) look { return lookOf(fmt.Sprint(word)) },
		"name":    func(r *bundle.ReportRelease) string { return bundle.ReleaseName(r.Number, r.Digest) },
		"release": func(r bundle.ReportRelease) string { return bundle.ReleaseName(r.Number, r.Digest) },
		"short":   func(name string) string { return name[:min(len(name), shortName)] },
		"stamp":   stamp,
		"states":  store.States,
		"version": bundle.ShownVersion,
	}
}

// shortName is how much of a commit, or of a key's id, people see.
const shortName = 8

// look is how a word about clusters looks: its tone is good, bad, wait or quiet, and its mark says the same without a colour.
type look struct{ Tone, Mark, Word string }

// lookOf returns the look of a state, a relation or a verdict.
func lookOf(word string) look {
	l := look{"wait", "◐", word}
	switch word {
	case string(bundle.Compliant), string(fleet.Current), string(bundle.Approve):
		l.Tone, l.Mark = "good", "✓"
	case string(bundle.Failed), string(bundle.Rejected), string(bundle.Drifted), string(fleet.Foreign), string(bundle.Reject):
		l.Tone, l.Mark = "bad", "●"
	case string(store.Stale), string(store.Unreported), fleet.VerdictUnknown:
		l.Tone, l.Mark = "quiet", "◌"
	case string(bundle.Removed), string(bundle.Suspended), string(fleet.Nothing):
		l.Tone, l.Mark = "quiet", "–"
	case fleet.VerdictWaiting, string(bundle.Pending):
		l.Mark = "○"
	case string(fleet.Behind):
		l.Mark = "▼"
	case string(bundle.Pause):
		l.Mark = "‖"
	case string(bundle.Override):
		l.Mark = "!"
	case store.GatePasses:
		l.Tone, l.Mark, l.Word = "good", "✓", "passes"
	case store.GateWaits:
		l.Mark, l.Word = "○", "waits"
	case store.GateFails:
		l.Tone, l.Mark, l.Word = "bad", "●", "fails"
	case string(bundle.Resume):
		l.Tone, l.Mark = "quiet", "▸"
	case string(fleet.Ahead):
		l.Tone, l.Mark = "quiet", "▲"
	}
	switch word {
	case string(fleet.Current):
		l.Word = "up to date"
	case string(fleet.Nothing):
		l.Word = "without a release"
	case string(fleet.Foreign):
		l.Word = "with a foreign release"
	case string(store.Unreported):
		l.Word = "never reported"
	case string(store.Stale), fleet.VerdictUnknown:
		l.Word = "silent"
	}
	return l
}

// clusters returns a number of clusters in words.
func clusters(n int) string {
	if n == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", n)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ago returns a time as its age, with the time itself in the title and on paper.
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "never"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%[1]s" title="%[1]s">%[2]s</time>`, stamp(t), bundle.Ago(t, now))) //nolint:gosec // a time and its age
}

// age is ago for how long something has lasted.
func age(since, now time.Time) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%[1]s" title="since %[1]s">%[2]s</time>`, stamp(since), bundle.Age(max(0, now.Sub(since))))) //nolint:gosec // a time and its age
}

// total is how many rows have a word, and a link to them.
type total struct {
	look
	Count int
	Link  string
}

// TotalsOf returns what totals have, the worst first, with links to the rows on the page of a path.
func (f *frame) TotalsOf(path string, t fleet.Totals) (all []total) {
	to := func(name, value string) string {
		q := f.Without("after", "sort")
		q.Set(name, value)
		return linkTo(path, q)
	}
	states := slices.SortedFunc(maps.Keys(t.States), func(a, b bundle.State) int {
		return cmp.Or(cmp.Compare(fleet.Severity(a), fleet.Severity(b)), cmp.Compare(a, b))
	})
	for _, s := range states {
		all = append(all, total{lookOf(string(s)), t.States[s], to("state", string(s))})
	}
	for _, r := range slices.Sorted(maps.Keys(t.Relations)) {
		all = append(all, total{lookOf(string(r)), t.Relations[r], to("relation", string(r))})
	}
	return all
}

// bar draws how far clusters are with a commit.
func bar(c fleet.RolloutCounts) template.HTML {
	if c.Clusters == 0 {
		return ""
	}
	var rects, words strings.Builder
	x := 0
	for _, part := range []struct {
		word  string
		class string
		n     int
	}{
		{"compliant", "good", c.Compliant},
		{"progressing", "wait", c.Progressing},
		{"failed", "bad", c.Failed},
		{"waiting", "open", c.Waiting},
		{"silent", "quiet", c.Unknown},
	} {
		if part.n == 0 {
			continue
		}
		fmt.Fprintf(&rects, `<rect class="%s" x="%d" width="%d" height="1"/>`, part.class, x, part.n)
		fmt.Fprintf(&words, "%d %s, ", part.n, part.word)
		x += part.n
	}
	said := strings.TrimSuffix(words.String(), ", ")
	return template.HTML(fmt.Sprintf(`<svg class="bar" viewBox="0 0 %d 1" preserveAspectRatio="none" role="img" aria-label="%s"><title>%[2]s</title>%s</svg>`, c.Clusters, said, rects.String())) //nolint:gosec // numbers and words
}
