package manage_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// judged returns what a judge posts about a chain of three environments whose names say nothing of their order, of which the hub has records.
func judged(now time.Time) store.Promotion {
	return store.Promotion{Platform: "coffee", JudgedAt: now, NextLook: now.Add(5 * time.Minute), Version: "v1.2.3", Chain: []store.JudgedEnvironment{
		{Environment: "prod"},
		{
			Environment: "dev", People: []string{"anna", "ben"}, Rings: []string{"canary", "stable"},
			Gates: []store.JudgedGate{
				{From: "prod", Commit: "abcdef0123", Result: store.GateWaits, Rules: []store.JudgedRule{
					{Rule: "approvals", Result: store.GateWaits, Has: "0", Wants: "2 of leads"},
					{Rule: "soak", Result: store.GatePasses, Has: "1h"},
				}},
				{Ring: "stable", From: "canary", Result: store.GatePasses},
			},
			Waits: []store.WaitingWorkload{{Registration: "shop", Workload: "till", Version: "2.0.0", Why: "not proved in prod"}},
		},
		{Environment: "stage"},
	}}
}

func TestAJudgePostsWhatGatesSay(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h, err := hub.Open(t.TempDir(), hub.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer h.Close()
	root, publisher := login(t, h, "root", access.Admin, store.AccessScope{}), login(t, h, "ci", access.Publisher, store.AccessScope{})
	for _, environment := range []string{"dev", "prod", "stage"} {
		c := cluster(t, "box-"+environment, environment, "eu")
		c.Platform = "coffee"
		require.Equal(t, "200", root.do("POST", "/v1/clusters", c, nil))
	}
	var posted store.PostedPromotion
	require.Equal(t, "200", publisher.do("PUT", "/v1/promotion", judged(now), &posted))
	require.Equal(t, store.PostedPromotion{New: true, Changed: true}, posted)

	names := func(u user) (all []string) {
		var list fleet.Environments
		require.Equal(t, "200", u.do("GET", "/v1/environments", nil, &list))
		for _, e := range list.Environments {
			all = append(all, e.Environment)
		}
		return all
	}
	of := func(u user) *fleet.Judged {
		var list fleet.Environments
		require.Equal(t, "200", u.do("GET", "/v1/environments?environment=dev", nil, &list))
		return list.Environments[0].Judged
	}
	require.Equal(t, []string{"prod", "dev", "stage"}, names(root), "in the order of the chain")
	got := of(root)
	require.Equal(t, judged(now).Chain[1], got.JudgedEnvironment)
	require.False(t, got.Old)

	// A scope sees what it has, and nothing of the environment before.
	narrow := login(t, h, "narrow", access.Viewer, store.AccessScope{Environments: []string{"dev", "stage"}})
	got = of(narrow)
	require.Equal(t, []string{"dev", "stage"}, names(narrow))
	require.Equal(t, []store.JudgedGate{{Ring: "stable", From: "canary", Result: store.GatePasses}}, got.Gates)
	require.Empty(t, got.Waits)
	require.Empty(t, got.People)
	both := login(t, h, "both", access.Viewer, store.AccessScope{Environments: []string{"dev", "prod"}})
	require.Equal(t, judged(now).Chain[1], of(both).JudgedEnvironment)
	require.Nil(t, of(login(t, h, "part", access.Viewer, store.AccessScope{Selector: "region=eu"})))

	// A token for a part of the platform's chain replaces none of it.
	part := login(t, h, "ci-prod", access.Publisher, store.AccessScope{Environments: []string{"prod"}})
	own := store.Promotion{Platform: "coffee", JudgedAt: now.Add(time.Second), NextLook: now.Add(time.Minute), Chain: []store.JudgedEnvironment{{Environment: "prod"}}}
	require.Equal(t, "403 Forbidden", part.do("PUT", "/v1/promotion", own, nil))

	// After two looks it is old.
	now = now.Add(10*time.Minute + time.Second)
	require.True(t, of(root).Old)
	now = now.Add(time.Minute)
	again := judged(now)
	again.Chain[1].Gates[0].Rules[1].Has, again.Chain[1].Waits[0].Why = "1h10m", "not proved in prod for 1h10m"
	require.Equal(t, "200", publisher.do("PUT", "/v1/promotion", again, &posted))
	require.Equal(t, store.PostedPromotion{New: true}, posted, "only what goes on with time differs")
	require.False(t, of(root).Old)
	require.Equal(t, "200", publisher.do("PUT", "/v1/promotion", judged(now.Add(-time.Minute)), &posted))
	require.Zero(t, posted, "a later one is there")

	again.JudgedAt, again.Chain[1].Gates[0].Result = now.Add(time.Second), store.GatePasses
	require.Equal(t, "200", publisher.do("PUT", "/v1/promotion", again, nil))
	require.Equal(t, []string{"promotion", "promotion"}, kindsOf(t, root), "a look that finds the same marks no page")
	require.Empty(t, kindsOf(t, narrow), "it is about the whole chain")
}

// kindsOf returns the kinds of the stored events about what judges post, as the stream of a page has them.
func kindsOf(t *testing.T, u user) (kinds []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequest(http.MethodGet, "/v1/events?after=0&follow=false", nil).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+u.token)
	w := httptest.NewRecorder()
	u.hub.Handler().ServeHTTP(w, r)
	lines := bufio.NewScanner(w.Body)
	for lines.Scan() {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok && kind == fleet.EventPromotion {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func TestABoundedPromotionIsTaken(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h, err := hub.Open(t.TempDir(), hub.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer h.Close()
	publisher := login(t, h, "ci", access.Publisher, store.AccessScope{})
	with := func(change func(*store.Promotion)) string {
		p := judged(now)
		change(&p)
		return publisher.do("PUT", "/v1/promotion", p, nil)
	}
	people := func(n int) func(*store.Promotion) {
		return func(p *store.Promotion) {
			for i := range n {
				p.Chain[1].People = append(p.Chain[1].People, fmt.Sprintf("person-%d-of-%s@example.com", i, strings.Repeat("a", 150)))
			}
		}
	}
	require.Equal(t, "200", with(people(500)), "more than other requests may have")
	require.Equal(t, "413 TooLarge", with(people(6000)))
	for name, change := range map[string]func(*store.Promotion){
		"no platform":             func(p *store.Promotion) { p.Platform = "" },
		"no chain":                func(p *store.Promotion) { p.Chain = nil },
		"an environment is twice": func(p *store.Promotion) { p.Chain[0].Environment = "dev" },
		"another result":          func(p *store.Promotion) { p.Chain[1].Gates[0].Result = "maybe" },
		"of tomorrow":             func(p *store.Promotion) { p.JudgedAt = now.Add(24 * time.Hour); p.NextLook = p.JudgedAt },
		"the next look was":       func(p *store.Promotion) { p.NextLook = now.Add(-time.Hour) },
		"control characters":      func(p *store.Promotion) { p.Chain[1].Waits[0].Why = "\x1b[2J" },
		"a long text":             func(p *store.Promotion) { p.Chain[1].Waits[0].Why = strings.Repeat("a", 2000) },
		"a workload without name": func(p *store.Promotion) { p.Chain[1].Waits[0].Workload = "" },
	} {
		require.Equal(t, "400 BadRequest", with(change), name)
	}
	part := login(t, h, "part", access.Publisher, store.AccessScope{Environments: []string{"dev"}})
	require.Equal(t, "403 Forbidden", part.do("PUT", "/v1/promotion", judged(now), nil))
}
