package agent

import (
	"time"

	"github.com/wherry-dev/wherry/agent/freeze"
	"github.com/wherry-dev/wherry/agent/metrics"
)

// newPasses counts passes by their verdicts, in the order of the page of metrics.
func newPasses() *metrics.Passes {
	var names []string
	for _, v := range []Verdict{Done, Idle, Deferred, Unreachable, Refused, Broken, Interrupted} {
		names = append(names, string(v))
	}
	return metrics.NewPasses(names...)
}

// metrics is the agent at this moment, as /metrics shows it.
func (a *Agent) metrics() (metrics.Snapshot, error) {
	s, err := a.Status()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	m := metrics.Snapshot{
		Now: a.opts.Now(), Version: a.opts.Version, State: s.State, Reason: s.Reason, Items: s.Items,
		Refused: s.Release.Refused != nil, Paused: s.Freeze != nil && s.Freeze.Reason == freeze.ReasonPaused, Held: s.Release.Held != nil,
		Quarantined: len(s.Release.Quarantined), LastContact: s.LastContact, NextTry: s.NextTry,
		Passes: a.passes, Traffic: a.opts.Traffic, Queue: s.Queue, Trust: s.Trust, ClockBehindSeconds: s.ClockBehindSeconds, Carry: s.Carry, Relay: s.Relay, Streams: s.Streams,
	}
	if a.opts.Serve != nil {
		m.Served = &a.opts.Serve.Counters
	}
	if r := s.Release.Running; r != nil {
		m.Running = &metrics.Release{Epoch: r.Epoch, Sequence: r.Sequence, IssuedAt: r.IssuedAt, ExpiresAt: r.ExpiresAt, AgeSeconds: r.AgeSeconds}
	}
	m.Store, m.StateFileBytes = a.disk.Measure(a.state.db, time.Now())
	return m, nil
}
