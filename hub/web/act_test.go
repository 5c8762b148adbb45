package web_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// person uses the pages with an access token.
type person struct {
	t      *testing.T
	hub    *hub.Hub
	secret string
}

func as(t *testing.T, h *hub.Hub, name string, role access.Role, s store.AccessScope) person {
	t.Helper()
	secret, _, err := h.Access().Create(t.Context(), access.Request{Name: name, Role: role, AccessScope: s, ExpiresAt: now.Add(time.Hour)})
	require.NoError(t, err)
	return person{t, h, secret.Reveal()}
}

func (p person) do(method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	p.t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.SetBasicAuth("me", p.secret)
	r.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	p.hub.Handler().ServeHTTP(w, r)
	return w
}

func (p person) get(path string) string {
	p.t.Helper()
	w := p.do(http.MethodGet, path, nil)
	require.Equal(p.t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// send sends a form of the hub's own page, and returns the page that follows.
func (p person) send(path string, form url.Values) string {
	p.t.Helper()
	w := p.do(http.MethodPost, path, form, "Sec-Fetch-Site: same-origin")
	require.Equal(p.t, http.StatusSeeOther, w.Code, w.Body)
	return p.get(w.Header().Get("Location"))
}

func (p person) refused(path string, form url.Values, status int, want string) {
	p.t.Helper()
	w := p.do(http.MethodPost, path, form, "Sec-Fetch-Site: same-origin")
	require.Equal(p.t, status, w.Code, w.Body)
	require.Equal(p.t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Contains(p.t, w.Body.String(), want)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// formOf returns the hidden fields of a page's form.
func formOf(page string) url.Values {
	form := url.Values{}
	for _, f := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Set(f[1], f[2])
	}
	return form
}

func audited(t *testing.T, h *hub.Hub) (all []string) {
	t.Helper()
	entries, err := h.Access().Store.AuditLog(t.Context(), 0, 1000)
	require.NoError(t, err)
	for _, e := range entries {
		actor, _, _ := strings.Cut(e.Actor, " (")
		all = append(all, strings.TrimSpace(actor+": "+e.Action+" "+e.Reason))
	}
	return all
}

func TestDecisionsAreShownAskedForOnceAndSigned(t *testing.T) {
	h := open(t, 30)
	ben := as(t, h, "ben", access.Approver, store.AccessScope{})
	page := ben.get("/environments/stage")
	for _, want := range []string{
		"<h1>stage</h1>", `href="/environments/stage/approve?platform=coffee">Approve</a>`, `/environments/stage/pause?platform=coffee">Pause</a>`, "<h3>Releases</h3>", "menu 1.4.0, web 1.2.0 and ledger 1.5.0",
		"wherry rollout undo -e stage --back-to ",
	} {
		require.Contains(t, page, want)
	}
	prod := ben.get("/environments/prod")
	require.Contains(t, prod, "/environments/prod/resume?platform=coffee\">Resume</a>")
	require.Contains(t, prod, "wherry rollout advance -e prod --ring stable --hub https://example.com</code>")
	require.NotContains(t, ben.get("/environments/dev"), "approve?", "nothing is below it")
	require.NotContains(t, ben.get("/environments/stage?asOf=1h"), "approve?", "a decision is about now")

	require.Contains(t, prod, `/environments/prod/approve?platform=coffee&amp;ring=stable">Approve for ring stable</a>`)
	ring := ben.get("/environments/prod/approve?platform=coffee&ring=stable")
	for _, want := range []string{"<h1>Approve prod, ring stable</h1>", "stable has", "1.1.0</td>", "1.2.0</td>", "--ring stable</code>"} {
		require.Contains(t, ring, want)
	}
	require.NotContains(t, ring, "commitAlone")
	require.Contains(t, ben.send("/environments/prod/approve", formOf(ring)), "</code> for ring stable</td>")
	require.Contains(t, ben.get("/environments/prod/reject?ring=stable"), "for ring stable</td>", "what was decided so far")
	require.Equal(t, http.StatusBadRequest, ben.do(http.MethodGet, "/environments/prod/approve?ring=early", nil).Code, "it has that")

	require.Contains(t, ben.get("/"), `<a class="button" href="/environments/prod/resume?platform=coffee">Resume</a>`)
	require.NotContains(t, get(t, h, "/", ""), "Resume")

	const approve = "/environments/stage/approve"
	confirm := ben.get(approve + "?platform=coffee")
	for _, want := range []string{"<h1>Approve stage</h1>", "till 2.1.0", "2.0.0</td>", "2.1.0</td>", "depot, store", "wherry gate approve -e stage --hub https://example.com --commit ", `<button class="act">Approve</button>`, `href="/environments/stage?platform=coffee">Back</a>`} {
		require.Contains(t, confirm, want)
	}
	require.Equal(t, 1, strings.Count(strings.Join(audited(t, h), ","), "approve"), "a page changes nothing")
	require.Contains(t, confirm, `<a href="/environments/stage/approve?from=prod&amp;platform=coffee">prod</a>`, "the hub infers the chain")
	form := formOf(ben.get("/environments/stage/approve?from=prod"))
	require.Equal(t, "prod", form.Get("from"))
	form = formOf(confirm)
	require.Equal(t, "dev", form.Get("from"))
	old := url.Values{"platform": {"coffee"}, "from": {"dev"}, "record": {"sha256:0"}}
	ben.refused(approve, old, http.StatusBadRequest, "dev was published anew since you looked")
	form.Set("reason", "looks <good>")
	form.Set("expires", "7d")
	page = ben.send(approve, form)
	require.Contains(t, page, "approve</span>, until")
	require.Contains(t, page, "looks &lt;good&gt;")
	require.Contains(t, audited(t, h), "ben: approve promotion looks <good>")
	var all store.DecisionList
	require.NoError(t, json.Unmarshal(ben.do(http.MethodGet, "/v1/decisions?environment=stage", nil).Body.Bytes(), &all))
	require.Len(t, all.Decisions, 1)
	d, _, err := bundle.ReadDecision(all.Decisions[0].Envelope)
	require.NoError(t, err)
	require.Equal(t, "ben", d.By)
	require.Len(t, d.Contents, 2)
	require.Equal(t, now.Add(7*24*time.Hour), d.ExpiresAt)

	// The next one sees who decided.
	dora := as(t, h, "dora", access.Approver, store.AccessScope{Environments: []string{"dev", "stage"}})
	require.Contains(t, dora.get("/environments/stage/reject"), "looks &lt;good&gt;")
	form = formOf(dora.get("/environments/stage/override?platform=coffee"))
	dora.refused("/environments/stage/override", form, http.StatusBadRequest, "lacks a reason")
	form.Set("reason", "a fix")
	dora.refused("/environments/stage/override", form, http.StatusBadRequest, "names no rule")
	form["rule"] = []string{"soak", "reported"}
	require.Contains(t, dora.send("/environments/stage/override", form), "override</span> reported, soak")
	dora.refused("/environments/prod/pause", url.Values{"platform": {"coffee"}, "reason": {"x"}}, http.StatusNotFound, "")

	require.Contains(t, ben.send("/environments/stage/pause", url.Values{"platform": {"coffee"}, "reason": {"sale"}}), "Paused by ben")
	require.NotContains(t, ben.send("/environments/stage/resume", url.Values{"platform": {"coffee"}}), "Paused by")
	ben.refused("/environments/stage/promote", nil, http.StatusNotFound, "there is no such decision")
}

func TestOnlyWhoMayIsOfferedAndHeard(t *testing.T) {
	h := open(t, 30)
	form := url.Values{"platform": {"coffee"}, "reason": {"x"}}
	viewer := as(t, h, "vera", access.Viewer, store.AccessScope{})
	for _, page := range []string{viewer.get("/environments/prod"), viewer.get("/environments"), get(t, h, "/environments/prod", "")} {
		for _, hidden := range []string{"/resume", "/approve", "wherry rollout", `href="/access"`, `href="/tokens"`} {
			require.NotContains(t, page, hidden)
		}
	}
	shop := as(t, h, "sam", access.Approver, store.AccessScope{Workspaces: []string{"shop"}})
	require.NotContains(t, shop.get("/environments/prod"), "/resume", "a decision is about a whole environment")
	shop.refused("/environments/prod/resume", form, http.StatusForbidden, "does not have this whole environment")
	prod := as(t, h, "pia", access.Approver, store.AccessScope{Environments: []string{"prod"}})
	require.NotContains(t, prod.get("/environments/prod"), ">Approve</a>", "she does not see what it would get from stage")
	require.Contains(t, prod.get("/environments/prod"), ">Approve for ring stable</a>")
	viewer.refused("/environments/prod/resume", form, http.StatusForbidden, "does not allow this")
	ben := as(t, h, "ben", access.Approver, store.AccessScope{})
	for _, headers := range [][]string{nil, {"Sec-Fetch-Site: cross-site"}, {"Origin: https://evil.example"}, {"Sec-Fetch-Site: none"}} {
		w := ben.do(http.MethodPost, "/environments/prod/resume", form, headers...)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, w.Code, headers)
	}
	for _, path := range []string{"/tokens", "/access", "/clusters/x/retire"} {
		require.Equal(t, http.StatusForbidden, ben.do(http.MethodGet, path, nil).Code, path)
	}
	require.NotContains(t, strings.Join(audited(t, h), ","), "resume")
	require.Equal(t, http.StatusSeeOther, ben.do(http.MethodPost, "/environments/prod/resume", form, "Origin: https://example.com").Code, "a browser without TLS")
}

func TestClustersAndTokensAreChangedOnPages(t *testing.T) {
	h := open(t, 30)
	op := as(t, h, "olga", access.Operator, store.AccessScope{Environments: []string{"prod"}})
	path := regexp.MustCompile(`/clusters/[0-9a-f]+`).FindString(op.get("/clusters?environment=prod"))
	page := op.get(path)
	require.Contains(t, page, `href="`+path+`/retire">Retire</a>`)
	require.NotContains(t, page, "Unshare")
	require.Contains(t, op.get(path+"/retire"), "Its key is refused from then on")
	require.NotContains(t, op.send(path+"/retire", url.Values{"reason": {"sold"}}), path)
	require.Contains(t, audited(t, h), "olga: retire cluster sold")
	other := regexp.MustCompile(`/clusters/[0-9a-f]+`).FindString(get(t, h, "/clusters?environment=dev", ""))
	op.refused(other+"/retire", nil, http.StatusNotFound, "")

	w := op.do(http.MethodPost, "/tokens", url.Values{"type": {"store"}, "environment": {"prod"}, "uses": {"3"}, "expires": {"2d"}}, "Sec-Fetch-Site: same-origin")
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	secret := regexp.MustCompile(`wht_([0-9a-f]+)_[A-Za-z0-9_-]+`).FindStringSubmatch(w.Body.String())
	require.NotNil(t, secret, w.Body)
	list := op.get("/tokens")
	require.NotContains(t, list, secret[0], "it is shown once")
	require.Contains(t, list, "3 of 3")
	op.refused("/tokens", url.Values{"type": {"store"}, "environment": {"dev"}}, http.StatusBadRequest, "outside the token")
	op.refused("/tokens", url.Values{"type": {"store"}, "environment": {"prod"}, "uses": {"many"}}, http.StatusBadRequest, "is no number")
	require.Contains(t, op.get("/tokens/"+secret[1]+"/revoke"), "You revoke an enrollment token")
	require.Contains(t, op.send("/tokens/"+secret[1]+"/revoke", nil), "revoked</td>")

	root := as(t, h, "root", access.Admin, store.AccessScope{})
	page = root.get("/access")
	end := regexp.MustCompile(`title="([0-9a-f]+)">olga</th>`).FindStringSubmatch(page)
	require.NotNil(t, end, page)
	require.Contains(t, root.get("/access/"+end[1]+"/end"), "You revoke an access token")
	root.send("/access/"+end[1]+"/end", nil)
	require.Equal(t, http.StatusUnauthorized, op.do(http.MethodGet, "/clusters", nil).Code)
	auditor := as(t, h, "ada", access.Auditor, store.AccessScope{})
	require.NotContains(t, auditor.get("/access"), "/end\"")
	auditor.refused("/access/"+end[1]+"/end", nil, http.StatusForbidden, "")
}

func TestThePageOfTheAuditLog(t *testing.T) {
	h := open(t, 30)
	ann, eve := as(t, h, "ann", access.Admin, store.AccessScope{}), as(t, h, "eve", access.Viewer, store.AccessScope{})
	ann.send("/environments/prod/pause", url.Values{"reason": {"sale <b>until</b> Monday"}})
	page := ann.get("/audit")
	require.Contains(t, page, "sale &lt;b&gt;until&lt;/b&gt; Monday")
	require.Less(t, strings.Index(page, "pause"), strings.Index(page, "create access"), "newest first")
	require.NotContains(t, page, "Older entries")
	require.NotContains(t, ann.get("/audit?action=PAUSE&actor=ann"), "create access")
	require.Contains(t, ann.get("/audit?object=nothing-like-it"), "No entry matches.")
	require.Equal(t, http.StatusForbidden, eve.do(http.MethodGet, "/audit", nil).Code)
	require.NotContains(t, eve.get("/"), `href="/audit"`)
	for _, no := range []string{"banana", "0", "-1"} {
		w := ann.do(http.MethodGet, "/audit?before="+no, nil)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), "is not a number from 1")
	}
	require.Contains(t, ann.get("/audit?until=2020-01-01"), "No entry matches.")
	require.Contains(t, ann.get("/audit?actor=ann&since=1d"), `<code>wherry hub audit --actor ann --since 1d</code>`)

	for i := range 250 {
		require.NoError(t, access.Note(access.With(t.Context(), access.Identity{Name: "bot"}), h.Access().Store, store.AuditEntry{At: now, Action: "count", Object: strconv.Itoa(i)}))
	}
	page = ann.get("/audit?actor=bot")
	require.Contains(t, page, "<td data-label=\"Object\" class=\"why\">249</td>")
	require.NotContains(t, page, ">49</td>")
	older := regexp.MustCompile(`<a rel="next" href="([^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, older)
	page = ann.get(html.UnescapeString(older[1]))
	require.Contains(t, page, ">49</td>")
	require.Contains(t, page, ">0</td>")
	require.NotContains(t, page, "Older entries")
}
