package manage_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// machine is a generated cluster with its reports.
type machine struct {
	name, environment, region string
	envelopes                 [][]byte
}

func generated(t *testing.T, random *rand.Rand, now time.Time) (all []machine) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range 12 {
		m := machine{name: fmt.Sprintf("box-%c", 'a'+i), environment: pick("dev", "stage", "prod"), region: pick("eu", "us", "")}
		seed := make([]byte, ed25519.SeedSize)
		copy(seed, m.name)
		for seq := range random.IntN(4) {
			r := bundle.Report{
				Schema: bundle.ReportSchema, Kind: bundle.Snapshot, OccurredAt: now.Add(time.Duration(seq-10) * time.Minute), Reason: "Because-" + m.name,
				State:   bundle.State(pick(string(bundle.Compliant), string(bundle.Failed))),
				Cluster: bundle.ReportCluster{UID: "uid-" + m.name, Name: m.name, Type: "drone", Environment: m.environment},
				Agent:   bundle.ReportAgent{Version: "v1", Incarnation: 1, Seq: int64(seq + 1)},
			}
			for _, workload := range []string{"till", "menu"}[:1+random.IntN(2)] {
				r.Items = append(r.Items, bundle.Item{
					Assignment: workload + "-main", Workspace: pick("shop", "bank"), Workload: workload, Target: "main", Adapter: "directory",
					State: r.State, Since: r.OccurredAt, Version: pick("1.0.0", "2.0.0"),
				})
			}
			body, err := json.Marshal(r)
			require.NoError(t, err)
			envelope, err := bundle.SealEnvelope(bundle.PayloadTypeReport, body, ed25519.NewKeyFromSeed(seed))
			require.NoError(t, err)
			m.envelopes = append(m.envelopes, envelope)
		}
		all = append(all, m)
	}
	return all
}

// answersOf are the requests of each route that a scope restricts, by its pattern. A route that reads gets a row.
var answersOf = map[string][]string{
	"GET /v1/clusters":           {"", "?limit=3", "?sort=-lastSeen", "?state=compliant", "?environment=prod", "?l=region", "?l=region!=us", "?asOf=3m"},
	"GET /v1/clusters/{cluster}": {"/box-a", "/box-b", "/uid-box-c", "/box-d", "/nowhere"},
	"GET /v1/deployments":        {"", "?limit=2", "?workload=till", "?version=2.0.0", "?workspace=bank", "?asOf=2m"},
	"GET /v1/counts":             {"?of=clusters&by=environment", "?of=clusters&by=environment,state", "?of=deployments&by=workload", "?of=deployments&by=workspace,version"},
	"GET /v1/facets":             {"?by=state,environment,label:*", "?of=deployments&by=workload,version,label:region&environment=dev"},
	"GET /v1/releases":           {"", "?environment=prod"},
	"GET /v1/releases/{release}": {"/1", "/abcdef01"},
	"GET /v1/environments":       {"", "?environment=stage"}, // see TestAJudgePostsWhatGatesSay
	"GET /v1/rollout":            {"?environment=dev&commit=abcdef01", "?environment=prod&commit=abcdef01"},
	"GET /v1/compare":            {"?left=environment%3Ddev&right=environment%3Dprod", "?left=environment%3Ddev&right=environment%3Ddev"},
	"GET /v1/drift":              {"", "?environment=dev"},
	"GET /v1/history":            {"?workload=till", "?cluster=box-a", "?cluster=box-b", "?environment=dev"},
	"GET /v1/events":             nil, // see TestEventsAreOfTheScopeAlone
	"GET /{$}":                   {"", "?environment=dev"},
	"GET /workloads":             {"", "?environment=dev"},
	"GET /v1/search":             {"?q=box", "?q=till", "?q=us"},
	"GET /changes":               {"", "?environment=dev"},
	"GET /search":                {"?q=box", "?q=till", "?q=us"},
	"GET /clusters":              {"", "?environment=dev", "?state=failed&l=region"},
	"GET /clusters/{cluster}":    {"/box-a", "/box-b", "/uid-box-c", "/nowhere"},
	"GET /deployments":           {"", "?workload=menu"},
	"GET /environments":          {""},

	"GET /environments/{environment}": {"/dev", "/prod", "/nowhere"},

	"GET /environments/{environment}/review":     {"/dev/review", "/prod/review?from=dev", "/nowhere/review"},
	"GET /releases/{release}":                    {"/1", "/abcdef01"},
	"GET /v1/candidate":                          {"?environment=prod", "?environment=prod&from=dev", "?environment=nowhere"},
	"GET /v1/releases/{release}/compare/{other}": {"/1/compare/2", "/abcdef01/compare/1"},
	"GET /clusters/{cluster}/retire":             {"/box-a/retire", "/box-b/retire", "/nowhere/retire"},
	"GET /clusters/{cluster}/unshare":            {"/box-a/unshare", "/box-c/unshare"},
	"GET /tokens":                                {""},
	"GET /tokens/{token}/revoke":                 {"/0123456789ab/revoke"},

	"GET /v1/clusters/{cluster}/reports":          {"/box-a/reports", "/box-b/reports", "/box-c/reports"},
	"GET /v1/clusters/{cluster}/reports/{report}": {"/box-a/reports/1.1", "/box-b/reports/1.1"},

	"GET /v1/registrations": {""},
	"GET /v1/tokens":        {""},
	"GET /v1/decisions":     {"?environment=dev", "?environment=prod", "?environment=nowhere"},
}

// variable are the parts of answers that differ between hubs with the same content: ids and positions.
var variable = regexp.MustCompile(`"(id|next|keyID|keyId|envelope|digest|createdAt|registeredAt|addedAt|receivedAt|seenAt)":\s*("[^"]*"|\d+)|after=[^"&]*|<div class="who"><span title="[^"]*">[^<]*|key <code title="[^"]*">[^<]*|<th scope="row">[0-9a-f]{12}</th>|/tokens/[0-9a-f]{12}/`)

// Each route answers a scope as a hub would that has nothing else: byte for byte, but for ids, positions and times.
func TestEachRouteAnswersAScopeAsAHubThatHasNothingElse(t *testing.T) {
	for _, route := range open(t).Routes() {
		if _, known := answersOf[route.Pattern]; !known && strings.HasPrefix(route.Pattern, "GET ") && slices.Contains([]access.Permission{access.Read, access.ReadWhole, access.Operate}, route.Permission) {
			t.Errorf("%s has no row: say what it is asked", route.Pattern)
		}
	}
	random := rand.New(rand.NewPCG(33, 2))
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now, answered := begin, map[string]int{}
	for range 12 {
		machines := generated(t, random, begin)
		scope := store.AccessScope{Environments: [][]string{nil, {"dev"}, {"dev", "prod"}}[random.IntN(3)], Selector: []string{"", "region=eu", "region!=us", "!region"}[random.IntN(4)]}
		parsed, err := access.ParseScope(scope)
		require.NoError(t, err)
		labels := func(m machine) map[string]string { return cluster(t, m.name, m.environment, m.region).Labels }
		fill := func(has func(environment string, labels map[string]string) bool) *hub.Hub {
			h, err := hub.Open(t.TempDir(), hub.Options{Now: func() time.Time { return now }})
			require.NoError(t, err)
			t.Cleanup(func() { _ = h.Close() })
			root := login(t, h, "root", access.Admin, store.AccessScope{})
			now = begin
			for _, m := range machines {
				if !has(m.environment, labels(m)) {
					continue
				}
				require.Equal(t, "200", root.do("POST", "/v1/clusters", cluster(t, m.name, m.environment, m.region), nil))
				if len(m.envelopes) > 0 {
					_, err := h.Import(t.Context(), m.envelopes, store.ViaHTTP)
					require.NoError(t, err)
				}
			}
			for _, environment := range []string{"dev", "stage", "prod"} {
				if scope.Selector == "" && has(environment, nil) {
					require.Equal(t, "200", root.do("POST", "/v1/decisions", bundle.Decision{
						Action: bundle.Approve, Platform: "coffee", Environment: environment, From: "dev", Contents: map[string]digest.Digest{"drone": digest.FromString(environment)},
					}, nil))
				}
				now = now.Add(time.Minute) // lists are by time, and then by id
				token := store.TokenScope{Type: "drone", Environment: environment, Uses: 1, ExpiresAt: begin.Add(time.Hour)}
				if has(environment, nil) {
					_, err := h.CreateToken(t.Context(), token)
					require.NoError(t, err)
				}
			}
			return h
		}
		large, small := fill(func(string, map[string]string) bool { return true }), fill(parsed.HasCluster)
		for _, role := range []access.Role{access.Viewer, access.Operator} {
			narrow, whole := login(t, large, "of-"+string(role), role, scope), login(t, small, "of-"+string(role), role, store.AccessScope{})
			for _, route := range large.Routes() {
				if route.Permission == access.Operate && role == access.Viewer {
					continue
				}
				_, path, _ := strings.Cut(route.Pattern, " ")
				if at := strings.Index(path, "/{"); at >= 0 && path != "/{$}" {
					path = path[:at]
				} else if path == "/{$}" {
					path = "/"
				}
				for _, more := range answersOf[route.Pattern] {
					if scope.Selector != "" && (route.Pattern == "GET /v1/decisions" || route.Pattern == "GET /v1/candidate") { // they cannot be divided, and a gate must not take them for none
						require.Equal(t, "403 Forbidden", narrow.do("GET", path+more, nil, nil))
						continue
					}
					if scope.Selector != "" && strings.HasSuffix(route.Pattern, "/review") {
						require.Contains(t, []string{"400 BadRequest", "403 Forbidden", "404 NotFound"}, narrow.do("GET", path+more, nil, nil))
						continue
					}
					got, want := ask(narrow, path+more), ask(whole, path+more)
					answered[got[:3]]++
					require.Equal(t, want, got, "scope %+v, %s", scope, path+more)
				}
			}
		}
	}
	require.Greater(t, answered["200"], 300)
	require.NotZero(t, answered["404"])
}

// ask returns an answer without what differs between hubs.
func ask(u user, path string) string {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+u.token)
	w := httptest.NewRecorder()
	u.hub.Handler().ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", variable.ReplaceAllString(w.Body.String(), `"$1":…`))
}
