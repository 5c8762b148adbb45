package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

func TestACourierThatFailsComesBackAtAnyTimeUpToTheBackoff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits []time.Duration
	c := &courier{
		box: new(Outbox), log: slog.New(slog.DiscardHandler),
		round: func(context.Context) (time.Duration, error) {
			if len(waits) == 20 {
				return 0, &queue.HubError{After: 30 * time.Minute}
			}
			return 0, errors.New("away")
		},
		sleep: func(_ context.Context, d time.Duration) error {
			if waits = append(waits, d); len(waits) == 21 {
				cancel()
			}
			return nil
		},
	}
	c.run(ctx)
	for i, d := range waits[:20] {
		limit := min(firstRetry<<i, queue.LongestRetry)
		require.LessOrEqual(t, d, limit)
		require.GreaterOrEqual(t, d, limit/10)
	}
	require.GreaterOrEqual(t, waits[20], 30*time.Minute, "not before the time that the hub asks for")
	require.LessOrEqual(t, waits[20], time.Hour)
}

func TestTheStatusSaysWhyReportsStay(t *testing.T) {
	o := openBox(t, t.TempDir())
	unsent := func() map[string]string { return statusOf(t, o).Unsent }
	rounds := []error{&queue.HubError{Status: "403 Forbidden", Message: "no such\x1b cluster"}, nil}
	ctx, cancel := context.WithCancel(t.Context())
	c := &courier{box: o, log: slog.New(slog.DiscardHandler), to: "http://hub", wake: o.forHub, idle: func() time.Duration { return 0 }, sleep: func(context.Context, time.Duration) error {
		if rounds = rounds[1:]; len(rounds) == 1 {
			require.Equal(t, map[string]string{"http://hub": "hub answered 403 Forbidden: no such? cluster"}, unsent())
			return nil
		}
		cancel()
		return ctx.Err()
	}}
	c.round = func(context.Context) (time.Duration, error) { return 0, rounds[0] }
	c.run(ctx)
	require.Nil(t, unsent())
}

func TestAPaceCanNeitherSilenceAnAgentNorMakeItStorm(t *testing.T) {
	for _, tc := range []struct {
		name string
		pace hubapi.Pace
		n    int
		want time.Duration
	}{
		{"none", hubapi.Pace{}, 500, 0},
		{"by the minute", hubapi.Pace{ReportsPerMinute: 100}, 50, 30 * time.Second},
		{"so slow as to silence it", hubapi.Pace{ReportsPerMinute: 1}, 500, maxPause},
		{"negative", hubapi.Pace{ReportsPerMinute: -1}, 500, 0},
		{"as fast as it can", hubapi.Pace{ReportsPerMinute: math.MaxInt64}, 500, 0},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, tc.pace.Pause(tc.n, maxPause)) })
	}
}
