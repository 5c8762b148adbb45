package agent

import (
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/assignments"
	"github.com/wherry-dev/wherry/agent/retry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// firstLook is the time after which assignments that are not compliant are looked at again, between two
// looks at the registry. It doubles up to the interval.
const firstLook = 2 * time.Second

// freezeLook is the time between two looks at a freeze for which something waits: asking costs no engine and no
// registry anything.
const freezeLook = time.Minute

// freezeRush is the time over which a fleet spreads whose freezes end at one moment.
const freezeRush = 10 * time.Second

// windowRush is the time over which a fleet spreads that has waited for its transfer windows.
const windowRush = 10 * time.Minute

// plan decides when the next pass is due, and its scope. In the zero plan everything is due.
type plan struct {
	agent *Agent
	// contact, drift and look are the times for asking for a newer release, for observing all assignments, and for
	// looking again at those that are not compliant; the zero look is now.
	contact, drift, look time.Time
	lookAfter            time.Duration
	failures             int
}

// scope returns the scope of a pass at now.
func (p *plan) scope(now time.Time) scope {
	s := scope{all: !now.Before(p.drift)}
	if p.agent.heard.Swap(false) {
		p.failures = 0
		p.ask(now.Add(retry.Jitter(p.agent.opts.Interval)))
	}
	if p.agent.eager.Swap(false) {
		p.contact = now
	}
	if !now.Before(p.contact) {
		s.from, s.documents, s.further = p.agent.source, p.agent.opts.TrustSource, p.agent.opts.Further
	}
	return s
}

// passed takes account of a pass of scope s that ended at now.
func (p *plan) passed(s scope, out outcome, now time.Time) {
	o := p.agent.opts
	if !now.Before(p.contact) {
		if out.mute() {
			p.failures++
		} else {
			p.failures = 0
		}
		at := now.Add(retry.Jitter(o.Interval))
		if p.failures > 0 {
			at = now.Add(retry.FullJitter(retry.Backoff(o.Interval, o.MaxBackoff, p.failures)))
		}
		if asked := min(oci.RetryAfter(out.Err), o.MaxBackoff); asked > 0 && at.Sub(now) < asked { // the registry's own wish
			at = now.Add(asked + retry.FullJitter(asked/10))
		}
		if w := o.Window.Left(now); out.Verdict == Deferred && w < 0 {
			at = earliest(at, now.Add(-w+retry.FullJitter(min(o.Interval, windowRush))))
		}
		p.ask(at)
	}
	if s.all {
		p.drift = now.Add(retry.Jitter(o.DriftInterval))
	}
	switch {
	case out.frozen != nil && out.frozen.Holding:
		p.look, p.lookAfter = now.Add(min(freezeLook, o.Interval)), 0
	case p.agent.settled():
		p.look, p.lookAfter = p.contact, 0
	case out.moved || p.lookAfter == 0:
		p.lookAfter = min(firstLook, o.Interval)
		p.look = now.Add(p.lookAfter)
	default:
		p.lookAfter = min(2*p.lookAfter, o.Interval)
		p.look = now.Add(p.lookAfter)
	}
	if b := out.frozen; b.Shown() && b.Until.After(now) { // how the cluster stands is another then
		p.look = earliest(p.look, b.Until.Add(retry.FullJitter(freezeRush)))
	}
}

// ask has the registry asked next at the given time.
func (p *plan) ask(at time.Time) {
	p.contact = at
	if p.agent.source != nil {
		p.agent.nextTry.Store(&at)
	}
}

// next is when the next pass is due. One is due for each heartbeat.
func (p *plan) next(now time.Time) time.Time {
	return earliest(earliest(p.contact, p.drift), earliest(p.look, now.Add(p.agent.opts.Reports.Heartbeat)))
}

// settled reports whether every assignment is compliant, or as good as it will get without a person.
func (a *Agent) settled() bool {
	var all []assignments.Record
	err := a.state.db.View(func(tx *bbolt.Tx) (err error) {
		all, err = a.state.records.All(tx)
		return err
	})
	return err == nil && !slices.ContainsFunc(all, func(r assignments.Record) bool {
		switch r.Item.State {
		case bundle.Compliant, bundle.Suspended:
			return false
		case bundle.Drifted:
			return r.Corrected()
		}
		return true
	})
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
