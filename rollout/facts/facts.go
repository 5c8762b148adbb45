// Package facts gathers what a gate is asked, and asks it: for wherry gate, wherry promote and wherry rollout, so that all of them judge
// by the same facts.
//
// Fill [Facts] once, and call [Facts.Judge] for each promotion into an environment, or for each ring. It goes one way: records, contents
// and times come from the registry or OCI layout ([Facts.History]); a fleet tells how far the clusters are, that of a hub or one
// made of the reports in the registry and a roster; then come the decisions, from the registry and a hub; then [gate.Judge] judges.
//
// Everything is verified before it counts: records and releases by the signers, reports by the keys of the roster. What is read is
// bounded: the newest [MaxRecords] records, the releases that they and the clusters name, and the newest reports of each cluster. A [Memory]
// makes repeated looks cheaper.
//
// The caller reads the policy: that of the environment which is to get the commit, as it runs now.
//
//	facts := facts.Facts{Location: to, Options: registry.Options(), Signers: signers, Clusters: facts.Roster(source), Now: time.Now}
//	policy, err := loaded.Model.Promotion()
//	verdict, err := facts.Judge(ctx, facts.Ask{Policy: policy, Automatic: true})
package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// MaxOpen is how many clusters that are not compliant a verdict lists unless Facts says otherwise.
const MaxOpen = 20

// Facts says where the facts come from.
type Facts struct {
	// Location has the records, releases, decisions and, without a hub, the reports. Signers are those whose records count.
	Location oci.Location
	Options  oci.Options
	Signers  published.Signers
	// Platform is the name of the platform; empty for the one that the records name.
	Platform string
	// Hub tells how far the clusters are; nil for the reports at Location and the clusters of Clusters.
	Hub Hub
	// HubURL is the hub's URL, for people.
	HubURL string
	// Clusters returns the roster of an environment; see Roster. It is not asked if there is a hub.
	Clusters func(ctx context.Context, environment string) ([]scheduler.Cluster, error)
	// Reports are envelopes of reports from elsewhere, such as media. They are not for a hub.
	Reports [][]byte
	// Memory makes repeated looks at Location cheaper; may be nil.
	Memory *Memory
	// Decisions are further sources of decisions beside Location, such as a hub.
	Decisions []func(ctx context.Context, environment string) ([]decisions.Found, error)
	// Carry has the decisions that count, and that another source alone has, put to Location, where those see them who ask no hub; of those
	// about workloads the ones that still matter.
	Carry bool
	// Check has the options of external checks.
	Check CheckOptions
	// Open is how many open clusters a verdict lists; 0 is MaxOpen, less than 0 is all.
	Open int
	// Warn is told about what was passed over; nil is silent.
	Warn func(format string, args ...any)
	// Now is the clock.
	Now func() time.Time

	seen *seen // by a look
}

// Hub is the part of a hub's answers that a gate needs.
type Hub interface {
	Rollout(ctx context.Context, environment, commit string, q fleet.RolloutQuery) (fleet.Rollout, error)
	Content(ctx context.Context, environment string, q fleet.ContentQuery) (fleet.Content, error)
}

// Ask is what is to be judged.
type Ask struct {
	// Policy is that of the environment that is to get the commit, as it runs now.
	Policy promotion.Policy
	// Ring is the ring that is to get what the ring before it has; empty for a promotion.
	Ring string
	// Commit is the base commit, or at least seven of its first digits; empty for that of the newest record of the environment
	// below. For a ring it has to be that of the candidate, if it is given.
	Commit string
	// BaseID is that of Commit, by which a record with the same base is found; empty if it is not known.
	BaseID string
	// Candidate is what a ring is to get, for a caller that has decided on it; nil for all cluster types that differ.
	Candidate *gate.Candidate
	// Automatic is true if nobody asks by hand: then a pause of the environment holds.
	Automatic bool
	// Removals returns what the environment would lose by the commit beyond the platform's bound. It is asked if nothing else is in the
	// way, and may be nil. AllowRemovals agrees to that.
	Removals      func(ctx context.Context, commit string) ([]string, error)
	AllowRemovals bool
}

// Errors of questions that no gate can answer.
var (
	// ErrFirst means that the environment has no chain, or is the first one and the question names no commit in full: its gate has
	// check and schedule alone.
	ErrFirst = errors.New("no environment is below it in a chain")
	// ErrNoRing means that the environment has no such ring, or none before it.
	ErrNoRing = errors.New("no ring is before it")
)

// Roster returns a function for Facts.Clusters that reads the Cluster objects of an environment. Source returns where an environment
// is read from.
func Roster(source func(environment string) (platform.Source, error)) func(context.Context, string) ([]scheduler.Cluster, error) {
	return func(ctx context.Context, environment string) ([]scheduler.Cluster, error) {
		from, err := source(environment)
		if err != nil {
			return nil, err
		}
		loaded, err := platform.LoadPlatform(ctx, from)
		if err != nil {
			return nil, err
		}
		return loaded.Model.Clusters(), nil
	}
}

// Judge gathers the facts and returns the verdict. An external check is asked if it alone is in the way. The errors wrap ErrFirst, ErrNoRing and
// ErrNoCommit for questions that have no answer, or are those of the sources.
func (f *Facts) Judge(ctx context.Context, ask Ask) (gate.Verdict, error) {
	q, err := f.Question(ctx, ask)
	if err != nil {
		return gate.Verdict{}, err
	}
	v := judge(q)
	if ask.Removals != nil && q.Commit != "" && (v.Result == gate.Pass || v.OnlyCheckIsMissing(q)) {
		over, err := ask.Removals(ctx, q.Commit)
		if err != nil {
			return v, err
		}
		q.Removals = &gate.Removals{Over: over, Allowed: ask.AllowRemovals}
		v = judge(q)
	}
	if !v.OnlyCheckIsMissing(q) {
		return v, nil
	}
	of := CheckQuestion{Verdict: v, Platform: q.Candidate.Platform, Contents: q.Candidate.Contents}
	answer, err := runCheck(ctx, *q.Gate.Check, of, f.Check, q.Now)
	if err != nil {
		return gate.Verdict{}, err
	}
	q.Check = &answer
	return judge(q), nil
}

// firstRules are those of the gate of the first environment in a chain: no environment has proved the commit before. Approvals are among
// them to be refused, and not passed over.
var firstRules = []string{gate.RuleApprovals, gate.RuleCheck, gate.RuleSchedule, gate.RuleRemovals, gate.RuleUndone, gate.RuleAutomation}

// judge returns the verdict on a question, for the first environment of a chain with firstRules alone.
func judge(q gate.Question) gate.Verdict {
	v := gate.Judge(q)
	if q.Ring != "" || q.Policy.Below() != "" {
		return v
	}
	v.Rules = slices.DeleteFunc(v.Rules, func(r gate.Rule) bool { return !slices.Contains(firstRules, r.Name) })
	v.Result = gate.Pass
	for i, r := range v.Rules {
		if r.Name == gate.RuleApprovals && r.Result != gate.Pass { // a decision names a record of the environment below
			r.Result, r.Change = gate.Fail, "no record can be approved before the first environment: take approvals out of its gate, and protect the base's branch"
			v.Rules[i] = r
		}
		if r.Result == gate.Fail || v.Result == gate.Pass {
			v.Result = r.Result
		}
	}
	if v.Result != gate.Wait {
		v.NextLook = time.Time{}
	}
	return v
}

// RingGate returns the gate between the rings of environments, for package advance: it judges by the facts and by the policies that the
// environments have now, by name, and waits while an environment is paused.
func (f *Facts) RingGate(policies map[string]promotion.Policy) advance.Gate {
	return func(ctx context.Context, ask advance.Ask) (gate.Verdict, error) {
		policy, known := policies[ask.Environment]
		if !known {
			return gate.Verdict{}, fmt.Errorf("environment %s has no policy", ask.Environment)
		}
		of := *f
		of.Platform = ask.Candidate.Platform
		return of.Judge(ctx, Ask{Policy: policy, Ring: ask.Ring, Candidate: &ask.Candidate, Automatic: true})
	}
}

func (f *Facts) warn(format string, args ...any) {
	if f.Warn != nil {
		f.Warn(format, args...)
	}
}

// first fills in what counts for the first environment of a chain. The commit is the candidate, without a record that has it.
func (f *Facts) first(ctx context.Context, q gate.Question) (gate.Question, error) {
	if len(q.Policy.Chain) == 0 || !wholeCommit.MatchString(q.Commit) {
		return q, fmt.Errorf("environment %s: %w", q.Policy.Environment, ErrFirst)
	}
	all := q.Policy.Gate
	q.Gate = promotion.Gate{AllowEmptyCohort: true, MaxFailures: -1, Approvals: all.Approvals, Override: all.Override, Check: all.Check, Schedule: all.Schedule}
	q.Candidate = &gate.Candidate{Platform: cmp.Or(f.Platform, publisher.DefaultPlatform), BaseCommit: q.Commit}
	q.Cohort = gate.Cohort{AsOf: q.Now} // no clusters are counted
	var err error
	q.Undone, q.Decisions, err = f.undoneAndDecided(ctx, q.Policy, q.Candidate.Platform)
	return q, err
}

var wholeCommit = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
