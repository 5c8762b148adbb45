package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fake is a fleet of one cluster, or an error.
type fake struct {
	fleet.Answers
	asked fleet.Query
	err   error
}

func (f *fake) Clusters(_ context.Context, q fleet.Query) (fleet.Clusters, error) {
	f.asked = q
	if f.err != nil {
		return fleet.Clusters{}, f.err
	}
	return fleet.Clusters{
		Totals: fleet.Totals{
			Count: 7, States: map[bundle.State]int{bundle.Compliant: 4, bundle.Failed: 2, store.Stale: 1},
			Relations: map[fleet.Relation]int{fleet.Behind: 3},
		},
		Clusters: []fleet.Cluster{{
			ClusterStatus: store.ClusterStatus{Identity: store.Identity{UID: "u&7", Name: "<plant-7>"}, State: bundle.Compliant, Observed: &bundle.ReportRelease{Number: 12}, LastSeen: epoch.Add(-150 * time.Minute)},
			Desired:       &fleet.Desired{Relation: fleet.Behind, Behind: 2},
		}},
		Next: "plant-7",
	}, nil
}

func (f *fake) Deployments(_ context.Context, q fleet.Query) (fleet.Deployments, error) {
	f.asked = q
	return fleet.Deployments{}, f.err
}

func (f *fake) Facets(_ context.Context, _ string, _ []string, q fleet.Query) (fleet.Facets, error) {
	return fleet.Facets{Facets: []fleet.Facet{
		{By: "state", Values: []fleet.FacetValue{{Value: "failed", Count: 2}, {Value: "stale", Count: 1}}},
		{By: "ring", Values: []fleet.FacetValue{{Value: "canary", Count: 2}, {Value: "", Count: 1}}, More: 3},
		{By: "type", Values: []fleet.FacetValue{{Value: "only", Count: 2}}},
		{By: "label:region", Values: []fleet.FacetValue{{Value: "east", Count: 2}, {Value: "<west>", Count: 1}}},
	}}, f.err
}

func ask(f *fake, path string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	answers := func(*http.Request) (Answers, error) { return f, nil }
	for _, r := range Routes(Options{Answers: answers, Now: func() time.Time { return epoch }, Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
		status := http.StatusTeapot
		if errors.Is(err, store.ErrInvalid) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
	}}) {
		mux.Handle(r.Pattern, r.Handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestARequestBecomesAQuery(t *testing.T) {
	for _, path := range []string{"/clusters", "/deployments"} {
		for query, want := range map[string]fleet.Query{
			"":                     {Limit: defaultRows, Sort: worstFirst},
			"?limit=7&sort=-state": {Limit: 7, Sort: "-state"},
			"?limit=1000":          {Limit: fleet.MaxRows, Sort: worstFirst},
			"?environment=dev&type=drone&workload=till&state=failed&after=x&selector=&asOf=24h": {
				Environments: []string{"dev"}, Type: "drone", Workload: "till", State: []bundle.State{bundle.Failed}, After: "x", Limit: defaultRows, Sort: worstFirst,
				AsOf: epoch.Add(-24 * time.Hour),
			},
		} {
			f := &fake{}
			require.Equal(t, http.StatusOK, ask(f, path+query).Code, path+query)
			require.Equal(t, want, f.asked, path+query)
		}
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?limit=x%1b").Code)
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?typ=x").Code)
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?limit=1001").Code)
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?before=7").Code, "that is of another page")
		require.Equal(t, http.StatusTeapot, ask(&fake{err: errors.New("broken")}, path).Code, "the caller answers")
	}
}

func TestPagesEscapeAndLink(t *testing.T) {
	html := ask(&fake{}, "/clusters?type=drone&environment=").Body.String()
	for _, want := range []string{
		`title="u&amp;7">&lt;plant-7&gt;</a>`, `href="/clusters?after=plant-7&amp;type=drone"`, "<span aria-hidden=\"true\">▼</span> behind</span> 2",
		`href="/clusters?state=failed&amp;type=drone"><span aria-hidden="true">●</span> 2 failed</a>`, `href="/clusters?relation=behind&amp;type=drone"`,
		`href="/v1/clusters?type=drone"`, `href="/v1/clusters?format=csv&amp;type=drone"`, `<code>wherry get clusters --type drone</code>`,
		`href="/deployments?type=drone"`,
	} {
		require.Contains(t, html, want)
	}
	require.Less(t, strings.Index(html, "2 failed"), strings.Index(html, "4 compliant"), "the worst first")
	require.Contains(t, ask(&fake{}, "/deployments?type=drone").Body.String(), "No deployment matches.")
	require.Contains(t, ask(&fake{}, "/deployments").Body.String(), "No cluster reports a deployment.")
}

func TestEachConditionIsAChipThatCanBeRemoved(t *testing.T) {
	html := ask(&fake{}, "/clusters?cluster=a&relation=behind,foreign&ring=canary&image=web:1&silentFor=1h&selector=a%3Db,c&state=failed&asOf=24h&limit=7").Body.String()
	for _, want := range []string{
		"cluster=a", "relation=behind", "relation=foreign", "ring=canary", "image=web:1", "silentFor=1h0m0s", "selector=a=b,c", "state=failed",
	} {
		require.Contains(t, html, ">"+want+` <span aria-hidden="true">×</span></a>`)
	}
	require.Equal(t, 8, strings.Count(html, `class="chip"`))
	require.Contains(t, html, `href="/clusters?asOf=2026-11-20T12%3A00%3A00Z&amp;cluster=a&amp;image=web%3A1&amp;limit=7&amp;relation=foreign&amp;ring=canary&amp;selector=a%3Db%2Cc&amp;silentFor=1h0m0s&amp;state=failed" title="Remove relation=behind"`)
	require.Contains(t, html, `<input type="hidden" name="cluster" value="a">`, "the form keeps what it has no field for")
	require.Contains(t, html, "wherry get clusters -l a=b,c --cluster a --ring canary --image web:1 --state failed --relation behind,foreign --silent-for 1h0m0s --as-of 2026-11-20T12:00:00Z</code>")
	require.Equal(t, `'it'\''s; rm'`, quoted("it's; rm"))
}

func TestAnUnknownNameIsSaidWithThoseThatAreNear(t *testing.T) {
	w := ask(&fake{err: &fleet.UnknownNameError{Kind: "workload", Name: "<b>", Near: []string{"web", "<i>"}}}, "/clusters?workload=%3Cb%3E")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `Nothing matches: the hub knows no workload &#34;&lt;b&gt;&#34;. Known: web, &lt;i&gt;.`)
}

func TestEachWordHasAToneAndAMark(t *testing.T) {
	for word, want := range map[string]look{
		"current": {"good", "✓", "up to date"}, "compliant": {"good", "✓", "compliant"}, "failed": {"bad", "●", "failed"}, "foreign": {"bad", "●", "with a foreign release"},
		"nothing": {"quiet", "–", "without a release"}, "stale": {"quiet", "◌", "silent"}, "behind": {"wait", "▼", "behind"}, "waiting": {"wait", "○", "waiting"}, "applying": {"wait", "◐", "applying"},
	} {
		require.Equal(t, want, lookOf(word))
	}
}

func (f *fake) Environments(_ context.Context, q fleet.Query) (fleet.Environments, error) {
	f.asked = q
	return fleet.Environments{Environments: []fleet.Environment{
		{Platform: "edge", Environment: "new"},
		{Platform: "edge", Environment: "stage", BaseCommit: "3333333cccc"},
		{Platform: "edge", Environment: "prod", BaseCommit: "1111111aaaa", IssuedAt: epoch, Since: epoch.Add(-14 * time.Minute), Incomplete: []string{"drone"}},
	}}, f.err
}

func (f *fake) Rollout(_ context.Context, environment, commit string, q fleet.RolloutQuery) (fleet.Rollout, error) {
	if environment != "prod" {
		return fleet.Rollout{Environment: environment, Commit: commit, Why: "no cluster is registered for it"}, nil
	}
	return fleet.Rollout{
		Environment: environment, Commit: commit, Clusters: 12, Compliant: 2, FailedCount: 1, Waiting: 9, NotReporting: 4, Why: "1 failed; 9 run another release",
		Reached: fleet.RolloutCounts{Clusters: 3, Compliant: 2, Failed: 1},
		Rings: []fleet.RingRollout{
			{Ring: "canary", Reached: true, RolloutCounts: fleet.RolloutCounts{Clusters: 3, Compliant: 2, Failed: 1}},
			{Ring: "early", RolloutCounts: fleet.RolloutCounts{Clusters: 9, Waiting: 9}},
		},
		Open: []fleet.OpenCluster{{UID: "u&7", Cluster: "<plant-7>", Type: "drone", Ring: "early", Verdict: "failed", Reason: "Crash", Message: "<b>exit</b>", LastSeen: epoch.Add(-time.Hour)}},
	}, nil
}

func (f *fake) Position() store.Position { return 41 }

func (f *fake) Candidate(context.Context, string, string, string, string) (fleet.Candidate, error) {
	return fleet.Candidate{}, f.err
}

func (f *fake) Decided(_ context.Context, platform, environment string) ([]fleet.Decided, error) {
	if environment != "prod" || platform != "edge" {
		return nil, nil
	}
	return []fleet.Decided{
		{Action: bundle.Pause, By: "anna", KeyID: "0123456789", Reason: "sale <now>", IssuedAt: epoch.Add(-time.Hour), Own: true},
		{Action: bundle.Override, By: "ben", KeyID: "0123456789", From: "stage", BaseCommit: "2222222bbbb", Rules: []string{"soak"}, Reason: "a fix", IssuedAt: epoch.Add(-2 * time.Hour), ExpiresAt: epoch.Add(time.Hour), Own: true},
		{Action: bundle.Approve, By: "ops-lead", KeyID: "fedcba9876", From: "stage", BaseCommit: "4444444dddd", IssuedAt: epoch.Add(-3 * time.Hour)},
		{Action: bundle.Approve, KeyID: "fedcba9876", From: "stage", BaseCommit: "3333333cccc", IssuedAt: epoch.Add(-3 * time.Hour)},
	}, nil
}

func TestEnvironmentsShowTheirCommitAndTheDecisions(t *testing.T) {
	f := &fake{}
	w := ask(f, "/environments?environment=prod")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, []string{"prod"}, f.asked.Environments)
	page := w.Body.String()
	for _, want := range []string{
		"<h1>prod</h1>", `<a href="/environments">Environments</a> ›`,
		`Paused by anna, <time datetime="2026-11-21T11:00:00Z"`, "sale &lt;now&gt;",
		`<code title="1111111aaaa">1111111a</code> for <time datetime="2026-11-21T11:46:00Z" title="since 2026-11-21T11:46:00Z">14m<`,
		"2 of 3 clusters compliant", `<span class="look bad">1 failed</span>, 9 in rings that it has not reached, 4 without reports.</p>`, "no cluster is registered for it.</p>",
		`<svg class="bar" viewBox="0 0 3 1" preserveAspectRatio="none" role="img" aria-label="2 compliant, 1 failed">`, `<a href="/clusters?environment=prod&amp;ring=canary">canary</a>`,
		"not reached yet, 9 clusters", "Incomplete: drone.", "&lt;plant-7&gt;", "drone, ring early", "&lt;b&gt;exit&lt;/b&gt;",
		"override</span> soak, until", `<code title="2222222bbbb">2222222b</code> from stage, not the newest`,
		`key <code title="fedcba9876">fedcba98</code> <span class="note">(no name; not checked by this hub)`, `ops-lead <span class="note">(by their own key; not checked by this hub)</span></td>`,
		`<code title="3333333cccc">3333333c</code> from stage</td>`,
		"The hub does not know which commit is published.", "Nobody has decided anything about it.", "<code>wherry get environments -e prod</code>",
	} {
		require.Contains(t, page, want)
	}
	require.Less(t, strings.Index(page, `id="edge/stage"`), strings.Index(page, `id="edge/prod"`), "in the order of the answer")
	w = ask(&fake{err: &fleet.UnknownNameError{Kind: "environment", Name: "prdo", Near: []string{"prod"}}}, "/environments?environment=prdo")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "Known: prod.")
	require.Equal(t, http.StatusBadRequest, ask(&fake{}, "/environments?nothing=1").Code)
	require.Equal(t, http.StatusTeapot, ask(&fake{err: errors.New("no")}, "/environments").Code)
}

// links are those of a page that lead to other pages.
var links = regexp.MustCompile(`href="(/[^"]*)"`)

func TestPagesAboutThePastStayThere(t *testing.T) {
	const then = "2026-11-21T10:30:00Z"
	for path, back := range map[string]string{"/clusters?type=drone": "/clusters?type=drone", "/deployments?type=drone": "/deployments?type=drone", "/environments?environment=prod": "/environments?environment=prod"} {
		f := &fake{}
		html := ask(f, path+"&asOf=90m").Body.String()
		require.Equal(t, epoch.Add(-90*time.Minute), f.asked.AsOf)
		require.Contains(t, html, `>As it was at <time datetime="`+then+`">`)
		require.Contains(t, html, `Data as of <time datetime="`+then+`">`)
		for _, link := range links.FindAllStringSubmatch(html, -1) {
			if link[1] != "/style.css" && link[1] != "/icon.svg" && link[1] != "/docs/" && link[1] != back {
				require.Contains(t, link[1], "asOf=2026-11-21T10%3A30%3A00Z", path)
			}
		}
		require.Contains(t, html, `<a href="`+back+`">Back to now</a>`)
		require.NotContains(t, ask(&fake{}, path).Body.String(), "As it was at")
		require.NotContains(t, html, "Paused by", "it was paused later")
	}
	require.Contains(t, ask(&fake{}, "/clusters?asOf=90m").Body.String(), `title="2026-11-21T09:30:00Z">1h ago</time>`, "seen from then")
}

func TestTablesAreCardsOnNarrowScreens(t *testing.T) {
	cell := regexp.MustCompile(`<td[^>]*>`)
	for _, path := range []string{"/clusters", "/environments"} {
		html := ask(&fake{}, path).Body.String()
		require.NotEmpty(t, cell.FindString(html))
		for _, td := range cell.FindAllString(html, -1) {
			require.True(t, td == "<td>" || strings.Contains(td, "data-label="), td)
		}
	}
}

func TestFacetsChooseValues(t *testing.T) {
	html := ask(&fake{}, "/clusters?state=failed&selector=gpu,region%3Deast").Body.String()
	for _, want := range []string{
		`<a href="/clusters?selector=gpu%2Cregion%3Deast" aria-current="true">☑ failed</a> <span class="note">2</span>`,
		`<a href="/clusters?selector=gpu%2Cregion%3Deast&amp;state=failed%2Cstale">☐ silent</a>`,
		`<a href="/clusters?ring=canary&amp;selector=gpu%2Cregion%3Deast&amp;state=failed">☐ canary</a>`,
		`<a href="/clusters?selector=gpu&amp;state=failed" aria-current="true">☑ east</a>`,
		`<span class="note">☐ &lt;west&gt;</span>`, // which no selector may have
		`☐ none`, "3 more",
	} {
		require.Contains(t, html, want)
	}
	require.NotContains(t, html, "☐ only", "there is nothing to choose")
}

func TestChangesAreSaidInWords(t *testing.T) {
	for want, h := range map[string]fleet.HistoryRow{
		"version 1.0.0 → 1.1.0, state compliant → failed (Deadline)": {
			What: []string{"version", "content", "state"}, From: fleet.HistoryPoint{Version: "1.0.0", State: bundle.Compliant}, To: fleet.HistoryPoint{Version: "1.1.0", State: bundle.Failed, Reason: "Deadline"},
		},
		"release 6 → 5, back to what ran before": {What: []string{"release"}, From: fleet.HistoryPoint{ReleaseName: "6"}, To: fleet.HistoryPoint{ReleaseName: "5"}, Rollback: true},
		"added, configuration":                   {What: []string{"added", "config", "content"}},
	} {
		require.Equal(t, want, changed(h))
	}
}

func TestAWorkloadThatCameWithoutAProofIsNamed(t *testing.T) {
	l := &ledger.Ledger{Workloads: []ledger.Workload{{
		Key: ledger.Key{Registration: "shop", Workload: "till"},
		Revisions: []ledger.Revision{
			{Version: "2.0.0", In: []ledger.Stay{{Ring: "canary", Since: epoch, Unproved: "overridden by ben"}, {Ring: "early", Since: epoch}}},
			{Version: "1.0.0", In: []ledger.Stay{{Ring: "stable", Since: epoch}}},
		},
	}}}
	require.Equal(t, []unproved{{"shop/till", "2.0.0", "canary", "overridden by ben", epoch}}, unprovedIn(l))
}

func TestAClockThatIsAheadIsShown(t *testing.T) {
	for ahead, want := range map[time.Duration]string{-48 * time.Hour: "", time.Minute: "", 50 * time.Hour: "2d"} {
		p := &clusterPage{}
		require.Empty(t, p.ClockAhead(), "it never reported")
		p.Cluster.Proof = store.Proof{ReceivedAt: epoch, OccurredAt: epoch.Add(ahead)}
		require.Equal(t, want, p.ClockAhead())
	}
}

func TestATrustDocumentThatExpiresSoonNeedsSomebody(t *testing.T) {
	p := &overviewPage{frame: &frame{Now: epoch}}
	p.addTrust(map[string]time.Time{"coffee": epoch.Add(20 * 24 * time.Hour), "later": epoch.Add(40 * 24 * time.Hour), "never": {}, "tea": epoch.Add(-time.Hour)})
	var texts []string
	for _, n := range p.Needs {
		texts = append(texts, n.Mark+" "+n.Text)
	}
	require.Equal(t, []string{"⌛ the trust document of coffee expires in 20d", "● the trust document of tea has expired: no new release is accepted"}, texts)
}
