package promotion

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/duration"
	"github.com/wherry-dev/wherry/scheduler/finding"
	"github.com/wherry-dev/wherry/scheduler/kinds"
)

// Explanation says in words what has to hold before an environment, and each of its rings, gets something new.
type Explanation struct {
	Environment string `json:"environment"`
	// Policy is the PromotionPolicy; nil if none names the environment.
	Policy *Named `json:"policy,omitempty"`
	// Below is the environment that commits come from; empty if there is none.
	Below string `json:"below,omitempty"`
	// Order are the fields chain, rings and changeRequest.
	Order []Rule `json:"order"`
	// Gate are the rules before the environment gets a commit; none if no commit comes from another environment.
	Gate []Rule `json:"gate,omitempty"`
	// RingGate are the rules before the next ring gets a release; none with fewer than two rings.
	RingGate []Rule `json:"ringGate,omitempty"`
}

// Rule is a field of a policy, with its meaning and its place.
type Rule struct {
	// Field is the name of the field, such as minReported or schedule.open.
	Field string `json:"field"`
	// Meaning explains the value to people.
	Meaning string `json:"meaning"`
	// Default is true if nobody has written the field; the position is zero then.
	Default bool `json:"default,omitempty"`
	finding.Position
}

// Named is an object with its place.
type Named struct {
	Name string `json:"name"`
	finding.Position
}

// Explain says in words what p, which [Read] has read of o, asks for, with the place of each value. RingsAt is the place of the
// Platform, for rings that it names.
func Explain(o *kinds.PromotionPolicy, p Policy, ringsAt finding.Position) *Explanation {
	x := &Explanation{Environment: p.Environment, Below: p.Below()}
	w := ruleWriter{policy: o}
	if o == nil {
		w.policy = new(kinds.PromotionPolicy)
	} else {
		x.Policy = &Named{Name: p.Name, Position: o.At}
	}
	own := w.policy.Of(p.Environment)
	w.order(p, own, ringsAt)
	x.Order, w.rules = w.rules, nil
	if x.Below != "" {
		w.gate(p.Gate, w.policy.GateOf(p.Environment), x.Below)
		x.Gate, w.rules = w.rules, nil
	}
	if len(p.Rings) > 1 {
		written := &own.RingGate
		if written.Line == 0 { // what the ring gate does not take over has its default
			gate := *w.policy.GateOf(p.Environment)
			gate.RequirePinned, gate.Approvals, gate.Check = kinds.Flag{}, kinds.PromotionApprovals{}, kinds.PromotionCheck{}
			written = &gate
		}
		w.gate(p.RingGate, written, "")
		x.RingGate = w.rules
	}
	return x
}

// ruleWriter writes the rules of one policy.
type ruleWriter struct {
	policy *kinds.PromotionPolicy
	rules  []Rule
}

// add adds a rule that is written at a line; zero is a default.
func (w *ruleWriter) add(field string, line kinds.Line, format string, args ...any) {
	r := Rule{Field: field, Meaning: fmt.Sprintf(format, args...), Default: line == 0}
	if line != 0 {
		r.Position = w.policy.Position(line)
	}
	w.rules = append(w.rules, r)
}

func (w *ruleWriter) order(p Policy, own *kinds.PromotedEnvironment, ringsAt finding.Position) {
	switch {
	case len(p.Chain) == 0:
		w.add("chain", 0, "no chain names the environment: it gets commits by hand alone")
	case p.Below() == "":
		w.add("chain", w.policy.Spec.Chain[0].Line, "%s: commits begin here", strings.Join(p.Chain, ", "))
	default:
		w.add("chain", w.policy.Spec.Chain[0].Line, "%s: commits come from %s", strings.Join(p.Chain, ", "), p.Below())
	}
	switch {
	case len(own.Rings) > 0:
		w.add("rings", own.Line, "%s", strings.Join(own.Rings, ", "))
	case len(p.Rings) > 0:
		w.add("rings", 0, "%s, as the Platform has them", strings.Join(p.Rings, ", "))
		r := &w.rules[len(w.rules)-1]
		r.Default, r.Position = false, ringsAt
	default:
		w.add("rings", 0, "none: a release is for all clusters")
	}
	if p.ChangeRequest {
		w.add("changeRequest", own.ChangeRequest.Line, "a promotion is proposed as a change request")
	} else {
		w.add("changeRequest", own.ChangeRequest.Line, "a promotion is a commit")
	}
}

// gate adds the rules of a gate in the order in which a verdict lists them. Below is empty for a gate between rings.
func (w *ruleWriter) gate(g Gate, written *kinds.PromotionGate, below string) {
	whose, what := "the clusters of "+below, "the commit"
	if below == "" {
		whose, what = "the clusters of the rings before", "the release"
	}
	w.add("requirePinned", written.RequirePinned.Line, "%s", either(g.RequirePinned, "all charts and images are named by digest", "charts and images need no digest"))
	w.add("allowEmptyCohort", written.AllowEmptyCohort.Line, "%s", either(g.AllowEmptyCohort, "it passes also where there is no cluster", "at least one cluster has reported"))
	w.add("allowFloating", written.AllowFloating.Line, "%s", either(g.AllowFloating, "content may follow a branch, which no gate holds", "no assignment follows a branch or another source that moves"))
	w.add("maxReportAge", textLine(written.MaxReportAge), "a cluster whose report is older than %s is unknown", lengthText(g.MaxReportAge))
	if g.MinReported == 0 {
		w.add("minReported", written.MinReported.Line, "any share of %s may be unknown", whose)
	} else {
		w.add("minReported", written.MinReported.Line, "at least %s %% of %s have reported", number(g.MinReported), whose)
	}
	w.add("minCompliant", written.MinCompliant.Line, "at least %s %% of those that have reported are compliant", number(g.MinCompliant))
	w.add("maxFailed", written.MaxFailed.Line, "%s failed", clusterCount(g.MaxFailed))
	w.add("maxQuarantined", written.MaxQuarantined.Line, "%s put the release into quarantine", clusterCount(g.MaxQuarantined))
	if g.MaxFailures < 0 {
		w.add("maxFailures", written.MaxFailures.Line, "failures of assignments are not counted")
	} else {
		w.add("maxFailures", written.MaxFailures.Line, "at most %d failures of assignments since the release was made", g.MaxFailures)
	}
	if g.Required == nil {
		w.add("requiredClusters", 0, "no cluster is required in particular")
	} else if g.Required.Empty() {
		w.add("requiredClusters", written.RequiredClusters.Line, "every cluster is compliant")
	} else {
		w.add("requiredClusters", written.RequiredClusters.Line, "every cluster with %s is compliant", g.Required)
	}
	w.soak(g, written, below, what)
	if below != "" {
		w.content(g.Content, &written.Content, below)
	}
	w.approvals("approvals", g.Approvals, written.Approvals.Line, "have approved", "nobody has to approve")
	w.approvals("override", g.Override, written.Override.Line, "may together override a rule", "nobody may override a rule")
	switch c := g.Check; {
	case c == nil:
		w.add("check", 0, "no external check")
	case c.Command != "":
		w.add("check", written.Check.Line, "%q passes: the command %q, within %s", c.Name, c.Command, lengthText(c.Timeout))
	default:
		w.add("check", written.Check.Line, "%q passes: asked at %s, within %s", c.Name, withoutQuery(c.URL), lengthText(c.Timeout))
	}
	w.schedule(written.Schedule)
}

// content adds the rule about what application teams deliver.
func (w *ruleWriter) content(c Content, written *kinds.PromotionContent, below string) {
	if !c.Held {
		w.add("content", written.Line, "what application teams deliver needs no proof of its own")
		return
	}
	w.add("content", written.Line, "each workload of an application team waits until it is proved in %s", below)
	if e := c.Exempt; len(e.Workspaces)+len(e.Registrations)+len(e.Workloads) > 0 {
		var all []string
		for _, list := range []struct {
			what  string
			names []string
		}{{"workspaces", e.Workspaces}, {"registrations", e.Registrations}, {"workloads", e.Workloads}} {
			if len(list.names) > 0 {
				all = append(all, list.what+" "+strings.Join(list.names, ", "))
			}
		}
		w.add("content.exempt", written.Exempt.Line, "but not %s", strings.Join(all, "; "))
	}
	if written.Approvals.Line != 0 {
		w.approvals("content.approvals", c.Approvals, written.Approvals.Line, "have approved each new revision", "nobody has to approve a workload")
	}
	if line := written.BatchAfter.Line; line != 0 {
		w.add("content.batchAfter", line, "a batch that has not reached the last ring after %s is reported", lengthText(c.BatchAfter))
	}
}

func (w *ruleWriter) soak(g Gate, written *kinds.PromotionGate, below, what string) {
	switch {
	case g.Soak == 0:
		w.add("soak", textLine(written.Soak), "no time has to pass")
	case below == "":
		w.add("soak", textLine(written.Soak), "%s has been in the ring before for %s", what, lengthText(g.Soak))
	case len(g.SoakIn) == 0:
		w.add("soak", textLine(written.Soak), "%s has been in %s for %s", what, below, lengthText(g.Soak))
	default:
		w.add("soak", textLine(written.Soak), "%s has been for %s in each of %s", what, lengthText(g.Soak), strings.Join(g.SoakIn, ", "))
	}
}

func (w *ruleWriter) approvals(field string, a Approvals, line kinds.Line, do, nobody string) {
	if a.Required == 0 {
		w.add(field, line, "%s", nobody)
		return
	}
	if a.Required == 1 {
		do = strings.NewReplacer("have ", "has ", "may together", "may").Replace(do)
	}
	var names []string
	for _, m := range a.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	people := "1 person"
	if a.Required > 1 {
		people = fmt.Sprintf("%d people", a.Required)
	}
	w.add(field, line, "%s of group %s (%s) %s", people, a.Group, strings.Join(names, ", "), do)
}

func (w *ruleWriter) schedule(s kinds.PromotionSchedule) {
	zone := s.TimeZone.Value
	if zone == "" {
		zone = "UTC"
	}
	if len(s.Open) == 0 {
		w.add("schedule.open", 0, "at any time")
	}
	for _, open := range s.Open {
		w.add("schedule.open", open.Line, "%s (%s)", open.Value, zone)
	}
	for _, f := range s.Freeze {
		reason := f.Reason.Value
		if reason != "" {
			reason = ": " + reason
		}
		w.add("schedule.freeze", f.Line, "not from %s until %s (%s)%s", f.From.Value, f.Until.Value, zone, reason)
	}
}

func either(yes bool, if1, if0 string) string {
	if yes {
		return if1
	}
	return if0
}

// textLine returns the line of a text that counts; an empty one is as good as none.
func textLine(t kinds.Text) kinds.Line {
	if t.Value == "" {
		return 0
	}
	return t.Line
}

func lengthText(d time.Duration) string {
	v := duration.Value(d)
	return v.String()
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func clusterCount(n int) string {
	switch n {
	case 0:
		return "no cluster has"
	case 1:
		return "at most 1 cluster has"
	}
	return fmt.Sprintf("at most %d clusters have", n)
}

// withoutQuery returns a URL without what may be a secret.
func withoutQuery(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "its URL"
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	return u.String()
}
