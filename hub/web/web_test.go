package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fake is a fleet of one cluster, or an error.
type fake struct {
	asked store.Filter
	err   error
}

func (f *fake) Clusters(_ context.Context, filter store.Filter) (store.ClusterList, error) {
	f.asked = filter
	return store.ClusterList{Clusters: []store.ClusterStatus{{Identity: store.Identity{Name: "<plant-7>"}, State: bundle.Compliant}}, Next: "plant-7"}, f.err
}

func (f *fake) Deployments(_ context.Context, filter store.Filter) (store.DeploymentList, error) {
	f.asked = filter
	return store.DeploymentList{Deployments: []store.DeploymentStatus{}}, f.err
}

func ask(f *fake, path string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	routes := Routes(f, func() time.Time { return epoch }, func(w http.ResponseWriter, _ *http.Request, err error) {
		status := http.StatusTeapot
		if errors.Is(err, store.ErrInvalid) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
	})
	for _, r := range routes {
		mux.Handle(r.Pattern, r.Handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestARequestBecomesAFilter(t *testing.T) {
	for _, path := range []string{"/", "/deployments", "/v1/clusters", "/v1/deployments"} {
		for query, want := range map[string]store.Filter{
			"":            {Limit: defaultRows},
			"?limit=7":    {Limit: 7},
			"?limit=9999": {Limit: maxRows},
			"?environment=dev&type=drone&workload=till&state=failed&after=x": {
				Environment: "dev", Type: "drone", Workload: "till", State: bundle.Failed, After: "x", Limit: defaultRows,
			},
		} {
			f := &fake{}
			require.Equal(t, http.StatusOK, ask(f, path+query).Code, path+query)
			require.Equal(t, want, f.asked, path+query)
		}
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?limit=x%1b").Code)
		require.Equal(t, http.StatusTeapot, ask(&fake{err: errors.New("broken")}, path).Code, "the caller answers")
	}
}

func TestPagesEscapeAndLink(t *testing.T) {
	html := ask(&fake{}, "/?type=drone").Body.String()
	require.Contains(t, html, "&lt;plant-7&gt;")
	require.Contains(t, html, `href="/?after=plant-7&amp;type=drone"`)
	require.Contains(t, ask(&fake{}, "/deployments?type=drone").Body.String(), "No deployments match.")
	require.Contains(t, ask(&fake{}, "/deployments").Body.String(), "No cluster reports a deployment.")
}
