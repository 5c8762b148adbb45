// Package gatefacts gathers what a gate is asked, and asks it: for wherry gate, wherry promote and wherry rollout advance, so that all of
// them judge by the same facts.
//
// Fill [Facts] once, and call [Facts.Judge] for each promotion into an environment, or for each ring. The records, contents and
// times come from the registry or OCI layout in any case. How far the clusters are comes from a hub if there is one, else from
// the reports in the registry and a roster. Decisions come from the registry, and from the hub beside it.
//
// The caller reads the policy: that of the environment which is to get the commit, as it runs now.
//
//	facts := gatefacts.Facts{Location: to, Options: registry.Options(), Signers: signers, Clusters: gatefacts.Roster(source), Now: time.Now}
//	policy, err := loaded.Model.Promotion()
//	verdict, err := facts.Judge(ctx, gatefacts.Ask{Policy: policy, Automatic: true})
package gatefacts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/lazyregexp"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/cohort"
	"github.com/wherry-dev/wherry/publisher/decisions"
	"github.com/wherry-dev/wherry/publisher/gate"
	"github.com/wherry-dev/wherry/publisher/gate/check"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/state"
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
	Memory *cohort.Memory
	// Decisions are further sources of decisions beside Location, such as a hub.
	Decisions []func(ctx context.Context, environment string) ([]decisions.Found, error)
	// Check has the options of external checks.
	Check check.Options
	// Open is how many open clusters a verdict lists; 0 is MaxOpen, less than 0 is all.
	Open int
	// Warn is told about what was passed over; nil is silent.
	Warn func(format string, args ...any)
	// Now is the clock.
	Now func() time.Time
}

// Hub is the part of a hub's answers that a gate needs.
type Hub interface {
	Rollout(ctx context.Context, environment, commit string, q fleet.RolloutQuery) (fleet.Rollout, error)
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
// cohort.ErrNoCommit for questions that have no answer, or are those of the sources.
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
	of := check.Question{Verdict: v, Platform: q.Candidate.Platform, Contents: q.Candidate.Contents}
	answer, err := check.Run(ctx, *q.Gate.Check, of, f.Check, q.Now)
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
	if q.Undone, err = f.undone(ctx, q); err == nil {
		q.Decisions, err = f.decided(ctx, q.Policy, q.Candidate.Platform, q.Now)
	}
	return q, err
}

// undone returns what was taken back from the environment that is to get something, as its newest record has it.
func (f *Facts) undone(ctx context.Context, q gate.Question) ([]bundle.Undone, error) {
	store, err := f.Location.Open(f.Options)
	if err != nil {
		return nil, err
	}
	warn := f.Warn
	if warn == nil {
		warn = func(string, ...any) {}
	}
	reader := state.New(f.Location, store, f.Signers, q.Now, cmp.Or(f.Platform, publisher.DefaultPlatform), q.Policy.Environment, warn)
	record, err := reader.Record(ctx)
	if err != nil || record.Verified == nil {
		return nil, err
	}
	return record.Verified.Record.Undone, nil
}

var wholeCommit = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// Question gathers the facts. Its Check is nil. For errors see Judge.
func (f *Facts) Question(ctx context.Context, ask Ask) (gate.Question, error) {
	q := gate.Question{
		Policy: ask.Policy, Gate: ask.Policy.Gate, Ring: ask.Ring, Commit: ask.Commit, Automatic: ask.Automatic, Now: f.Now().UTC(),
		Stays: map[string][]gate.Stay{}, Cohort: gate.Cohort{From: f.from(), Source: f.source(), AsOf: f.Now().UTC()},
	}
	below := ask.Policy.Below()
	switch {
	case ask.Ring != "" && ask.Policy.RingBefore(ask.Ring) == "":
		return q, fmt.Errorf("ring %q of environment %s: %w", ask.Ring, ask.Policy.Environment, ErrNoRing)
	case ask.Ring != "":
		q.Gate, below = ask.Policy.RingGate, ask.Policy.Environment
	case below == "":
		return f.first(ctx, q)
	}
	reader, err := cohort.Open(f.Location, f.Options, f.Signers, f.Platform, f.Warn)
	if err != nil {
		return q, err
	}
	reader.Remember(f.Memory)
	g := gathering{Facts: f, ask: ask, reader: reader, q: &q}
	if g.history, err = reader.History(ctx, below); err != nil {
		return q, err
	}
	if err := f.Signers.Check(cmp.Or(f.Platform, g.history.Platform), q.Now); err != nil && g.history.Platform != "" {
		return q, err
	}
	if ask.Ring != "" {
		err = g.ring(ctx)
	} else {
		err = g.promotion(ctx)
	}
	if err != nil {
		return q, err
	}
	if err := g.clusters(ctx); err != nil {
		return q, err
	}
	if q.Undone, err = f.undone(ctx, q); err != nil {
		return q, err
	}
	q.Decisions, err = f.decided(ctx, ask.Policy, cmp.Or(f.Platform, g.history.Platform), q.Now)
	return q, err
}

func (f *Facts) from() string {
	if f.Hub != nil {
		return gate.FromHub
	}
	return gate.FromRegistry
}

// source names the hub or the location that tells how far the clusters are.
func (f *Facts) source() string {
	if f.Hub != nil {
		return f.HubURL
	}
	return f.Location.String()
}

// gathering is a question whose facts are being gathered.
type gathering struct {
	*Facts
	ask     Ask
	reader  *cohort.Reader
	history *cohort.History
	q       *gate.Question
}

// promotion sets the commit, the candidate and the stays of a promotion.
func (g *gathering) promotion(ctx context.Context) error {
	record, err := g.history.Find(g.ask.Commit)
	if err != nil || record == nil {
		return err
	}
	if g.q.Candidate, err = g.history.Candidate(ctx, record, !g.q.Gate.AllowFloating); err != nil {
		return err
	}
	g.q.Commit = record.BaseCommit
	if g.q.Gate.Soak <= 0 {
		return nil
	}
	g.q.Stays[g.history.Environment] = g.history.Stays(record.BaseCommit)
	for _, environment := range g.q.Gate.SoakIn {
		if environment == g.history.Environment {
			continue
		}
		h, err := g.reader.History(ctx, environment)
		if err != nil {
			return err
		}
		g.q.Stays[environment] = h.Stays(record.BaseCommit)
	}
	return nil
}

// ring sets the commit, the candidate and the stays of a ring.
func (g *gathering) ring(ctx context.Context) error {
	record := g.history.Newest()
	if record == nil {
		return nil
	}
	candidate := g.ask.Candidate
	if candidate == nil {
		var err error
		if candidate, err = g.history.RingCandidate(ctx, record, g.ask.Policy.Rings, g.ask.Ring); err != nil {
			return err
		}
	}
	if candidate == nil { // the ring has what the one before it has
		if candidate, _ = g.history.Candidate(ctx, record, false); candidate == nil {
			return nil
		}
	} else if !g.q.Gate.AllowFloating {
		if err := g.history.AddMoving(ctx, record, g.ask.Policy.RingBefore(g.ask.Ring), candidate); err != nil {
			return err
		}
	}
	g.q.Candidate = candidate
	switch full := candidate.BaseCommit; {
	case len(g.ask.Commit) >= 7 && len(full) >= len(g.ask.Commit) && full[:len(g.ask.Commit)] == g.ask.Commit, g.ask.Commit == "":
		g.q.Commit = full
	}
	var err error
	if g.q.Gate.Soak > 0 {
		g.q.Stays[g.ask.Policy.Environment], err = g.history.RingStays(ctx, g.ask.Policy.RingBefore(g.ask.Ring), candidate)
	}
	return err
}

// clusters counts the cohort, and the required clusters.
func (g *gathering) clusters(ctx context.Context) error {
	q := g.q
	if q.Candidate == nil || q.Candidate.BaseCommit == "" {
		return nil
	}
	c := fleet.RolloutQuery{RegisteredBefore: q.Candidate.IssuedAt}
	if g.ask.Ring != "" {
		// A cluster that joins in the middle of a rollout belongs to its ring as if it had been there.
		c.RegisteredBefore, c.Rings = time.Time{}, ringsBefore(g.ask.Policy, g.ask.Ring)
	}
	count, err := g.counter(ctx)
	if err != nil {
		return err
	}
	all, err := count(ctx, q.Candidate.BaseCommit, q.Candidate.IssuedAt, c)
	q.Cohort, q.Required = all.Cohort, all.Required
	return err
}

func ringsBefore(p promotion.Policy, ring string) (all []string) {
	for _, name := range p.Rings {
		if name == ring {
			break
		}
		all = append(all, name)
	}
	return all
}

// Counted is how far clusters are, and those among them that the gate requires; Required is nil without such a rule.
type Counted struct {
	Cohort   gate.Cohort
	Required *gate.Cohort
}

// counter reads what is needed to count clusters, and returns a function that counts those of q by how far they are with a commit that was
// released at a time.
func (g *gathering) counter(ctx context.Context) (func(ctx context.Context, commit string, since time.Time, q fleet.RolloutQuery) (Counted, error), error) {
	from := g.Hub
	if from == nil {
		var clusters []scheduler.Cluster
		var err error
		if g.Clusters != nil {
			if clusters, err = g.Clusters(ctx, g.history.Environment); err != nil {
				return nil, err
			}
		}
		if from, err = g.local(ctx, g.reader, g.history, clusters, g.q.Gate.MaxReportAge); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, commit string, since time.Time, q fleet.RolloutQuery) (c Counted, err error) {
		q.MaxReportAge, q.Limit = g.q.Gate.MaxReportAge, max(cmp.Or(g.Open, MaxOpen), 0)
		if g.Hub == nil || g.q.Gate.MaxFailures >= 0 { // a hub reads its database for them
			q.FailuresSince = since
		}
		if c.Cohort, err = g.count(ctx, from, commit, q); err != nil || g.q.Gate.Required == nil {
			return c, err
		}
		q.Selector = g.q.Gate.Required.String()
		required, err := g.count(ctx, from, commit, q)
		c.Required = &required
		return c, err
	}, nil
}

// count asks how far clusters are.
func (g *gathering) count(ctx context.Context, from Hub, commit string, q fleet.RolloutQuery) (gate.Cohort, error) {
	out := gate.Cohort{From: g.from(), Source: g.source(), AsOf: g.q.Now, Open: []gate.Cluster{}}
	r, err := from.Rollout(ctx, g.history.Environment, commit, q)
	if errors.As(err, new(*fleet.UnknownNameError)) {
		return out, nil // no cluster of the environment is registered
	} else if err != nil {
		return out, err
	}
	if !r.Published && g.Hub != nil {
		g.warn("the hub does not know that %s is published in %s: see wherry hub serve --watch", commit, g.history.Environment)
	}
	if !r.ReadAt.IsZero() {
		out.AsOf = r.ReadAt
	}
	out.Clusters, out.Compliant, out.Progressing, out.Failed, out.Waiting, out.Unknown = r.Clusters, r.Compliant, r.Progressing, r.FailedCount, r.Waiting, r.Unknown
	out.Quarantined, out.Failures, out.NotReporting = r.Quarantined, int(r.Failures), r.NotReporting
	for _, o := range r.Open {
		out.Open = append(out.Open, gate.Cluster{
			UID: o.UID, Name: o.Cluster, Type: o.Type, Ring: o.Ring, Verdict: o.Verdict, Reason: o.Reason, Message: o.Message, LastSeen: o.LastSeen,
		})
	}
	return out, nil
}

// decided returns the decisions about an environment that count.
func (f *Facts) decided(ctx context.Context, policy promotion.Policy, platform string, now time.Time) ([]gate.Decided, error) {
	found, err := decisions.Read(ctx, f.Location, f.Options, policy.Environment, f.Warn)
	if err != nil {
		return nil, err
	}
	for _, more := range f.Decisions {
		others, err := more(ctx, policy.Environment)
		if err != nil {
			return nil, err
		}
		found = append(found, others...)
	}
	return decisions.Of(found, decisions.Trust{Platform: platform, Policy: policy, Releases: f.Signers, Now: now}), nil
}

// Candidate returns what a decision about an environment or a ring is about, as Judge sees it; nil if nothing is published.
func (f *Facts) Candidate(ctx context.Context, ask Ask) (*gate.Candidate, error) {
	bare := *f
	bare.Hub, bare.Clusters, bare.Reports, bare.Decisions = nil, nil, nil, nil
	ask.Policy.Gate.Soak, ask.Policy.RingGate.Soak, ask.Policy.Gate.AllowFloating, ask.Policy.RingGate.AllowFloating = 0, 0, true, true
	q, err := bare.Question(ctx, ask)
	return q.Candidate, err
}
