package gate

import (
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// ContentQuestion is what is asked about one revision of a workload in the environment below.
type ContentQuestion struct {
	Policy promotion.Policy // of the environment that is to get it
	// Workload names it for a command, as REGISTRATION/NAME.
	Workload string
	// Cohort is how far the clusters are that have the workload, and Required the same of those that the gate requires.
	Cohort   Cohort
	Required *Cohort
	// Since is the time from which the environment below has the revision without a break.
	Since time.Time
	Now   time.Time
}

// Content returns the rules about one revision of a workload: the numbers of the policy's gate, and its soak. No cluster is no proof,
// whatever the gate says of empty cohorts.
func Content(q ContentQuestion) Verdict {
	g := q.Policy.Gate
	g.AllowEmptyCohort, g.SoakIn = false, nil
	below := q.Policy.Below()
	j := judge{now: q.Now.UTC(), workload: q.Workload, Question: Question{
		Policy: q.Policy, Gate: g, Candidate: &Candidate{Environment: below}, Cohort: q.Cohort, Required: q.Required,
		Stays: map[string][]Stay{below: {{From: q.Since}}}, Now: q.Now,
	}}
	v := Verdict{Environment: q.Policy.Environment, From: below, Policy: q.Policy.Name, AsOf: j.now, Result: Pass, Cohort: q.Cohort}
	for _, rule := range []func() Rule{j.cohort, j.reported, j.compliant, j.failed, j.quarantine, j.required, j.soak} {
		r := rule()
		v.Rules, v.Result = append(v.Rules, r), worse(v.Result, r.Result)
	}
	v.NextLook = v.Rule(RuleSoak).Ends
	return v
}

// NumbersHold reports whether all rules of a verdict of [Content] pass but for the soak.
func (v Verdict) NumbersHold() bool {
	return !slices.ContainsFunc(v.Rules, func(r Rule) bool { return r.Result != Pass && r.Name != RuleSoak })
}

// ofWorkload is the question about the decisions about a revision of a workload.
func ofWorkload(p promotion.Policy, workload string, about []Decided, now time.Time) judge {
	return judge{now: now.UTC(), workload: workload, Question: Question{Policy: p, Gate: p.Gate, Decisions: about}}
}

// ContentApprovals is the rule about the people who have to approve a revision of a workload, which is named as REGISTRATION/NAME. About are
// the decisions about that revision.
func ContentApprovals(p promotion.Policy, workload string, about []Decided, now time.Time) Rule {
	j := ofWorkload(p, workload, about, now)
	j.Gate.Approvals = p.Gate.Content.Approvals
	return j.override(j.approvals())
}

// ContentOverridden returns who lets a revision of a workload in without a proof, and why: the members of the policy's group that overrode
// the rule [RuleContent]. It is empty if too few did.
func ContentOverridden(p promotion.Policy, about []Decided, now time.Time) string {
	j := ofWorkload(p, "-", about, now)
	return j.override(Rule{Name: RuleContent, Result: Wait}).Overridden
}

// Rejected returns the newest rejection of a revision of a workload that its author has not taken back by an approval, among decisions
// about that revision: by a member of any group of the policy. It returns false if there is none.
func Rejected(p promotion.Policy, about []Decided) (newest Decided, is bool) {
	j := ofWorkload(p, "-", about, time.Time{})
	for _, g := range p.Groups {
		group := promotion.Approvals{Group: g.Name, Members: g.Members, Hubs: g.Hubs, HubSpeaksForKeys: g.HubSpeaksForKeys}
		for _, d := range j.newestOf(group, bundle.Approve, bundle.Reject) {
			if d.Action == bundle.Reject && (!is || d.IssuedAt.After(newest.IssuedAt)) {
				newest, is = d, true
			}
		}
	}
	return newest, is
}

// Closed returns why nothing may enter an environment now by its schedule, and until when; empty if it is open. The time is zero if it never
// opens.
func Closed(s promotion.Schedule, now time.Time) (why string, until time.Time) {
	r := judge{now: now.UTC(), Question: Question{Gate: promotion.Gate{Schedule: s}, Now: now}}.schedule()
	if r.Result == Pass {
		return "", time.Time{}
	}
	return r.Has, r.Ends
}
