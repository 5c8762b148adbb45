package platform

import (
	"context"
	"fmt"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// PolicyNow returns the policy that judges what enters an environment, which was loaded from source: the one at the base commit that its
// newest record has, so that no commit brings a laxer gate for itself. An environment without a record, or that is in no chain
// there, has that of what was loaded, which is also returned with an error: a *LostPolicyError if that base commit cannot be read any more.
// What was read at that commit is kept in loaded.Before.
func PolicyNow(ctx context.Context, source Source, loaded *Loaded, record *bundle.EnvironmentRecord) (promotion.Policy, error) {
	next, err := loaded.Model.Promotion()
	if err != nil || record == nil || record.BaseCommit == "" || loaded.BaseCommit == "" || record.HasBase(loaded.BaseCommit, loaded.BaseID) {
		return next, err
	}
	source.BaseAt = record.BaseCommit
	before, err := LoadPlatform(ctx, source)
	if err != nil {
		return next, &LostPolicyError{next.Environment, record.BaseCommit, err}
	}
	loaded.Before = before
	now, err := before.Model.Promotion()
	if err != nil || now.Below() == "" {
		return next, err
	}
	return now, nil
}

// LostPolicyError means that nobody knows the policy that judges what enters an environment: the base commit that it has cannot be read.
type LostPolicyError struct {
	Environment, BaseCommit string
	Err                     error
}

func (e *LostPolicyError) Error() string {
	return fmt.Sprintf("%s: the policy of base commit %s, which it has: %v", e.Environment, e.BaseCommit, e.Err)
}

func (e *LostPolicyError) Unwrap() error { return e.Err }
