package hub

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store/storetest"
)

func page(h *Hub, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestFleetPage(t *testing.T) {
	h := fleetHub(t)
	w := page(h, "/clusters")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	for _, want := range []string{"a-good", "failed", "silent</span> <span class=\"note\">was compliant", "never reported", "never", "3h ago"} {
		require.Contains(t, w.Body.String(), want)
	}
	require.NotContains(t, w.Body.String(), "rel=\"next\"")

	require.Less(t, strings.Index(w.Body.String(), ">b-bad</a>"), strings.Index(w.Body.String(), ">a-good</a>"), "the worst first")

	w = page(h, "/clusters?limit=1&environment=dev")
	require.Regexp(t, `href="/clusters\?after=[\w-]+&amp;environment=dev&amp;limit=1"`, w.Body.String())
	require.Contains(t, page(h, "/clusters?type=none").Body.String(), "Nothing matches")
	require.Equal(t, http.StatusBadRequest, page(h, "/clusters?state=complaint").Code)
	require.Equal(t, http.StatusOK, page(h, "/style.css").Code)
	require.Equal(t, http.StatusNotFound, page(h, "/fleet").Code)
	require.Equal(t, http.StatusMethodNotAllowed, page(h, "/v1/enroll").Code)
}

func TestDeploymentsPage(t *testing.T) {
	h := fleetHub(t)
	w := page(h, "/deployments?state=failed")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "b-bad")
	require.NotContains(t, w.Body.String(), "a-good")
	require.Contains(t, w.Body.String(), `href="/clusters?state=failed"`, "clusters by the same filter")
	require.Contains(t, page(h, "/clusters?type=drone").Body.String(), `href="/deployments?type=drone"`)
	clusters := page(h, "/clusters").Body.String()
	require.Contains(t, clusters, `<p class="message">drone-main</p>`)
	uid := storetest.Identity("b-bad").UID
	require.Contains(t, clusters, `<a href="/clusters/`+uid+`"`, "the failures of this cluster alone")
	require.NotContains(t, page(h, "/clusters/"+storetest.Identity("a-good").UID).Body.String(), "b-bad")
	require.Regexp(t, `href="/deployments\?after=[\w-]+&amp;limit=1&amp;state=compliant"`, page(h, "/deployments?limit=1&state=compliant").Body.String())
	require.Contains(t, page(h, "/deployments?workload=none").Body.String(), "Nothing matches")
	require.Equal(t, http.StatusBadRequest, page(h, "/deployments?state=complaint").Code)
}

func TestEmptyFleetPageSaysWhatToDo(t *testing.T) {
	h, _ := newHub(t)
	require.Contains(t, page(h, "/clusters").Body.String(), "wherry hub clusters add")
	require.Contains(t, page(h, "/deployments").Body.String(), "No cluster reports a deployment")
}

func TestHostileTextStaysText(t *testing.T) {
	h, _ := newHub(t)
	a := newAgent(t, "plant-7")
	a.register(t, h)
	const script, escape, turned = `"><script>alert(1)</script>`, "\x1b]0;owned\x07\x1b[2J\u009b31m", "\u202egnp.exe"
	it := storetest.Item("drone", bundle.Failed)
	it.Reason, it.Message, it.Version, it.Revision = script, escape, escape+turned, "a\nb\tc"
	r := a.report(1, 1, it)
	r.State, r.Reason, r.Message = bundle.Failed, script+escape, script+turned
	r.Cluster.Name, r.Cluster.Ring, r.Agent.Version = script, escape+"canary", escape
	r.Cluster.Labels = map[string]string{escape: turned}
	status, receipt, _ := post(t, h, a.UID, a.seal(t, r))
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, receipt.Accepted)

	html := page(h, "/clusters?environment=%22%3E%3Cscript%3E").Body.String() + page(h, "/clusters").Body.String() + page(h, "/deployments").Body.String()
	require.NotContains(t, strings.NewReplacer(`<script src="/keys.js"`, "", `<script src="/live.js"`, "").Replace(html), "<script")
	require.Contains(t, html, "&lt;script&gt;")
	for _, path := range []string{"/clusters", "/deployments", "/v1/clusters", "/v1/deployments"} {
		body := page(h, path).Body.String()
		for _, bad := range []string{"\x1b", "\x07", "\u009b", "\u202e", `\u001b`, `\u009b`} {
			require.NotContains(t, body, bad, path)
		}
	}
	require.Contains(t, page(h, "/v1/deployments").Body.String(), `"revision":"a b c"`)
}

// browse asks as a browser does, with an access token unless that is empty.
func browse(h *Hub, path, token string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	if token != "" {
		r.SetBasicAuth("me", token)
	}
	h.Handler().ServeHTTP(w, r)
	return w
}

func TestErrorsArePagesInABrowser(t *testing.T) {
	requirePage := func(w *httptest.ResponseRecorder, status int, wants ...string) {
		t.Helper()
		require.Equal(t, status, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		for _, want := range append(wants, `href="/style.css"`, `href="/clusters"`) {
			require.Contains(t, w.Body.String(), want)
		}
	}
	h := fleetHub(t)
	requirePage(browse(h, "/clusters?asOf=%3Cbanana", ""), http.StatusBadRequest, "The address has a mistake", "&lt;banana")
	requirePage(browse(h, "/clusters?asOf=2030-01-01", ""), http.StatusBadRequest, "is in the future")
	requirePage(browse(h, "/clusters?limit=999999999", ""), http.StatusBadRequest, "parameter limit: 999999999 is more than 1000")
	requirePage(browse(h, "/clusters?cluster=nobody", ""), http.StatusNotFound, "There is nothing of this name", "nobody")
	requirePage(browse(h, "/fleet", ""), http.StatusNotFound, "There is no such page", "Nothing is at this address.")
	requirePage(browse(h, "/v1/counts?by=colour", ""), http.StatusBadRequest, "label:KEY")
	requirePage(browse(h, "/v1/clusters/nobody", ""), http.StatusNotFound, "There is nothing of this name")
	require.Equal(t, "text/html; charset=utf-8", browse(h, "/clusters?type=none", "").Header().Get("Content-Type"), "a page of its own")
	require.Contains(t, browse(h, "/v1/clusters", "").Body.String(), `"clusters":[`)
	require.Equal(t, "application/json", page(h, "/clusters?asOf=banana").Header().Get("Content-Type"), "a program gets what it can read")

	requirePage(browse(h, "/clusters", "nonsense"), http.StatusUnauthorized, "You are not signed in", "give an access token as the password")
	secret, _, err := h.Access().Create(t.Context(), access.Request{Name: "prom", Role: access.Metrics, ExpiresAt: storetest.Epoch.Add(1000 * time.Hour)})
	require.NoError(t, err)
	requirePage(browse(h, "/clusters", secret.Reveal()), http.StatusForbidden, "does not allow this", "prom (")

	limited, err := Open(t.TempDir(), Options{Now: storetest.NewClock().Now, Anonymous: access.Viewer, RequestsPerMinute: 1})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, browse(limited, "/clusters", "").Code)
	requirePage(browse(limited, "/clusters", ""), http.StatusTooManyRequests, "Too many requests", "Try again in")
	require.NoError(t, limited.Close())

	closed, err := Open(t.TempDir(), Options{Now: storetest.NewClock().Now, Anonymous: access.Viewer})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	requirePage(browse(closed, "/clusters", ""), http.StatusServiceUnavailable, "The hub cannot answer now", "Try again in 30 seconds")
}

func TestHealth(t *testing.T) {
	h, c := newHub(t)
	require.Equal(t, http.StatusOK, page(h, "/healthz").Code)
	require.Equal(t, http.StatusOK, page(h, "/readyz").Code)
	require.NoError(t, h.Close())
	require.Equal(t, http.StatusOK, page(h, "/readyz").Code, "the database is asked once a second")
	c.Add(time.Second)
	require.Equal(t, http.StatusOK, page(h, "/healthz").Code)
	require.Equal(t, http.StatusServiceUnavailable, page(h, "/readyz").Code)
}

func TestServeEndsWithItsContext(t *testing.T) {
	h, _ := newHub(t)
	token, err := h.FirstAccess(t.Context())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx, l) }()
	answer, err := http.Get("http://" + l.Addr().String() + "/healthz")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	request, err := http.NewRequest(http.MethodGet, "http://"+l.Addr().String()+"/v1/events", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token.Reveal())
	events, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer events.Body.Close()
	require.Equal(t, http.StatusOK, events.StatusCode)
	cancel()
	told, err := io.ReadAll(events.Body)
	require.NoError(t, err, "a stream ends in good order")
	require.Contains(t, string(told), "the hub is being stopped")
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Serve has not returned")
	}
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
}
