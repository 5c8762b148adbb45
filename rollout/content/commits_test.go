package content_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/rollout/content"
)

func TestHowFarCommitsAre(t *testing.T) {
	of := func(version string, p content.Progress, workloads ...string) content.Commit {
		return content.Commit{Repo: "https://git.example/shop", ID: "commit of " + version, Progress: p, Workloads: workloads}
	}
	s := usual()
	_, d := s.decide()
	require.Equal(t, []content.Commit{of("1.0", content.Arrived, "cart 1.0"), of("2.0", content.Coming, "cart 2.0")}, d.Commits(ago(100)))
	require.Equal(t, []content.Commit{of("2.0", content.Coming, "cart 2.0")}, d.Commits(ago(80)), "1.0 came before that")
	require.Equal(t, "cart 2.0 is in stage and not in prod yet", d.Commits(ago(80))[0].Text("prod", "stage"))

	s = usual()
	s.Decisions = []content.Decided{anna(bundle.Reject)}
	_, d = s.decide()
	require.Equal(t, []content.Commit{of("2.0", content.KeptOut, "cart 2.0")}, d.Commits(ago(80)))
	require.Equal(t, "cart 2.0 is in stage and kept out of prod: see wherry gate check", d.Commits(ago(80))[0].Text("prod", "stage"))

	// Of a commit with several workloads the worst counts.
	s = usual()
	menu := ledger.Key{Registration: "shop", Workload: "menu"}
	s.Own.Workloads = []ledger.Workload{{Key: menu, Revisions: []ledger.Revision{revision("prod", "2.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1"})}}}
	_, d = s.decide()
	require.Equal(t, []content.Commit{of("2.0", content.Coming, "cart 2.0")}, d.Commits(ago(80)))
	other := s.Own.Workloads[:1]
	s = usual()
	s.Own.Workloads = other
	s.prod.Revisions = []ledger.Revision{revision("prod", "2.0", ledger.Stay{Since: ago(1), Record: rec(1), BaseCommit: "b1", From: from("2.0", 10)})}
	_, d = s.decide()
	require.Equal(t, "prod has 2 workloads", d.Commits(ago(80))[0].Text("prod", "stage"))

	s = usual()
	s.Policy.Gate.Content.Exempt.Workloads = []string{"shop/cart"}
	_, d = s.decide()
	require.Empty(t, d.Commits(ago(80)), "stage is not asked")
}
