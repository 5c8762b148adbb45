package promote

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/e2e/doubles/forgetest"
	"github.com/wherry-dev/wherry/publisher/forge"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/rollout/content"
	"github.com/wherry-dev/wherry/scheduler/promotion"
)

func TestCommitsOfApplicationTeamsGetStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deploy("dev", w.first)
	w.forge.Commit("main", policyFile, policyOf("{content: {}}"))
	base := w.forge.Commit("main", "registration.yaml", fmt.Sprintf("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata: {name: shop}\nspec: {workload: {repo: %q, branch: main, path: .}, workspace: team}\n", w.forge.URL))
	w.pinByHand("stage", base)

	// What the environment has of a commit, what is new in another one, and a repository that a team names.
	of := func(repo, commit, version string) ledger.Revision {
		return ledger.Revision{Version: version, Source: ledger.Source{Repo: repo, Ref: "main", Commit: commit}, In: []ledger.Stay{{Since: w.now}}}
	}
	has, foreign := of(w.forge.URL, w.first, "1.0"), of("https://elsewhere.example/x", w.first, "1.0")
	next := content.Newer{Proof: ledger.Proof{Source: of(w.forge.URL, base, "").Source}, Version: "2.0"}
	decision := &content.Decision{Takes: []content.Take{
		{Key: ledger.Key{Registration: "shop", Workload: "cart"}, Entry: &has, Newer: []content.Newer{next}},
		{Key: ledger.Key{Registration: "shop", Workload: "menu"}, Entry: &foreign},
	}}
	var asked []string
	statuses := new(Statuses)
	pass := func() []string {
		t.Helper()
		p := w.promoter()
		p.Publish = func(context.Context, Publication) error { return nil }
		p.Content = func(context.Context, *platform.Loaded, promotion.Policy) (*content.Decision, error) {
			return decision, nil
		}
		p.Statuses = statuses
		access := p.Access
		p.Access = func(url string) Access {
			asked = append(asked, url)
			return access(url)
		}
		w.now = w.now.Add(time.Minute)
		all, err := p.Pass(t.Context(), Options{To: "stage", Now: w.now})
		require.NoError(t, err)
		require.NotEqual(t, Failed, all.Worst(), all.Results[0].Reason)
		return all.Results[0].Warnings
	}
	status := func(commit string) (all []string) {
		for _, s := range w.forge.Statuses(commit) {
			if s.Context == "wherry/content/stage" {
				all = append(all, s.State+": "+s.Description)
			}
		}
		return all
	}
	require.Equal(t, []string{"the commits of https://elsewhere.example/x get no status: the platform names no repository at its host, so no token is sent there"}, pass())
	require.NotContains(t, asked, "https://elsewhere.example/x")
	require.Equal(t, []string{"success: stage has cart 1.0"}, status(w.first))
	require.Equal(t, []string{"pending: cart 2.0 is in dev and not in stage yet"}, status(base))

	asked = nil
	require.Empty(t, pass(), "it was said")
	require.False(t, slices.Contains(asked, w.forge.URL), "nothing is new")

	// It comes, and the forge refuses.
	came := of(w.forge.URL, base, "2.0")
	decision.Takes[0].Entry, decision.Takes[0].Newer = &came, nil
	w.forge.Fail(forgetest.Fault{Route: "POST /api/v3/", Status: http.StatusForbidden})
	warnings := pass()
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], forge.ErrForbidden.Error())
	require.Empty(t, pass())
	require.Len(t, status(base), 1)
	statuses = new(Statuses) // of the next process
	pass()
	require.Equal(t, "success: stage has cart 2.0", status(base)[0])
}
