package gate

import (
	"cmp"
	"crypto"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// isAboutThis reports whether a decision is about the content that is judged.
func (j judge) isAboutThis(d Decided) bool {
	if j.workload != "" { // whoever asks has chosen them
		return true
	}
	c := j.Candidate
	return c != nil && d.Platform == c.Platform && d.Environment == j.Policy.Environment &&
		j.Commit == c.BaseCommit && d.IsAbout(c.Subject(j.Policy, j.Ring))
}

// newestOf returns the newest decision of each member of a group about what is judged, among those with one of the actions,
// sorted by member. Of two of the same second a rejection counts.
func (j judge) newestOf(group promotion.Approvals, actions ...bundle.Action) []Decided {
	newest := map[string]Decided{}
	for _, d := range j.Decisions {
		if !slices.Contains(actions, d.Action) || !j.isAboutThis(d) || !mayDecide(group, d) {
			continue
		}
		before, is := newest[d.Member]
		if c := d.IssuedAt.Compare(before.IssuedAt); !is || c > 0 || c == 0 && d.Action == bundle.Reject {
			newest[d.Member] = d
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b Decided) int { return cmp.Compare(a.Member, b.Member) })
}

// mayDecide reports whether a decision is that of a member of the group: by the member's key, or for the member's name by a
// key of a hub that the group believes. A hub does not speak for members with keys, unless the group says so.
func mayDecide(group promotion.Approvals, d Decided) bool {
	i := slices.IndexFunc(group.Members, func(m promotion.Member) bool { return m.Name == d.Member })
	if i < 0 || d.Member == "" {
		return false
	}
	if key := group.Members[i].Key; key != nil && isKey(key, d.KeyID) {
		return true
	}
	return d.By == d.Member && group.Of().HubMaySpeakFor(d.Member) && slices.ContainsFunc(group.Hubs, func(key crypto.PublicKey) bool { return isKey(key, d.KeyID) })
}

func isKey(key crypto.PublicKey, id string) bool {
	has, err := bundle.KeyID(key)
	return err == nil && has == id
}

func (j judge) isExpired(d Decided) bool { return !d.ExpiresAt.IsZero() && !j.now.Before(d.ExpiresAt) }

func (j judge) approvals() Rule {
	group := j.Gate.Approvals
	if group.Required <= 0 {
		return pass(RuleApprovals, nothing, nothing)
	}
	var yes, no []string
	for _, d := range j.newestOf(group, bundle.Approve, bundle.Reject) {
		switch {
		case d.Action == bundle.Reject:
			no = append(no, fmt.Sprintf("%s (%s)", d.Member, d.Reason))
		case !j.isExpired(d):
			yes = append(yes, d.Member)
		}
	}
	has, wants := listed(len(yes), yes), fmt.Sprintf("%d of %s", group.Required, group.Group)
	if len(no) > 0 {
		return unless(false, Fail, RuleApprovals, fmt.Sprintf("%s; rejected by %s", has, strings.Join(no, ", ")), wants,
			"whoever rejected it approves it: "+j.command("approve"))
	}
	missing := group.Required - len(yes)
	verb := "have"
	if missing == 1 {
		verb = "has"
	}
	return unless(missing <= 0, Wait, RuleApprovals, has, wants, fmt.Sprintf("%d more of %s %s to approve it: %s", missing, group.Group, verb, j.command("approve")))
}

// command writes the command of a decision about what is judged.
func (j judge) command(name string) string {
	text := fmt.Sprintf("wherry gate %s --environment %s", name, j.Policy.Environment)
	if j.Ring != "" {
		text += " --ring " + j.Ring
	}
	if j.workload != "" {
		text += " --workload " + j.workload
	}
	if j.Commit != "" {
		text += " --commit " + short(j.Commit)
	}
	return text
}

// override lets a rule pass if enough members of the group that may do so have named it.
func (j judge) override(r Rule) Rule {
	if r.Result == Pass || slices.Contains([]string{RulePublished, RuleComplete, RulePinned, RuleUndone}, r.Name) {
		return r
	}
	group := j.Gate.Override
	if group.Required <= 0 {
		return r
	}
	var who []string
	for _, d := range j.newestOf(group, bundle.Override) {
		if d.Reason != "" && slices.Contains(d.Rules, r.Name) && !j.isExpired(d) {
			who = append(who, fmt.Sprintf("%s (%s)", d.Member, d.Reason))
		}
	}
	if len(who) < group.Required {
		return r
	}
	r.Result, r.Change, r.Overridden = Pass, "", strings.Join(who, ", ")
	return r
}

// switched returns the newest pause or resume; the zero value if there is none.
func (j judge) switched() Decided {
	newest := Decided{}
	for _, d := range j.Decisions {
		if d.Action != bundle.Pause && d.Action != bundle.Resume || d.Environment != j.Policy.Environment || d.Ring != "" && d.Ring != j.Ring ||
			j.Candidate != nil && d.Platform != j.Candidate.Platform {
			continue
		}
		if c := d.IssuedAt.Compare(newest.IssuedAt); c > 0 || c == 0 && d.Action == bundle.Pause {
			newest = d
		}
	}
	return newest
}

// undone fails for what was taken back, until a person says that it may come again.
func (j judge) undone() Rule {
	const wants = "not undone"
	var again time.Time
	if s := j.switched(); s.Action == bundle.Resume && s.Again {
		again = s.IssuedAt
	}
	fail := func(what string) Rule {
		return unless(false, Fail, RuleUndone, what, wants,
			fmt.Sprintf("mend it and publish another commit; or wherry rollout resume --environment %s --again", j.Policy.Environment))
	}
	for _, u := range slices.Backward(j.Undone) {
		var contents map[string]digest.Digest
		commit := j.Commit
		if j.Ring != "" && j.Candidate != nil { // content of one environment is no content of another
			contents, commit = j.Candidate.Contents, j.Candidate.BaseCommit
		}
		if u.At.After(again) && u.Is(commit, contents) {
			return fail(u.String())
		}
	}
	for _, u := range slices.Backward(j.UndoneWorkloads) {
		if u.At.After(again) {
			return fail(u.String())
		}
	}
	return pass(RuleUndone, wants, nothing)
}

func (j judge) automation() Rule {
	newest := j.switched()
	has := "not paused"
	if newest.Action == bundle.Pause {
		has = "paused by " + cmp.Or(newest.Member, newest.By, "a release key") + " at " + newest.IssuedAt.UTC().Format(time.RFC3339)
		if newest.Reason != "" {
			has += ": " + newest.Reason
		}
	}
	if !j.Automatic {
		return pass(RuleAutomation, has, nothing)
	}
	return unless(newest.Action != bundle.Pause, Wait, RuleAutomation, has, "not paused",
		fmt.Sprintf("resume it: wherry rollout resume --environment %s", j.Policy.Environment))
}
