package rolloutcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/decisions"
	"github.com/wherry-dev/wherry/rollout/facts"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

func TestTheStateOfARollout(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pause := &decisions.Pause{By: "anna", Reason: "sale", IssuedAt: now}
	step := func(result advance.Result, of gate.Result) *advance.Step {
		return &advance.Step{Ring: "early", Result: result, Verdict: gate.Verdict{Result: of, Rules: []gate.Rule{
			{Name: "complete", Result: gate.Pass}, {Name: "soak", Result: gate.Wait, Has: "1m", Wants: "1h"}, {Name: "failed", Result: of, Has: "2", Wants: "at most 0"},
		}}}
	}
	for name, tc := range map[string]struct {
		next    *advance.Step
		pause   *decisions.Pause
		cohort  gate.Cohort
		want    string
		without bool // a commit of the base
	}{
		"all have it and have proved it":  {cohort: gate.Cohort{Clusters: 2, Compliant: 2}, want: "edge/prod: done"},
		"paused once all have it":         {cohort: gate.Cohort{Clusters: 2, Compliant: 2}, pause: pause, want: "edge/prod: done, paused by anna since 2026-11-21T12:00:00Z: sale"},
		"one has not reported":            {cohort: gate.Cohort{Clusters: 2, Compliant: 1, Unknown: 1}, want: "edge/prod: running: reported: 1 of 2 (50.0 %), wants at least 60 %"},
		"one failed":                      {cohort: gate.Cohort{Clusters: 2, Compliant: 1, Failed: 1}, want: "edge/prod: held: 1 cluster failed; none may"},
		"no clusters":                     {want: "edge/prod: running: cohort: 0, wants at least 1 cluster that was registered before the record"},
		"no commit of the base":           {without: true, want: "edge/prod: held: published: a record without a commit of the base, wants a record of prod with the commit"},
		"a gate waits":                    {next: step(advance.NotYet, gate.Wait), want: "edge/prod: running: ring early: soak: 1m, wants 1h"},
		"a gate waits for a person":       {next: step(advance.NotYet, gate.Wait), pause: pause, want: "edge/prod: paused by anna since 2026-11-21T12:00:00Z: sale"},
		"a gate says no":                  {next: step(advance.Held, gate.Fail), want: "edge/prod: held: ring early: failed: 2, wants at most 0"},
		"a gate says no during a pause":   {next: step(advance.Held, gate.Fail), pause: pause, want: "edge/prod: held, paused by anna since 2026-11-21T12:00:00Z: sale: ring early: failed: 2, wants at most 0"},
		"a gate passes and nobody did it": {next: step(advance.Ready, gate.Pass), want: "edge/prod: running: ring early: its gate passes: wherry rollout advance brings it on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			widest := advance.Ring{Ring: "early", BaseCommit: "3f2a9c1", IssuedAt: now}
			if tc.without {
				widest.BaseCommit = ""
			}
			seen := &advance.Seen{Platform: "edge", Environment: "prod"}
			policy := promotion.Policy{Environment: "prod", RingGate: promotion.Gate{MinReported: 60, MinCompliant: 50, MaxFailures: -1}}
			s := status{Seen: seen, Pause: tc.pause, Rings: []ringStatus{{Ring: advance.Ring{Ring: "canary", Next: tc.next}}, {Ring: widest}}}
			s.Proof = proof(policy, seen, widest, facts.Counted{Cohort: tc.cohort}, now)
			s.conclude()
			require.Equal(t, tc.want, s.headline())
		})
	}
}
