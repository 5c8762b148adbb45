package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/e2e/load/simulation"
	"github.com/wherry-dev/wherry/rollout/gate"
)

func TestASimulationHasOneRuleALineAndNoZeroCounts(t *testing.T) {
	r := &simulation.Result{
		Compliant: 90, Expected: 100, Cut: 7, Seconds: 12.5,
		Setup: simulation.Setup{Clusters: 100, Types: 1, Assignments: 200, Failing: 10, PollSeconds: 30},
		Gates: []simulation.Verdict{
			{Seconds: 1.5, Release: 1, Ring: "stable", Result: gate.Wait, Clusters: 8, Compliant: 1, Unknown: 7, Open: []gate.Rule{
				{Name: "pinned", Has: "unknown: no record", Wants: "0 floating assignments"},
				{Name: "compliant", Has: "1 of 8 (12.5 %)", Wants: "at least 80 % of those that have reported"},
			}},
			{Seconds: 2, Release: 1, Ring: "stable", Result: gate.Pass, Clusters: 8, Compliant: 8},
		},
	}
	printed := func() string {
		var out bytes.Buffer
		require.NoError(t, cli.Print(&out, "table", nil, func(w io.Writer) { printSimulation(w, r) }))
		return out.String()
	}
	text := printed()
	require.Contains(t, text, "RESULT     90 of 100 clusters got the last release; no failed request, 7 cut off by links\n"+
		"SIMULATED  100 clusters of 1 type with 200 assignments: 10 failing\n"+
		"SIMULATED  polls every 30s for 12.5s\n")
	require.Contains(t, text, "GATE       at 1.5s, release 1 before stable: wait (1 of 8 clusters compliant, 7 unknown)\n"+
		"GATE         pinned: unknown: no record, wants 0 floating assignments\n"+
		"GATE         compliant: 1 of 8 (12.5 %), wants at least 80 % of those that have reported\n"+
		"GATE       at 2s, release 1 before stable: pass (8 of 8 clusters compliant)\n")
	r.FailedRequests, r.Deferred, r.Refused, r.Cut = 3, 2, 1, 0
	require.Contains(t, printed(), "last release; 3 failed requests, 2 deferred, 1 refused\n")
}
