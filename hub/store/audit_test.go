package store

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

func TestDecisionsAreChosenByTheirAction(t *testing.T) {
	entries := []AuditEntry{
		{Position: 1, Action: DecisionAction(bundle.Approve)},
		{Position: 2, Action: "retire cluster"},
		{Position: 3, Action: DecisionAction(bundle.Pause)},
		{Position: 4, Action: "publish promotion"}, // what is no decision
		{Position: 5, Action: "create access token", Object: "approve promotion"},
	}
	for decision, want := range map[string][]int64{"": {5, 4, 3, 2, 1}, "any": {3, 1}, "approve": {1}, "pause": {3}, "reject": nil} {
		q, err := ParseAuditQuery(url.Values{"decision": {decision}}, time.Time{})
		require.NoError(t, err)
		require.Equal(t, decision, q.Values().Get("decision"))
		var list AuditList
		q.Choose(entries, &list)
		var got []int64
		for _, e := range list.Entries {
			got = append(got, e.Position)
		}
		require.Equal(t, want, got, decision)
	}
	_, err := ParseAuditQuery(url.Values{"decision": {"approved"}}, time.Time{})
	require.ErrorIs(t, err, ErrInvalid)
}
