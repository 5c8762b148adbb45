package promotecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published/watch"
	"github.com/wherry-dev/wherry/rollout/advance"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/rollout/gate"
	"github.com/wherry-dev/wherry/rollout/promote"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

func TestAHubIsToldWhatGatesSayAndWhatWaits(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var p posted
	_, any := p.of(now)
	require.False(t, any, "no policy was read")
	p.note("coffee", promotion.Policy{
		Environment: "prod", Chain: []string{"dev", "prod"}, Rings: []string{"canary", "stable"},
		Groups: []promotion.Group{{Name: "leads", Members: []promotion.Member{{Name: "ben"}, {Name: "anna"}}}, {Name: "ops", Members: []promotion.Member{{Name: "ben"}}}},
	})
	p.verdicts([]promote.Result{
		{Environment: "prod", Verdict: &gate.Verdict{From: "dev", Commit: "c0ffee1", Result: gate.Wait, Rules: []gate.Rule{{Name: gate.RuleApprovals, Result: gate.Wait, Has: "0\nof them", Wants: strings.Repeat("a", 5000), Ends: now}}}},
		{Environment: "unknown", Verdict: &gate.Verdict{Result: gate.Pass}},
	})
	judge := p.ring(func(context.Context, advance.Ask) (gate.Verdict, error) { return gate.Verdict{Result: gate.Pass}, nil })
	_, err := judge(t.Context(), advance.Ask{Environment: "prod", Ring: "stable"})
	require.NoError(t, err)
	p.waits("prod", &content.Decision{Takes: []content.Take{
		{Key: ledger.Key{Registration: "shop", Workload: "till"}, Waits: "not proved in dev", Newer: []content.Newer{{Version: "2.0.0"}}},
		{Key: ledger.Key{Registration: "shop", Workload: "menu"}},
	}})

	all, any := p.of(now)
	require.True(t, any)
	require.NoError(t, all.Check(now), "a hub takes it")
	require.Equal(t, "coffee", all.Platform)
	require.Equal(t, now.Add(watch.ForReports), all.NextLook)
	require.Equal(t, "dev", all.Chain[0].Environment)
	prod := all.Chain[1]
	require.Equal(t, []string{"anna", "ben"}, prod.People)
	require.Equal(t, []store.WaitingWorkload{{Registration: "shop", Workload: "till", Version: "2.0.0", Why: "not proved in dev"}}, prod.Waits)
	require.Len(t, prod.Gates, 2)
	require.Equal(t, "0 of them", prod.Gates[0].Rules[0].Has)
	require.Equal(t, []string{"", "wait", "stable", "pass"}, []string{prod.Gates[0].Ring, prod.Gates[0].Result, prod.Gates[1].Ring, prod.Gates[1].Result})

	// What a hub would not take is left out, and counted.
	for i := range 9000 {
		prod.Waits = append(prod.Waits, store.WaitingWorkload{Registration: "shop", Workload: fmt.Sprint("till-", i), Why: strings.Repeat("a", 300)})
		prod.People = append(prod.People, fmt.Sprint("person-", i))
	}
	people, waits := len(prod.People), len(prod.Waits)
	all.Chain[1] = prod
	some := fitting(all)
	body, err := json.Marshal(some)
	require.NoError(t, err)
	require.LessOrEqual(t, len(body), store.MaxPromotion)
	require.NotEmpty(t, some.Chain[1].Waits)
	require.NotEmpty(t, some.Chain[1].People)
	require.Equal(t, []int{people, waits}, []int{len(some.Chain[1].People) + some.Chain[1].MorePeople, len(some.Chain[1].Waits) + some.Chain[1].MoreWaits})
	require.Len(t, all.Chain[1].Waits, waits, "it stays as it was")

	// It has the commit by now, all rings have it, and nothing waits.
	p.verdicts([]promote.Result{{Environment: "prod", State: promote.Current}})
	p.ring(judge)
	p.waits("prod", &content.Decision{})
	all, _ = p.of(now)
	require.Empty(t, all.Chain[1].Gates)
	require.Empty(t, all.Chain[1].Waits)
	require.Equal(t, now.Add(watch.ForAnything), all.NextLook)
}
