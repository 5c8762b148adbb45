package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTargetsWithAnotherNameOnEachSideAreCompared(t *testing.T) {
	side := func(all ...point) map[point]map[variant]number {
		m := map[point]map[variant]number{}
		for _, p := range all {
			m[p] = nil
		}
		return m
	}
	web, db, cache := point{"", "web", "stage"}, point{"", "db", "main"}, point{"", "cache", "stage"}
	got := matching(side(web, db, cache), side(point{"", "web", "prod"}, db, point{"", "cache", "prod-a"}, point{"", "cache", "prod-b"}))
	require.ElementsMatch(t, []counterpart{
		{point: db},
		{web, "prod"},
		{point: cache},
		{point: point{"", "cache", "prod-a"}},
		{point: point{"", "cache", "prod-b"}},
	}, got)
	require.Equal(t, point{"", "web", "prod"}, counterpart{web, "prod"}.onRight())
	require.Equal(t, db, counterpart{point: db}.onRight())
}
