package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAgentThatIsStuckDoesNotReassureItsWatchdog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		a := &Agent{opts: Options{Watchdog: &Watchdog{Every: time.Minute, Tell: func() error { told++; return nil }}}.withDefaults()}
		ctx, cancel := context.WithCancel(t.Context())
		go a.feedWatchdog(ctx)
		a.enter("apply")

		time.Sleep(leastPatience + time.Hour)
		synctest.Wait()
		require.Equal(t, int(leastPatience/time.Minute)+1, told)
		a.enter("observe")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int(leastPatience/time.Minute)+2, told, "it gets on")
		cancel()
		synctest.Wait()
	})
}
