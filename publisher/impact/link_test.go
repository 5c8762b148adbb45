package impact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinks(t *testing.T) {
	for text, want := range map[string]Link{"512kbit": 512_000, "512kbit/s": 512_000, "2.5Mbit": 2_500_000, "1Gbit": 1_000_000_000, "9600bit": 9600, "0.5kbit": 500} {
		got, err := ParseLink(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseLink(got.String())
		require.NoError(t, err, text)
		require.Equal(t, got, again, text)
	}
	for _, text := range []string{"", "512", "512k", "512KB", "-1kbit", "0bit", "0.1bit", "1e9bit", "9999999999bit", " 1kbit"} {
		_, err := ParseLink(text)
		require.Error(t, err, text)
	}
	require.Equal(t, int64(2), Link(8000).Seconds(1001), "what has begun counts")
	require.Zero(t, Link(0).Seconds(1))
}

func TestTimesOnALink(t *testing.T) {
	for seconds, want := range map[int64]string{0: "0 s", 119: "119 s", 120: "2 min", 7199: "120 min", 7200: "2.0 h", 200_000: "2.3 days"} {
		require.Equal(t, want, Time(seconds))
	}
	f := Facts{Counts: Counts{Bytes: 2000}, ClusterTypes: []TypeFacts{{Counts: Counts{Bytes: 1000}}}}
	f.On(8000)
	require.Equal(t, Facts{Link: 8000, Counts: Counts{Bytes: 2000, Seconds: 2}, ClusterTypes: []TypeFacts{{Counts: Counts{Bytes: 1000, Seconds: 1}}}}, f)
}
