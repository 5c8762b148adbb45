package hub

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// made is a report of one process of an agent.
type made struct {
	instance string
	seq      int64
}

func (a *agent) made(t testing.TB, m made) []byte {
	t.Helper()
	r := a.report(1, m.seq)
	r.Agent.Instance = m.instance
	return a.seal(t, r)
}

func TestTwoAgentsWithOneKeyAreFound(t *testing.T) {
	tests := []struct {
		name   string
		made   []made
		shared bool
	}{
		{"one process", []made{{"a", 1}, {"a", 2}, {"a", 3}}, false},
		{"one after another", []made{{"a", 1}, {"a", 2}, {"b", 3}, {"c", 4}, {"c", 6}}, false},
		{"one after another, in any order", []made{{"c", 6}, {"a", 2}, {"b", 3}, {"c", 4}, {"a", 1}}, false},
		{"by older agents, who say nothing of it", []made{{"", 1}, {"a", 2}, {"", 3}, {"a", 4}}, false},
		{"two take turns", []made{{"a", 1}, {"b", 2}, {"a", 3}}, true},
		{"two take turns, and the odd one comes late", []made{{"a", 1}, {"a", 3}, {"b", 2}}, true},
		{"an earlier one comes back", []made{{"a", 1}, {"b", 2}, {"c", 3}, {"a", 4}}, true},
		{"two reports with one number", []made{{"a", 1}, {"a", 2}, {"b", 2}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, _ := newHub(t)
			a := newAgent(t, "plant-7")
			a.register(t, h)
			var last hubapi.Receipt
			for _, m := range tt.made {
				status, receipt, _ := post(t, h, a.UID, a.made(t, m))
				require.Equal(t, http.StatusOK, status)
				last = receipt
			}
			c := onlyCluster(t, h)
			require.Equal(t, tt.shared, !c.SharedSince.IsZero(), c.SharedHow)
			require.Equal(t, tt.shared, c.ShownReason() == "SharedIdentity")
			require.Equal(t, tt.shared, last.Identity != nil && last.Identity.Reason == "SharedIdentity")
		})
	}
}

func TestASharedIdentityEndsByAPersonOrANewKey(t *testing.T) {
	share := func(t *testing.T) (*Hub, *agent) {
		h, _ := newHub(t)
		a := newAgent(t, "plant-7")
		a.register(t, h)
		for _, m := range []made{{"a", 1}, {"b", 2}, {"a", 3}, {"b", 3}} {
			post(t, h, a.UID, a.made(t, m))
		}
		require.Equal(t, 1, onlyCluster(t, h).Conflicts)
		return h, a
	}
	t.Run("a person", func(t *testing.T) {
		h, a := share(t)
		before, err := h.Unshare(t.Context(), "plant-7")
		require.NoError(t, err)
		require.NotNil(t, before.SharedSince)
		_, receipt, _ := post(t, h, a.UID, a.made(t, made{"a", 4}))
		require.Nil(t, receipt.Identity)
		_, receipt, _ = post(t, h, a.UID, a.made(t, made{"b", 3}))
		require.Equal(t, hubapi.CodeConflict, receipt.Rejected[0].Reason)
		require.Nil(t, receipt.Identity, "what was refused before is offered again now and then")
		require.Empty(t, onlyCluster(t, h).ShownReason())
		post(t, h, a.UID, a.made(t, made{"b", 5}))
		_, receipt, _ = post(t, h, a.UID, a.made(t, made{"a", 6}))
		require.NotNil(t, receipt.Identity, "the copy is there still")
		_, err = h.Unshare(t.Context(), "nobody")
		require.ErrorIs(t, err, store.ErrUnknownCluster)
	})
	t.Run("a new key", func(t *testing.T) {
		h, a := share(t)
		b := a.heir(t)
		_, refused := enroll(t, h, a.rotation(t, b, 1, 3))
		require.Empty(t, refused)
		r := b.report(2, 4, storetest.Item("drone", bundle.Compliant))
		r.Agent.Instance = "a"
		_, receipt, _ := post(t, h, a.UID, b.seal(t, r))
		require.Nil(t, receipt.Identity)
		status, _, e := post(t, h, a.UID, a.made(t, made{"b", 4}))
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, hubapi.CodeKeyReplaced, e.Code)
		require.Empty(t, onlyCluster(t, h).ShownReason())
	})
}
