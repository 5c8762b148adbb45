package hub

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// historyOf returns for each assignment its changes in order, without rows that repeat the one before
// them and without telling the ways of being removed apart.
func historyOf(t testing.TB, h *Hub, uid string) map[string][]string {
	t.Helper()
	all, err := h.store.History(context.Background(), uid)
	require.NoError(t, err)
	history, last := map[string][]string{}, map[string]string{}
	for _, c := range all {
		what := string(c.State) + " " + c.Reason
		switch {
		case c.State == bundle.Removed:
			what = string(c.State)
		case c.Failures > 0:
			what += fmt.Sprintf(" failures=%d", c.Failures)
		}
		if last[c.Assignment] == what {
			continue
		}
		last[c.Assignment] = what
		history[c.Assignment] = append(history[c.Assignment], fmt.Sprintf("%d/%d %s", c.At.Incarnation, c.At.Seq, what))
	}
	return history
}

func TestHistoryOfLateReports(t *testing.T) {
	drone := func(s bundle.State) bundle.Item { return storetest.Item("drone", s) }
	tests := []struct {
		name    string
		arrival []int64 // seqs of reports
		want    []string
	}{
		{"in order", []int64{1, 2, 3, 4}, []string{"1/1 compliant ", "1/2 failed ", "1/3 compliant ", "1/4 removed"}},
		{"newest first", []int64{4, 3, 2, 1}, []string{"1/1 compliant ", "1/2 failed ", "1/3 compliant ", "1/4 removed"}},
		{"a change that was undone comes last", []int64{1, 3, 4, 2}, []string{"1/1 compliant ", "1/2 failed ", "1/3 compliant ", "1/4 removed"}},
		{"one that was there for a while comes last", []int64{4, 2}, []string{"1/2 failed ", "1/4 removed"}},
	}
	reports := map[int64][]bundle.Item{1: {drone(bundle.Compliant)}, 2: {drone(bundle.Failed)}, 3: {drone(bundle.Compliant)}, 4: {}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newHub(t)
			a := newAgent(t, "plant-7")
			a.register(t, h)
			for _, seq := range tt.arrival {
				_, receipt, _ := post(t, h, a.UID, a.seal(t, a.report(1, seq, reports[seq]...)))
				require.Equal(t, 1, receipt.Accepted)
			}
			require.Equal(t, tt.want, historyOf(t, h, a.UID)["drone-main"])
			require.Empty(t, deploymentsOf(t, h))
		})
	}
}

// Of three failures only the count arrived: the reports in between were coalesced at the agent.
func TestFailuresThatNoReportToldOfAreInTheHistory(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	for seq, failures := range []int64{0, 3, 3, -1} {
		it := storetest.Item("drone", bundle.Compliant)
		it.Failures = failures
		status, _, _ := post(t, h, a.UID, a.seal(t, a.report(1, int64(seq+1), it)))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, max(failures, 0), presentOf(t, h, a.UID)[0].Failures)
		if failures > 0 {
			require.Contains(t, page(h, "/deployments").Body.String(), `<td data-label="Failures">3</td>`)
			require.Contains(t, page(h, "/v1/deployments").Body.String(), `"failures":3`)
		}
	}
	require.Equal(t, []string{"1/1 compliant ", "1/2 compliant  failures=3", "1/4 compliant "}, historyOf(t, h, a.UID)["drone-main"])
}

// presentOf returns the deployments of one cluster, without which cluster it is.
func presentOf(t *testing.T, h *Hub, uid string) []store.DeploymentStatus {
	t.Helper()
	var present []store.DeploymentStatus
	for _, d := range deployed(t, h, fleet.Query{}) {
		if d.ClusterUID == uid {
			d.Cluster, d.ClusterUID = "", ""
			present = append(present, d)
		}
	}
	return present
}
