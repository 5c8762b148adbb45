package window

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAWindowSaysHowLongItIsOpenOrClosed(t *testing.T) {
	t.Parallel()
	night, overMidnight := Transfer{Opens: time.Hour, Closes: 5 * time.Hour}, Transfer{Opens: 22 * time.Hour, Closes: 4 * time.Hour}
	for at, want := range map[string][2]time.Duration{
		"00:30": {-30 * time.Minute, 3*time.Hour + 30*time.Minute},
		"01:00": {4 * time.Hour, 3 * time.Hour},
		"04:59": {time.Minute, -17*time.Hour - time.Minute},
		"05:00": {-20 * time.Hour, -17 * time.Hour},
		"22:00": {-3 * time.Hour, 6 * time.Hour},
	} {
		now, err := time.Parse("15:04", at)
		require.NoError(t, err)
		now = now.In(time.FixedZone("far", 9*3600)) // times are of the day in UTC
		require.Equal(t, want, [2]time.Duration{night.Left(now), overMidnight.Left(now)}, at)
	}
	require.Equal(t, "22:00-04:00", overMidnight.String())
	require.NoError(t, Transfer{}.Closed(time.Now()))
}
