package simulation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/gate"
)

// stage is one release in one ring, with the clusters that are to get it.
type stage struct {
	release int
	ring    string    // empty for all
	at      time.Time // when its publication began
	// waiting are the clusters that are to become compliant, and reached how long the others took.
	waiting map[*cluster]bool
	reached []time.Duration
	timeout time.Duration
	missed  bool // the timeout is over
}

// done reports whether no cluster is waited for any more.
func (st *stage) done() bool {
	if len(st.waiting) > 0 && time.Since(st.at) > st.timeout {
		st.missed = true
	}
	return len(st.waiting) == 0 || st.missed
}

// reachedAll reports whether none of some clusters is waited for any more.
func (st *stage) reachedAll(some []*cluster) bool {
	return !slices.ContainsFunc(some, func(c *cluster) bool { return st.waiting[c] })
}

// due reports whether a cluster is to become compliant with a release: it is in reach, and its engine does not fail it.
func (c *cluster) due(release int) bool { return !c.offline && (release == 0 || !c.failing) }

// publish publishes release n to the first ring; release 0, which clusters begin with, to all.
func (s *simulation) publish(ctx context.Context, n int) (*stage, error) {
	opts := publisher.PublishOptions{Parallel: publisher.DefaultParallel, DeltaCommand: s.DeltaCommand, Message: fmt.Sprintf("release %d of the simulation", n)}
	ring, rings := "", s.platform.result.Rings
	if len(rings) > 0 && n > 0 {
		ring = rings[0]
		opts.Rings = rings[:1]
	} else if len(rings) > 0 {
		opts.Rings = rings[len(rings)-1:]
	}
	began := time.Now()
	done, err := publisher.Publish(ctx, s.platform.result, s.prefix, []*keys.Key{s.key}, opts)
	if err != nil {
		return nil, err
	}
	return s.newStage(done, n, ring, began)
}

// newStage has the clusters of a ring, or all if that is empty, be followed to release n, which has just been published for them.
func (s *simulation) newStage(done *publisher.Published, n int, ring string, began time.Time) (*stage, error) {
	rings := s.platform.result.Rings
	for _, ct := range done.ClusterTypes {
		if ct.Reason != "" {
			return nil, fmt.Errorf("publish release %d: %s: %s", n, ct.ClusterType, ct.Reason)
		}
		if len(rings) == 0 {
			s.numbers[ct.Digest] = n
		}
		for _, r := range ct.Releases {
			if ring == "" || slices.Contains(r.Rings, ring) {
				s.numbers[r.Digest] = n
			}
		}
	}
	st := &stage{release: n, ring: ring, at: began, timeout: s.Timeout, waiting: map[*cluster]bool{}}
	s.hub.LookAtReleases()
	for _, c := range s.clusters {
		if c.due(n) && (ring == "" || c.ringOf(rings) == ring) {
			st.waiting[c] = true
		}
	}
	s.result.PublishSeconds = append(s.result.PublishSeconds, seconds(time.Since(began)))
	s.stages = append(s.stages, st)
	return st, nil
}

// ringOf returns the ring whose releases the cluster takes: without a ring, those of the last.
func (c *cluster) ringOf(rings []string) string {
	if c.ring == "" && len(rings) > 0 {
		return rings[len(rings)-1]
	}
	return c.ring
}

// release makes release n, and leads it through the rings as their gates let it.
func (s *simulation) release(ctx context.Context, n int) error {
	s.change(n)
	began, cpu := time.Now(), cpuSeconds()
	out := Release{Number: n, Stages: []Stage{}}
	var all []*stage
	defer func() {
		for _, st := range all {
			out.Stages = append(out.Stages, st.result())
		}
		out.Times = timesOf(all...)
		out.Seconds = seconds(time.Since(began))
		out.CPUSeconds = math.Round((cpuSeconds()-cpu)*100) / 100
		s.result.Releases = append(s.result.Releases, out)
	}()
	st, err := s.publish(ctx, n)
	if err != nil {
		return err
	}
	all = append(all, st)
	for i, ring := range s.platform.result.Rings {
		if i == 0 {
			continue
		}
		if st, err = s.advance(ctx, n, i, all[0].at); err != nil {
			return err
		}
		if st == nil {
			out.HeldBefore = ring
			break
		}
		all = append(all, st)
	}
	return s.follow(ctx, fmt.Sprintf("release %d spreads", n), func() bool {
		return !slices.ContainsFunc(all, func(st *stage) bool { return !st.done() })
	})
}

// advance waits until the gate before a ring, by its index, passes, and brings release n to the ring. The stage is nil if the gate fails, or
// the timeout is over.
func (s *simulation) advance(ctx context.Context, n, i int, since time.Time) (st *stage, err error) {
	ring, began, held := s.platform.result.Rings[i], time.Now(), false
	candidate := gate.Candidate{Platform: s.platform.result.Platform, Environment: s.platform.policy.Environment, BaseCommit: s.platform.result.BaseCommit, IssuedAt: since}
	judge := func(ctx context.Context, ask advance.Ask) (gate.Verdict, error) {
		v, err := s.judge(ctx, i, ask.Candidate, since)
		if err == nil {
			s.keepVerdict(n, ring, v)
		}
		return v, err
	}
	what := fmt.Sprintf("release %d waits for the gate before ring %s", n, ring)
	lookErr := s.follow(ctx, what, func() bool {
		var v gate.Verdict
		if v, err = judge(ctx, advance.Ask{Candidate: candidate}); err != nil {
			return true
		}
		held = v.Result == gate.Fail || time.Since(began) > s.Timeout
		if held || v.Result != gate.Pass {
			return held
		}
		began := time.Now()
		var done *advance.Done // by the registry alone, and the same gate
		if done, err = advance.Once(ctx, s.prefix, []*keys.Key{s.key}, advance.Options{Environment: candidate.Environment, Ring: ring}, judge, publisher.PublishOptions{Parallel: publisher.DefaultParallel}); err != nil {
			return true
		}
		switch {
		case done.Has(advance.Advanced):
			st, err = s.newStage(done.Published, n, ring, began)
		case len(done.Steps) == 0:
			err = fmt.Errorf("release %d has nothing new for ring %s", n, ring)
		}
		return st != nil || err != nil
	})
	return st, errors.Join(err, lookErr)
}

// judge asks the gate before a ring, by its index and by what the hub knows of the rings before it.
func (s *simulation) judge(ctx context.Context, i int, candidate gate.Candidate, since time.Time) (gate.Verdict, error) {
	policy, commit := s.platform.policy, s.platform.result.BaseCommit
	answers, err := s.hub.Answers(ctx, store.AccessScope{})
	if err != nil {
		return gate.Verdict{}, err
	}
	r, err := answers.Rollout(ctx, policy.Environment, commit, fleet.RolloutQuery{
		Query: fleet.Query{Limit: 1}, Rings: policy.Rings[:i], MaxReportAge: policy.RingGate.MaxReportAge,
	})
	if err != nil {
		return gate.Verdict{}, err
	}
	q := gate.Question{
		Policy: policy, Gate: policy.RingGate, Ring: policy.Rings[i], Commit: commit, Now: time.Now(), Automatic: true,
		Stays: map[string][]gate.Stay{policy.Environment: {{From: since}}},
		Cohort: gate.Cohort{
			From: "hub", AsOf: r.AsOf, Clusters: r.Clusters, Compliant: r.Compliant, Progressing: r.Progressing, Failed: r.FailedCount,
			Waiting: r.Waiting, Unknown: r.Unknown, Quarantined: r.Quarantined, NotReporting: r.NotReporting,
		},
	}
	if r.Published {
		q.Candidate = &candidate
	}
	return gate.Judge(q), nil
}

// keepVerdict keeps a verdict if it differs from the one before.
func (s *simulation) keepVerdict(n int, ring string, v gate.Verdict) {
	out := Verdict{Seconds: seconds(time.Since(s.began)), Release: n, Ring: ring, Result: v.Result, Open: []gate.Rule{}}
	c := v.Cohort
	out.Clusters, out.Compliant, out.Progressing, out.Failed, out.Waiting, out.Unknown = c.Clusters, c.Compliant, c.Progressing, c.Failed, c.Waiting, c.Unknown
	for _, r := range v.Rules {
		if r.Result != gate.Pass {
			out.Open = append(out.Open, r)
		}
	}
	if all := s.result.Gates; len(all) > 0 {
		last := all[len(all)-1]
		if last.Release == n && last.Ring == ring && last.Result == out.Result && slices.EqualFunc(last.Open, out.Open, func(a, b gate.Rule) bool { return a.Name == b.Name && a.Result == b.Result }) {
			return
		}
	}
	s.result.Gates = append(s.result.Gates, out)
}

// follow looks at the hub again and again until done reports true.
func (s *simulation) follow(ctx context.Context, what string, done func() bool) error {
	every := time.NewTicker(s.lookEvery())
	defer every.Stop()
	for {
		if err := s.look(ctx); err != nil {
			return err
		}
		reached, of := s.progress()
		s.say(what, reached, of)
		if done() {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		}
	}
}

// lookEvery is the time between two looks, so that the looks themselves cost little.
func (s *simulation) lookEvery() time.Duration {
	return min(2*time.Second, 50*time.Millisecond+time.Duration(len(s.clusters))*100*time.Microsecond)
}

// look notes which clusters have become compliant, by the hub.
func (s *simulation) look(ctx context.Context) error {
	s.stages = slices.DeleteFunc(s.stages, func(st *stage) bool { return st.done() })
	if len(s.stages) == 0 {
		return nil
	}
	answers, err := s.hub.Answers(ctx, store.AccessScope{})
	if err != nil {
		return err
	}
	all, err := answers.Clusters(ctx, fleet.Query{Environments: []string{s.platform.policy.Environment}})
	if errors.Is(err, store.ErrUnavailable) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, row := range all.Clusters {
		c := s.byName[row.Name]
		if c == nil || row.State != bundle.Compliant || row.Observed == nil {
			continue
		}
		for _, st := range s.stages {
			if n, known := s.numbers[row.Observed.Digest]; known && n >= st.release && st.waiting[c] {
				delete(st.waiting, c)
				st.reached = append(st.reached, max(0, row.LastSeen.Sub(st.at)))
			}
		}
	}
	return nil
}

// progress returns how many clusters have got what is followed, and how many are to.
func (s *simulation) progress() (reached, of int) {
	for _, st := range s.stages {
		reached, of = reached+len(st.reached), of+len(st.reached)+len(st.waiting)
	}
	return reached, of
}
