// Package promotion has what a PromotionPolicy says of one environment: the chain that it is part of, its rings, and the gates
// before it and between its rings. [Mistakes] checks an object, [Read] returns the parsed values, and [Explain] describes them in
// words. The functions look at one object: whether its environments and clusters exist is for package lint. Package scheduler
// reads the objects ([scheduler.Model.Promotion]), and package gate judges by them.
package promotion

import (
	"crypto"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Policy is what holds for one environment. The zero Policy has no chain and no gate: nothing is promoted by itself.
type Policy struct {
	// Name is the name of the PromotionPolicy; empty where no object names the environment.
	Name        string
	Environment string
	// Chain are the environments, the first to get a commit first. It is empty, or has the environment.
	Chain []string
	// Rings are narrowest first; none where the platform names none.
	Rings []string
	// Gate is what has to hold before the environment gets a commit; RingGate is what has to hold before the next of its
	// rings gets the release.
	Gate, RingGate Gate
	// ChangeRequest is true if a promotion into the environment is proposed as a change request, and false if it is a commit.
	ChangeRequest bool
	// Groups are all groups of the policy, by name. Each of their members may pause and resume the environment.
	Groups []Group
}

// Group is a number of people who may decide.
type Group struct {
	Name    string
	Members []Member
	Hubs    []crypto.PublicKey // as those of Approvals
	// HubSpeaksForKeys is that of Approvals.
	HubSpeaksForKeys bool
}

// HubMaySpeakFor reports whether a hub of the group may speak for the member of that name.
func (g Group) HubMaySpeakFor(name string) bool {
	return slices.ContainsFunc(g.Members, func(m Member) bool { return m.Name == name && (m.Key == nil || g.HubSpeaksForKeys) })
}

// Below returns the environment before p's in the chain; empty for the first and without a chain.
func (p Policy) Below() string {
	if i := slices.Index(p.Chain, p.Environment); i > 0 {
		return p.Chain[i-1]
	}
	return ""
}

// RingBefore returns the ring before one of p's; empty for the first and for unknown ones.
func (p Policy) RingBefore(ring string) string {
	if i := slices.Index(p.Rings, ring); i > 0 {
		return p.Rings[i-1]
	}
	return ""
}

// Gate is a set of rules, all of which have to hold. [Default] returns the rules of a policy that says nothing.
type Gate struct {
	// MinReported is the least share of the cohort that has reported within MaxReportAge, in percent; 0 asks for none.
	MinReported float64
	// MinCompliant is the least share of those that have reported that is compliant with the commit, in percent.
	MinCompliant float64
	// MaxFailed is the largest number of failed clusters.
	MaxFailed int
	// MaxQuarantined is the largest number of clusters that have put the release into quarantine, and MaxFailures the largest
	// number of failures of assignments since the release was made, summed over the cohort; less than 0 is without a bound.
	MaxQuarantined, MaxFailures int
	// Soak is how long the commit has to have been in the environments SoakIn, together in each of them. SoakIn is empty for
	// the environment below, and for the gate of a ring.
	Soak   time.Duration
	SoakIn []string
	// MaxReportAge is the age from which a cluster counts as offline: unknown, whatever it said last.
	MaxReportAge time.Duration
	// Required selects clusters of the cohort that all have to be compliant; nil selects none.
	Required labels.Selector
	// RequirePinned refuses also a commit with an assignment that needs a chart, an image or a package without a digest.
	RequirePinned    bool
	AllowEmptyCohort bool
	// AllowFloating lets assignments pass whose content follows a branch, a tag or another source that moves. What clusters have
	// proved is then not what the next environment gets. It excludes RequirePinned.
	AllowFloating bool
	// Content is what holds for the content of application teams. A gate between rings has none.
	Content   Content
	Approvals Approvals
	Override  Approvals // who may override rules; with none, nobody may
	Check     *Check    // nil for none
	Schedule  Schedule
}

// Content is the rule about what application teams deliver: each workload enters an environment once the clusters of the environment
// below have proved it.
type Content struct {
	// Held is true if the rule holds, as it does unless the policy says content: any. It means nothing for the first environment of a chain.
	Held   bool
	Exempt Exempt
	// Approvals are asked for each new revision of a workload.
	Approvals Approvals
	// BatchAfter is the time after which a batch that has not reached the last ring is reported.
	BatchAfter time.Duration
}

// DefaultBatchAfter is Content.BatchAfter of a gate that says nothing.
const DefaultBatchAfter = 24 * time.Hour

// Exempt names workloads for which the rule about content does not hold. The platform gives all these names, but for those of
// workloads, which therefore come with their registration.
type Exempt struct {
	Workspaces, Registrations []string
	// Workloads are REGISTRATION/NAME, or NAME for the platform's own.
	Workloads []string
}

// Has reports whether a workload is exempt. Registration is empty for the platform's own.
func (e Exempt) Has(workspace, registration, workload string) bool {
	if registration != "" {
		workload = registration + "/" + workload
	}
	return workspace != "" && slices.Contains(e.Workspaces, workspace) || registration != "" && slices.Contains(e.Registrations, registration) ||
		slices.Contains(e.Workloads, workload)
}

// ReportInterval is the longest time between two reports of an agent that has nothing new to say. A MaxReportAge must be longer: else
// a gate takes each cluster for offline now and then.
const ReportInterval = time.Hour

// Default returns the gate of a policy that says nothing: all clusters that reported in the last day are compliant, none failed, and
// content is held.
func Default() Gate {
	return Gate{MinCompliant: 100, MaxFailures: -1, MaxReportAge: 24 * time.Hour, Content: Content{Held: true, BatchAfter: DefaultBatchAfter}}
}

// Approvals asks for the consent of people. The zero value asks for none.
type Approvals struct {
	Required int
	// Group names the group in the policy.
	Group   string
	Members []Member
	// Hubs are keys of hubs that may speak for members by their names, which are those of access tokens of role approver.
	Hubs []crypto.PublicKey
	// HubSpeaksForKeys is true if hubs may speak for members who have keys, too.
	HubSpeaksForKeys bool
}

// Of returns the group of people that is asked.
func (a Approvals) Of() Group {
	return Group{Name: a.Group, Members: a.Members, Hubs: a.Hubs, HubSpeaksForKeys: a.HubSpeaksForKeys}
}

// Member is a person who may decide.
type Member struct {
	Name string
	// Key is nil for a person who decides through a hub alone.
	Key crypto.PublicKey
}

// Check is an external check: exactly one of Command and URL is set.
type Check struct {
	Name string
	// Command is run with sh -c; it reads the question as JSON. Exit code 0 passes, 5 waits, all others fail.
	Command string
	// URL gets the question as the body of a POST. 2xx passes, but 202, 425, 429 and 503 wait; all others fail.
	URL     string
	Timeout time.Duration // 0 is a minute
}

// Schedule says when a gate is open. The zero Schedule is always open.
type Schedule struct {
	// Open are periods of the week in which the gate is open; none is always.
	Open []Period
	// Freezes are periods of the calendar in which it is closed all the same.
	Freezes []Freeze
}

// Period is a part of some days of each week, in Location. One that closes before it opens lasts over midnight.
type Period struct {
	Days          []time.Weekday // none is every day
	Opens, Closes time.Duration  // since midnight
	Location      *time.Location
}

// Freeze is closed from From, and open again at Until.
type Freeze struct {
	From, Until time.Time
	Reason      string
}
