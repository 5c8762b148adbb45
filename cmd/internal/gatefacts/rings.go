package gatefacts

import (
	"cmp"
	"context"
	"time"

	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/cohort"
	"github.com/wherry-dev/wherry/publisher/decisions"
	"github.com/wherry-dev/wherry/publisher/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Counter reads what is needed to count the clusters of an environment, and returns a function that does. It counts those of some rings, or
// all for nil, by how far they are with a commit that was released at a time. The policy's ring gate says how old a report may be.
func (f *Facts) Counter(ctx context.Context, policy promotion.Policy) (func(rings []string, commit string, since time.Time) (Counted, error), error) {
	q := gate.Question{Policy: policy, Gate: policy.RingGate, Now: f.Now().UTC()}
	reader, err := cohort.Open(f.Location, f.Options, f.Signers, f.Platform, f.Warn)
	if err != nil {
		return nil, err
	}
	reader.Remember(f.Memory)
	g := gathering{Facts: f, reader: reader, q: &q}
	if g.history, err = reader.History(ctx, policy.Environment); err != nil {
		return nil, err
	}
	count, err := g.counter(ctx)
	if err != nil {
		return nil, err
	}
	return func(rings []string, commit string, since time.Time) (Counted, error) {
		return count(ctx, commit, since, fleet.RolloutQuery{Rings: rings})
	}, nil
}

// Paused returns the pause of an environment that is in force, and whether there is one.
func (f *Facts) Paused(ctx context.Context, policy promotion.Policy, platform string) (decisions.Pause, bool, error) {
	found, err := decisions.Read(ctx, f.Location, f.Options, policy.Environment, f.Warn)
	for _, more := range f.Decisions {
		if err != nil {
			break
		}
		var others []decisions.Found
		others, err = more(ctx, policy.Environment)
		found = append(found, others...)
	}
	if err != nil {
		return decisions.Pause{}, false, err
	}
	pause, is := decisions.Paused(found, decisions.Trust{
		Platform: cmp.Or(platform, publisher.DefaultPlatform), Policy: policy, Releases: f.Signers, Now: f.Now().UTC(),
	})
	return pause, is, nil
}
