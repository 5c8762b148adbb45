package lint

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

// rosterOf is Cluster objects: each line a name, a ring and the rest of the spec.
func rosterOf(clusters ...string) string {
	var b strings.Builder
	for _, c := range clusters {
		name, spec, _ := strings.Cut(c, " ")
		b.WriteString("---\napiVersion: wherry.dev/v1alpha1\nkind: Cluster\nmetadata: {name: " + name + "}\nspec: {clusterType: edge, uid: u-" + name + ", publicKey: key-" + name + ", " + spec + "}\n")
	}
	return b.String()
}

func promotionPolicy(spec string) string {
	return "apiVersion: wherry.dev/v1alpha1\nkind: PromotionPolicy\nmetadata: {name: coffee}\nspec:\n" + spec
}

func modelOf(t *testing.T, environment, text string) *scheduler.Model {
	t.Helper()
	m := scheduler.NewModel(environment)
	require.NoError(t, load(m, "", "p.yaml", text))
	return m
}

func texts(found []finding.Finding) (all []string) {
	for _, f := range found {
		all = append(all, f.Code+" "+f.String())
	}
	return all
}

func TestGatesThatNobodyCanPass(t *testing.T) {
	gate := promotionPolicy("  chain: [dev, prod]\n  environments:\n    - name: prod\n      gate: {requiredClusters: {matchLabels: {pilot: \"true\"}}}\n")
	everyone := promotionPolicy("  chain: [dev, prod]\n  environments:\n    - name: prod\n      gate: {requiredClusters: {}}\n")
	for _, c := range []struct {
		name, prod, dev string
		want            []string
	}{
		{"a cluster has the label", gate, rosterOf(`a labels: {pilot: "true"}`), nil},
		{"no cluster has it", gate, rosterOf(`a labels: {pilto: "true"}`), []string{
			`E1021 p.yaml:8: requiredClusters of environment "prod" selects no Cluster of environment dev (none has a label pilot; did you mean "pilto"?)`,
		}},
		{"those of the environment itself do not count", gate + rosterOf(`a labels: {pilot: "true"}`), rosterOf(`b ring: x`), []string{
			`E1021 p.yaml:8: requiredClusters of environment "prod" selects no Cluster of environment dev (none has a label pilot)`,
		}},
		{"a hub may know them", gate, "", nil},
		{"none of them reports", gate, rosterOf(`a labels: {pilot: "true"}, reporting: none`, "b reporting: expected"), []string{
			`E1021 p.yaml:8: requiredClusters of environment "prod" selects clusters of environment dev that send no reports (reporting: none) (select clusters that report)`,
		}},
		{"one of them reports", gate, rosterOf(`a labels: {pilot: "true"}, reporting: none`, `b labels: {pilot: "true"}`), nil},
		{"the environment itself has clusters, and below there is none", gate + rosterOf(`a ring: x`), "", []string{
			`W1312 p.yaml:7: no Cluster of environment "dev" reports, so that nothing of an application team is ever proved for environment "prod" (add a Cluster of dev with "wherry roster add")`,
		}},
		{"a gate of numbers, and none below reports", promotionPolicy("  chain: [dev, prod]\n"), rosterOf("a reporting: none"), []string{
			`W1312 p.yaml:5: no Cluster of environment "dev" reports, so that nothing of an application team is ever proved for environment "prod" (add a Cluster of dev with "wherry roster add")`,
		}},
		{"content needs no proof", promotionPolicy("  chain: [dev, prod]\n  environments:\n    - name: prod\n      gate: {content: any}\n"), rosterOf("a reporting: none"), nil},
		{"all clusters", everyone, rosterOf("a ring: x"), nil},
		{"all clusters, and none reports", everyone, rosterOf("a reporting: none"), []string{
			`E1021 p.yaml:8: requiredClusters of environment "prod" selects clusters of environment dev that send no reports (reporting: none) (select clusters that report)`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			below := PromotionOf(modelOf(t, "dev", c.dev))
			prod := PromotionOf(modelOf(t, "prod", c.prod))
			require.Equal(t, "dev", prod.Below())
			require.Equal(t, c.want, texts(prod.AcrossEnvironments([]string{"dev", "prod"}, &below)))
			require.Empty(t, prod.AcrossEnvironments(nil, nil), "the environment below could not be read")
		})
	}
}

func TestEnvironmentsOfAPolicyThatNobodyHas(t *testing.T) {
	p := PromotionOf(modelOf(t, "prod", promotionPolicy("  chain: [dev, stage, prod]\n  environments:\n    - name: prod\n    - {name: prdo, gate: {}}\n")))
	require.Equal(t, []string{
		`E1020 p.yaml:5: PromotionPolicy "coffee" names environment "stage", which does not exist`,
		`E1020 p.yaml:8: PromotionPolicy "coffee" names environment "prdo", which does not exist (did you mean "prod"?)`,
	}, texts(p.AcrossEnvironments([]string{"dev", "prod"}, nil)))
	require.Empty(t, PromotionOf(modelOf(t, "dev", "")).AcrossEnvironments([]string{"dev"}, nil), "without a policy")
}

func TestAnEnvironmentOfAChainThatFollowsABranch(t *testing.T) {
	base := func(commit string) string {
		return "---\napiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata: {name: main}\nspec: {repo: https://example.com/p, branch: main, path: .," + commit + "}\n"
	}
	chain := promotionPolicy("  chain: [dev, prod]\n  gate: {content: any}\n")
	const follows = `W1023 p.yaml:8: environment "prod" gets each new commit of base "main" without a gate, although commits come to it from dev: its BaseRepo names no commit (write the commit that it is to have into spec.commit, which wherry promote moves from then on; or remove content: any)`
	for _, c := range []struct {
		name, environment, text string
		elsewhere               bool
		want                    []string
	}{
		{name: "no commit", environment: "prod", text: chain + base(""), want: []string{follows}},
		{name: "a commit", environment: "prod", text: chain + base("commit: 3f2a9c1")},
		{name: "a commit, and a base that is read from elsewhere", environment: "prod", text: chain + base("commit: 3f2a9c1"), elsewhere: true},
		{name: "the first of the chain", environment: "dev", text: chain + base("")},
		{name: "no chain", environment: "prod", text: base("")},
		{name: "a gate that holds content", environment: "prod", text: promotionPolicy("  chain: [dev, prod]\n") + base("")},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modelOf(t, c.environment, c.text)
			if c.elsewhere {
				m.ForgetBaseCommit()
			}
			report, err := Run(context.Background(), m, Options{})
			require.NoError(t, err)
			var got []string
			for _, f := range texts(report.Findings) {
				if strings.HasPrefix(f, finding.CodeUnpinnedBase) {
					got = append(got, f)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAGateThatLetsAllContentIn(t *testing.T) {
	gate := func(gate string) string {
		return promotionPolicy("  chain: [dev, prod]\n  gate: {content: " + gate + "}\n")
	}
	for _, c := range []struct{ environment, text, want string }{
		{"prod", gate("any"), `N1024 p.yaml:6: environment "prod" gets what application teams deliver without a proof of dev (remove it, and name workloads that cannot be proved in content.exempt)`},
		{"dev", gate("any"), ""},
		{"prod", gate("{}"), ""},
		{"prod", promotionPolicy("  chain: [dev, prod]\n"), ""},
		{"prod", promotionPolicy("  environments: [{name: prod, gate: {content: any}}]\n"), ""},
	} {
		report, err := Run(context.Background(), modelOf(t, c.environment, c.text), Options{})
		require.NoError(t, err)
		var got string
		for _, f := range texts(report.Findings) {
			if strings.HasPrefix(f, finding.CodeContentAny) {
				got += f
			}
		}
		require.Equal(t, c.want, got, c.text)
	}
}

func TestRingGatesThatNobodyCanPass(t *testing.T) {
	policy := func(fields string) string {
		return promotionPolicy("  environments:\n    - name: dev\n      rings: [canary, wide]\n      " + fields + "\n")
	}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"the first ring has a cluster", policy("ringGate: {soak: 1h}") + rosterOf("a ring: canary"), nil},
		{"the first ring has none", policy("ringGate: {soak: 1h}") + rosterOf("a ring: wide", "b labels: {}"), []string{
			`E1021 p.yaml:6: no Cluster of environment "dev" is in ring "canary", so that ring "wide" can never get a release by the gate (give a Cluster that ring, or set allowEmptyCohort of the ringGate)`,
		}},
		{"the first ring has none, and need not", policy("ringGate: {allowEmptyCohort: true}") + rosterOf("a ring: wide"), nil},
		{"by the gate of the environment", policy("gate: {soak: 1h}") + rosterOf("a ring: wide"), []string{`E1021 p.yaml:6: no Cluster of environment "dev" is in ring "canary"`}},
		{"rings without a gate, as before there were any", policy("") + rosterOf("a ring: wide"), nil},
		{"a hub may know the clusters", policy("ringGate: {soak: 1h}"), nil},
		{"one ring", promotionPolicy("  environments: [{name: dev, rings: [canary], ringGate: {}}]\n") + rosterOf("a ring: wide"), nil},
		{
			"required clusters that come later", policy(`ringGate: {requiredClusters: {matchLabels: {pilot: "true"}}}`) + rosterOf("a ring: canary", `b labels: {pilot: "true"}, ring: wide`),
			[]string{`E1021 p.yaml:8: requiredClusters of environment "dev" selects no Cluster of ring canary`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := Run(context.Background(), modelOf(t, "dev", c.text), Options{})
			require.NoError(t, err)
			var got []string
			for _, f := range report.Findings {
				if f.Code == finding.CodeUnreachable {
					got = append(got, f.Code+" "+f.String())
				}
			}
			require.Len(t, got, len(c.want), "%v", got)
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}
