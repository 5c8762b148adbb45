package fleetcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// named is a hub with a cluster plant-7, a workload web, and both by the name of both.
func named() canned {
	return canned{
		clusters: func(q fleet.Query) (fleet.Clusters, error) {
			if q.Cluster == "plant-7" || q.Cluster == "both" || q.Cluster == "" {
				return fleet.Clusters{Clusters: []fleet.Cluster{cluster("plant-7", bundle.Compliant, "", time.Minute, store.ViaHTTP), cluster("both", bundle.Compliant, "", time.Minute, store.ViaHTTP)}}, nil
			}
			return fleet.Clusters{}, store.ErrUnknownCluster
		},
		counts: func(string, []string) (fleet.Counts, error) {
			return fleet.Counts{Rows: []fleet.Count{{Values: []string{"web"}}, {Values: []string{"both"}}}}, nil
		},
		history: func(q fleet.HistoryQuery) (fleet.History, error) {
			if q.Workload == "web" || q.Cluster == "plant-7" {
				return fleet.History{Changes: []fleet.HistoryRow{
					{
						At: noon.Add(-time.Hour), UID: "uid-plant-7", Cluster: "plant-7", Assignment: "web-main", Workload: "web", What: []string{"state", "version"},
						From: fleet.HistoryPoint{State: bundle.Compliant, Version: "1.3.0"}, To: fleet.HistoryPoint{State: bundle.Failed, Reason: "Unhealthy", Version: "1.4.0", ReleaseName: "12 (68846e7d)", BaseCommit: "3f2a9c1e77aa"}, Via: store.ViaMedia,
					},
					{
						At: noon.Add(-2 * time.Hour), UID: "uid-plant-7", Cluster: "plant-7", Assignment: "web-main", Workload: "web", What: []string{"version"}, Rollback: true,
						From: fleet.HistoryPoint{State: bundle.Compliant, Version: "1.4.0"}, To: fleet.HistoryPoint{State: bundle.Compliant, Version: "1.3.0"}, Via: store.ViaHTTP,
					},
					{
						At: noon.Add(-3 * time.Hour), UID: "uid-island", Cluster: "island", What: []string{"added"},
						To: fleet.HistoryPoint{State: bundle.Compliant}, Via: store.ViaHTTP,
					},
				}}, nil
			}
			return fleet.History{}, nil
		},
	}
}

func TestHistoryIsOfAWorkloadOrOfACluster(t *testing.T) {
	for _, args := range [][]string{{"web"}, {"plant-7"}, {"--workload", "web"}, {"--cluster", "plant-7"}, {"web", "--cluster", "both"}} {
		out, said, code := terminal{make: newHistoryCommand, answers: named()}.run(args...)
		require.Equal(t, cli.OK, code, said)
		require.Equal(t, `3 changes on 2 clusters · 1 to failed, 1 rollback
WHEN                  CLUSTER  ASSIGNMENT  CHANGE                                         RELEASE        COMMIT    VIA
2026-11-01 11:00 UTC  plant-7  web-main    compliant → failed (Unhealthy), 1.3.0 → 1.4.0  12 (68846e7d)  3f2a9c1e  medium
2026-11-01 10:00 UTC  plant-7  web-main    1.4.0 → 1.3.0, rollback                        -              -         link
2026-11-01 09:00 UTC  island   (agent)     added: compliant                               -              -         link
`, out, args)
	}
	_, said, code := terminal{make: newHistoryCommand, answers: named()}.run("both")
	require.Equal(t, cli.Usage, code)
	require.Contains(t, said, `"both" is a cluster and a workload`)
	require.Contains(t, said, "hint: give --cluster both or --workload both")
	_, said, code = terminal{make: newHistoryCommand, answers: named()}.run("wbe")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, said, `no cluster or workload "wbe"`)
	require.Contains(t, said, "did you mean web?")
	for want, args := range map[string][]string{
		"--since 1h is not before":          {"web", "--since", "1h", "--until", "2h"},
		`--since: "soon" is neither a time`: {"web", "--since", "soon"},
		`unexpected argument "x"`:           {"x", "--workload", "web", "--cluster", "plant-7"},
	} {
		_, said, code := terminal{make: newHistoryCommand, answers: named()}.run(args...)
		require.Equal(t, cli.Usage, code)
		require.Contains(t, said, want)
	}
}

func TestCompareExitsAsDiff(t *testing.T) {
	var sides []fleet.Side
	comparison := fleet.Comparison{Left: "stage", Right: "prod", Same: 3, Rows: []fleet.ComparisonRow{
		{Workload: "web", Target: "main", Differs: []string{"version"}, Left: []fleet.Variant{{Version: "1.4.0", Clusters: 2, Compliant: 2}}, Right: []fleet.Variant{{Version: "1.3.0", Clusters: 1204, Compliant: 1200}, {Version: "1.4.0", Clusters: 1}}},
		{Workload: "db", Target: "main", Differs: []string{"missing right"}, Left: []fleet.Variant{{Version: "9", Clusters: 1, Compliant: 1}}},
		{Workload: "x", Target: "main", Differs: []string{"config"}, Left: []fleet.Variant{{ConfigDigest: digestOf("aaaaaaaa1"), Clusters: 1, Compliant: 1}}, Right: []fleet.Variant{{Clusters: 1, Compliant: 1}}},
	}}
	answers := canned{compare: func(left, right fleet.Side) fleet.Comparison {
		sides = []fleet.Side{left, right}
		return comparison
	}}
	out, _, code := terminal{make: newCompareCommand, answers: answers}.run("stage", "prod", "--only-diff")
	require.Equal(t, cli.No, code)
	require.Equal(t, `stage and prod: 3 targets differ, 3 the same
WORKLOAD  TARGET  DIFFERS        stage                         prod
web       main    version        1.4.0 on 2 clusters           1.3.0 on 1,204 clusters (1,200 compliant), 1.4.0 on 1 cluster (0 compliant)
db        main    missing right  9 on 1 cluster                -
x         main    config         config aaaaaaaa on 1 cluster  config none on 1 cluster
`, out)
	comparison = fleet.Comparison{Left: "region=east", Right: "type=drone,asOf=24h", Same: 3}
	out, _, code = terminal{make: newCompareCommand, answers: answers}.run("region=east,gpu!=true", "type=drone,asOf=24h")
	require.Equal(t, cli.OK, code)
	require.Equal(t, "region=east and type=drone,asOf=24h: 0 targets differ, 3 the same\n", out)
	require.Equal(t, "region=east,gpu!=true", sides[0].Selector)
	require.Equal(t, fleet.Query{Type: "drone", AsOf: noon.Add(-24 * time.Hour)}, sides[1].Query)
	_, said, code := terminal{make: newCompareCommand, answers: answers}.run("type=drone,asOf=soon", "prod")
	require.Equal(t, cli.Usage, code)
	require.Contains(t, said, `"soon" is neither a time`)
}

func TestDriftIsANegativeAnswer(t *testing.T) {
	out, said, code := terminal{make: newDriftCommand, answers: canned{}}.run()
	require.Equal(t, cli.OK, code)
	require.Equal(t, "no drift\n", out)
	require.Empty(t, said)
	out, _, code = terminal{make: newDriftCommand, answers: canned{drifts: []fleet.Drift{
		{Cluster: "plant-7", Assignment: "web-main", Kind: "drifted", State: bundle.Drifted, Since: noon.Add(-time.Hour), Message: "Deployment web: replicas"},
		{Cluster: "plant-8", Kind: "behind", State: bundle.Compliant, Desired: "12 (68846e7d)", Running: "11 (abcdef01)"},
	}}}.run()
	require.Equal(t, cli.No, code)
	require.Equal(t, `2 differences from the desired state: 1 behind, 1 drifted
CLUSTER  ASSIGNMENT  KIND     STATE      DESIRED        RUNNING        SINCE   MESSAGE
plant-7  web-main    drifted  drifted    -              -              1h ago  Deployment web: replicas
plant-8  -           behind   compliant  12 (68846e7d)  11 (abcdef01)  -       -
`, out)
}

func TestDescribeAClusterThatIsSilent(t *testing.T) {
	c := cluster("island", store.Stale, bundle.Compliant, 31*24*time.Hour, store.ViaMedia)
	c.Labels, c.KeyIDs, c.ExpectedSeconds, c.Since = map[string]string{"region": "eu", "gpu": "true"}, []string{"k1"}, 30*24*3600, noon.Add(-40*24*time.Hour)
	c.Desired = &fleet.Desired{Relation: fleet.Behind, Behind: 2, BehindSince: noon.Add(-48 * time.Hour), Release: &bundle.ReportRelease{Digest: digestOf("68846e7d"), Number: 13}}
	answers := canned{
		clusters: func(q fleet.Query) (fleet.Clusters, error) {
			if q.Cluster != "island" && q.Cluster != "" {
				return fleet.Clusters{}, nil
			}
			return fleet.Clusters{Clusters: []fleet.Cluster{c}}, nil
		},
		deployments: func(fleet.Query) (fleet.Deployments, error) {
			return fleet.Deployments{Deployments: []fleet.Deployment{{
				DeploymentStatus: store.DeploymentStatus{Cluster: "island", Assignment: "web-main", Workload: "web", Target: "main", State: store.Stale, LastState: bundle.Compliant, Version: "1.4.0", Since: noon.Add(-40 * 24 * time.Hour)},
				Proof:            store.Proof{OccurredAt: noon.Add(-31 * 24 * time.Hour), ReceivedAt: noon, Via: store.ViaMedia},
			}}}, nil
		},
	}
	out, said, code := terminal{make: newDescribeCommand, answers: answers}.run("cluster", "island")
	require.Equal(t, cli.OK, code, said)
	require.Equal(t, `Cluster      island
UID          uid-island
Environment  prod
Type         drone
Labels       gpu=true,region=eu
Key          k1
Reports      expected every 30 days

State        stale (was compliant) · last heard 31 days ago by medium
Since        2026-09-22 12:00 UTC (40 days ago)
Last heard   2026-10-01 12:00 UTC (31 days ago), by medium
Runs         11 (abcdef01)
Desired      13 (68846e7d)
Relation     behind by 2 releases, since 2026-10-30 12:00 UTC (2 days ago)

1 deployment
ASSIGNMENT  STATE                  VERSION  SINCE    REASON
web-main    stale (was compliant)  1.4.0    40d ago  -

What to do
  bring its reports: wherry-agent reports export at the site, wherry hub import here
  if it is gone for good: wherry hub clusters retire island
`, out)
	out, _, _ = terminal{make: newDescribeCommand, answers: answers}.run("cluster", "island", "-o", "json")
	require.True(t, strings.HasPrefix(out, "{\n  \"cluster\": {\n"), out)
	require.Contains(t, out, `  "deployments": [`)
	out, _, _ = terminal{make: newDescribeCommand, answers: answers}.run("deployment", "island/web-main")
	require.Contains(t, out, "State        stale (was compliant) · last heard 31 days ago by medium\n")
	_, said, code = terminal{make: newDescribeCommand, answers: answers}.run("cluster", "islnad")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, said, `no cluster "islnad"`)
	require.Contains(t, said, "did you mean island?")
	_, said, code = terminal{make: newDescribeCommand, answers: answers}.run("deployment", "island/web")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, said, `cluster island has no deployment "web"`)
	for want, args := range map[string][]string{
		`"island" does not name a deployment`: {"deployment", "island"},
		`"island" does not name a report`:     {"report", "island"},
		`"drone:12" lacks the environment`:    {"release", "drone:12"},
		`name two streams`:                    {"release", "prod/drone:12", "-e", "dev"},
	} {
		_, said, code := terminal{make: newDescribeCommand, answers: answers}.run(args...)
		require.Equal(t, cli.Usage, code)
		require.Contains(t, said, want)
	}
}
