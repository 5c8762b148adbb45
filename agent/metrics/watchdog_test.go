package metrics

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAgentThatIsStuckDoesNotReassureItsWatchdog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		p := NewPulse(new(Traffic), 5*time.Minute, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		w := &Watchdog{Every: time.Minute, Tell: func() error { told++; return nil }}
		go p.Feed(ctx, w, slog.New(slog.DiscardHandler))
		p.Enter("apply")

		time.Sleep(leastPatience + time.Hour)
		synctest.Wait()
		require.Equal(t, int(leastPatience/time.Minute)+1, told)
		p.Enter("observe")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int(leastPatience/time.Minute)+2, told, "it gets on")
		cancel()
		synctest.Wait()
	})
}
