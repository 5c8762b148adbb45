package published

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheHighestSequenceNeedsANewEpoch(t *testing.T) {
	_, err := Tags{}.Next(0, math.MaxInt64, time.Now())
	require.ErrorContains(t, err, "a new epoch is needed")
}

func TestASequenceThatIsTakenIsPassedOver(t *testing.T) {
	now := time.Unix(100, 0)
	for name, tc := range map[string]struct {
		tags Tags
		last int64
		want int64
	}{
		"the clock's":                  {want: 100},
		"after the last":               {last: 100, want: 101},
		"another key's release has it": {tags: Tags{All: []string{"s1-100"}}, want: 101},
		"something waits under it":     {tags: Tags{All: []string{"pending-1-100", "s1-101"}}, want: 102},
		"of another epoch":             {tags: Tags{All: []string{"s2-100"}}, want: 100},
	} {
		got, err := tc.tags.Next(1, tc.last, now)
		require.NoError(t, err, name)
		require.Equal(t, tc.want, got, name)
	}
}

func TestTagsAreOrderedByEpochAndSequence(t *testing.T) {
	tags := Tags{All: []string{"latest", "s1-9", "s1-10", "s2-1", "s01-11", "sx", "pending-1-12"}}
	require.Equal(t, []string{"s2-1", "s1-10", "s1-9"}, tags.Releases(), "s01-11 is no tag that a publisher writes")
	require.Equal(t, []string{"pending-1-12"}, tags.Pending())
}
