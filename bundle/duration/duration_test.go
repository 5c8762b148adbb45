package duration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "12h": 12 * time.Hour, "7d": 7 * day, "2w": 2 * week, "1d12h": 36 * time.Hour,
		"1w2d3h4m5s": week + 2*day + 3*time.Hour + 4*time.Minute + 5*time.Second, "1.5h": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "0": 0, "0s": 0, "0d": 0, "3650d": 3650 * day,
	} {
		got, err := Parse(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "5", "d", "x", "1y", "-5m", "+5m", "1d-5m", "1h1d", "1d1w", "1.5d", "1d0", " 1d", "1d ", "1D", "9999999d", "99999999h"} {
		_, err := Parse(in)
		require.Error(t, err, in)
		require.Contains(t, err.Error(), "such as 90m, 12h, 7d or 2w")
	}
}

func FuzzValue(f *testing.F) {
	for _, seed := range []string{"90m", "1d12h", "2w", "1h1s", "10m", "999999w", "999999w999999d2562047h", "0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var v, again Value
		if v.Set(in) != nil {
			return
		}
		require.GreaterOrEqual(t, v, Value(0))
		require.NoError(t, again.Set(v.String()))
		require.Equal(t, v, again)
	})
}

func TestAValueIsWrittenShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		2 * time.Minute: "2m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 0: "0", time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m", 480 * time.Hour: "20d", 49 * time.Hour: "2d1h", 47 * time.Hour: "47h", 7*day + time.Second: "7d1s",
	} {
		v := Value(d)
		require.Equal(t, want, v.String())
	}
}
