package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

// fleetHub returns a hub with the clusters of storetest.Fleet.
func fleetHub(t *testing.T) *Hub {
	t.Helper()
	h, c := newHub(t)
	storetest.Fleet(c, func(id store.Identity, items ...bundle.Item) {
		a := newAgent(t, id.Name)
		a.Identity = id
		a.register(t, h)
		if len(items) > 0 {
			post(t, h, a.UID, a.seal(t, a.report(1, 1, items...)))
		}
	})
	return h
}

func clusterNames(list fleet.Clusters) string {
	var names []string
	for _, c := range list.Clusters {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func deploymentNames(list fleet.Deployments) string {
	var names []string
	for _, d := range list.Deployments {
		names = append(names, d.Cluster+"/"+d.Workload)
	}
	return strings.Join(names, " ")
}

func TestSilentClustersAreStale(t *testing.T) {
	h := fleetHub(t)
	clusters := clustersOf(t, h, fleet.Query{Environments: []string{"prod"}})
	require.Equal(t, store.Stale, clusters[0].State)
	require.Equal(t, "stale (was compliant)", clusters[0].ShownState())
	require.Equal(t, "stale (was compliant)", deployed(t, h, fleet.Query{Environments: []string{"prod"}})[0].ShownState())
}

func TestExpectedIntervalOfACluster(t *testing.T) {
	h, c := newHub(t)
	a := newAgent(t, "island")
	a.ExpectedInterval = 30 * 24 * time.Hour
	a.register(t, h)
	post(t, h, a.UID, a.seal(t, a.report(1, 1)))
	c.Add(90 * 24 * time.Hour)
	require.Equal(t, bundle.Compliant, onlyCluster(t, h).State)
	c.Add(time.Second)
	require.Equal(t, store.Stale, onlyCluster(t, h).State)
}

func TestWhatTheAgentClaimsDoesNotMoveACluster(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	r := a.report(1, 1)
	r.Cluster.Environment, r.Cluster.Type, r.Cluster.Ring = "prod", "large", "canary"
	post(t, h, a.UID, a.seal(t, r))

	got := onlyCluster(t, h)
	require.Equal(t, []string{"dev", "drone", "canary"}, []string{got.Environment, got.Type, got.Ring})
	require.Equal(t, `agent says environment "prod", type "large"`, got.Mismatch)
}

func TestClocksThatAreOff(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	for i, when := range []string{"0001-01-01T00:00:00Z", "0000-01-01T00:00:00+23:00", "9999-12-31T23:59:59.999-23:59", "2050-01-01T00:00:00Z"} {
		r := a.report(1, int64(i+1), storetest.Item("drone", bundle.Compliant))
		require.NoError(t, r.OccurredAt.UnmarshalText([]byte(when)))
		body, err := json.Marshal(a.report(1, int64(i+1), storetest.Item("drone", bundle.Compliant)))
		require.NoError(t, err)
		body = []byte(strings.ReplaceAll(string(body), storetest.Epoch.Format(time.RFC3339), when))
		status, receipt, _ := post(t, h, a.UID, a.sealBody(t, body))
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, 1, receipt.Accepted)
		got := onlyCluster(t, h)
		require.Equal(t, storetest.Epoch, got.LastSeen)
		require.False(t, got.Since.After(storetest.Epoch), "nothing began in the future")
		_, err = json.Marshal(got)
		require.NoError(t, err)
	}
}

func TestListsOverHTTPPageByPage(t *testing.T) {
	h := fleetHub(t)
	server := httptest.NewServer(h.Handler())
	defer server.Close()

	var first fleet.Clusters
	get(t, server.URL+"/v1/clusters?limit=3", http.StatusOK, &first)
	require.Equal(t, "a-good b-bad c-new", clusterNames(first))
	var second fleet.Clusters
	get(t, server.URL+"/v1/clusters?limit=3&after="+first.Next, http.StatusOK, &second)
	require.Equal(t, "d-silent", clusterNames(second))
	require.Empty(t, second.Next)

	seen, after := "", ""
	for range 5 {
		var page fleet.Deployments
		get(t, server.URL+"/v1/deployments?limit=1&after="+after, http.StatusOK, &page)
		seen += deploymentNames(page) + " "
		after = page.Next
	}
	require.Equal(t, "a-good/drone a-good/radar b-bad/drone b-bad/radar d-silent/drone ", seen)
	require.Empty(t, after)

	for _, query := range []string{"limit=0", "limit=-1", "limit=many", "state=complaint"} {
		var e hubapi.Error
		get(t, server.URL+"/v1/clusters?"+query, http.StatusBadRequest, &e)
		require.Equal(t, hubapi.CodeBadRequest, e.Code)
	}
}

func get(t *testing.T, url string, status int, into any) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, status, answer.StatusCode)
	require.NoError(t, json.NewDecoder(answer.Body).Decode(into))
}
