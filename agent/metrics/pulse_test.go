package metrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVitalsTellWhatIsStuckFromWhatTakesLong(t *testing.T) {
	const patience = time.Minute
	began := time.Now()
	after := func(d time.Duration) time.Time { return began.Add(d) }
	for name, tc := range map[string]struct {
		pulse    *Pulse
		received int64
		at       time.Duration
		want     string
	}{
		"before the first pass":           {&Pulse{}, 0, 0, ""},
		"in a step":                       {&Pulse{sign: began, step: "apply"}, 0, patience, ""},
		"in a step for too long":          {&Pulse{sign: began, step: "apply"}, 0, 2 * patience, "step apply has shown no sign of life for 2m"},
		"in a download that goes on":      {&Pulse{sign: began, step: "fetch"}, 1, 2 * patience, ""},
		"in one that has stopped":         {&Pulse{sign: began, step: "fetch", received: 1}, 1, 2 * patience, "step fetch has shown no sign of life for 2m"},
		"asleep":                          {&Pulse{sign: began, wakes: after(time.Hour)}, 0, time.Hour, ""},
		"asleep, and nobody wakes it":     {&Pulse{sign: began, wakes: after(time.Hour)}, 0, time.Hour + 2*patience, "the next pass was due 2m ago and has not begun"},
		"woken for a pass by a person":    {&Pulse{sign: after(time.Hour), wakes: after(time.Minute), step: "observe"}, 0, time.Hour, ""},
		"the traffic of a pass that ends": {&Pulse{sign: began, wakes: after(time.Hour), received: 1}, 7, 30 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.pulse
			p.traffic, p.patience, p.now = new(Traffic), patience, func() time.Time { return after(tc.at) }
			p.traffic.Registry.Bytes.Add(tc.received)
			require.Equal(t, tc.want, p.Stuck())
		})
	}
}
