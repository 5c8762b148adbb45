package promote

import (
	"fmt"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/bundle/show"
	"github.com/wherry-dev/wherry/publisher/outgit"
	"github.com/wherry-dev/wherry/rollout/gate"
)

func short(commit string) string { return commit[:min(len(commit), 7)] }

func oneLine(text string) string { return outgit.OneLine(text) }

// cut makes foreign text one printable line of at most limit characters.
func cut(text string, limit int) string {
	r := []rune(oneLine(text))
	if len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return string(r)
}

// Contains says how many commits come along, as in "4 commits"; empty if that is not known.
func (r Result) Contains() string {
	switch n := len(r.Commits) + r.More; n {
	case 0:
		return ""
	case 1:
		return "1 commit"
	default:
		return fmt.Sprintf("%d commits", n)
	}
}

// String is the line for people, such as "prod: not yet: soak ends in 3h12m".
func (r Result) String() string {
	commit := short(r.Commit)
	text := map[State]string{
		Failed: "failed: " + r.Reason, Held: "held: " + r.Reason, Waiting: "not yet: " + r.Reason, Proposed: "proposed " + commit, Ahead: r.Reason,
		Promoted: "promoted " + commit, Current: "has " + commit,
	}[r.State]
	if r.State == Proposed || r.State == Promoted {
		if n := r.Contains(); n != "" {
			text += " (" + n + ")"
		}
		if r.Older {
			text += ", which is older: paused until it is resumed"
		}
	}
	if r.State == Proposed {
		text += ": " + r.Reason
	}
	if r.Published && r.State != Promoted && r.State != Current {
		text += "; published what it has"
	}
	if r.Verdict != nil && r.Verdict.CountedBy() != "" {
		text += "; " + r.Verdict.CountedBy()
	}
	return r.Environment + ": " + text
}

// Reason names the rules that keep a commit back, and what would change them.
func Reason(v gate.Verdict) string {
	var parts []string
	var ends time.Time
	for _, r := range v.Rules {
		if r.Result != v.Result {
			continue
		}
		if r.Ends.After(ends) {
			ends = r.Ends
		}
		if r.Name == gate.RuleSoak && v.AsOf.Before(r.Ends) {
			left := duration.Value(r.Ends.Sub(v.AsOf).Round(time.Second))
			parts = append(parts, "soak ends in "+left.String())
			continue
		}
		parts = append(parts, ruleText(r))
	}
	if v.Result == gate.Wait && !ends.IsZero() && v.NextLook.After(ends) {
		parts = append(parts, "then the schedule is closed until "+v.NextLook.Format(time.RFC3339))
	}
	return oneLine(strings.Join(parts, "; "))
}

func ruleText(r gate.Rule) string {
	if r.Change == "" {
		return r.String()
	}
	return r.String() + ": " + r.Change
}

// SteadyReason is the reason in as few words as a status takes, and the same at each look while nothing changes.
func SteadyReason(v gate.Verdict) string {
	var parts []string
	for _, r := range v.Rules {
		if r.Result == v.Result {
			text := r.Change
			if text == "" {
				text = r.Has
			}
			parts = append(parts, r.Name+": "+text)
		}
	}
	return oneLine(strings.Join(parts, "; "))
}

// message is the rest of the commit's message.
func (v *visit) message(commit string) string {
	var b strings.Builder
	v.summary(&b, commit)
	if len(v.result.Commits) > 0 {
		b.WriteString("\n")
	}
	for _, c := range v.result.Commits {
		fmt.Fprintf(&b, "- %s %s\n", short(c.ID), c.Subject)
	}
	if v.result.More > 0 {
		fmt.Fprintf(&b, "- and %d more\n", v.result.More)
	}
	return b.String()
}

func (v *visit) summary(b *strings.Builder, commit string) {
	if v.result.From != "" {
		fmt.Fprintf(b, "The gate of %s passed for %s of %s.\n", v.result.Environment, short(commit), v.result.From)
	}
	switch {
	case v.result.Older:
		fmt.Fprintf(b, "It is older than %s, which it replaces.\n", short(v.base.Commit))
	case v.base.Commit != "":
		fmt.Fprintf(b, "It replaces %s.\n", short(v.base.Commit))
	}
}

// text is the text of the change request, in Markdown. Text of others is code, so that it names nobody and links nowhere.
func (v *visit) text(commit string, verdict gate.Verdict) string {
	var b strings.Builder
	v.summary(&b, commit)
	fmt.Fprintf(&b, "\nBase commit: %s\n\nThe gate at %s%s:\n\n| rule | result | has | wants |\n|-|-|-|-|\n", commit, verdict.AsOf.UTC().Format(time.RFC3339), counted(verdict))
	for _, r := range verdict.Rules {
		result := string(r.Result)
		if r.Overridden != "" {
			result += ", overridden by " + show.MarkdownCode(r.Overridden)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", show.Markdown(r.Name), result, show.MarkdownCode(oneLine(r.Has)), show.MarkdownCode(oneLine(r.Wants)))
	}
	if n := v.result.Contains(); n != "" {
		fmt.Fprintf(&b, "\nIt contains %s:\n\n", n)
	}
	for _, c := range v.result.Commits {
		fmt.Fprintf(&b, "- %s %s, %s\n", short(c.ID), show.MarkdownCode(oneLine(c.Subject)), show.MarkdownCode(oneLine(c.Author)))
	}
	if v.result.More > 0 {
		fmt.Fprintf(&b, "- and %d more\n", v.result.More)
	}
	return b.String()
}

// counted returns who counted the clusters, after a comma; empty if nobody did.
func counted(v gate.Verdict) string {
	if v.CountedBy() == "" {
		return ""
	}
	return ", " + show.Markdown(oneLine(v.CountedBy()))
}
