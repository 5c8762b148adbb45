package promotecmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApprovalsAreCounted(t *testing.T) {
	for want, d := range map[string]Decided{
		"0 of 1 approvals":                        {Needed: 1},
		"1 of 2 approvals: ben; rejected by anna": {Needed: 2, Approvals: []string{"ben"}, Rejections: []string{"anna"}},
		"2 of 2 approvals: anna, ben":             {Needed: 2, Approvals: []string{"anna", "ben"}},
		"2 approvals, 1 needed: anna, ben":        {Needed: 1, Approvals: []string{"anna", "ben"}},
	} {
		require.Equal(t, want, d.count())
	}
}
