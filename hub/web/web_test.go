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

func ask(f *fake, path string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	answers := func(*http.Request) (Answers, error) { return f, nil }
	for _, r := range Routes(answers, func() time.Time { return epoch }, func(w http.ResponseWriter, _ *http.Request, err error) {
		status := http.StatusTeapot
		if errors.Is(err, store.ErrInvalid) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
	}) {
		mux.Handle(r.Pattern, r.Handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestARequestBecomesAQuery(t *testing.T) {
	for _, path := range []string{"/", "/deployments"} {
		for query, want := range map[string]fleet.Query{
			"":            {Limit: defaultRows},
			"?limit=7":    {Limit: 7},
			"?limit=9999": {Limit: fleet.MaxRows},
			"?environment=dev&type=drone&workload=till&state=failed&after=x&selector=&asOf=24h": {
				Environments: []string{"dev"}, Type: "drone", Workload: "till", State: []bundle.State{bundle.Failed}, After: "x", Limit: defaultRows,
				AsOf: epoch.Add(-24 * time.Hour),
			},
		} {
			f := &fake{}
			require.Equal(t, http.StatusOK, ask(f, path+query).Code, path+query)
			require.Equal(t, want, f.asked, path+query)
		}
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?limit=x%1b").Code)
		require.Equal(t, http.StatusBadRequest, ask(&fake{}, path+"?typ=x").Code)
		require.Equal(t, http.StatusTeapot, ask(&fake{err: errors.New("broken")}, path).Code, "the caller answers")
	}
}

func TestPagesEscapeAndLink(t *testing.T) {
	html := ask(&fake{}, "/?type=drone&environment=").Body.String()
	require.Contains(t, html, `<a href="/deployments?cluster=u%267">&lt;plant-7&gt;</a>`)
	require.Contains(t, html, `href="/?after=plant-7&amp;type=drone"`)
	require.Contains(t, html, "behind 2")
	require.Contains(t, html, `<p class="totals">7 clusters: <a class="state" data-state="failed" href="/?state=failed&amp;type=drone">2 failed</a>`+
		` <a class="state" data-state="stale" href="/?state=stale&amp;type=drone">1 stale</a> <a class="state" data-state="compliant" href="/?state=compliant&amp;type=drone">4 compliant</a>`+
		` <a class="state" data-state="behind" href="/?relation=behind&amp;type=drone">3 behind</a></p>`)
	require.Contains(t, html, `href="/v1/clusters?type=drone"`)
	require.Contains(t, ask(&fake{}, "/deployments?type=drone").Body.String(), "No deployments match.")
	require.Contains(t, ask(&fake{}, "/deployments").Body.String(), "No cluster reports a deployment.")
}

func TestAnUnknownNameIsSaidWithThoseThatAreNear(t *testing.T) {
	w := ask(&fake{err: &fleet.UnknownNameError{Kind: "workload", Name: "<b>", Near: []string{"web", "<i>"}}}, "/?workload=%3Cb%3E")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `No clusters match: the hub knows no workload &#34;&lt;b&gt;&#34;. Known: web, &lt;i&gt;.`)
}

func (f *fake) Environments(_ context.Context, q fleet.Query) (fleet.Environments, error) {
	f.asked = q
	return fleet.Environments{Environments: []fleet.Environment{
		{Platform: "edge", Environment: "new"},
		{Platform: "edge", Environment: "prod", BaseCommit: "1111111aaaa", IssuedAt: epoch, Incomplete: []string{"drone"}},
		{Platform: "edge", Environment: "stage", BaseCommit: "3333333cccc"},
	}}, f.err
}

func (f *fake) Rollout(_ context.Context, environment, commit string, q fleet.RolloutQuery) (fleet.Rollout, error) {
	if environment != "prod" {
		return fleet.Rollout{Environment: environment, Commit: commit, Why: "no cluster is registered for it"}, nil
	}
	return fleet.Rollout{
		Environment: environment, Commit: commit, Clusters: 12, Compliant: 2, FailedCount: 1, Waiting: 9, NotReporting: 4, Why: "1 failed; 9 run another release",
		Reached: fleet.RolloutCounts{Clusters: 3, Compliant: 2, Failed: 1},
		Open:    []fleet.OpenCluster{{UID: "u&7", Cluster: "<plant-7>", Type: "drone", Ring: "early", Verdict: "failed", Reason: "Crash", Message: "<b>exit</b>", LastSeen: epoch.Add(-time.Hour)}},
	}, nil
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
		`Paused by anna since <time datetime="2026-11-21T11:00:00Z">`, "sale &lt;now&gt;",
		`<code title="1111111aaaa">1111111a</code>`, "2 of 3 clusters compliant", `data-state="failed">1 failed</span>, 9 in rings that it has not reached, 4 without reports.</p>`, "no cluster is registered for it.</p>",
		`<progress max="3" value="2">`, "Incomplete: drone.", "&lt;plant-7&gt;", "drone, ring early", "&lt;b&gt;exit&lt;/b&gt;",
		"override</span> soak, until", `<code title="2222222bbbb">2222222b</code> from stage, not the newest`,
		`key <code title="fedcba9876">fedcba98</code> (not checked by this hub)`, `<td>ops-lead (by key; not checked by this hub)</td>`, `<code title="3333333cccc">3333333c</code> from stage</td>`,
		"The hub does not know which commit is published.", "Nobody has decided anything about it.",
	} {
		require.Contains(t, page, want)
	}
	w = ask(&fake{err: &fleet.UnknownNameError{Kind: "environment", Name: "prdo", Near: []string{"prod"}}}, "/environments?environment=prdo")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "Known: prod.")
	require.Equal(t, http.StatusBadRequest, ask(&fake{}, "/environments?nothing=1").Code)
	require.Equal(t, http.StatusTeapot, ask(&fake{err: errors.New("no")}, "/environments").Code)
}

func TestPagesAboutThePastStayThere(t *testing.T) {
	const then = "2026-11-21T10:30:00Z"
	html := ask(&fake{}, "/?type=drone&asOf=90m").Body.String()
	for _, want := range []string{
		`As it was at <time datetime="` + then + `">`, `<a href="/?type=drone">Show now</a>`, `<footer>As of <time datetime="` + then + `">`,
		`<a href="/deployments?asOf=2026-11-21T10%3A30%3A00Z&amp;cluster=u%267">&lt;plant-7&gt;</a>`, `href="/v1/clusters?asOf=2026-11-21T10%3A30%3A00Z&amp;type=drone"`,
		`href="/environments?asOf=2026-11-21T10%3A30%3A00Z"`, `href="/?after=plant-7&amp;asOf=2026-11-21T10%3A30%3A00Z&amp;type=drone"`,
		`title="2026-11-21T09:30:00Z">1h ago</time>`,
	} {
		require.Contains(t, html, want)
	}
	require.NotContains(t, ask(&fake{}, "/").Body.String(), "As it was at")

	f := &fake{}
	html = ask(f, "/environments?environment=prod&asOf=90m").Body.String()
	require.Equal(t, epoch.Add(-90*time.Minute), f.asked.AsOf)
	for _, want := range []string{
		`As it was at <time datetime="` + then + `">`, `<a href="/environments?environment=prod">Show now</a>`, "a fix",
		`<a href="/environments?asOf=2026-11-21T10%3A30%3A00Z&amp;environment=prod">prod</a>`, `href="/v1/environments?asOf=2026-11-21T10%3A30%3A00Z&amp;environment=prod"`,
		`<a href="/?asOf=2026-11-21T10%3A30%3A00Z&amp;environment=prod">All clusters of prod</a>`,
	} {
		require.Contains(t, html, want)
	}
	require.NotContains(t, html, "Paused by", "it was paused later")
}

func TestACanaryIsMeasuredByItself(t *testing.T) {
	require.Contains(t, ask(&fake{}, "/environments").Body.String(), `2 of 3 clusters compliant</span>, <span class="state" data-state="failed">1 failed</span>, 9 in rings that it has not reached, 4 without reports.</p>`)
}
