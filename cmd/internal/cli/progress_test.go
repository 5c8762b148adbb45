package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressHasBytesRateAndTimeLeft(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	p := newProgress(&out, "copying", func() time.Time { return now })
	shown := func(passed time.Duration, done, total int64) string {
		now = now.Add(passed)
		out.Reset()
		p.Update(done, total)
		return out.String()
	}
	const mib = 1 << 20
	require.Equal(t, "\rcopying: 500 MiB of 1024 MiB (48 %)\x1b[K", shown(0, 500*mib, 1024*mib), "what was there before has no rate")
	require.Empty(t, shown(time.Millisecond, 501*mib, 1024*mib), "the terminal is not flooded")
	require.Equal(t, "\rcopying: 520 MiB of 1024 MiB (50 %), 20 MiB/s, 26 seconds left\x1b[K", shown(999*time.Millisecond, 520*mib, 1024*mib))
	shown(20*time.Second, 520*mib, 1024*mib)
	require.Equal(t, "\rcopying: 521 MiB of 1024 MiB (50 %), 102 KiB/s, 83 minutes left\x1b[K", shown(10*time.Second, 521*mib, 1024*mib), "a stall shows")
	require.Equal(t, "\rcopying: 1024 MiB of 1024 MiB (100 %), 50 MiB/s\x1b[K", shown(10*time.Second, 1024*mib, 1024*mib))
	require.Regexp(t, `^\rcopying: 1024 MiB, \d+ MiB/s\x1b\[K$`, shown(time.Second, 1024*mib, 0), "an unknown total")
	out.Reset()
	p.End()
	require.Equal(t, "\r\x1b[K", out.String())
	out.Reset()
	p.End()
	require.Empty(t, out.String())

	var none *Progress // no terminal
	none.Update(1, 2)
	none.End()
}

func TestTheTimeThatIsLeft(t *testing.T) {
	for seconds, want := range map[float64]string{0.2: "1 second", 90: "91 seconds", 600: "10 minutes", 3 * 3600: "3 hours", 1e9: "days"} {
		require.Equal(t, want, timeLeft(seconds))
	}
}
