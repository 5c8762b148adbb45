package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/diff"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// ContentAsk is what is asked about the content of an environment.
type ContentAsk struct {
	// Policy is that of the environment that is published.
	Policy promotion.Policy
	// BaseCommit is the base commit that it will run, and BaseID identifies its content; empty for what own's record says.
	BaseCommit, BaseID string
	// Workspaces has the workspace of each registration.
	Workspaces map[string]string
	// Unproved is the reason of a person who lets in workloads without a proof, and Only names these, as REGISTRATION/NAME; empty lets in
	// all. Where the policy has a group that may override its gate, see NotOverridden.
	Unproved string
	Only     []string
	// NextBatch lets new content into the first ring although the batch before has not reached the last one.
	NextBatch bool
}

// AskOf returns the question about the content of an environment.
func AskOf(loaded *platform.Loaded, policy promotion.Policy, baseCommit string) ContentAsk {
	ask := ContentAsk{Policy: policy, BaseCommit: baseCommit, Workspaces: map[string]string{}}
	if baseCommit == loaded.BaseCommit {
		ask.BaseID = loaded.BaseID
	}
	for _, r := range loaded.Model.Registrations() {
		ask.Workspaces[r.Name] = r.Workspace
	}
	return ask
}

// Entry says which content may enter an environment.
type Entry struct {
	Decision *content.Decision
	*content.Reading

	ask    ContentAsk
	facts  *Facts
	asked  content.Question // that Decision answers
	name   string           // of the platform
	baseID string           // of the base that the environment will run; empty if it is not known
	seen   digest.Digest    // the record of the environment below
	now    time.Time
	known  bool          // what the environment has
	record digest.Digest // its own
	issued time.Time     // when that was
	rings  []string      // of that, narrowest first

	overridden map[ledger.Key]override // of what was rendered
}

// Entry decides which content may enter the environment of a policy. It is nil if the policy does not hold content, or no environment is
// below.
func (f *Facts) Entry(ctx context.Context, ask ContentAsk) (*Entry, error) {
	below := ask.Policy.Below()
	if below == "" || !ask.Policy.Gate.Content.Held {
		return nil, nil
	}
	e := &Entry{ask: ask, facts: f, baseID: ask.BaseID, now: f.Now().UTC().Truncate(time.Second)}
	q := content.Question{Policy: ask.Policy, BaseCommit: ask.BaseCommit, Workspaces: ask.Workspaces, Now: e.now}
	if ask.Unproved != "" {
		q.Unproved = ask.lets
	}
	if len(ask.Policy.Rings) > 0 {
		q.OwnRing = ask.Policy.Rings[0]
	}
	name, err := f.own(ctx, e, &q)
	if err != nil {
		return nil, err
	}
	h, err := f.History(ctx, below)
	if err != nil {
		return nil, err
	}
	if err := f.below(ctx, h, &q); err != nil {
		return nil, err
	}
	for _, r := range h.Records {
		e.seen = r.Descriptor.Digest // the newest is last
		e.addSame(r.Record, &q)
	}
	e.name = cmp.Or(f.Platform, name, h.Platform)
	if err := f.aboutContent(ctx, &q, e.name); err != nil {
		return nil, err
	}
	if q.Closed, q.OpensAt = gate.Closed(ask.Policy.Gate.Schedule, q.Now); q.Closed == "" && !ask.NextBatch {
		q.Closed = f.batch(ask.Policy, q, e.rings)
	}
	e.Decision = content.Decide(q)
	e.Reading = e.Decision.Reading(q)
	e.asked = q
	return e, nil
}

// addSame notes the commit of a record that has the base which the environment will run.
func (e *Entry) addSame(r bundle.EnvironmentRecord, q *content.Question) {
	if r.HasBase(q.BaseCommit, e.baseID) && !slices.Contains(q.SameBase, r.BaseCommit) {
		q.SameBase = append(q.SameBase, r.BaseCommit)
	}
}

// Answers reports whether the entry answers a question that was asked again.
func (e *Entry) Answers(ask ContentAsk) bool { return e != nil && reflect.DeepEqual(e.ask, ask) }

// Stands reports whether all that the decision lets in is still good: it decides once more, with what people have rejected and the environment
// below has undone since.
func (e *Entry) Stands(ctx context.Context) (bool, error) {
	q := e.asked
	q.Decisions, q.Again = nil, time.Time{}
	now := e.facts.Anew()
	if stands, err := e.stillOverridden(ctx, now); !stands || err != nil {
		return false, err
	}
	if err := now.aboutContent(ctx, &q, e.name); err != nil {
		return false, err
	}
	below, err := now.newest(ctx, e.name, q.Policy.Below(), q.Now)
	if err != nil {
		return false, err
	}
	switch {
	case q.Below == nil: // nothing comes
	case below.Verified == nil:
		return false, nil
	case below.Verified.Descriptor.Digest != e.seen:
		has, err := below.Ledger(ctx, below.Verified)
		if has == nil || err != nil {
			return false, e.facts.lost(q.Policy.Below(), err)
		}
		l := *q.Below
		l.Undone, q.Below = has.Undone, &l
	}
	return e.Decision.StandsWith(content.Decide(q)), nil
}

// newest reads the published state of an environment's record.
func (f *Facts) newest(ctx context.Context, platform, environment string, now time.Time) (state.Record, error) {
	platform = cmp.Or(platform, publisher.DefaultPlatform)
	return once(f.seen, func(s *seen) map[seenKey]state.Record { return s.records }, seenKey{platform: platform, environment: environment}, func() (state.Record, error) {
		store, err := f.Location.Open(f.Options)
		if err != nil {
			return state.Record{}, err
		}
		at := state.New(f.Location, store, f.Signers, now, platform, environment, f.warn)
		return at.Record(ctx)
	})
}

// EntryNow is Entry for an environment beside the base commit that publishing it would take: the one that it pins if its gate passes, else the
// one that it has. Without a record, that is the one that it pins.
func (f *Facts) EntryNow(ctx context.Context, loaded *platform.Loaded, policy promotion.Policy) (*Entry, error) {
	of, pinned := *f, loaded.BaseCommit
	of.Platform = cmp.Or(of.Platform, loaded.Model.PlatformName())
	record, err := of.Record(ctx, of.Platform, policy.Environment)
	if err != nil {
		return nil, err
	}
	if record != nil && record.BaseCommit != "" && !record.HasBase(pinned, loaded.BaseID) {
		passes, err := of.passes(ctx, loaded, policy)
		if err != nil {
			return nil, err
		}
		if !passes {
			pinned = record.BaseCommit
		}
	}
	return of.Entry(ctx, AskOf(loaded, policy, pinned))
}

// passes reports whether the gate of an environment lets in the base commit that it pins.
func (f *Facts) passes(ctx context.Context, loaded *platform.Loaded, policy promotion.Policy) (bool, error) {
	if loaded.BaseCommit == "" || policy.Below() == "" || !policy.Gate.Content.Held { // then Entry asks nothing
		return false, nil
	}
	v, err := f.Judge(ctx, Ask{Policy: policy, Commit: loaded.BaseCommit, BaseID: loaded.BaseID})
	if errors.Is(err, ErrNoCommit) {
		return false, nil
	}
	return v.Result == gate.Pass, err
}

// own reads what the environment has.
func (f *Facts) own(ctx context.Context, e *Entry, q *content.Question) (platform string, err error) {
	record, err := f.newest(ctx, f.Platform, q.Policy.Environment, q.Now)
	if err != nil || record.Verified == nil {
		return "", err
	}
	e.rings = record.Verified.Record.RingOrder
	e.record, e.issued = record.Verified.Descriptor.Digest, record.Verified.Record.IssuedAt
	if record.Verified.Record.BaseCommit == q.BaseCommit {
		e.baseID = cmp.Or(e.baseID, record.Verified.Record.BaseID)
	}
	e.addSame(record.Verified.Record, q)
	if epoch := record.Verified.Record.Epoch; epoch != f.Signers.Epoch {
		return "", nil // nobody vouches for what an earlier epoch says
	}
	q.Own, err = record.Ledger(ctx, record.Verified)
	e.known = q.Own != nil
	return record.Verified.Record.Platform, f.lost(q.Policy.Environment, err)
}

// batch says which batch is on its way through the rings of the environment, so that nothing new may come; empty if none is. One that takes
// too long is told of.
func (f *Facts) batch(policy promotion.Policy, q content.Question, rings []string) string {
	if q.Own == nil {
		return ""
	}
	record, since := q.Own.Batch(rings)
	if record == (ledger.Record{}) {
		return ""
	}
	first, last := rings[0], rings[len(rings)-1]
	came := since.UTC().Format("2006-01-02 15:04")
	if after := policy.Gate.Content.BatchAfter; after > 0 && q.Now.Sub(since) >= after {
		f.warn("%s: the batch that came to ring %s at %s has not reached ring %s: see wherry rollout status -e %s; wherry promote -e %s --next-batch lets the next one in",
			policy.Environment, first, came, last, policy.Environment, policy.Environment)
	}
	return fmt.Sprintf("the batch of %s has to reach ring %s first", came, last)
}

// below reads what the environment below has, and counts its clusters.
func (f *Facts) below(ctx context.Context, h *History, q *content.Question) error {
	if len(h.Records) == 0 {
		return nil
	}
	newest := &h.Records[len(h.Records)-1]
	at, err := h.place.Environment(h.Environment)
	if err != nil {
		return err
	}
	if order := newest.Record.RingOrder; len(order) > 0 {
		q.BelowRing = order[len(order)-1]
	}
	l, err := at.Ledger(ctx, newest)
	if err != nil {
		if errors.As(err, new(*bundle.Refusal)) { // nothing new is proved
			f.warn("%s: %v", h.Environment, err)
			return nil
		}
		return f.lost(h.Environment, err)
	}
	if q.Below = l; l == nil {
		return nil
	}
	q.Counts, err = f.countContent(ctx, h, newest.Descriptor.Digest, q)
	return err
}

// lost makes a warning of the error about a ledger that is not there or not what its record says.
func (f *Facts) lost(environment string, err error) error {
	if err == nil || published.IgnoreRefused(err) != nil {
		return err
	}
	f.warn("%s: its ledger cannot be read, so nobody knows what it has: %v", environment, err)
	return nil
}

// countContent counts the clusters of the environment below. It returns nil if nobody could count.
func (f *Facts) countContent(ctx context.Context, h *History, record digest.Digest, q *content.Question) (map[ledger.Key]content.Count, error) {
	g := q.Policy.Gate
	from, err := f.hub(ctx, h, g.MaxReportAge)
	if err != nil {
		return nil, err
	}
	ask := fleet.ContentQuery{Record: record, Workloads: fleet.WorkloadsOf(q.Below, q.BelowRing), MaxReportAge: g.MaxReportAge}
	if g.Required != nil {
		ask.Required = g.Required.String()
	}
	answer, err := from.Content(ctx, h.Environment, ask)
	if errors.As(err, new(*fleet.UnknownNameError)) {
		return map[ledger.Key]content.Count{}, nil // no cluster of the environment is registered
	}
	if err != nil {
		return nil, err
	}
	if !answer.Known {
		if f.Hub != nil {
			f.warn("the hub at %s does not have the newest record of %s with all its releases: see wherry hub serve --watch", f.HubURL, h.Environment)
		}
		return nil, nil
	}
	counts := map[ledger.Key]content.Count{}
	for _, w := range answer.Workloads {
		one := content.Count{Cohort: f.cohort(w.ContentCount, answer, w.Failing)}
		if !w.LastSeen.IsZero() {
			one.Open = append(one.Open, gate.Cluster{Verdict: fleet.VerdictUnknown, LastSeen: w.LastSeen})
		}
		if g.Required != nil {
			required := f.cohort(w.Required, answer, nil)
			one.Required = &required
		}
		counts[w.Key] = one
	}
	return counts, nil
}

func (f *Facts) cohort(n fleet.ContentCount, of fleet.Content, failing []string) gate.Cohort {
	c := gate.Cohort{
		From: f.from(), Source: f.source(), AsOf: f.Now().UTC(), Open: []gate.Cluster{},
		Clusters: n.Clusters, Compliant: n.Compliant, Progressing: n.Progressing, Failed: n.Failed, Waiting: n.Waiting, Unknown: n.Unknown,
		Quarantined: n.Quarantined, NotReporting: n.NotReporting,
	}
	if !of.ReadAt.IsZero() {
		c.AsOf = of.ReadAt
	}
	for _, name := range failing {
		c.Open = append(c.Open, gate.Cluster{Name: name, Verdict: fleet.VerdictFailed})
	}
	return c
}

// lets reports whether a person lets a workload in without a proof.
func (a ContentAsk) lets(k ledger.Key) bool {
	return len(a.Only) == 0 || slices.ContainsFunc(a.Only, func(name string) bool { return isNamed(k, name) })
}

// isNamed reports whether a person means a workload by REGISTRATION/NAME, or by NAME.
func isNamed(k ledger.Key, name string) bool { return k.String() == name || k.Workload == name }

// Take returns what becomes of the workload that a person means by REGISTRATION/NAME, or by NAME if that is clear.
func (e *Entry) Take(name string) (*content.Take, error) {
	var found *content.Take
	var names []string
	for i := range e.Decision.Takes {
		switch t := &e.Decision.Takes[i]; {
		case t.Key.String() == name:
			return t, nil
		case isNamed(t.Key, name):
			found, names = t, append(names, t.Key.String())
		}
	}
	switch len(names) {
	case 0:
		return nil, fmt.Errorf("neither %s nor %s has a workload %q", e.ask.Policy.Environment, e.ask.Policy.Below(), name)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("workload %q is one of several: %s", name, strings.Join(names, ", "))
}

// NotOverridden returns the workloads that a person asks to have without a proof, and that wait because the group that may override the
// policy's gate has not overridden the rule for them.
func (e *Entry) NotOverridden() (all []content.Take) {
	if e.ask.Unproved == "" || e.ask.Policy.Gate.Override.Required == 0 {
		return nil
	}
	for _, t := range e.Decision.Takes {
		if t.Waits != "" && e.ask.lets(t.Key) && (len(t.Newer) > 0 || len(e.ask.Only) > 0) { // else there is nothing to override
			all = append(all, t)
		}
	}
	return all
}

// At returns a source that a registration names in the state in which it is read; see sources.Options.
func (e *Entry) At(registration string, s sources.Source) sources.Source {
	if s.Kind == bundle.ArtifactGit {
		s.Revision = e.Commit(registration, s.URL, cmp.Or(s.RefName, s.Tag, s.Semver, s.Branch))
		return s
	}
	revision, version := e.Version(registration, s.Kind, s.Reference())
	s.Version = version
	if s.Chart == "" {
		s.Revision = revision
	}
	return s
}

// Refused returns an error if nothing may be published: it is not known whether the environment runs workloads that are not proved.
func (e *Entry) Refused() error {
	all := e.Decision.Refused()
	if len(all) == 0 {
		return nil
	}
	return publisher.Unproved(e.ask.Policy.Environment, cmp.Or(all[0].Waits, all[0].Key.String()+" is not proved in "+e.ask.Policy.Below()), len(all)-1)
}

// Awaiting lists the workloads of which something newer waits. Of nil there are none.
func (e *Entry) Awaiting() []diff.AwaitingProof {
	all := []diff.AwaitingProof{}
	if e == nil {
		return all
	}
	for _, t := range e.Decision.Takes {
		if t.Waits != "" {
			all = append(all, diff.AwaitingProof{Registration: t.Registration, Workload: t.Workload, Reason: t.Waits})
		}
	}
	return all
}

// Moves says what publishing the environment would bring without anybody's push: workloads that are proved, commits at which they are the
// same below, and proofs that have to be written now. It is empty if there is nothing, and another text if it is something else.
func (e *Entry) Moves() string {
	var all []string
	for _, t := range e.Decision.Takes {
		switch {
		case t.Moves && t.Kind == content.Proved:
			all = append(all, fmt.Sprint(t.Key, " ", t.Proof.Record, " ", t.Proof.Revision))
		case t.Moves, t.Rebased:
			all = append(all, fmt.Sprint(t.Key, " ", e.ask.BaseCommit))
		case t.Kind == content.Proved && t.IsElsewhere():
			all = append(all, fmt.Sprint(t.Key, " at ", t.Proof.Source.Commit))
		}
	}
	if !e.now.Before(e.proofsAt()) {
		for _, k := range e.Decision.NewProofs {
			all = append(all, "proof of "+k.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	return e.record.String() + "\n" + strings.Join(all, "\n")
}

// proofsAt is the time from which a record may be made for proofs alone.
func (e *Entry) proofsAt() time.Time { return e.issued.Add(publisher.ProofsEvery) }

// Open reports whether anything new may come: neither is the environment closed, nor a batch under way.
func (e *Entry) Open() bool { return e.asked.Closed == "" }

// NextLook returns the earliest moment at which time alone lets something enter, or has proofs written; zero if there is none.
func (e *Entry) NextLook() time.Time {
	next, proofs := e.Decision.NextLook, e.proofsAt()
	if len(e.Decision.NewProofs) > 0 && proofs.After(e.now) && (next.IsZero() || proofs.Before(next)) {
		return proofs
	}
	return next
}

// Admission returns what the publisher needs of the decision.
func (e *Entry) Admission() *publisher.Admission {
	waits, moves := map[ledger.Key]string{}, map[ledger.Key]ledger.Proof{}
	for _, t := range e.Decision.Takes {
		if t.Waits != "" && t.Entry != nil {
			waits[t.Key] = t.Waits
		}
		if t.Moves && t.Kind == content.Proved {
			moves[t.Key] = *t.Proof
		}
	}
	return &publisher.Admission{
		Record: e.record, IsKnown: e.known, Below: e.ask.Policy.Below(), Waits: waits, Moves: moves, Waiting: e.Waiting, Override: e.Override, Decided: e.Decided, Proofs: e.Decision.Proofs, Stands: e.Stands,
		From: func(k ledger.Key, made ledger.Revision) (from ledger.From, unproved string) {
			t := e.Decision.Take(k)
			c := e.Decision.Check(made, k)
			switch {
			case c.From != nil:
				from = ledger.From{Environment: e.ask.Policy.Below(), Revision: c.From.Revision, Record: c.From.Record}
				if t.Proof != nil && c.From == t.Proof && t.Overridden != "" {
					unproved = OverriddenBy + t.Overridden
				}
			case t != nil && t.Unproved:
				unproved = e.ask.Unproved
			}
			if o, is := e.overridden[k]; is && o.revision == made.Revision {
				unproved = OverriddenBy + o.by
			}
			return from, unproved
		},
	}
}
