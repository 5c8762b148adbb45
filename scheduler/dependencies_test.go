package scheduler

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMistypedDependencyIsComparedWithABoundedNumberOfTargets(t *testing.T) {
	d := &dependencies{targets: map[string]*target{}, workloads: map[string][]*target{"redis": nil}}
	require.Equal(t, `did you mean "redis"?`, d.suggestion("redi"))
	for i := range maxCompared + 1 {
		d.targets[strconv.Itoa(i)] = nil
	}
	require.Empty(t, d.suggestion("redi"), "each of as many others may be mistyped too")
}
