package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/metrics"
	"github.com/wherry-dev/wherry/agent/state"
)

// onceSendTime bounds how long a single pass is prolonged by a hub that does not answer.
const onceSendTime = 20 * time.Second

// Result is the outcome of a pass, and the agent's status after it.
type Result struct {
	Status  Status  `json:"status"`
	Verdict Verdict `json:"verdict"`
	// Error is the cause of a bad verdict; empty for a good one.
	Error string `json:"error,omitempty"`
}

// Once makes one pass, and goes on observing for up to wait while something is progressing, and for as
// long as programs that engines run are at work, since they end with this process. Then it offers the hub
// what the queue holds, once. An unreachable hub does not show in the result.
func (a *Agent) Once(ctx context.Context, wait time.Duration) Result {
	a.logBegin()
	defer a.carrier.Stop()
	if a.lease != nil {
		a.lease.Single = true
		keeping, end := context.WithCancel(ctx)
		var kept sync.WaitGroup
		kept.Go(func() { a.lease.Run(keeping, func() {}) })
		defer func() {
			end()
			kept.Wait()
			a.giveBack(ctx)
		}()
	}
	out := a.makePass(ctx, scope{from: a.source, documents: a.opts.TrustSource, further: a.opts.Further, all: true, force: true, wait: wait, last: true})
	if a.hub().URL != "" && ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, onceSendTime)
		defer cancel()
		if err := a.hubSink().Send(ctx); err != nil {
			a.opts.Log.Warn("reports stay in the queue", "err", err)
		}
	}
	if a.opts.Reports.Store != nil && ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, onceSendTime)
		defer cancel()
		if err := a.registrySink().Send(ctx); err != nil {
			a.opts.Log.Warn("reports stay in the queue", "to", a.opts.Reports.Place, "err", err)
		}
	}
	return a.result(out)
}

// sync is the pass that a person asks for: it judges a refused release again, and observes everything
// unless it takes a newer release, whose changes are then all that is looked at.
func (a *Agent) sync(ctx context.Context, wait time.Duration) Result {
	return a.syncFor(ctx, ctx, wait)
}

// syncFor is sync for somebody who has gone when asked ends: if that is before the pass that runs has ended, nothing is done. If
// the registry answers, the loop of Run asks it next after a whole interval.
func (a *Agent) syncFor(ctx, asked context.Context, wait time.Duration) Result {
	out := a.makePass(ctx, scope{asker: asked, from: a.source, documents: a.opts.TrustSource, further: a.opts.Further, ask: true, allIfUnchanged: true, force: true, wait: wait})
	if a.source != nil && !out.mute() && out.Verdict != Interrupted {
		a.heard.Store(true)
	}
	return a.result(out)
}

func (a *Agent) result(out outcome) Result {
	status, err := a.Status()
	if err != nil && out.Err == nil {
		out = outcome{Verdict: Broken, Err: err}
	}
	r := Result{Status: status, Verdict: out.Verdict}
	if out.Err != nil {
		r.Error = out.Err.Error()
	}
	return r
}

// Run runs a pass at once and further passes until ctx ends: to ask for a newer release, to observe
// progressing assignments, and to find drift. Meanwhile it serves the control socket and sends reports.
// It returns when everything that it has started is finished. The error is of the socket or of
// Options.Listen, or ErrRebound.
func (a *Agent) Run(ctx context.Context) error {
	a.logBegin()
	socket, err := a.listen()
	if err != nil {
		return err
	}
	probes, err := metrics.Listen(a.opts.Listen, a.pulse, a.state.db)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	endpoint, err := a.openEndpoint()
	if err != nil {
		return errors.Join(err, probes.Close(), socket.Close())
	}
	served, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer func() { // engines may fetch until the last pass has ended
		endServing()
		serving.Wait()
	}()
	if endpoint != nil {
		serving.Go(func() { endpoint.Serve(served) })
	}
	if a.opts.Ready != nil {
		if err := a.opts.Ready(); err != nil {
			a.opts.Log.Error("who waits for this agent to begin cannot be told", "err", err)
		}
	}
	a.opts.Log.Info("agent begins", "version", a.opts.Version, "cluster", a.cluster.Name, "environment", a.cluster.Environment, "clusterType", a.cluster.Type)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.askCluster(ctx)
	var parts sync.WaitGroup
	if a.lease != nil {
		parts.Go(func() { a.lease.Run(ctx, func() { nudge(a.wake) }) })
	}
	parts.Go(func() { socket.Serve(ctx, a.commands(ctx)) })
	if probes != nil {
		parts.Go(func() { probes.Serve(ctx, a.metrics, a.opts.Log) })
	}
	if a.opts.Watchdog != nil {
		parts.Go(func() { a.pulse.Feed(ctx, a.opts.Watchdog, a.opts.Log) })
	}
	parts.Go(func() { a.watchValues(ctx) })
	parts.Go(func() { a.hubSink().Run(ctx) })
	if a.opts.Reports.Store != nil {
		parts.Go(func() { a.registrySink().Run(ctx) })
	}
	a.loop(ctx)
	a.waitForPass()
	cancel()
	parts.Wait()
	a.carrier.Close()
	a.giveBack(ctx)
	if a.rebound.Load() {
		return ErrRebound
	}
	return nil
}

// waitForPass returns once no pass runs any more.
func (a *Agent) waitForPass() {
	a.busy.Lock()
	defer a.busy.Unlock()
}

// consultTime bounds the wait for a cluster before an agent says how it stands.
const consultTime = 10 * time.Second

// askCluster has the Lease and the memory before anything else is begun, if the cluster answers: who the cluster is
// does not change any more once others than passes read it.
func (a *Agent) askCluster(ctx context.Context) {
	a.busy.Lock()
	defer a.busy.Unlock()
	p := newPass(a, scope{})
	ctx, cancel := context.WithTimeout(ctx, consultTime)
	defer cancel()
	err := p.remember()
	if err == nil {
		err = p.recall(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.opts.Log.Warn("the cluster's memory was not read", "err", err) // the pass that follows tries again
	}
	a.started = true
}

// giveBack lets go of the Lease, once no pass is to come any more.
func (a *Agent) giveBack(ctx context.Context) {
	if err := a.lease.Release(ctx); err != nil {
		a.opts.Log.Warn("the Lease was not given back: another agent waits until it ends", "err", err)
	}
}

func (a *Agent) loop(ctx context.Context) {
	plan := plan{agent: a}
	for ctx.Err() == nil && !a.rebound.Load() {
		s := plan.scope(a.opts.Now())
		out := a.makePass(ctx, s)
		now := a.opts.Now()
		plan.passed(s, out, now)
		rest := plan.next(now).Sub(now)
		a.pulse.Rest(rest)
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.wake: // a pass that somebody asked for has changed something
			plan.look = time.Time{}
		}
		timer.Stop()
	}
}

// logBegin logs the notable parts of the state at the start of a process.
func (a *Agent) logBegin() {
	a.logInterrupted()
	a.logOtherHub()
	if len(a.pinned.Keys) > 0 && len(a.state.trust.Chain()) > 0 {
		a.opts.Log.Info("pinned keys no longer count: a trust document is in force", "version", a.judge().Version())
	}
}

// logInterrupted logs the step that a crash, or a power cut, has interrupted. The next pass repeats it: each
// step is safe to repeat.
func (a *Agent) logInterrupted() {
	var j journal
	err := a.state.db.View(func(tx *bbolt.Tx) (err error) {
		j, err = state.Load[journal](tx, state.Meta, keyJournal)
		return err
	})
	if err == nil && j.Step != "" {
		a.opts.Log.Warn("a step was interrupted and is done again", "step", j.Step, "digest", j.Digest, "begun", j.At)
	}
}
