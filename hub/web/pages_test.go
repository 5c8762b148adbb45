package web_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/demo"
	"github.com/wherry-dev/wherry/hub/store"
)

// now is the time of the sample fleet.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// open returns a hub with a sample fleet.
func open(t *testing.T, clusters int) *hub.Hub {
	t.Helper()
	dir := t.TempDir()
	h, err := hub.Open(dir, hub.Options{Now: func() time.Time { return now }, Anonymous: access.Viewer})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, demo.Fill(t.Context(), filepath.Join(dir, hub.DatabaseFile), clusters, now))
	return h
}

// get returns a page, for an access token unless that is empty.
func get(t *testing.T, h *hub.Hub, path, token string) string {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	if r.Header.Set("Accept", "text/html"); token != "" {
		r.SetBasicAuth("me", token)
	}
	h.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, 1, strings.Count(w.Body.String(), "</html>"), "the whole page")
	return w.Body.String()
}

var hrefs = regexp.MustCompile(`href="(/[^"]*)"`)

func TestThePagesOfTheSampleFleet(t *testing.T) {
	h := open(t, 60)
	overview := get(t, h, "/", "")
	for _, want := range []string{
		">60 clusters</a>", "prod is paused", "web 1.2.0 does not become ready in ring early", "clusters failed at its commit", "DeadlineExceeded", "clusters are silent", "In all, ",
		"have never reported", "for more than 7 days", ">canary<", "not reached yet", ">anna<", "the stage boxes in the isles are without power", `>web `,
	} {
		require.Contains(t, overview, want)
	}
	at := func(html, what string) int {
		i := strings.Index(html, what)
		require.GreaterOrEqual(t, i, 0, what)
		return i
	}
	row := func(name string) string { return `<th scope="row"><a href="/environments/` + name }
	require.Less(t, at(overview, row("dev")), at(overview, row("stage")))
	require.Less(t, at(overview, row("stage")), at(overview, row("prod")), "in the order of the chain")

	workloads := get(t, h, "/workloads", "")
	require.Less(t, at(workloads, ">dev</a></th>"), at(workloads, ">prod</a></th>"))
	for _, want := range []string{"1.2.0 <span", "1.1.0 <span", "≠", `href="/deployments?environment=prod&amp;state=failed&amp;workload=web&amp;workspace=shop"`, "wherry get counts --of deployments --by workspace,workload,environment,version"} {
		require.Contains(t, workloads, want)
	}
	require.Contains(t, get(t, h, "/workloads?environment=dev", ""), "environment=dev <span")

	clusters := get(t, h, "/clusters?environment=prod", "")
	for _, want := range []string{"☑ prod", "☐ dev", "<h2>region</h2>", "☐ isles", "<h2>ring</h2>", "☐ behind"} {
		require.Contains(t, clusters, want)
	}
	// Each link of each page leads to an answer.
	seen := map[string]bool{}
	for _, page := range []string{overview, workloads, clusters, get(t, h, "/environments", "")} {
		for _, found := range hrefs.FindAllStringSubmatch(page, -1) {
			link := strings.ReplaceAll(found[1], "&amp;", "&")
			if seen[link] || len(seen) > 300 {
				continue
			}
			seen[link] = true
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, link, nil)
			h.Handler().ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code, "%s: %s", link, w.Body)
		}
	}
	require.Greater(t, len(seen), 50)
}

func TestThePageOfACluster(t *testing.T) {
	h := open(t, 30)
	list := get(t, h, "/clusters?environment=prod&ring=early&state=failed", "")
	found := regexp.MustCompile(`<a href="(/clusters/[0-9a-f]+)" title="[0-9a-f]+">(prod-[a-z]+-\d+)</a>`).FindStringSubmatch(list)
	require.NotNil(t, found, list)
	page := get(t, h, found[1], "")
	for _, want := range []string{
		"<h1>" + found[2] + "</h1>", "failed</span> for", "DeadlineExceeded", "ring early", "Should run", "version 1.1.0 → 1.2.0", "state compliant → failed (DeadlineExceeded)",
		"<h2>Reports</h2>", `/reports/r1-3">r1-3</a>`, "wherry describe cluster " + found[2], `href="/clusters?selector=region%3D`, "expected every 1h",
	} {
		require.Contains(t, page, want)
	}
	require.NotRegexp(t, `href="/deployments\?[^"]*state=`, page, "those are the failures of all clusters")
	then := get(t, h, found[1]+"?asOf=12h", "")
	require.Contains(t, then, "compliant</span> for")
	require.NotContains(t, then, "DeadlineExceeded")
	require.NotContains(t, then, "<h2>Reports</h2>")
	for _, link := range hrefs.FindAllStringSubmatch(then, -1) {
		require.True(t, link[1] == "/style.css" || link[1] == "/icon.svg" || link[1] == "/docs/" || link[1] == found[1] || strings.Contains(link[1], "asOf="), link[1])
	}
}

// What a token may not see is on no page.
func TestPagesShowTheScopeOfTheTokenAlone(t *testing.T) {
	h := open(t, 60)
	token := func(name string, s store.AccessScope) string {
		secret, _, err := h.Access().Create(t.Context(), access.Request{Name: name, Role: access.Viewer, AccessScope: s, ExpiresAt: now.Add(time.Hour)})
		require.NoError(t, err)
		return secret.Reveal()
	}
	stage := token("sam", store.AccessScope{Environments: []string{"stage"}})
	shop := token("shop-team", store.AccessScope{Workspaces: []string{"shop"}})
	for _, path := range []string{"/", "/workloads", "/clusters", "/deployments", "/environments", "/changes", "/search?q=st"} {
		page := get(t, h, path, stage)
		require.Contains(t, page, "sam (viewer, stage)")
		for _, hidden := range []string{"prod", "anna", "early"} {
			require.NotContains(t, page, hidden, path)
		}
		require.NotContains(t, page, "dev-store", path)
		page = get(t, h, path, shop)
		for _, hidden := range []string{"ledger", "monitor", "till", "payments", "anna"} {
			require.NotContains(t, page, hidden, path)
		}
	}
	cluster := regexp.MustCompile(`/clusters/[0-9a-f]+`).FindString(get(t, h, "/clusters?environment=prod&type=store", ""))
	page := get(t, h, cluster, shop)
	require.Contains(t, page, ">web</a>")
	for _, hidden := range []string{"ledger", "monitor", "till", "<h2>Reports</h2>"} {
		require.NotContains(t, page, hidden)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, cluster, nil)
	r.SetBasicAuth("me", stage)
	h.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusNotFound, w.Code)
}

// A rollout is one line, however many clusters it reached, with what people decided meanwhile.
func TestThePageOfChanges(t *testing.T) {
	h := open(t, 120)
	page := get(t, h, "/changes", "")
	for _, want := range []string{"version 1.1.0 → 1.2.0, state compliant → failed (DeadlineExceeded)", "by anna", "web 1.2.0 does not become ready in ring early", `<td data-label="Clusters">12</td>`} {
		require.Contains(t, page, want)
	}
	at := func(what string) int { return strings.Index(page, what) }
	require.Less(t, at("‖</span> pause"), at("DeadlineExceeded"), "newest first")
	require.Less(t, strings.Count(page, "<tr>"), 80)
	then := get(t, h, "/changes?environment=prod&asOf=12h", "")
	require.NotContains(t, then, "DeadlineExceeded")
	require.NotContains(t, then, "pause")
	require.Contains(t, then, "version 1.0.0 → 1.1.0")
	until := regexp.QuoteMeta(now.Add(-12 * time.Hour).Format(time.RFC3339))
	require.Regexp(t, "wherry history -e prod --until "+until, then, "not --as-of, which that command lacks")
	page = get(t, h, "/changes?workload=web", "")
	require.NotContains(t, page, `name="image"`, "it does not choose among changes")
	require.NotContains(t, page, "by anna", "decisions are not about one workload")
	require.Contains(t, page, "wherry history --workload web")
}

func TestTheSearchOfThePages(t *testing.T) {
	h := open(t, 60)
	page := get(t, h, "/search?q=Web", "")
	require.Contains(t, page, `<a href="/deployments?workload=web&amp;workspace=shop">web</a>`)
	require.Contains(t, page, "<td data-label=\"Is\">image</td>")
	link := regexp.MustCompile(`<a href="(/clusters/[0-9a-f]+)"`).FindStringSubmatch(get(t, h, "/search?q=prod-store-", ""))
	require.NotNil(t, link)
	require.Contains(t, get(t, h, link[1], ""), "<h1>prod-store-")
	require.Contains(t, get(t, h, "/search?q=nothing-has-this", ""), "/docs/search.html?q=nothing-has-this")
	require.Contains(t, get(t, h, "/search?q=w", ""), "Two letters or more")
	require.NotContains(t, get(t, h, "/search?q=%3Cscript%3Ealert(1)%3C/script%3E", ""), "<script>alert")
}

func TestPagesOfAnEmptyHub(t *testing.T) {
	h := open(t, 0)
	require.Contains(t, get(t, h, "/", ""), "wherry hub serve --demo")
	require.Contains(t, get(t, h, "/workloads", ""), "No cluster reports a deployment.")
	require.Contains(t, get(t, h, "/clusters", ""), "wherry hub clusters add")
	require.Contains(t, get(t, h, "/search?q=web", ""), "Nothing in the fleet")
}

func TestThePageOfARelease(t *testing.T) {
	h := open(t, 30)
	found := regexp.MustCompile(`<a href="(/releases/sha256:[0-9a-f]+)" title="[^"]*">([^<]+)</a></th>`).FindStringSubmatch(get(t, h, "/environments/stage", ""))
	require.NotNil(t, found)
	page := get(t, h, found[1], "")
	for _, want := range []string{
		"stage/", found[2], `<a href="/clusters?release=sha256%3A`, "assignments differ", `<td data-label="What">version, content</td>`, "<h2>Images and other artifacts</h2>", "<option value=\"sha256:", "<h2>Assignments</h2>",
		"wherry describe release sha256:", " --against sha256:", "/compare/sha256:",
	} {
		require.Contains(t, page, want)
	}
	earlier := regexp.MustCompile(`<option value="(sha256:[0-9a-f]+)"`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, earlier)
	oldest := earlier[len(earlier)-1][1]
	require.Contains(t, get(t, h, found[1]+"?against="+oldest, ""), `<option value="`+oldest+`" selected>`)
	require.Contains(t, get(t, h, "/releases/"+oldest, ""), "There is no earlier release of its stream here.")
	require.Contains(t, get(t, h, found[1]+"?asOf=1m", ""), "As it was at")
	for path, status := range map[string]int{"/releases/0123456789": http.StatusNotFound, found[1] + "?against=0123456789": http.StatusNotFound} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		h.Handler().ServeHTTP(w, r)
		require.Equal(t, status, w.Code, path)
	}
}

func TestThePageOfWhatComesNext(t *testing.T) {
	h := open(t, 30)
	viewer, anna := as(t, h, "vic", access.Viewer, store.AccessScope{}), as(t, h, "anna", access.Approver, store.AccessScope{})
	require.Contains(t, viewer.get("/environments/prod"), `<a class="button" href="/environments/prod/review?platform=`)
	page := viewer.get("/environments/prod/review")
	for _, want := range []string{"Review prod", "<dt>Commit</dt>", "<dt>From</dt><dd>stage</dd>", "No version differs", "/v1/candidate?environment=prod", `href="/releases/sha256:`, "Decided so far"} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "<form method=\"post\" class")
	require.NotContains(t, page, "/environments/prod/approve")
	require.Contains(t, anna.get("/environments/prod/review"), `<a class="button" href="/environments/prod/approve?from=stage&amp;platform=`)
	page = anna.get("/environments/prod/review?ring=stable")
	for _, want := range []string{"Review prod, ring stable", "It would get", "registry.example/shop/web:1.1.0@sha256:", `<a class="button" href="/environments/prod/reject?platform=coffee&amp;ring=stable"`} {
		require.Contains(t, page, want)
	}
	team := as(t, h, "team", access.Viewer, store.AccessScope{Workspaces: []string{"shop"}})
	require.Equal(t, http.StatusForbidden, team.do(http.MethodGet, "/environments/prod/review", nil).Code)
	require.NotContains(t, team.get("/environments/prod"), "/review")
}

func TestGatesAndWhatWaitsAreOnPages(t *testing.T) {
	h := open(t, 60)
	anna := as(t, h, "anna", access.Approver, store.AccessScope{})
	for want, page := range map[string]string{
		`→ stage: <span class="look wait"><span aria-hidden="true">○</span> waits</span> <span class="note" title="compliant 3 of 6, wants at least 80 %; soak 35m to go, wants 1h; approvals 0, wants 1 of leads: anna, ben, dora">compliant, soak, approvals</span>`: anna.get("/"),
		`→ ring stable: <span class="look bad"><span aria-hidden="true">●</span> fails</span>`:                                                                                                  anna.get("/"),
		`>stage waits for approvals</a> <p class="message">approvals 0, wants 1 of leads: anna, ben, dora</p> <a class="button" href="/environments/stage/approve?platform=coffee">Approve</a>`: anna.get("/"),
		`>1 workload waits</a>`: anna.get("/"),
		`<th scope="row"><span class="note">payments/</span>till</th>`:                   anna.get("/environments/stage"),
		"till waits for the commit of dev":                                               anna.get("/environments/stage"),
		`<td data-label="Wants">1 of leads: anna, ben, dora</td>`:                        anna.get("/environments/stage"),
		`<time datetime="2026-11-21T12:35:00Z">2026-11-21T12:35:00Z</time>`:              anna.get("/environments/stage"),
		`Judged <time datetime="2026-11-21T12:00:00Z" title="2026-11-21T12:00:00Z">now<`: anna.get("/environments/stage"),
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, anna.get("/environments/stage?asOf=1h"), "Gates", "what was judged then is not kept")
	require.NotContains(t, get(t, h, "/", ""), "/approve", "a viewer has no button")
	team := as(t, h, "team", access.Viewer, store.AccessScope{Environments: []string{"prod"}})
	for _, path := range []string{"/", "/environments/prod"} {
		require.NotRegexp(t, `/environments/stage|(→|>)\s*stage|dev\b`, team.get(path), path)
	}
	require.Contains(t, team.get("/environments/prod"), "→ ring stable")

	defer func(was time.Time) { now = was }(now)
	now = now.Add(11 * time.Minute)
	late := anna.get("/")
	require.Contains(t, late, "nobody has judged the gates of coffee since 2026-11-21T12:00:00Z")
	require.NotContains(t, late, "waits for approvals")
	require.Contains(t, anna.get("/environments/stage"), "Old: nobody has judged since.")
}

// Several releases of prod are the same, made for one ring after another.
func TestAReleaseIsComparedWithTheNewestOfOtherContent(t *testing.T) {
	h := open(t, 30)
	found := regexp.MustCompile(`<a href="(/releases/sha256:[0-9a-f]+)" title="[^"]*">([^<]+)</a></th>\s*<td data-label="Type">store</td>\s*<td data-label="Rings">canary, early</td>`).FindStringSubmatch(get(t, h, "/environments/prod", ""))
	require.NotNil(t, found)
	page := get(t, h, found[1], "")
	require.Contains(t, page, "2 of 4 assignments differ")
	require.Contains(t, page, `<td data-label="After">1.2.0</td>`)
	same := regexp.MustCompile(`<option value="(sha256:[0-9a-f]+)"`).FindStringSubmatch(page)
	require.Contains(t, get(t, h, found[1]+"?against="+same[1], ""), "0 of 4 assignments differ")
}

func TestAnEnvironmentGroupsItsFailures(t *testing.T) {
	h := open(t, 60)
	page := get(t, h, "/environments/prod", "")
	require.Regexp(t, `(?s)<h3>Failures</h3>.*?<span class="note">shop/</span>web</th>\s*<td data-label="Reason">DeadlineExceeded</td>\s*<td data-label="Clusters"><a href="/deployments\?environment=prod&amp;platform=coffee&amp;state=failed%2Cdrifted&amp;workload=web&amp;workspace=shop">\d+</a></td>`, page)
	require.NotContains(t, get(t, h, "/environments", ""), "<h3>Failures</h3>", "that is for the page of one")
}

func TestAClusterShowsTheVersionsThatItShouldHave(t *testing.T) {
	h := open(t, 120)
	list := get(t, h, "/clusters?environment=prod&relation=behind&type=store", "")
	found := regexp.MustCompile(`<a href="(/clusters/[0-9a-f]+)" title`).FindStringSubmatch(list)
	require.NotNil(t, found, list)
	require.Regexp(t, `<code title="">1\.\d\.0</code> <span class="look wait">should be <code>1\.\d\.0</code></span>`, get(t, h, found[1], ""))
}

func TestOneWordSaysThatAClusterIsSilent(t *testing.T) {
	h := open(t, 60)
	for _, path := range []string{"/", "/clusters", "/clusters?state=stale", "/workloads", "/environments/prod", "/deployments?state=stale"} {
		page := get(t, h, path, "")
		require.Contains(t, page, "silent", path)
		require.NotRegexp(t, `(stale|unknown)(</span>|</a>|,|"><title>)`, page, path)
	}
}

func TestTheOverviewNamesAccessTokensThatExpireSoon(t *testing.T) {
	h := open(t, 10)
	_, _, err := h.Access().Create(t.Context(), access.Request{Name: "ci", Role: access.Publisher, ExpiresAt: now.Add(7 * 24 * time.Hour)})
	require.NoError(t, err)
	_, _, err = h.Access().Create(t.Context(), access.Request{Name: "later", Role: access.Publisher, ExpiresAt: now.Add(70 * 24 * time.Hour)})
	require.NoError(t, err)
	secret, _, err := h.Access().Create(t.Context(), access.Request{Name: "audit", Role: access.Auditor})
	require.NoError(t, err)
	require.Contains(t, get(t, h, "/", secret.Reveal()), `<a href="/access">1 access token expires within 14 days</a> <p class="message">ci 2026-11-28</p>`)
	require.NotContains(t, get(t, h, "/", ""), "access token", "that is for auditors")
}

func TestAPageAboutNowIsMarkedWhenSomethingChanges(t *testing.T) {
	h := open(t, 10)
	for path, want := range map[string]string{
		"/": `\?after=\d+`,
		"/clusters?state=failed&environment=prod&sort=name": `\?after=\d+&amp;environment=prod`,
		"/environments/prod": `\?after=\d+&amp;environment=prod`,
		"/changes":           `\?after=\d+`,
	} {
		page := get(t, h, path, "")
		require.Regexp(t, `<div id="live" role="status" data-stream="/v1/events`+want+`"></div>`, page, path)
		require.Contains(t, page, `<script src="/live.js" defer></script>`, path)
		stream := regexp.MustCompile(`data-stream="([^"]*)"`).FindStringSubmatch(page)[1]
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, strings.ReplaceAll(stream, "&amp;", "&")+"&follow=false", nil)
		h.Handler().ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", stream, w.Body)
		require.NotContains(t, w.Body.String(), "data:", "the page has all of it")
	}
	for _, path := range []string{"/clusters?asOf=24h", "/search?q=web"} {
		require.NotContains(t, get(t, h, path, ""), "live.js", path)
	}

	// What a judge posts marks the pages that show it.
	pages := map[string]bool{"/": true, "/environments/prod": true, "/clusters?type=store": false}
	streams := map[string]string{}
	for path := range pages {
		streams[path] = regexp.MustCompile(`data-stream="([^"]*)"`).FindStringSubmatch(get(t, h, path, ""))[1]
	}
	secret, _, err := h.Access().Create(t.Context(), access.Request{Name: "ci", Role: access.Publisher})
	require.NoError(t, err)
	body, err := json.Marshal(store.Promotion{Platform: "coffee", JudgedAt: now.Add(time.Second), NextLook: now.Add(time.Minute), Chain: []store.JudgedEnvironment{{
		Environment: "prod", People: []string{"anna"}, MorePeople: 3, Gates: []store.JudgedGate{{From: "stage", Result: "pass"}},
		Waits: []store.WaitingWorkload{{Workload: "till", Why: "it is slow"}}, MoreWaits: 2,
	}}})
	require.NoError(t, err)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/v1/promotion", bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+secret.Reveal())
	h.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	page := get(t, h, "/environments/prod", "")
	require.Contains(t, page, "The policy names anna and 3 more.")
	require.Contains(t, page, "2 more: <code>wherry plan -e prod</code>")
	script := httptest.NewRecorder()
	h.Handler().ServeHTTP(script, httptest.NewRequest(http.MethodGet, "/live.js", nil))
	require.Contains(t, script.Body.String(), `"promotion"`)
	for path, marked := range pages {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, strings.ReplaceAll(streams[path], "&amp;", "&")+"&follow=false", nil)
		h.Handler().ServeHTTP(w, r)
		require.Equal(t, marked, strings.Contains(w.Body.String(), "event: promotion"), "%s: %s", path, w.Body)
	}
}
