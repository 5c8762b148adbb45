package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/diff"
)

func TestACommentIsBoundedAndCannotBeBrokenOutOf(t *testing.T) {
	d := &diff.Difference{Environment: "dev", Against: "a|b"}
	long := strings.Repeat("x", 2*60)
	for i := range 2000 {
		evil := fmt.Sprintf("%d `|\n| @everyone <img src=x> [a](b) %s", i, long)
		d.ClusterTypes = append(d.ClusterTypes, diff.TypeDifference{
			ClusterType: fmt.Sprintf("type-%d", i), Result: diff.ResultChanged,
			Changes: []diff.AssignmentDifference{{Name: "web", Change: diff.ChangeChanged, Values: []diff.ValueDifference{{Key: "K", Old: &evil, New: &evil}}}},
			Failed:  []diff.FailedDifference{{Name: "db", Error: evil}},
		})
	}
	text := string(Markdown(d))
	require.Less(t, len(text), maxCommentBytes+1000)
	require.Contains(t, text, fmt.Sprintf("\n%d more lines are not shown; ", 3*(len(d.ClusterTypes)-maxCommentRows)))
	for line := range strings.Lines(text) {
		bars := strings.Count(line, "|")
		switch {
		case strings.HasPrefix(line, "| changed |"):
			require.Equal(t, 5, bars, line)
			require.NotContains(t, line, "<img")
			require.NotContains(t, line, "@everyone")
		case strings.Contains(line, "/db`"):
			require.Equal(t, 3, bars, line)
			require.NotContains(t, line, "<img")
			require.NotContains(t, line, "@everyone")
		}
	}
}

func TestTripsShowWhatReferrersTake(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Trips(&b, &catalog.Trips{Environment: "prod", Behind: 1, Bytes: 3 << 20, Sites: []catalog.TripSite{
		{Name: "dock", Clusters: 1, ClusterTypes: []string{"shop"}, Behind: true, Bytes: 3 << 20, ReferrerBytes: 1 << 20},
		{Name: "quay", Clusters: 1, ClusterTypes: []string{"shop"}, Releases: new(int64)},
	}}))
	lines := strings.Split(b.String(), "\n")
	require.Contains(t, lines[3], "3072 KiB (referrers 1024 KiB)")
	require.NotContains(t, lines[4], "referrers")
}
