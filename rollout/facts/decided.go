package facts

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// undoneAndDecided returns what was taken back from the environment of a policy, and the decisions about it that count.
func (f *Facts) undoneAndDecided(ctx context.Context, policy promotion.Policy, platform string) ([]bundle.Undone, []gate.Decided, error) {
	var undone []bundle.Undone
	record, err := f.Record(ctx, f.Platform, policy.Environment)
	if err != nil {
		return nil, nil, err
	}
	if record != nil {
		undone = record.Undone
	}
	found, trust, err := f.decided(ctx, policy, platform, nil)
	return undone, decisions.Of(found, trust), err
}

// Record returns the newest verified record of an environment of a platform, whose name may be empty; nil if there is none.
func (f *Facts) Record(ctx context.Context, platform, environment string) (*bundle.EnvironmentRecord, error) {
	record, err := f.newest(ctx, platform, environment, f.Now())
	if err != nil || record.Verified == nil {
		return nil, err
	}
	return &record.Verified.Record, nil
}

// PolicyNow is platform.PolicyNow. A policy that is lost is no error for an environment that no other is before, as far as its ledger and the
// policy that it pins say: nothing that it gets has to be proved.
func (f *Facts) PolicyNow(ctx context.Context, source platform.Source, loaded *platform.Loaded, record *bundle.EnvironmentRecord) (promotion.Policy, error) {
	policy, err := platform.PolicyNow(ctx, source, loaded, record)
	if !errors.As(err, new(*platform.LostPolicyError)) || policy.Below() != "" {
		return policy, err
	}
	l, failed := f.Ledger(ctx, loaded.Model.PlatformName(), policy.Environment)
	switch {
	case failed != nil:
		return policy, failed
	case l != nil && !l.IsHeld():
		return policy, nil
	}
	return policy, err
}

// Ledger returns the ledger of the newest verified record of an environment of a platform, whose name may be empty; nil if there is none.
func (f *Facts) Ledger(ctx context.Context, platform, environment string) (*ledger.Ledger, error) {
	record, err := f.newest(ctx, platform, environment, f.Now())
	if err != nil || record.Verified == nil {
		return nil, err
	}
	l, err := record.Ledger(ctx, record.Verified)
	return l, f.lost(environment, err)
}

// decided reads the decisions about the environment of a policy, with those about these revisions of the environment below, and returns
// who may decide there.
func (f *Facts) decided(ctx context.Context, policy promotion.Policy, platform string, about []content.Subject) ([]decisions.Found, decisions.Trust, error) {
	return f.decidedOf(ctx, policy, platform, policy.Below(), about)
}

// decidedOf is decided for revisions of the environment from.
func (f *Facts) decidedOf(ctx context.Context, policy promotion.Policy, platform, from string, about []content.Subject) ([]decisions.Found, decisions.Trust, error) {
	trust := decisions.Trust{Platform: cmp.Or(platform, publisher.DefaultPlatform), Policy: policy, Releases: f.Signers, Now: f.Now().UTC()}
	var workloads []bundle.DecisionWorkload
	for _, s := range about {
		workloads = append(workloads, s.Decides())
	}
	reader, err := f.reader(policy.Environment)
	if err != nil {
		return nil, trust, err
	}
	found, err := reader.About(ctx, trust, from, workloads)
	for _, read := range f.Decisions {
		if err != nil {
			break
		}
		var more []decisions.Found
		more, err = read(ctx, policy.Environment)
		found = append(found, more...)
	}
	if err == nil && f.Carry {
		f.carry(ctx, found, trust, from, workloads)
	}
	return found, trust, err
}

func (f *Facts) reader(environment string) (*decisions.Reader, error) {
	return once(f.seen, func(s *seen) map[seenKey]*decisions.Reader { return s.decisions }, seenKey{environment: environment}, func() (*decisions.Reader, error) {
		return decisions.NewReader(f.Location, f.Options, environment, f.Warn), nil
	})
}

// Said returns a text that is another one after each decision about the content of an environment's workloads, also of such as only
// rendering knows.
func (f *Facts) Said(ctx context.Context, environment string) (string, error) {
	from, err := f.reader(environment)
	if err != nil {
		return "", err
	}
	all, err := from.ContentTags(ctx)
	for _, read := range f.Decisions {
		if err != nil {
			break
		}
		var more []decisions.Found
		more, err = read(ctx, environment)
		for _, m := range more {
			if d, _, unread := bundle.ReadDecision(m.Envelope); unread == nil && d.IsContent() {
				all = append(all, digest.FromBytes(m.Envelope).String())
			}
		}
	}
	slices.Sort(all)
	return digest.FromString(strings.Join(all, "\n")).String(), err
}

// carry puts to Location the decisions that count and that are not there, of those about the content of workloads the ones about these
// revisions of the environment from, which were looked for there. What it cannot put counts all the same.
func (f *Facts) carry(ctx context.Context, found []decisions.Found, trust decisions.Trust, from string, about []bundle.DecisionWorkload) {
	for _, l := range decisions.List(found, trust) {
		if !l.Valid || l.Tag != "" || l.IsContent() && (l.From != from || !slices.Contains(about, l.Workload)) {
			continue
		}
		if _, err := decisions.Put(ctx, f.Location, f.Options, l.Envelope); err != nil && !errors.Is(err, decisions.ErrNewer) {
			f.warn("%s of %s by %s was not put to %s: %v", l.Action, l.Environment, l.Member, f.Location, err)
		}
	}
}

// Paused returns the pause of an environment that is in force, and whether there is one.
func (f *Facts) Paused(ctx context.Context, policy promotion.Policy, platform string) (decisions.Pause, bool, error) {
	found, trust, err := f.decided(ctx, policy, platform, nil)
	if err != nil {
		return decisions.Pause{}, false, err
	}
	pause, is := decisions.Paused(found, trust)
	return pause, is, nil
}

// Again returns the moment until which what was undone in an environment may be released again; see decisions.Again.
func (f *Facts) Again(ctx context.Context, policy promotion.Policy, platform string) (time.Time, error) {
	found, trust, err := f.decided(ctx, policy, platform, nil)
	if err != nil {
		return time.Time{}, err
	}
	return decisions.Again(found, trust), nil
}

// aboutContent fills in what people decided about what may enter the environment of a question.
func (f *Facts) aboutContent(ctx context.Context, q *content.Question, platform string) error {
	found, trust, err := f.decided(ctx, q.Policy, platform, content.Open(*q))
	if err != nil {
		return err
	}
	q.Again = decisions.Again(found, trust)
	for _, d := range decisions.Of(found, trust) {
		if d.IsContent() && d.From == q.Policy.Below() {
			q.Decisions = append(q.Decisions, content.Decided{About: content.SubjectOf(d.Workload), Decided: d})
		}
	}
	return nil
}
