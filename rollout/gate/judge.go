package gate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/show"
)

// Judge returns the verdict on a question. It reads nothing else: no clock, no file and no network.
//
// A rule that is not given passes. Facts that are missing make a rule wait, and never pass.
func Judge(q Question) Verdict {
	j := judge{Question: q, now: q.Now.UTC()}
	rules := []func() Rule{
		j.published, j.complete, j.pinned, j.cohort, j.reported, j.compliant, j.failed, j.quarantine, j.failures, j.required,
		j.soak, j.approvals, j.check, j.schedule, j.removals, j.undone, j.automation,
	}
	v := Verdict{
		Environment: q.Policy.Environment, Ring: q.Ring, From: j.from(), Commit: q.Commit, Policy: q.Policy.Name,
		AsOf: j.now, Result: Pass, Cohort: q.Cohort,
	}
	v.Cohort.Open = append([]Cluster{}, v.Cohort.Open...)
	for _, rule := range rules {
		r := j.override(rule())
		v.Rules = append(v.Rules, r)
		v.Result = worse(v.Result, r.Result)
	}
	if v.Result == Wait {
		v.NextLook = j.nextLook(v.Rules)
	}
	return v
}

// OnlyCheckIsMissing reports whether the external check alone keeps a verdict from passing, and has not been run. Run it
// then, and judge again: a check is not asked while anything else is in the way.
func (v Verdict) OnlyCheckIsMissing(q Question) bool {
	return q.Gate.Check != nil && q.Check == nil && v.Result == Wait &&
		!slices.ContainsFunc(v.Rules, func(r Rule) bool { return r.Result != Pass && r.Name != RuleCheck })
}

// Rule returns the rule of a name; the zero Rule if there is none.
func (v Verdict) Rule(name string) Rule {
	if i := slices.IndexFunc(v.Rules, func(r Rule) bool { return r.Name == name }); i >= 0 {
		return v.Rules[i]
	}
	return Rule{}
}

func worse(a, b Result) Result {
	order := []Result{Pass, Wait, Fail}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// judge is a question that is being answered.
type judge struct {
	Question
	now time.Time
	// workload is set if the question is about one; see Content.
	workload string
}

// from returns the environment that is judged.
func (j judge) from() string {
	switch {
	case j.Candidate != nil:
		return j.Candidate.Environment
	case j.Ring != "":
		return j.Policy.Environment
	}
	return j.Policy.Below()
}

const nothing = "-" // what a rule that is not given wants

func pass(name, has, wants string) Rule {
	return Rule{Name: name, Result: Pass, Has: has, Wants: wants}
}

// unless returns a rule that passes if ok, and has another result and what would change it otherwise.
func unless(ok bool, otherwise Result, name, has, wants, change string) Rule {
	if ok {
		return pass(name, has, wants)
	}
	return Rule{Name: name, Result: otherwise, Has: has, Wants: wants, Change: change}
}

func (j judge) published() Rule {
	wants := fmt.Sprintf("a record of %s with the commit", j.from())
	c := j.Candidate
	switch {
	case c == nil && j.Commit == "":
		return unless(false, Wait, RulePublished, "no record", wants, j.toPublish())
	case c == nil:
		return unless(false, Wait, RulePublished, "no record of "+short(j.Commit), wants, fmt.Sprintf("publish %s in %s", short(j.Commit), j.from()))
	case c.BaseCommit == "":
		return unless(false, Fail, RulePublished, "a record without a commit of the base", wants, fmt.Sprintf("publish %s from a base in git", c.Environment))
	case c.BaseCommit != j.Commit:
		return unless(false, Fail, RulePublished, "a record of "+short(c.BaseCommit), wants, fmt.Sprintf("ask for %s, or publish %s in %s", short(c.BaseCommit), short(j.Commit), c.Environment))
	}
	return pass(RulePublished, "record of "+c.IssuedAt.UTC().Format(time.RFC3339), wants)
}

// toPublish says how to publish the environment that is judged for the first time.
func (j judge) toPublish() string {
	if j.Ring != "" {
		return "publish " + j.from()
	}
	return fmt.Sprintf("publish %s: wherry promote -e %s", j.from(), j.from())
}

func (j judge) complete() Rule {
	const wants = "0 incomplete cluster types"
	if j.Candidate == nil {
		return unless(false, Wait, RuleComplete, "unknown: no record", wants, "publish the commit first")
	}
	held := j.Candidate.Incomplete
	return unless(len(held) == 0, Fail, RuleComplete, listed(len(held), held), wants,
		fmt.Sprintf("mend what is held in %s, and publish a commit without it", j.Candidate.Environment))
}

func (j judge) pinned() Rule {
	wants, change := "0 floating assignments", "have their sources name a commit or a digest, or deliver them embedded, and publish that commit"
	var found []string
	if j.Candidate != nil {
		found = j.Candidate.Floating
	}
	if j.Gate.RequirePinned && j.Candidate != nil {
		found = slices.Sorted(slices.Values(slices.Concat(found, j.Candidate.Unpinned)))
	}
	if j.Gate.RequirePinned {
		wants, change = "0 assignments without commit or digest", "have their sources name a commit, their charts and images a digest, and publish that commit"
	}
	switch {
	case j.Gate.AllowFloating: // who asks need not have looked
		return pass(RulePinned, nothing, nothing)
	case j.Candidate == nil:
		return unless(false, Wait, RulePinned, "unknown: no record", wants, "publish the commit first")
	}
	return unless(len(found) == 0, Fail, RulePinned, listed(len(found), found), wants, change)
}

func (j judge) cohort() Rule {
	has := fmt.Sprint(j.Cohort.Clusters)
	if j.Cohort.NotReporting > 0 {
		has += fmt.Sprintf(", and %d that do not report", j.Cohort.NotReporting)
	}
	if j.Gate.AllowEmptyCohort {
		return pass(RuleCohort, has, nothing)
	}
	change := fmt.Sprintf("register a cluster of %s that reports, and publish again; or set allowEmptyCohort", j.from())
	if j.Cohort.From == FromRegistry {
		change = fmt.Sprintf("no hub was asked (give --hub) and the registry has no reports of %s", j.from())
	}
	return unless(j.Cohort.Clusters > 0, Wait, RuleCohort, has, "at least 1 cluster that was registered before the record", change)
}

func (j judge) reported() Rule {
	least := atLeast(j.Gate.MinReported, j.Cohort.Clusters)
	wants := fmt.Sprintf("at least %s %%", number(j.Gate.MinReported))
	if !j.Gate.AllowEmptyCohort && least == 0 {
		least, wants = 1, "at least 1"
	}
	has := j.Cohort.Reported()
	r := unless(has >= least, Wait, RuleReported, share(has, j.Cohort.Clusters), wants, more(least-has, "has to report", "have to report"))
	if r.Result == Wait && j.Cohort.Clusters == 0 {
		r.Change = "there has to be a cluster that reports"
	}
	if r.Result == Wait {
		r.Has += j.Cohort.TooOld(j.Gate.MaxReportAge, j.now)
	}
	return r
}

// TooOld says, after a comma, how old the newest report is that is too old to count, which it is after maxAge; empty if none is.
func (c Cohort) TooOld(maxAge time.Duration, now time.Time) string {
	var newest Cluster
	for _, c := range c.Open {
		if c.Verdict == "unknown" && c.LastSeen.After(newest.LastSeen) {
			newest = c
		}
	}
	if newest.LastSeen.IsZero() || maxAge <= 0 {
		return ""
	}
	return fmt.Sprintf(", %s reported %s ago, which counts for %s", cmp.Or(newest.Name, newest.UID, "a cluster"), length(now.Sub(newest.LastSeen).Truncate(time.Minute)), length(maxAge))
}

func (j judge) compliant() Rule {
	c := j.Cohort
	has, wants := share(c.Compliant, c.Reported()), fmt.Sprintf("at least %s %% of those that have reported", number(j.Gate.MinCompliant))
	least := atLeast(j.Gate.MinCompliant, c.Reported())
	switch {
	case c.Reported() == 0 && !j.Gate.AllowEmptyCohort:
		return unless(false, Wait, RuleCompliant, has, wants, "a cluster has to report")
	case c.Compliant >= least:
		return pass(RuleCompliant, has, wants)
	}
	// All others may become compliant: those that are at it, those that have not seen the release, and those that are offline.
	if best := c.Clusters - c.Failed; best < atLeast(j.Gate.MinCompliant, c.Clusters) {
		return unless(false, Fail, RuleCompliant, has, wants,
			fmt.Sprintf("%d failed, and the other %d are too few: mend them, or publish a commit that does", c.Failed, best))
	}
	return unless(false, Wait, RuleCompliant, has, wants, more(least-c.Compliant, "has to become compliant", "have to become compliant"))
}

func (j judge) failed() Rule {
	failed := j.Cohort.Failed
	r := unless(failed <= j.Gate.MaxFailed, Fail, RuleFailed, fmt.Sprint(failed), fmt.Sprintf("at most %d", j.Gate.MaxFailed),
		fmt.Sprintf("mend %s, or publish a commit that does", clusters(failed-j.Gate.MaxFailed)))
	r.text = fmt.Sprintf("%s failed%s; %s", clusters(failed), j.names("failed", failed), may(j.Gate.MaxFailed))
	return r
}

// names returns the names of open clusters with a verdict, of which there are n in all: " (plant-7, plant-8 and 3 more)".
func (j judge) names(verdict string, n int) string {
	const most = 5
	var names []string
	for _, c := range j.Cohort.Open {
		if c.Verdict == verdict && len(names) < most {
			names = append(names, cmp.Or(c.Name, c.UID))
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) < n:
		return fmt.Sprintf(" (%s and %d more)", strings.Join(names, ", "), n-len(names))
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// may writes how many of something there may be, after a sentence about them: "none may".
func may(most int) string {
	if most == 0 {
		return "none may"
	}
	return fmt.Sprintf("at most %d may", most)
}

func (j judge) quarantine() Rule {
	if j.Gate.MaxQuarantined < 0 {
		return pass(RuleQuarantine, fmt.Sprint(j.Cohort.Quarantined), nothing)
	}
	r := unless(j.Cohort.Quarantined <= j.Gate.MaxQuarantined, Fail, RuleQuarantine,
		fmt.Sprint(j.Cohort.Quarantined), fmt.Sprintf("at most %d", j.Gate.MaxQuarantined),
		"publish a commit that they can run: agents have put this release into quarantine")
	r.text = fmt.Sprintf("%s quarantined the release; %s", clusters(j.Cohort.Quarantined), may(j.Gate.MaxQuarantined))
	return r
}

func (j judge) failures() Rule {
	if j.Gate.MaxFailures < 0 {
		return pass(RuleFailures, fmt.Sprint(j.Cohort.Failures), nothing)
	}
	r := unless(j.Cohort.Failures <= j.Gate.MaxFailures, Fail, RuleFailures,
		fmt.Sprint(j.Cohort.Failures), fmt.Sprintf("at most %d since the record", j.Gate.MaxFailures), "find out what fails, and publish a commit that mends it")
	r.text = fmt.Sprintf("%s of assignments since the record; at most %d permitted", show.Count(j.Cohort.Failures, "failure"), j.Gate.MaxFailures)
	return r
}

func (j judge) required() Rule {
	if j.Gate.Required == nil {
		return pass(RuleRequired, nothing, nothing)
	}
	wants := fmt.Sprintf("all clusters with %s compliant", j.Gate.Required)
	c := j.Required
	if j.Candidate == nil {
		return unless(false, Wait, RuleRequired, "unknown: no record", wants, "publish the commit first")
	}
	if c == nil {
		return unless(false, Wait, RuleRequired, "unknown", wants, "ask a source that knows the labels of clusters")
	}
	has := share(c.Compliant, c.Clusters)
	switch {
	case c.Clusters == 0 && c.NotReporting > 0:
		return unless(false, Fail, RuleRequired, fmt.Sprintf("%d that do not report", c.NotReporting), wants, "select clusters that report")
	case c.Clusters == 0:
		return unless(false, Wait, RuleRequired, has, wants, "register a cluster with these labels, and publish again")
	case c.Compliant >= c.Clusters:
		return pass(RuleRequired, has, wants)
	case c.Failed > 0:
		return unless(false, Fail, RuleRequired, fmt.Sprintf("%s, %d failed", has, c.Failed), wants, fmt.Sprintf("mend %s, or publish a commit that does", clusters(c.Failed)))
	}
	return unless(false, Wait, RuleRequired, has, wants, more(c.Clusters-c.Compliant, "has to become compliant", "have to become compliant"))
}

func (j judge) check() Rule {
	c := j.Gate.Check
	if c == nil {
		return pass(RuleCheck, nothing, nothing)
	}
	wants := fmt.Sprintf("%q passes", c.Name)
	if j.Check == nil {
		return unless(false, Wait, RuleCheck, "not asked yet", wants, "it is asked once all other rules pass")
	}
	has := string(j.Check.Result)
	if j.Check.Message != "" {
		has += ": " + j.Check.Message
	}
	switch j.Check.Result {
	case Pass:
		return pass(RuleCheck, has, wants)
	case Wait:
		return unless(false, Wait, RuleCheck, has, wants, "ask again later")
	}
	return unless(false, Fail, RuleCheck, has, wants, "mend what the check found")
}

func (j judge) removals() Rule {
	r := j.Removals
	if r == nil {
		return pass(RuleRemovals, nothing, nothing)
	}
	return unless(len(r.Over) == 0 || r.Allowed, Wait, RuleRemovals, listed(len(r.Over), r.Over), "no more than maxRemoved of the platform",
		fmt.Sprintf("agree to it: wherry promote -e %s --allow-removals", j.Policy.Environment))
}

// atLeast returns the smallest number of all that is a share of percent.
func atLeast(percent float64, all int) int {
	return max(0, int(math.Ceil(percent*float64(all)/100-1e-9)))
}

// share writes "38 of 40 (95.0 %)", rounded down, so that 99.96 % is not 100.
func share(some, all int) string {
	if all == 0 {
		return fmt.Sprintf("%d of 0", some)
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", some, all, math.Floor(1000*float64(some)/float64(all))/10)
}

// number writes a percentage without digits that say nothing.
func number(percent float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.4f", percent), "0"), ".")
}

func clusters(n int) string {
	if n == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", n)
}

// more writes "3 more clusters have to report".
func more(n int, one, many string) string {
	if n == 1 {
		return "1 more cluster " + one
	}
	return fmt.Sprintf("%d more clusters %s", n, many)
}

// listed writes a number, and the first names of a list.
func listed(n int, names []string) string {
	const most = 5
	switch {
	case n == 0:
		return "0"
	case n > most:
		return fmt.Sprintf("%d: %s and %d more", n, strings.Join(names[:most], ", "), n-most)
	}
	return fmt.Sprintf("%d: %s", n, strings.Join(names, ", "))
}

func short(commit string) string { return commit[:min(len(commit), 7)] }
