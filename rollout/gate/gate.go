// Package gate judges whether a commit may enter an environment, or a release its next ring.
//
// [Judge] is a pure function: a [Question] has all that it reads, and the [Verdict] has every rule with its numbers and what
// would change it. Who asks gathers the facts first: from a hub, or from a roster and the reports in a registry.
package gate

import (
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Result is the result of a rule, and of a gate as a whole.
type Result string

// The results. Wait may become Pass by time and by what others do; Fail does not, without a change.
const (
	Pass Result = "pass"
	Wait Result = "wait"
	Fail Result = "fail"
)

// The names of the rules, in the order in which a verdict lists them.
const (
	RulePublished  = "published"  // the environment below has the commit, in a record
	RuleComplete   = "complete"   // nothing of it is incomplete
	RulePinned     = "pinned"     // no assignment is floating or, if asked for, without digests
	RuleCohort     = "cohort"     // there are clusters
	RuleReported   = "reported"   // enough have reported
	RuleCompliant  = "compliant"  // enough of those are compliant
	RuleFailed     = "failed"     // not too many failed
	RuleQuarantine = "quarantine" // not too many have put the release into quarantine
	RuleFailures   = "failures"   // assignments have not failed too often since the release was made
	RuleRequired   = "required"   // the required clusters are compliant
	RuleSoak       = "soak"
	RuleApprovals  = "approvals"
	RuleCheck      = "check"
	RuleSchedule   = "schedule"
	RuleRemovals   = "removals"   // the commit takes no more assignments from the environment than the platform lets a publication
	RuleUndone     = "undone"     // nobody has taken it back; see bundle.Undone
	RuleContent    = "content"    // a workload is proved in the environment below; not in a verdict, but people override it, see ContentOverridden
	RuleAutomation = "automation" // nobody has paused the environment; it holds for automation, not for people
)

// Question is what a gate is asked.
type Question struct {
	Policy promotion.Policy // of the environment that is to get the commit, as it runs now
	Gate   promotion.Gate   // the policy's Gate or RingGate
	// Ring is the ring that is to get the release; empty for a promotion.
	Ring string
	// Commit is the base commit, and Candidate the record of the environment below (for a ring: of the environment itself)
	// that has it; Candidate is nil if there is none.
	Commit    string
	Candidate *Candidate
	Cohort    Cohort
	Required  *Cohort // of the required clusters; nil without such a rule
	// Stays are the times that environments of SoakIn had the commit, by environment, oldest first.
	Stays map[string][]Stay
	// Undone is what was taken back from the environment that is to get the commit, or its rings.
	Undone []bundle.Undone
	// UndoneWorkloads are those that the candidate of a ring would bring to it although they were taken back.
	UndoneWorkloads []ledger.Undone
	Decisions       []Decided // verified, about this environment; those about other content are ignored
	Check           *Checked  // of the external check; nil if it was not run
	Removals        *Removals // nil if nobody looked
	// Automatic is true if nobody asks by hand.
	Automatic bool
	Now       time.Time
}

// Candidate is what the record that is judged has.
type Candidate struct {
	Platform    string
	Environment string
	BaseCommit  string
	IssuedAt    time.Time
	Incomplete  []string
	// Floating names the assignments whose content follows a source that moves, and Unpinned the others that need something without a
	// digest, as <cluster type>/<assignment>, sorted; see [bundle.Floating] and [bundle.Unpinned].
	Floating, Unpinned []string
	// Contents are the digests of the trees, by cluster type.
	Contents map[string]digest.Digest
}

// Subject returns what a decision about the candidate names. In an environment that holds content, each workload has decisions of its own,
// and a decision about a promotion names the base commit alone.
func (c *Candidate) Subject(p promotion.Policy, ring string) bundle.Decision {
	about := bundle.Decision{Ring: ring, From: c.Environment, BaseCommit: c.BaseCommit}
	if ring != "" || c.BaseCommit == "" || !p.Gate.Content.Held {
		about.Contents = bundle.DecisionContents(c.Contents)
	}
	return about
}

// The values of Cohort.From.
const (
	FromHub      = "hub"
	FromRegistry = "registry"
)

// Cohort is how far the clusters are whose proof a gate counts: those that were registered, and not retired, before the
// record's time of issue.
type Cohort struct {
	// From is "hub" or "registry", Source the hub's URL or the location of the reports, and AsOf the time of the answer. From and
	// Source are empty if no clusters were counted.
	From     string    `json:"from,omitempty"`
	Source   string    `json:"source,omitempty"`
	AsOf     time.Time `json:"asOf"`
	Clusters int       `json:"clusters"` // without those of NotReporting
	// Compliant, Progressing, Failed and Waiting have reported within the policy's time; Unknown has not.
	Compliant   int `json:"compliant"`
	Progressing int `json:"progressing"`
	Failed      int `json:"failed"`
	Waiting     int `json:"waiting"`
	Unknown     int `json:"unknown"`
	// Quarantined counts clusters with the release in quarantine, Failures the failures of assignments since the record's time of issue.
	Quarantined int `json:"quarantined"`
	Failures    int `json:"failures"`
	// NotReporting counts clusters that are registered with "reporting: none".
	NotReporting int `json:"notReporting"`
	// Open are the clusters that are not compliant, the worst first, and at most as many as were asked for.
	Open []Cluster `json:"open"`
}

// Reported is how many clusters have reported.
func (c Cohort) Reported() int { return c.Compliant + c.Progressing + c.Failed + c.Waiting }

// Cluster is a cluster that is not compliant.
type Cluster struct {
	UID     string `json:"uid"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Ring    string `json:"ring,omitempty"`
	Verdict string `json:"verdict"` // failed, unknown, waiting or progressing; see docs/reference/hub.md
	// Reason and Message are the agent's; if it gives none, those of the first assignment in the cluster's state, which the message
	// names.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// LastSeen is zero for a cluster that has never reported, or whose clock is ahead.
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// Stay is a time in which an environment had a commit. A zero Until means that it has it now.
type Stay struct {
	From, Until time.Time
}

// Decided is a decision with the person who made it, who is a member of the group that was asked.
type Decided struct {
	bundle.Decision
	Member string
	KeyID  string
}

// Removals is what a promotion would remove beyond the platform's bound.
type Removals struct {
	Over    []string // what is over it, for people
	Allowed bool     // whoever asks agrees to it
}

// Checked is the answer of an external check.
type Checked struct {
	Result  Result
	Message string
	At      time.Time
}

// Verdict is the answer of a gate. Its JSON form is an interface.
type Verdict struct {
	Environment string    `json:"environment"`
	Ring        string    `json:"ring,omitempty"`
	From        string    `json:"from,omitempty"` // the environment that was judged
	Commit      string    `json:"commit,omitempty"`
	Policy      string    `json:"policy,omitempty"`
	AsOf        time.Time `json:"asOf"`
	Result      Result    `json:"result"` // the worst of the rules
	Rules       []Rule    `json:"rules"`
	// NextLook is the earliest moment at which no rule waits for time any more, such as the end of a soak or an opening that no
	// freeze covers. It is zero if nothing waits for time, or time alone does not help.
	NextLook time.Time `json:"nextLook,omitzero"`
	Cohort   Cohort    `json:"cohort"`
}

// CountedBy returns who counted the clusters, for people, such as "clusters counted by the hub at https://hub.example.com". It is empty if nobody
// did.
func (v Verdict) CountedBy() string { return v.Cohort.CountedBy() }

// CountedBy is Verdict.CountedBy.
func (c Cohort) CountedBy() string {
	switch {
	case c.Source == "":
		return ""
	case c.From == FromHub:
		return "clusters counted by the hub at " + c.Source
	}
	return "clusters counted by the reports in " + c.Source
}

// String returns the rule with its numbers, in one line.
func (r Rule) String() string {
	if r.text != "" {
		return r.text
	}
	return fmt.Sprintf("%s: %s, wants %s", r.Name, r.Has, r.Wants)
}

// Rule is the result of one rule.
type Rule struct {
	Name   string `json:"rule"`
	Result Result `json:"result"`
	// Has and Wants are for people, with the numbers: "38 of 40 (95.0 %)", "at least 90 %".
	Has   string `json:"has"`
	Wants string `json:"wants"`
	// text, if not empty, says both in one sentence: "1 cluster failed (plant-7); none may".
	text string
	// Change says what would make it pass; empty if it passes.
	Change string `json:"change,omitempty"`
	// Ends is the moment at which a rule that waits for time alone passes; zero for others. See Verdict.NextLook for all rules.
	Ends time.Time `json:"ends,omitzero"`
	// Overridden has who overrode it, and why.
	Overridden string `json:"overridden,omitempty"`
}
