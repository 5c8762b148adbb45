package manage_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// report stores a report of a cluster with one deployment, of the workspace and the workload.
func report(t *testing.T, h *hub.Hub, now time.Time, name, environment, workspace, workload string) {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	body, err := json.Marshal(bundle.Report{
		Schema: bundle.ReportSchema, Kind: bundle.Snapshot, OccurredAt: now, State: bundle.Compliant, Reason: "ReasonOf-" + name, Message: "message-of-" + name,
		Cluster: bundle.ReportCluster{UID: "uid-" + name, Name: name, Type: "drone", Environment: environment},
		Agent:   bundle.ReportAgent{Version: "v1", Incarnation: 1, Seq: 1},
		Items: []bundle.Item{{
			Assignment: workload + "-main", Workspace: workspace, Workload: workload, Target: "main-" + name, Adapter: "directory", State: bundle.Compliant, Since: now, Version: "version-" + name,
		}},
	})
	require.NoError(t, err)
	envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, ed25519.NewKeyFromSeed(seed))
	require.NoError(t, err)
	done, err := h.Import(t.Context(), [][]byte{envelope}, store.ViaHTTP)
	require.NoError(t, err)
	require.Equal(t, 1, done.Accepted)
}

// Whoever has a scope learns nothing of what is outside: not by lists, counts, pages, errors, hints, cursors or events.
func TestNothingOutsideAScopeIsLearned(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h, err := hub.Open(t.TempDir(), hub.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer h.Close()
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	for _, c := range [][3]string{{"inside", "dev", "eu"}, {"hidden-env", "secretprod", "eu"}, {"hidden-label", "dev", "us"}} {
		require.Equal(t, "200", root.do("POST", "/v1/clusters", cluster(t, c[0], c[1], c[2]), nil))
	}
	report(t, h, now, "inside", "dev", "shop", "till")
	report(t, h, now, "hidden-env", "secretprod", "shop", "hiddenload")
	report(t, h, now, "hidden-label", "dev", "bank", "hiddenload")
	now = now.Add(time.Hour)

	whole := login(t, h, "all", access.Viewer, store.AccessScope{})
	scoped := []user{
		login(t, h, "narrow", access.Viewer, store.AccessScope{Environments: []string{"dev"}, Selector: "region=eu"}),
		login(t, h, "team", access.Viewer, store.AccessScope{Environments: []string{"dev"}, Selector: "region=eu", Workspaces: []string{"shop"}}),
		login(t, h, "op", access.Operator, store.AccessScope{Environments: []string{"dev"}, Selector: "region=eu"}),
	}
	get := func(u user, path string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+u.token)
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	paths := []string{
		"/v1/clusters", "/v1/clusters?state=compliant&sort=-lastSeen", "/v1/clusters?limit=1", "/v1/clusters?l=region=us", "/v1/clusters?l=region", "/v1/clusters?type=drone",
		"/v1/deployments", "/v1/deployments?workload=till", "/v1/deployments?version=version-hidden-env", "/v1/deployments?limit=1",
		"/v1/counts?of=clusters&by=environment", "/v1/counts?of=clusters&by=environment,state", "/v1/counts?of=deployments&by=workload", "/v1/counts?of=deployments&by=workspace",
		"/v1/facets?by=environment,type,label:*", "/v1/facets?of=deployments&by=workload,workspace,version", "/v1/search?q=side", "/search?q=side", "/changes",
		"/v1/environments", "/v1/releases", "/v1/drift", "/v1/history?workload=till", "/v1/compare?left=environment%3Ddev&right=environment%3Ddev",
		"/v1/clusters?asOf=1m", "/v1/deployments?asOf=1m", "/v1/clusters/inside", "/", "/workloads", "/clusters", "/clusters/inside", "/deployments", "/environments",
	}
	for _, u := range scoped {
		for _, path := range paths {
			status, body := get(u, path)
			require.Less(t, status, 500, "%s %s", path, body)
			require.NotContains(t, strings.ToLower(markup.Replace(body)), "hidden", path)
			require.NotContains(t, body, "secretprod", path)
		}
		status, body := get(u, "/v1/clusters")
		require.Equal(t, 200, status)
		require.Contains(t, body, `"name":"inside"`)
		require.Contains(t, body, `"count":1`)
	}
	_, body := get(whole, "/v1/counts?of=clusters&by=environment")
	require.Contains(t, body, "secretprod", "the test asks for what would show it")

	// What is outside is answered as what is nowhere.
	for _, u := range scoped {
		for _, pair := range [][2]string{
			{"/v1/clusters/hidden-env", "/v1/clusters/hodden-xyz"},
			{"/v1/clusters/uid-hidden-label", "/v1/clusters/uid-hodden-label"},
			{"/v1/clusters/hidden-env/reports", "/v1/clusters/hodden-env/reports"},
			{"/v1/clusters?environment=secretprod", "/v1/clusters?environment=sacretprod"},
			{"/v1/deployments?workload=hiddenload", "/v1/deployments?workload=hoddenload"},
			{"/v1/history?cluster=hidden-env", "/v1/history?cluster=hodden-env"},
			{"/v1/history?workload=hiddenload", "/v1/history?workload=hoddenload"},
			{"/v1/clusters?after=hidden-env", "/v1/clusters?after=hodden-env"},
		} {
			is, said := get(u, pair[0])
			isNot, other := get(u, pair[1])
			require.Equal(t, isNot, is, pair[0])
			for _, name := range []string{"hidden-env", "hidden-label", "secretprod", "hiddenload"} { // which the request has named itself
				said = strings.ReplaceAll(said, name, "X")
			}
			for _, name := range []string{"hodden-xyz", "hodden-env", "hodden-label", "sacretprod", "hoddenload"} {
				other = strings.ReplaceAll(other, name, "X")
			}
			require.Equal(t, other, said, pair[0])
		}
		_, said := get(u, "/v1/clusters/insid")
		require.NotContains(t, said, "hidden")
		_, said = get(u, "/v1/clusters?environment=secretpro")
		require.NotContains(t, said, "secretprod")
	}
	status, _ := get(scoped[1], "/v1/clusters/inside/reports")
	require.Equal(t, http.StatusForbidden, status, "a signed report has all workspaces")

	// The cursor of a page of the whole fleet shows nothing when it is given with a scope.
	var page struct{ Next string }
	_, body = get(whole, "/v1/clusters?limit=1")
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	require.NotEmpty(t, page.Next)
	_, body = get(scoped[0], "/v1/clusters?limit=1&after="+page.Next)
	require.NotContains(t, body, "hidden")
}

// markup takes the word of the test out of pages.
var markup = strings.NewReplacer("aria-hidden", "", `type="hidden"`, "")

func TestEventsAreOfTheScopeAlone(t *testing.T) {
	h := open(t)
	root := login(t, h, "root", access.Admin, store.AccessScope{})
	narrow := login(t, h, "narrow", access.Viewer, store.AccessScope{Environments: []string{"dev"}})
	for _, c := range [][2]string{{"hidden", "prod"}, {"inside", "dev"}} {
		require.Equal(t, "200", root.do("POST", "/v1/clusters", cluster(t, c[0], c[1], ""), nil))
	}
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/events?after=0", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+narrow.token)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	for i, name := range []string{"hidden", "inside"} {
		report(t, h, time.Now(), name, []string{"prod", "dev"}[i], "shop", "load-"+name)
	}
	lines := bufio.NewScanner(answer.Body)
	seen := ""
	for !strings.Contains(seen, "load-inside") && lines.Scan() {
		seen += lines.Text() + "\n"
	}
	require.Contains(t, seen, "load-inside", fmt.Sprint(lines.Err()))
	require.NotContains(t, seen, "hidden")
}
