package kinds

import "github.com/wherry-dev/wherry/scheduler/finding"

// PromotionPolicy says in which order environments get a base commit, what has to hold before the next one gets it, and how
// a release reaches the rings of an environment. At most one PromotionPolicy names an environment.
type PromotionPolicy struct {
	Common `yaml:",inline"`
	Spec   struct {
		// Chain are the environments that pass a base commit on, the first to get it first.
		Chain []Text `yaml:"chain"`
		// Groups are the people who may approve promotions and override rules.
		Groups []ApproverGroup `yaml:"groups"`
		// Gate is what has to hold before a commit enters an environment that has no gate of its own.
		Gate PromotionGate `yaml:"gate"`
		// Environments are the rings and gates of single environments.
		Environments []PromotedEnvironment `yaml:"environments"`
	} `yaml:"spec"`
}

// PromotedEnvironment is one environment of a PromotionPolicy.
type PromotedEnvironment struct {
	// Name is the name of the environment.
	Name string `yaml:"name" schema:"required"`
	// Rings are the rings of the environment's releases, narrowest first.
	Rings []string `yaml:"rings"`
	// Gate is what has to hold before a commit enters the environment. It takes the place of spec.gate as a whole.
	Gate PromotionGate `yaml:"gate"`
	// RingGate is what has to hold before a release goes to the next ring. The default is the environment's gate without
	// approvals, requirePinned and check.
	RingGate PromotionGate `yaml:"ringGate"`
	// ChangeRequest is true if a promotion is proposed as a change request. By default it is a commit.
	ChangeRequest Flag `yaml:"changeRequest"`
	Line          Line
}

// ApproverGroup is a group of people who may decide about promotions.
type ApproverGroup struct {
	// Name is the name by which gates refer to the group.
	Name Text `yaml:"name" schema:"required"`
	// Members are the people of the group.
	Members []GroupMember `yaml:"members"`
	// Hubs are the public keys, in PEM, of hubs that may speak for members without a publicKey by their names.
	Hubs []Text `yaml:"hubs"`
	// HubSpeaksForKeys is true if these hubs may speak for members with a publicKey, too.
	HubSpeaksForKeys Flag `yaml:"hubSpeaksForKeys"`
	Line             Line
}

// GroupMember is a person who may decide about promotions.
type GroupMember struct {
	// Name is the name of the person. For decisions through a hub it is that of the person's access token.
	Name Text `yaml:"name" schema:"required"`
	// PublicKey is the key, in PEM, with which the person signs decisions. Without it the person decides through a hub.
	PublicKey Text `yaml:"publicKey"`
	Line      Line
}

// PromotionGate is a set of rules, all of which have to hold. A field that is left out has its default.
type PromotionGate struct {
	// MinReported is the least share of the clusters that has reported within maxReportAge, in percent. The default is 0.
	MinReported Number `yaml:"minReported" schema:"minimum=0,maximum=100"`
	// MinCompliant is the least share of those that have reported that is compliant, in percent. The default is 100.
	MinCompliant Number `yaml:"minCompliant" schema:"minimum=0,maximum=100"`
	// MaxFailed is the largest number of failed clusters. The default is 0.
	MaxFailed Whole `yaml:"maxFailed" schema:"minimum=0"`
	// MaxQuarantined is the largest number of clusters that have put the release into quarantine. The default is 0.
	MaxQuarantined Whole `yaml:"maxQuarantined" schema:"minimum=0"`
	// MaxFailures is the largest number of failures of assignments since the release was made. By default there is no bound.
	MaxFailures Whole `yaml:"maxFailures" schema:"minimum=0"`
	// Soak is how long the commit has to have been in each environment of soakIn, such as 24h or 2d. The default is 0.
	Soak Text `yaml:"soak"`
	// SoakIn are the environments in which the commit soaks. The default is the environment below. A gate of rings has none.
	SoakIn []Text `yaml:"soakIn"`
	// MaxReportAge is the age of a report from which its cluster counts as unknown. The default is 24h.
	MaxReportAge Text `yaml:"maxReportAge"`
	// RequiredClusters selects clusters by their labels, all of which have to be compliant. By default there are none.
	RequiredClusters LabelSelector `yaml:"requiredClusters"`
	// RequirePinned asks that all charts, images and packages are named by digest, too. Floating assignments never pass without
	// allowFloating.
	RequirePinned Flag `yaml:"requirePinned"`
	// AllowEmptyCohort lets a gate pass although there are no clusters that could prove the commit.
	AllowEmptyCohort Flag `yaml:"allowEmptyCohort"`
	// AllowFloating lets assignments pass whose content follows a branch or another source that moves, as an app team's branch in
	// Kalypso. Its content changes in all environments at once, and no gate holds it.
	AllowFloating Flag `yaml:"allowFloating"`
	// Content says how what application teams deliver waits for its own proof, workload by workload. The word any means that it does
	// not wait.
	Content PromotionContent `yaml:"content"`
	// Approvals are the people who have to agree.
	Approvals PromotionApprovals `yaml:"approvals"`
	// Override are the people who may override rules. By default nobody may.
	Override PromotionApprovals `yaml:"override"`
	// Check is an external check.
	Check PromotionCheck `yaml:"check"`
	// Schedule says when the gate is open. By default it always is.
	Schedule PromotionSchedule `yaml:"schedule"`
	Line     Line
}

// PromotionContent says what holds for the content of application teams: the word any, or the settings of the rule.
type PromotionContent struct {
	// Any is the word in place of the settings.
	Any Text
	// Exempt names workloads for which the rule does not hold.
	Exempt PromotionExempt `yaml:"exempt"`
	// Approvals are the people who have to agree to each new revision of a workload. The default is the gate's; required 0 asks nobody.
	Approvals ContentApprovals `yaml:"approvals"`
	// BatchAfter is the time after which a batch that has not reached the last ring is reported, such as 12h. The default is 24h.
	BatchAfter Text `yaml:"batchAfter"`
	Line       Line
}

// PromotionExempt names workloads. A workload is exempt if one of the lists has it.
type PromotionExempt struct {
	// Workspaces are names of workspaces.
	Workspaces []Text `yaml:"workspaces"`
	// Registrations are names of WorkloadRegistrations.
	Registrations []Text `yaml:"registrations"`
	// Workloads are written REGISTRATION/NAME, since teams choose names, or NAME for a workload of the platform's own.
	Workloads []Text `yaml:"workloads"`
	Line      Line
}

// ContentApprovals is a number of people of a group, which may be none.
type ContentApprovals struct {
	// Required is how many people of the group have to agree.
	Required Whole `yaml:"required" schema:"required,minimum=0"`
	// Group is the name of the group.
	Group Text `yaml:"group"`
	Line  Line
}

// PromotionApprovals is a number of people of a group.
type PromotionApprovals struct {
	// Required is how many people of the group have to agree.
	Required Whole `yaml:"required" schema:"required,minimum=1"`
	// Group is the name of the group.
	Group Text `yaml:"group" schema:"required"`
	Line  Line
}

// PromotionCheck is a command or a web service that is asked. It has a command or a URL.
type PromotionCheck struct {
	// Name is what verdicts call the check. The default is check.
	Name Text `yaml:"name"`
	// Command is run with sh -c. It reads the question as JSON; exit code 0 passes, 5 waits, all others fail.
	Command Text `yaml:"command"`
	// URL gets the question as the body of a POST. 2xx passes; 202, 425, 429 and 503 wait; all others fail.
	URL Text `yaml:"url"`
	// Timeout bounds the time of an answer, such as 30s. The default is 1m.
	Timeout Text `yaml:"timeout"`
	Line    Line
}

// PromotionSchedule says when a gate is open.
type PromotionSchedule struct {
	// TimeZone is the name of a time zone, such as Europe/Berlin. The default is UTC.
	TimeZone Text `yaml:"timeZone"`
	// Open are the periods of the week in which the gate is open, such as "Mon-Thu 08:00-16:00". By default it always is.
	Open []Text `yaml:"open"`
	// Freeze are periods of the calendar in which the gate is closed all the same.
	Freeze []PromotionFreeze `yaml:"freeze"`
	Line   Line
}

// PromotionFreeze is a period of the calendar in which a gate is closed.
type PromotionFreeze struct {
	// From is the beginning: a date, such as 2026-12-20, which begins at midnight of the time zone, or a time in RFC 3339.
	From Text `yaml:"from" schema:"required"`
	// Until is the end, at which the gate is open again.
	Until Text `yaml:"until" schema:"required"`
	// Reason is shown to people.
	Reason Text `yaml:"reason"`
	Line   Line
}

// Of returns what the policy says of an environment alone; the zero value if that is nothing.
func (p *PromotionPolicy) Of(environment string) *PromotedEnvironment {
	for i := range p.Spec.Environments {
		if e := &p.Spec.Environments[i]; e.Name == environment {
			return e
		}
	}
	return new(PromotedEnvironment)
}

// GateOf returns the gate of an environment: its own, or else that of the policy, of which the line is zero if there is none.
func (p *PromotionPolicy) GateOf(environment string) *PromotionGate {
	if own := &p.Of(environment).Gate; own.Line != 0 {
		return own
	}
	return &p.Spec.Gate
}

// Names returns where the policy names an environment, in its list or in its chain, and false if it does not.
func (p *PromotionPolicy) Names(environment string) (finding.Position, bool) {
	if e := p.Of(environment); e.Line != 0 {
		return p.Position(e.Line), true
	}
	for _, e := range p.Spec.Chain {
		if e.Value == environment {
			return p.Position(e.Line), true
		}
	}
	return finding.Position{}, false
}
