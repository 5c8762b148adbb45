package facts

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

// Counted is how far clusters are, and those among them that the gate requires; Required is nil without such a rule.
type Counted struct {
	Cohort   gate.Cohort
	Required *gate.Cohort
}

// counting counts the clusters of a query by how far they are with a commit that was released at a time.
type counting func(ctx context.Context, commit string, since time.Time, q fleet.RolloutQuery) (Counted, error)

// Counter reads what is needed to count the clusters of an environment, and returns a function that does. It counts those of some rings, or
// all for nil, by how far they are with a commit that was released at a time. The policy's ring gate says how old a report may be.
func (f *Facts) Counter(ctx context.Context, policy promotion.Policy) (func(rings []string, commit string, since time.Time) (Counted, error), error) {
	h, err := f.History(ctx, policy.Environment)
	if err != nil {
		return nil, err
	}
	count, err := f.counter(ctx, h, policy.RingGate)
	if err != nil {
		return nil, err
	}
	return func(rings []string, commit string, since time.Time) (Counted, error) {
		return count(ctx, commit, since, fleet.RolloutQuery{Rings: rings})
	}, nil
}

// counter returns a function that asks how far the clusters of an environment are.
func (f *Facts) counter(ctx context.Context, h *History, g promotion.Gate) (counting, error) {
	from, err := f.hub(ctx, h, g.MaxReportAge)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, commit string, since time.Time, q fleet.RolloutQuery) (c Counted, err error) {
		q.MaxReportAge, q.Limit = g.MaxReportAge, max(cmp.Or(f.Open, MaxOpen), 0)
		if f.Hub == nil || g.MaxFailures >= 0 { // a hub reads its database for them
			q.FailuresSince = since
		}
		if c.Cohort, err = f.count(ctx, from, h.Environment, commit, q); err != nil || g.Required == nil {
			return c, err
		}
		q.Selector = g.Required.String()
		required, err := f.count(ctx, from, h.Environment, commit, q)
		c.Required = &required
		return c, err
	}, nil
}

// hub returns the hub, or a fleet that is made of the reports at Location and the roster of the environment.
func (f *Facts) hub(ctx context.Context, h *History, maxReportAge time.Duration) (Hub, error) {
	if f.Hub != nil {
		return f.Hub, nil
	}
	return once(f.seen, func(s *seen) map[seenKey]*local { return s.fleets }, seenKey{h.Platform, h.Environment, maxReportAge}, func() (_ *local, err error) {
		var clusters []scheduler.Cluster
		if f.Clusters != nil {
			if clusters, err = f.Clusters(ctx, h.Environment); err != nil {
				return nil, err
			}
		}
		return f.local(ctx, h, clusters, maxReportAge)
	})
}

// count asks how far clusters are.
func (f *Facts) count(ctx context.Context, from Hub, environment, commit string, q fleet.RolloutQuery) (gate.Cohort, error) {
	out := gate.Cohort{From: f.from(), Source: f.source(), AsOf: f.Now().UTC(), Open: []gate.Cluster{}}
	r, err := from.Rollout(ctx, environment, commit, q)
	if errors.As(err, new(*fleet.UnknownNameError)) {
		return out, nil // no cluster of the environment is registered
	} else if err != nil {
		return out, err
	}
	if !r.Published && f.Hub != nil {
		f.warn("the hub does not know that %s is published in %s: see wherry hub serve --watch", commit, environment)
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
