package manage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// needs are the permissions of all routes of a hub, as docs/reference/hub.md has them. A new route gets a row.
var needs = map[string]access.Permission{
	"POST /v1/clusters/{uid}/reports": access.Open,
	"POST /v1/enroll":                 access.Open,
	"GET /healthz":                    access.Open,
	"GET /readyz":                     access.Open,
	"GET /openapi.json":               access.Open,
	"GET /style.css":                  access.Open,
	"GET /live.js":                    access.Open,
	"GET /login/device":               access.Open,
	"GET /icon.svg":                   access.Open,
	"GET /keys.js":                    access.Open,

	"GET /v1/whoami": access.Login,

	"GET /v1/clusters":                access.Read,
	"GET /v1/clusters/{cluster}":      access.Read,
	"GET /v1/deployments":             access.Read,
	"GET /v1/counts":                  access.Read,
	"GET /v1/facets":                  access.Read,
	"GET /v1/search":                  access.Read,
	"GET /changes":                    access.Read,
	"GET /search":                     access.Read,
	"GET /docs/":                      access.Open,
	"GET /v1/releases":                access.Read,
	"GET /v1/releases/{release}":      access.Read,
	"GET /v1/environments":            access.Read,
	"GET /v1/rollout":                 access.Read,
	"POST /v1/content":                access.Read,
	"GET /v1/compare":                 access.Read,
	"GET /v1/drift":                   access.Read,
	"GET /v1/history":                 access.Read,
	"GET /v1/events":                  access.Read,
	"GET /{$}":                        access.Read,
	"GET /clusters":                   access.Read,
	"GET /clusters/{cluster}":         access.Read,
	"GET /workloads":                  access.Read,
	"GET /deployments":                access.Read,
	"GET /environments":               access.Read,
	"GET /environments/{environment}": access.Read,

	"GET /environments/{environment}/review":     access.Read,
	"GET /releases/{release}":                    access.Read,
	"GET /v1/candidate":                          access.Read,
	"GET /v1/releases/{release}/compare/{other}": access.Read,

	"GET /v1/clusters/{cluster}/reports":          access.ReadWhole,
	"GET /v1/clusters/{cluster}/reports/{report}": access.ReadWhole,

	"GET /v1/registrations":               access.Operate,
	"POST /v1/clusters":                   access.Operate,
	"DELETE /v1/clusters/{cluster}":       access.Operate,
	"POST /v1/clusters/{cluster}/retire":  access.Operate,
	"POST /v1/clusters/{cluster}/unshare": access.Operate,
	"GET /v1/tokens":                      access.Operate,
	"POST /v1/tokens":                     access.Operate,
	"DELETE /v1/tokens/{token}":           access.Operate,

	"POST /v1/releases": access.Publish,
	"PUT /v1/promotion": access.Publish,

	"GET /v1/decisions":  access.Read,
	"POST /v1/decisions": access.Approve,

	"GET /environments/{environment}/workloads": access.Approve,
	"GET /environments/{environment}/{action}":  access.Approve,
	"POST /environments/{environment}/{action}": access.Approve,
	"GET /clusters/{cluster}/retire":            access.Operate,
	"POST /clusters/{cluster}/retire":           access.Operate,
	"GET /clusters/{cluster}/unshare":           access.Operate,
	"POST /clusters/{cluster}/unshare":          access.Operate,
	"GET /tokens":                               access.Operate,
	"POST /tokens":                              access.Operate,
	"GET /tokens/{token}/revoke":                access.Operate,
	"POST /tokens/{token}/revoke":               access.Operate,
	"GET /access":                               access.Audit,
	"GET /audit":                                access.Audit,
	"GET /access/{id}/end":                      access.Administer,
	"POST /access/{id}/end":                     access.Administer,

	"GET /v1/access":            access.Audit,
	"POST /v1/access":           access.Administer,
	"DELETE /v1/access/{token}": access.Administer,
	"GET /v1/audit":             access.Audit,
	"GET /metrics":              access.Measure,
}

// allowed are the roles that have a permission.
var allowed = map[access.Permission][]access.Role{
	access.Login:      access.Roles(),
	access.Read:       readers,
	access.ReadWhole:  readers,
	access.Operate:    {access.Operator, access.Admin},
	access.Publish:    {access.Publisher, access.Admin},
	access.Approve:    {access.Approver, access.Admin},
	access.Audit:      {access.Auditor, access.Admin},
	access.Measure:    {access.Metrics, access.Admin},
	access.Administer: {access.Admin},
}

var readers = []access.Role{access.Viewer, access.Operator, access.Publisher, access.Approver, access.Auditor, access.Admin}

// answered is the answer of a handler that a guard has let a request through to.
const answered = http.StatusTeapot

func TestEachRoleAndScopeOnEachRoute(t *testing.T) {
	h := open(t)
	scopes := map[string]store.AccessScope{
		"whole":        {},
		"environments": {Environments: []string{"dev"}},
		"selector":     {Selector: "region=eu"},
		"workspaces":   {Workspaces: []string{"shop"}},
		"all three":    {Environments: []string{"dev"}, Workspaces: []string{"shop"}, Selector: "region=eu"},
	}
	guard := access.NewGuard(access.Options{Sources: []access.Source{h.Access()}})
	mux := http.NewServeMux()
	for _, route := range h.Routes() {
		want, ok := needs[route.Pattern]
		require.True(t, ok, "%s has no row: say what it needs", route.Pattern)
		require.Equal(t, want, route.Permission, route.Pattern)
		mux.Handle(route.Pattern, guard.Require(route.Permission, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answered) })))
	}
	ask := func(pattern, token string) int {
		method, path, _ := strings.Cut(pattern, " ")
		r := httptest.NewRequest(method, strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path), nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	n := 0
	for _, role := range access.Roles() {
		for name, scope := range scopes {
			secret, _, err := h.Access().Create(t.Context(), access.Request{Name: fmt.Sprint(role, name), Role: role, AccessScope: scope})
			if err != nil {
				require.ErrorIs(t, err, store.ErrInvalid)
				require.True(t, slices.Contains([]access.Role{access.Admin, access.Auditor, access.Metrics}, role) && name != "whole" || role == access.Operator && len(scope.Workspaces) > 0, "%s %s", role, name)
				continue
			}
			for _, route := range h.Routes() {
				want := answered
				if p := route.Permission; p != access.Open && !slices.Contains(allowed[p], role) || p == access.ReadWhole && len(scope.Workspaces) > 0 {
					want = http.StatusForbidden
				}
				require.Equal(t, want, ask(route.Pattern, secret.Reveal()), "%s %s %s", role, name, route.Pattern)
				n++
			}
		}
	}
	require.Greater(t, n, 300)
	for _, route := range h.Routes() {
		want := http.StatusUnauthorized
		if route.Permission == access.Open {
			want = answered
		}
		require.Equal(t, want, ask(route.Pattern, ""), route.Pattern)
	}
}

// The hub's own handler has the same guard before each route.
func TestAHubAnswersNobodyWithoutAToken(t *testing.T) {
	h := open(t)
	for _, route := range h.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		w := httptest.NewRecorder()
		h.Handler().ServeHTTP(w, httptest.NewRequest(method, strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path), nil))
		if route.Permission == access.Open {
			require.NotEqual(t, http.StatusUnauthorized, w.Code, route.Pattern)
			continue
		}
		require.Equal(t, http.StatusUnauthorized, w.Code, route.Pattern)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), route.Pattern)
		require.NotEmpty(t, w.Header().Get("Content-Security-Policy"), route.Pattern)
	}
}

func open(t *testing.T) *hub.Hub {
	t.Helper()
	h, err := hub.Open(t.TempDir(), hub.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}
