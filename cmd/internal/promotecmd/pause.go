package promotecmd

import (
	"cmp"
	"context"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/cmd/internal/gatefacts"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/decisions"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// paused returns the function that tells whether automation is off in an environment, by the decisions that its gate reads too.
func (p *promoting) paused(facts *gatefacts.Facts) func(context.Context, string, promotion.Policy) (decisions.Pause, bool, error) {
	return func(ctx context.Context, name string, policy promotion.Policy) (decisions.Pause, bool, error) {
		found, judge, err := p.decided(ctx, facts, name, policy)
		if err != nil {
			return decisions.Pause{}, false, err
		}
		pause, is := decisions.Paused(found, judge)
		return pause, is, nil
	}
}

// again returns the function that tells until when what was undone in an environment may be released again.
func (p *promoting) again(facts *gatefacts.Facts) func(context.Context, string, promotion.Policy) (time.Time, error) {
	return func(ctx context.Context, name string, policy promotion.Policy) (time.Time, error) {
		found, judge, err := p.decided(ctx, facts, name, policy)
		if err != nil {
			return time.Time{}, err
		}
		return decisions.Again(found, judge), nil
	}
}

// decided reads the decisions about an environment.
func (p *promoting) decided(ctx context.Context, facts *gatefacts.Facts, name string, policy promotion.Policy) ([]decisions.Found, decisions.Trust, error) {
	judge := decisions.Trust{Platform: cmp.Or(name, publisher.DefaultPlatform), Policy: policy, Releases: p.Trusted, Now: time.Now()}
	found, err := decisions.Read(ctx, p.Location, p.Registry.Options(), policy.Environment, facts.Warn)
	for _, read := range facts.Decisions {
		if err != nil {
			break
		}
		var more []decisions.Found
		more, err = read(ctx, policy.Environment)
		found = append(found, more...)
	}
	return found, judge, p.Failure(err, facts)
}

// pause turns automation off in an environment, by the first of the keys.
func (p *promoting) pause(ctx context.Context, name, environment, reason string) error {
	_, err := decisions.Write(ctx, p.Location, p.Registry.Options(), bundle.Decision{
		Action: bundle.Pause, Platform: cmp.Or(name, publisher.DefaultPlatform), Environment: environment, Reason: reason,
	}, p.Keys[0], time.Now())
	return failure.At(err, p.Location)
}
